"""Split a file into parts of whole records, or say where it would be cut.

    partition.py FILE --records fastq --every 50000 --names chunk-%04d.fq

Writes the parts to the working directory, and their list to cwl.output.json (`parts`). Where the variable SFIO_PARTS
names a file, as StreamFlow-IO sets it, no part is written: it gets a line of JSON for each, as soon as it is known,
with its places in FILE. For other steps copy this file: it needs nothing but Python.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO

MIB = 1 << 20
Extent = tuple[int, int]  # offset and length


class PartitionError(Exception):
    """The file cannot be split as asked; the message says why."""


@dataclass(frozen=True)
class Records:
    """What a file is made of.

    :ivar lines: of each record; 0: it has no lines
    :ivar begin: a record begins at each line that begins so, instead
    :ivar header: all lines at the beginning that begin so are the header, which each part has
    :ivar header_lines: so many lines are
    """

    lines: int = 1
    begin: bytes = b""
    header: bytes = b""
    header_lines: int = 0


# From the file, what it is made of, its header, its size, and how much is wanted, to the parts.
Cut = Callable[[BinaryIO, Records, int, int, int], Iterator[Extent]]

RECORDS = {
    "bytes": Records(lines=0),
    "lines": Records(),
    "csv": Records(header_lines=1),
    "fasta": Records(begin=b">"),
    "fastq": Records(lines=4),
    "sam": Records(header=b"@"),
    "vcf": Records(header=b"#"),
}


def header_size(file: BinaryIO, records: Records) -> int:
    """Bytes of the header at the beginning of a file."""
    file.seek(0)
    size = 0
    for number, line in enumerate(file):
        if number >= records.header_lines and not (records.header and line.startswith(records.header)):
            break
        size += len(line)
    return size


def starts(file: BinaryIO, records: Records, header: int) -> Iterator[int]:
    """Where records begin, in order. Reads all of the file."""
    file.seek(header)
    position = header
    for number, line in enumerate(file):
        is_first = number % records.lines == 0 if not records.begin else line.startswith(records.begin)
        if is_first or number == 0:
            yield position
        position += len(line)


def next_start(file: BinaryIO, records: Records, header: int, position: int) -> int:
    """Where the first record begins at or after a position; the end of the file if none does."""
    if position <= header or not records.lines:
        return max(position, header)
    file.seek(position - 1)
    here = position - 1 + len(file.readline())
    while line := file.readline():
        if line.startswith(records.begin):
            return here
        here += len(line)
    return here


def of_equal_bytes(file: BinaryIO, records: Records, header: int, size: int, count: int) -> Iterator[Extent]:
    """So many parts; a record belongs to the part in which it begins."""
    length = max(size - header, 0)
    bounds = (next_start(file, records, header, header + length * number // count) for number in range(count))
    for start, end in pairwise((*bounds, size)):
        yield start, end - start


def of_records(file: BinaryIO, records: Records, header: int, size: int, every: int) -> Iterator[Extent]:
    """Parts of so many records each."""
    start = None
    for number, position in enumerate(starts(file, records, header)):
        if number % every == 0:
            if start is not None:
                yield start, position - start
            start = position
    if start is not None:
        yield start, size - start


def of_chunks(file: BinaryIO, records: Records, header: int, size: int, most: int) -> Iterator[Extent]:
    """Parts of whole records, of at most so many bytes each without the header; of one record if that is longer."""
    positions = starts(file, records, header) if records.lines else iter(range(header, size, most))
    start = last = next(positions, size)
    for position in (*positions, size):
        if position - start > most and last > start:
            yield start, last - start
            start = last
        last = position
    if size > start:
        yield start, size - start


def write_part(path: str, name: str, extents: list[Extent]) -> None:
    with open(path, "rb") as file, open(name, "wb") as part:
        for start, left in extents:
            file.seek(start)
            while left > 0 and (block := file.read(min(left, MIB))):
                part.write(block)
                left -= len(block)


def say_part(said: str, name: str, extents: list[Extent]) -> None:
    with open(said, "a", encoding="utf-8") as lines:
        lines.write(json.dumps({"path": name, "extents": extents}) + "\n")


def partition(path: str, records: Records, cut: Cut, amount: int) -> Iterator[list[Extent]]:
    """The extents of each part of a file, in order, as soon as they are known.

    :raises PartitionError: if the file is compressed
    :raises OSError: if it cannot be read
    """
    with open(path, "rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise PartitionError(f"{path}: is compressed: decompress it")
        header, size = header_size(file, records), os.fstat(file.fileno()).st_size
        for start, length in cut(file, records, header, size, amount):
            yield [(0, header), (start, length)] if header else [(start, length)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Split a file into parts of whole records.", allow_abbrev=False)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--records", choices=RECORDS, required=True, help="what the file is made of")
    cuts = parser.add_mutually_exclusive_group(required=True)
    cuts.add_argument("--parts", type=int, metavar="N", help="so many parts of equal bytes")
    cuts.add_argument("--every", type=int, metavar="N", help="so many records in each")
    cuts.add_argument("--chunk", type=int, metavar="MIB", help="at most so many MiB in each")
    parser.add_argument("--names", required=True, help="the name of a part, with one %%d, as in chunk-%%04d.fq")
    parser.add_argument("--first", type=int, default=1, help="the number of the first part (default: 1)")
    return parser.parse_args()


def how_to_cut(given: argparse.Namespace) -> tuple[Cut, int]:
    """:raises PartitionError: if the arguments do not go together"""
    records = RECORDS[given.records]
    amount = next(number for number in (given.parts, given.every, given.chunk) if number is not None)
    if amount < 1:
        raise PartitionError("--parts, --every and --chunk are at least 1")
    if given.parts is not None and records.lines > 1:
        raise PartitionError(f"--parts with {given.records}: a place in the middle does not tell where a record begins")
    if given.every is not None and not records.lines:
        raise PartitionError("--every with bytes: use --parts or --chunk")
    if re.fullmatch("[^%/]*%[0-9]*d[^%/]*", given.names) is None:
        raise PartitionError(f"--names {given.names!r} has not one %d, or a slash")
    if given.chunk is not None:
        return of_chunks, amount * MIB
    return of_equal_bytes if given.every is None else of_records, amount


def main() -> int:
    """Run the command line; return the exit code."""
    given, names, said = arguments(), list[str](), os.environ.get("SFIO_PARTS")
    try:
        cut, amount = how_to_cut(given)
        for number, extents in enumerate(partition(given.file, RECORDS[given.records], cut, amount), given.first):
            names.append(given.names % number)
            if said is None:
                write_part(given.file, names[-1], extents)
            else:
                say_part(said, names[-1], extents)
    except (OSError, PartitionError) as error:
        print(f"partition.py: {error}", file=sys.stderr)
        return 1
    with open("cwl.output.json", "w", encoding="utf-8") as output:
        json.dump({"parts": [{"class": "File", "path": name} for name in names]}, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
