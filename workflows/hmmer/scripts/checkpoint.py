"""Write a checkpoint: copies of files in one archive, complete and on the disk when this ends.

    checkpoint.py CHECKPOINT FILE... [--multiple BYTES]

A checkpoint is an uncompressed tar archive: `tar --extract --file CHECKPOINT` gives the files back. Its bytes depend on
the names and contents of the files alone. It gets its name when it is whole and synchronised (fsync), so that a file of
that name is always a complete checkpoint. Zeros after its end, which tar ignores, make its size a multiple of BYTES.
"""

from __future__ import annotations

import argparse
import os
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO


def write_archive(stream: BinaryIO, files: Sequence[Path], multiple: int) -> None:
    """Write the files under their base names, without owners and times, then zeros up to a multiple of bytes.

    Raises:
        OSError: a file cannot be read or the stream not be written.
        ValueError: two files have the same name.
    """
    if len({path.name for path in files}) < len(files):
        raise ValueError("two files have the same name")
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in files:
            with path.open("rb") as source:
                member = tarfile.TarInfo(path.name)
                member.size = os.fstat(source.fileno()).st_size
                archive.addfile(member, source)
    stream.write(bytes(-stream.tell() % multiple))


def write_checkpoint(checkpoint: Path, files: Sequence[Path], multiple: int) -> None:
    """Write the archive and its name to the disk; nothing is left if that fails.

    Raises:
        OSError, ValueError: as `write_archive`.
    """
    temporary = checkpoint.with_name(f".{checkpoint.name}.part")
    try:
        with temporary.open("wb") as stream:
            write_archive(stream, files, multiple)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(checkpoint)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(checkpoint.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def main() -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description="Write files into one archive and synchronise it.")
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--multiple", type=int, default=tarfile.RECORDSIZE, metavar="BYTES")
    options = parser.parse_args()
    if options.multiple < 1:
        parser.error("--multiple: at least 1")
    try:
        write_checkpoint(options.checkpoint, options.files, options.multiple)
    except (OSError, ValueError) as error:
        print(f"checkpoint.py: {options.checkpoint}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
