//! `sfio-node excerpt`: makes a file of the first bytes of another one, which is as complete as that.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use flate2::Compression;
use serde::Serialize;

use crate::protocol::json;

/// Exit codes.
const MADE: i32 = 0;
const FAILED: i32 = 1;

/// The first bytes of a file compressed by gzip (RFC 1952), or by bgzip, which makes many members.
const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
/// The most decompressed bytes for each compressed byte.
const MOST_TIMES: u64 = 64;
/// The most bytes that may follow the last line.
const LONGEST_LINE: u64 = 1 << 20;

#[derive(Serialize)]
struct Made {
    bytes: u64,
}

/// Makes the file, and prints how many bytes it has.
///
/// # Arguments
/// * `of` - the whole file
/// * `to` - the new file, which must not exist
/// * `bytes` - the most bytes of the whole file that are used
///
/// The new file ends where a line ends, if one does shortly before `bytes`. If the whole file is compressed by gzip or
/// bgzip, the new one is compressed by gzip, and can be read to its end.
pub fn run(of: &Path, to: &Path, bytes: u64) -> i32 {
    let said = make(of, to, bytes).and_then(|bytes| writeln!(io::stdout(), "{}", json::write(&Made { bytes })));
    match said {
        Ok(()) => MADE,
        Err(error) => {
            eprintln!("{}: no file with its first bytes can be made: {error}", of.display());
            FAILED
        }
    }
}

fn make(of: &Path, to: &Path, bytes: u64) -> io::Result<u64> {
    let mut from = File::open(of)?;
    let mode = from.metadata()?.permissions();
    let mut made = File::options().write(true).create_new(true).open(to)?;
    let mut magic = [0; GZIP.len()];
    let is_compressed = from.read_exact_at(&mut magic, 0).is_ok() && magic == GZIP;
    if !(is_compressed && compress_again(&from, &mut made, bytes)?) {
        from.rewind()?;
        let length = to_last_line(&mut (&from).take(bytes))?;
        from.rewind()?;
        made.set_len(0)?;
        made.rewind()?;
        io::copy(&mut from.take(length), &mut made)?;
    }
    fs::set_permissions(to, mode)?;
    Ok(made.metadata()?.len())
}

/// Compresses again what the first bytes of a file contain.
///
/// # Returns
/// False if they contain nothing to decompress. Bytes may have been written even then.
fn compress_again(mut from: &File, to: &mut File, bytes: u64) -> io::Result<bool> {
    let mut decompressed = |length: u64| -> io::Result<_> {
        from.rewind()?;
        Ok(Partial(MultiGzDecoder::new(BufReader::new(from.take(bytes)))).take(length))
    };
    let length = to_last_line(&mut decompressed(MOST_TIMES.saturating_mul(bytes))?)?;
    let mut encoder = GzEncoder::new(to, Compression::default());
    io::copy(&mut decompressed(length)?, &mut encoder)?;
    encoder.finish()?;
    Ok(length > 0)
}

/// Returns where the last line ends, or the number of bytes if no line ends shortly before their end.
fn to_last_line(of: &mut impl Read) -> io::Result<u64> {
    let (mut length, mut line) = (0, 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let got = of.read(&mut buffer)?;
        if got == 0 {
            return Ok(if line > 0 && length - line < LONGEST_LINE { line } else { length });
        }
        if let Some(at) = memchr::memrchr(b'\n', &buffer[..got]) {
            line = length + at as u64 + 1;
        }
        length += got as u64;
    }
}

/// A reader that takes a premature end for the end.
struct Partial<R>(R);

impl<R: Read> Read for Partial<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(0),
            read => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first bytes of a file.
    fn excerpt(content: &[u8], bytes: u64) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let (of, to) = (directory.path().join("of"), directory.path().join("to"));
        fs::write(&of, content).unwrap();
        let length = make(&of, &to, bytes).unwrap();
        let made = fs::read(&to).unwrap();
        assert_eq!(made.len() as u64, length);
        assert!(make(&of, &to, 1).is_err(), "what is there stays");
        made
    }

    fn decompressed(content: &[u8]) -> Vec<u8> {
        let mut found = Vec::new();
        MultiGzDecoder::new(content).read_to_end(&mut found).unwrap();
        found
    }

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn lines() -> Vec<u8> {
        (0..100_000_u64)
            .map(|line| format!("{}\n", line.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
            .collect::<String>()
            .into()
    }

    #[test]
    fn it_ends_where_a_line_ends() {
        for (content, bytes, expected) in [
            ("one\ntwo\nthree\n", 10, "one\ntwo\n"),
            ("one\ntwo\nthree\n", 8, "one\ntwo\n"),
            ("one\ntwo\nthree\n", 7, "one\n"),
            ("one\ntwo\nthree", 99, "one\ntwo\n"),
            ("no line", 4, "no l"),
            ("", 4, ""),
        ] {
            assert_eq!(excerpt(content.as_bytes(), bytes), expected.as_bytes());
        }
    }

    #[test]
    fn a_line_is_not_looked_for_too_far_away() {
        let mut content = b"line\n".to_vec();
        content.resize(3 << 20, 0);
        assert_eq!(excerpt(&content, 2 << 20), &content[..2 << 20]);
    }

    #[test]
    fn gzip_ends_where_a_line_ends() {
        let content = lines();
        let whole = gzip(&content);
        let two = [gzip(&content[..1000]), gzip(&content[1000..])].concat();
        for file in [whole, two] {
            let made = excerpt(&file, 100_000);
            assert!((50_000..150_000).contains(&made.len()), "{}", made.len());
            let found = decompressed(&made);
            assert!(content.starts_with(&found) && found.ends_with(b"\n") && found.len() > 100_000);
        }
    }

    #[test]
    fn what_has_no_lines_ends_somewhere() {
        let content: Vec<u8> = lines().into_iter().filter(|byte| *byte != b'\n').collect();
        let found = decompressed(&excerpt(&gzip(&content), 100_000));
        assert!(content.starts_with(&found) && found.len() > 100_000);
    }

    #[test]
    fn what_cannot_be_decompressed_stays_as_it_is() {
        for content in [&b"\x1f\x8b"[..], b"\x1f\x8b\x08 and no more", b"\x1f\x8b\x09 another method"] {
            assert_eq!(excerpt(content, 9), &content[..content.len().min(9)], "{content:?}");
        }
        let line = gzip(b"a line\n");
        assert_eq!(excerpt(&line, 3), &line[..3]);
    }
}
