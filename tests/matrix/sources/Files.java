import java.io.*;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.*;

/** Files MODE FILE: copies FILE to standard output (stream, lines, mmap), or standard input to FILE (write, mapped). */
class Files {
    public static void main(String[] arguments) throws Exception {
        Path path = Path.of(arguments[1]);
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false);
        switch (arguments[0]) {
            case "stream" -> {
                try (InputStream in = new FileInputStream(path.toFile())) {
                    in.transferTo(out);
                }
            }
            case "lines" -> {
                try (BufferedReader in = java.nio.file.Files.newBufferedReader(path)) {
                    for (String line = in.readLine(); line != null; line = in.readLine()) out.print(line + "\n");
                }
            }
            case "mmap" -> {
                try (FileChannel in = FileChannel.open(path)) {
                    byte[] data = new byte[(int) in.size()];
                    in.map(MapMode.READ_ONLY, 0, Math.max(1, in.size())).get(data);
                    out.write(data);
                }
            }
            case "write" -> {
                try (OutputStream to = new FileOutputStream(path.toFile())) {
                    System.in.transferTo(to);
                }
            }
            case "mapped" -> {
                byte[] data = System.in.readAllBytes();
                try (RandomAccessFile to = new RandomAccessFile(path.toFile(), "rw")) {
                    MappedByteBuffer map = to.getChannel().map(MapMode.READ_WRITE, 0, data.length);
                    Thread.sleep(100);
                    map.put(data);
                    map.force();
                }
            }
            default -> System.exit(2);
        }
        out.flush();
    }
}
