#!/usr/bin/env python3
"""Compare two results of the variant-calling template, without what names commands, paths or dates.

    compare.py FIRST SECOND

FIRST and SECOND are two files (.vcf, .vcf.gz, .sam, .bam), or two directories whose files of these kinds are
compared by name. Headers and records count, except: of VCF, the header lines `##…Command=`, `##…Version=`,
`##fileDate=` and `##reference=`; of SAM and BAM, the header lines `@PG` and `@CO`.

Exit codes: 0 identical, 1 different (the first difference of each file is printed), 2 cannot be compared.
"""

from __future__ import annotations

import gzip
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from itertools import zip_longest
from pathlib import Path

SUFFIXES = (".vcf", ".vcf.gz", ".sam", ".bam")
VCF_VOLATILE = re.compile(rb"##(\w*Command|\w*Version|fileDate|reference)=")
SAM_VOLATILE = re.compile(rb"@(PG|CO)\t")


class CompareError(Exception):
    """The two cannot be compared; the message says which and why."""


def bam_lines(stream: BufferedIOBase, path: Path) -> Iterator[bytes]:
    """Yield the header lines of a BAM file, then its reference sequences and its records as they are stored.

    The layout is that of the SAM/BAM specification, 4.2.

    Raises:
        CompareError: the file is no BAM file or is cut short.
    """

    def take(count: int) -> bytes:
        data = stream.read(count)
        if len(data) != count:
            raise CompareError(f"{path}: cut short")
        return data

    if take(4) != b"BAM\1":
        raise CompareError(f"{path}: not a BAM file")
    (text_length,) = struct.unpack("<i", take(4))
    yield from take(text_length).rstrip(b"\0").splitlines()
    (references,) = struct.unpack("<i", take(4))
    for _ in range(references):
        (name_length,) = struct.unpack("<i", take(4))
        yield take(name_length + 4)
    while size := stream.read(4):
        if len(size) != 4:
            raise CompareError(f"{path}: cut short")
        yield take(struct.unpack("<i", size)[0])


def lines(path: Path) -> Iterator[bytes]:
    """Yield what counts of a file: its header lines without the volatile ones, then its records.

    Raises:
        CompareError: the file is of no known kind, cannot be read, or is damaged.
    """
    volatile = VCF_VOLATILE if ".vcf" in path.suffixes[-2:] else SAM_VOLATILE
    compressed = path.suffix in (".gz", ".bam")
    if not path.name.endswith(SUFFIXES):
        raise CompareError(f"{path}: not one of {', '.join(SUFFIXES)}")
    try:
        with gzip.open(path) if compressed else path.open("rb") as stream:
            for line in bam_lines(stream, path) if path.suffix == ".bam" else stream:
                if not volatile.match(line):
                    yield line
    except (OSError, EOFError) as error:
        raise CompareError(f"{path}: {error}") from error


def difference(first: Path, second: Path) -> str | None:
    """Return a description of the first difference of two files, None if there is none.

    Raises:
        CompareError: one of them cannot be read.
    """
    for number, (one, other) in enumerate(zip_longest(lines(first), lines(second)), start=1):
        if one != other:
            return f"{first} and {second} differ at line or record {number}:\n  {one!r}\n  {other!r}"
    return None


def pairs(first: Path, second: Path) -> list[tuple[Path, Path]]:
    """Return the files to compare: the two, or what two directories hold under the same names.

    Raises:
        CompareError: one does not exist, or a directory lacks a file of the other, or both hold none.
    """
    for path in (first, second):
        if not path.exists():
            raise CompareError(f"{path}: no such file or directory")
    if not (first.is_dir() and second.is_dir()):
        return [(first, second)]
    names, others = (
        sorted(path.name for path in directory.iterdir() if path.name.endswith(SUFFIXES))
        for directory in (first, second)
    )
    if names != others or not names:
        raise CompareError(f"{first} holds {names}, {second} holds {others}")
    return [(first / name, second / name) for name in names]


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        compared = pairs(Path(arguments[0]), Path(arguments[1]))
        differences = [found for one, other in compared if (found := difference(one, other)) is not None]
    except CompareError as error:
        print(f"compare.py: {error}", file=sys.stderr)
        return 2
    for found in differences:
        print(found)
    if not differences:
        print("identical: " + ", ".join(first.name for first, _ in compared))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
