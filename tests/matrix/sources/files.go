// files MODE FILE: copies FILE to standard output (read, lines, mmap), or standard input to FILE (write).
package main

import (
	"bufio"
	"io"
	"os"
	"syscall"
)

func check(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

func main() {
	mode, name := os.Args[1], os.Args[2]
	if mode == "write" {
		file, err := os.Create(name)
		check(err)
		_, err = io.Copy(file, os.Stdin)
		check(err)
		check(file.Close())
		return
	}
	file, err := os.Open(name)
	check(err)
	switch mode {
	case "read":
		_, err = io.Copy(os.Stdout, file)
		check(err)
	case "lines":
		lines, out := bufio.NewScanner(file), bufio.NewWriter(os.Stdout)
		for lines.Scan() {
			out.WriteString(lines.Text() + "\n")
		}
		check(lines.Err())
		check(out.Flush())
	case "mmap":
		status, err := file.Stat()
		check(err)
		data, err := syscall.Mmap(int(file.Fd()), 0, int(status.Size()), syscall.PROT_READ, syscall.MAP_PRIVATE)
		check(err)
		_, err = os.Stdout.Write(data)
		check(err)
	}
}
