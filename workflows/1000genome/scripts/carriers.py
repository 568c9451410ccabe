"""The text format that joins the steps: one line per variant, with the samples that carry it.

    #samples<TAB>HG00096,HG00097,...
    #CHROM<TAB>POS<TAB>ID<TAB>REF<TAB>ALT<TAB>AF<TAB>CARRIERS
    22<TAB>50300078<TAB>rs7410291<TAB>A<TAB>G<TAB>0.22<TAB>HG00099,...

Everything here reads front to back in one pass, so each file may be a FIFO that is still being written.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

COLUMNS = b"#CHROM\tPOS\tID\tREF\tALT\tAF\tCARRIERS"
SAMPLES = b"#samples\t"
CHUNK = 1 << 18


class InputError(Exception):
    """Bad input: what, where, and what is allowed."""


class Table(NamedTuple):
    """A carriers file that is being read: its samples, and the variant lines that follow."""

    samples: list[bytes]
    rows: Iterator[bytes]


def read_lines(path: str) -> Iterator[bytes]:
    """Lines without their newline, as soon as they arrive; gzip is recognised by its first bytes.

    Raises InputError if the data end within a line or within a gzip member.
    """
    tail = b""
    for data in _read_data(path):
        lines = data.split(b"\n")
        lines[0] = tail + lines[0]
        tail = lines.pop()
        yield from lines
    if tail:
        raise InputError(f"{path}: the last line is incomplete (no newline at the end of the file)")


def _read_data(path: str) -> Iterator[bytes]:
    # Unbuffered: a read from a pipe returns what is there instead of waiting for a full buffer.
    with open(path, "rb", buffering=0) as stream:
        chunk = stream.read(CHUNK)
        if len(chunk) == 1:
            chunk += stream.read(CHUNK)
        if not chunk.startswith(b"\x1f\x8b"):
            while chunk:
                yield chunk
                chunk = stream.read(CHUNK)
            return
        member = zlib.decompressobj(wbits=31)
        while chunk:
            yield member.decompress(chunk)
            chunk = member.unused_data
            if member.eof and chunk:
                member = zlib.decompressobj(wbits=31)
            else:
                chunk = stream.read(CHUNK)
                if member.eof and chunk:
                    member = zlib.decompressobj(wbits=31)
        if not member.eof:
            raise InputError(f"{path}: the gzip data are truncated")


def read_table(path: str) -> Table:
    """Open a carriers file and read its two header lines.

    Raises InputError if they are not as this module's documentation says.
    """
    rows = read_lines(path)
    samples = next(rows, b"")
    if not samples.startswith(SAMPLES) or next(rows, b"") != COLUMNS:
        raise InputError(f"{path}: not a carriers file (expected '#samples', then '#CHROM POS ID REF ALT AF CARRIERS')")
    return Table(samples[len(SAMPLES) :].split(b","), rows)


def header(samples: list[bytes]) -> bytes:
    """The two header lines of a carriers file with these samples."""
    return SAMPLES + b",".join(samples) + b"\n" + COLUMNS + b"\n"


def read_members(path: str, samples: list[bytes]) -> list[bytes]:
    """The samples of the population listed in `path`, one name per line, in the order of `samples`.

    Raises InputError if there are none.
    """
    names = {line.strip() for line in read_lines(path)}
    members = [sample for sample in samples if sample in names]
    if not members:
        raise InputError(f"{path}: none of its samples is among the {len(samples)} samples of the chromosome")
    return members


def carrier_mask(carriers: bytes, index: dict[bytes, int]) -> int:
    """The carriers that `index` holds, as bits: `index[name]` counts from the left of `len(index)` bits."""
    digits = bytearray(b"0") * len(index)
    for name in carriers.split(b","):
        if name in index:
            digits[index[name]] = 0x31
    return int(digits, 2)


def read_sifted(path: str) -> dict[bytes, bytes]:
    """Gene per variant, from the output of `sifting`; the key is POS, REF and ALT, joined by tabs."""
    genes: dict[bytes, bytes] = {}
    for line in read_lines(path):
        if not line.startswith(b"#"):
            position, _identifier, reference, alternate, gene = line.split(b"\t", 5)[:5]
            genes[b"\t".join((position, reference, alternate))] = gene
    return genes


def run(main: Callable[[], None]) -> None:
    """Call `main`; an InputError or OSError becomes one line on stderr and exit code 1."""
    try:
        main()
    except (InputError, OSError) as error:
        sys.exit(f"{sys.argv[0].rsplit('/', 1)[-1]}: {error}")
