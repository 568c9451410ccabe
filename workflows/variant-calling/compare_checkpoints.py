#!/usr/bin/env python3
"""Compare the results of two runs of checkpoints.cwl, without what names commands, paths or dates.

    compare_checkpoints.py FIRST SECOND

FIRST and SECOND are two directories. Of samples.vcf and of the files in each checkpoint (*.tar) counts what compare.py
lets count; of BCF files it is the same as of VCF files; reads count as they are.

Exit codes: 0 identical, 1 different (the first difference of each file is printed), 2 cannot be compared.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import compare
from compare import CompareError


def bcf_lines(path: Path) -> Iterator[bytes]:
    """Yield what counts of the header lines of an uncompressed BCF file, then its records in one piece.

    The layout is that of the VCF specification, 6 (BCF).

    Raises:
        CompareError: the file is no uncompressed BCF file.
    """
    with path.open("rb") as stream:
        start = stream.read(9)
        if len(start) != 9 or not start.startswith(b"BCF\2"):
            raise CompareError(f"{path.name}: not an uncompressed BCF file")
        header = stream.read(struct.unpack("<I", start[5:])[0])
        yield from (line for line in header.splitlines() if not compare.VCF_VOLATILE.match(line))
        yield stream.read()


def member_lines(path: Path) -> Iterator[bytes]:
    """Yield what counts of a file of a checkpoint.

    Raises:
        CompareError: it is damaged.
    """
    if path.name.endswith(compare.SUFFIXES):
        yield from compare.lines(path)
    elif path.suffix == ".bcf":
        yield from bcf_lines(path)
    else:
        yield from path.read_bytes().splitlines(keepends=True)


def lines(path: Path) -> Iterator[bytes]:
    """Yield what counts of a result: a VCF file, or a checkpoint with the names of its files.

    Raises:
        CompareError: it cannot be read.
    """
    if path.suffix != ".tar":
        yield from compare.lines(path)
        return
    try:
        with tarfile.open(path, "r:") as archive, tempfile.TemporaryDirectory() as scratch:
            for member in archive:
                content = archive.extractfile(member)
                target = Path(scratch) / Path(member.name).name
                if content is None:
                    raise CompareError(f"{path}: {member.name} is no file")
                with target.open("wb") as copy:
                    shutil.copyfileobj(content, copy)
                yield member.name.encode()
                yield from member_lines(target)
    except (OSError, tarfile.TarError) as error:
        raise CompareError(f"{path}: {error}") from error


def results(directory: Path) -> dict[str, Path]:
    """Return the results in a directory, by name.

    Raises:
        CompareError: it holds none.
    """
    found = {path.name: path for path in sorted(directory.glob("*")) if path.suffix in (".tar", ".vcf")}
    if not found:
        raise CompareError(f"{directory}: no directory with *.tar and *.vcf")
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code."""
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    different = 0
    try:
        first, second = (results(Path(argument)) for argument in arguments)
        if first.keys() != second.keys():
            raise CompareError(f"only in one of them: {', '.join(sorted(first.keys() ^ second.keys()))}")
        for name in first:
            pairs = enumerate(zip_longest(lines(first[name]), lines(second[name])), start=1)
            if (number := next((number for number, (one, other) in pairs if one != other), None)) is not None:
                print(f"{first[name]} and {second[name]} differ at line or record {number}")
                different += 1
    except CompareError as error:
        print(f"compare_checkpoints.py: {error}", file=sys.stderr)
        return 2
    if not different:
        print(f"identical: {len(first)} files")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
