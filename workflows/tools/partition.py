"""Split a file into parts of whole records, or say where it would be cut.

    partition.py FILE --records fastq --every 50000 --names chunk-%04d.fq

Writes the parts to the working directory, and their list to cwl.output.json (`parts`). Where the variable SFIO_PARTS
names a file, as StreamFlow-IO sets it, no part is written: it gets a line of JSON for each, as soon as it is known,
with its places in FILE. Parts of a file that bgzip has compressed are such files, too: their blocks are those of FILE,
but where they are cut; these bytes are not compressed again, so that they are the same everywhere. For other steps
copy this file: it needs nothing but Python.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import re
import struct
import sys
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO, Protocol

MIB = 1 << 20
GZIP = b"\x1f\x8b"
BGZF = struct.Struct("<4s4xHH2sHH")  # SAM specification, 4.1
BGZF_MAGIC = b"\x1f\x8b\x08\x04"
BGZF_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
STORED_MOST = 0xFF00
Extent = tuple[int, int]  # offset and length
Piece = Extent | bytes


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


class Source(Protocol):
    """What is cut: its text, and the bytes of the file that are a part of it.

    :ivar size: bytes of the text
    """

    size: int

    def text(self) -> BinaryIO:
        """All of it, by offsets in the text."""

    def pieces(self, extents: list[Extent]) -> list[Piece]:
        """Of which a file consists that has these extents of the text."""


class Plain:
    """A file that is not compressed."""

    def __init__(self, file: BinaryIO) -> None:
        self.size = os.fstat(file.fileno()).st_size
        self._file = file

    def text(self) -> BinaryIO:
        return self._file

    def pieces(self, extents: list[Extent]) -> list[Piece]:
        return list(extents)


class Blocks(io.RawIOBase):
    """A file that bgzip has compressed: blocks, each of which is inflated by itself when it is read.

    :raises PartitionError: if it has something else than whole blocks
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        # Where each block that has text begins, in the file and in the text; and where the last one ends.
        self._places, self._texts = [0], [0]
        place = 0
        file.seek(0)
        while head := file.read(BGZF.size):
            length = block_length(head)
            rest = file.read(length - BGZF.size)
            if len(rest) < length - BGZF.size:
                raise PartitionError("its last block is not whole")
            if size := int.from_bytes(rest[-4:], "little"):
                self._places[-1] = place
                self._places.append(place + length)
                self._texts.append(self._texts[-1] + size)
            place += length
        self.size = self._texts[-1]
        self._position, self._block, self._content = 0, -1, b""

    def text(self) -> BinaryIO:
        return io.BufferedReader(self, STORED_MOST)  # type: ignore[return-value]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self.size:
            return 0
        number = bisect_right(self._texts, self._position) - 1
        start = self._position - self._texts[number]
        found = self._inflated(number)[start : start + len(buffer)]
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)

    def pieces(self, extents: list[Extent]) -> list[Piece]:
        found = [piece for start, length in extents if length for piece in self._pieces(start, start + length)]
        return [*found, BGZF_END]

    def _pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Whole blocks, and what there is before and behind them."""
        first, last = bisect_left(self._texts, start), bisect_right(self._texts, end) - 1
        if first > last:
            yield from stored(self._inflated(last)[start - self._texts[last] : end - self._texts[last]])
            return
        if self._texts[first] > start:
            yield from stored(self._inflated(first - 1)[start - self._texts[first] :])
        if last > first:
            # Where each of these begins is known, but not where the one before ends: there may be blocks without text.
            yield self._places[first], self._places[last] - self._places[first]
        if end > self._texts[last]:
            yield from stored(self._inflated(last)[: end - self._texts[last]])

    def _inflated(self, number: int) -> bytes:
        if number != self._block:
            self._file.seek(self._places[number])
            try:
                inflated = zlib.decompressobj(31)
                content = inflated.decompress(self._file.read(self._places[number + 1] - self._places[number]))
            except zlib.error as error:
                raise PartitionError(f"its block at {self._places[number]} is damaged: {error}") from None
            if not inflated.eof or len(content) != self._texts[number + 1] - self._texts[number]:
                raise PartitionError(f"its block at {self._places[number]} is damaged")
            self._block, self._content = number, content
        return self._content


def block_length(head: bytes) -> int:
    """Bytes of a block of BGZF that begins so."""
    magic, _, extra, name, length, most = BGZF.unpack(head) if len(head) == BGZF.size else (b"", 0, 0, b"", 0, 0)
    if (magic, extra, name, length) != (BGZF_MAGIC, 6, b"BC", 2) or most < BGZF.size + 8:
        raise PartitionError("is compressed, and not as bgzip does it: compress it with bgzip, or decompress it")
    return most + 1


def stored(text: bytes) -> Iterator[bytes]:
    """Blocks of BGZF with a text that is not compressed: zlib writes the same everywhere only then."""
    for start in range(0, len(text), STORED_MOST):
        part = text[start : start + STORED_MOST]
        body = struct.pack("<BHH", 1, len(part), len(part) ^ 0xFFFF) + part
        head = BGZF.pack(BGZF_MAGIC, 0xFF00, 6, b"BC", 2, BGZF.size + len(body) + 8 - 1)
        yield head + body + struct.pack("<II", zlib.crc32(part), len(part))


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


def write_part(path: str, name: str, pieces: list[Piece]) -> None:
    with open(path, "rb") as file, open(name, "wb") as part:
        for piece in pieces:
            if isinstance(piece, bytes):
                part.write(piece)
                continue
            start, left = piece
            file.seek(start)
            while left > 0 and (block := file.read(min(left, MIB))):
                part.write(block)
                left -= len(block)


def say_part(said: str, name: str, pieces: list[Piece]) -> None:
    extents = [base64.b64encode(piece).decode() if isinstance(piece, bytes) else piece for piece in pieces]
    with open(said, "a", encoding="utf-8") as lines:
        lines.write(json.dumps({"path": name, "extents": extents}) + "\n")


def partition(path: str, records: Records, cut: Cut, amount: int) -> Iterator[list[Piece]]:
    """What each part of a file consists of, in order, as soon as it is known.

    :raises PartitionError: if the file is compressed, but not by bgzip, or damaged
    :raises OSError: if it cannot be read
    """
    with open(path, "rb") as file:
        is_compressed = file.read(len(GZIP)) == GZIP
        try:
            if is_compressed and not records.lines:
                raise PartitionError("is compressed: decompress it")
            source: Source = Blocks(file) if is_compressed else Plain(file)
            text = source.text()
            header = header_size(text, records)
            for start, length in cut(text, records, header, source.size, amount):
                yield source.pieces([(0, header), (start, length)] if header else [(start, length)])
        except PartitionError as error:
            raise PartitionError(f"{path}: {error}") from None


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
        for number, pieces in enumerate(partition(given.file, RECORDS[given.records], cut, amount), given.first):
            names.append(given.names % number)
            if said is None:
                write_part(given.file, names[-1], pieces)
            else:
                say_part(said, names[-1], pieces)
    except (OSError, PartitionError) as error:
        print(f"partition.py: {error}", file=sys.stderr)
        return 1
    with open("cwl.output.json", "w", encoding="utf-8") as output:
        json.dump({"parts": [{"class": "File", "path": name} for name in names]}, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
