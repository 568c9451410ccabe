"""Split a FASTA file into fragments of about the same number of bytes, between sequences.

    split.py DATABASE N

Writes fragment-001.fa ... to the working directory, and cwl.output.json with the list of them and the number of
sequences in all (`targets`), which E-values depend on. Where the variable SFIO_PARTS names a file, as StreamFlow-IO
sets it, no fragment is written: it gets a line of JSON for each, with its place in the database.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import BinaryIO

CHUNK = 1 << 20


class SplitError(Exception):
    """The database cannot be split as asked; the message says why."""


def next_start(database: BinaryIO, position: int) -> int:
    """Return where the first sequence at or after `position` starts, or the end of the file."""
    if position == 0:
        return 0
    database.seek(position - 1)
    for line in iter(database.readline, b""):
        here = database.tell()
        if line.endswith(b"\n") and database.read(1) in (b">", b""):
            return here
        database.seek(here)
    return database.tell()


def copy_range(database: BinaryIO, start: int, end: int, target: Path) -> int:
    """Copy bytes of the database to a file; return how many sequences begin in them."""
    database.seek(start)
    sequences, last = 0, b"\n"
    with target.open("wb") as fragment:
        while start < end:
            chunk = database.read(min(CHUNK, end - start))
            fragment.write(chunk)
            sequences += (last + chunk).count(b"\n>")
            start, last = start + len(chunk), chunk[-1:]
    return sequences


def say(file: str, names: list[str], bounds: list[int]) -> None:
    """Say where the fragments are in the database."""
    with open(file, "a", encoding="utf-8") as parts:
        for name, start, end in zip(names, bounds, bounds[1:], strict=False):
            parts.write(json.dumps({"path": name, "extents": [[start, end - start]]}) + "\n")


def split(path: Path, count: int, said: str | None) -> tuple[list[str], int]:
    """Write the fragments, or say where they are; return their names and the number of sequences.

    Raises:
        OSError: the database cannot be read.
        SplitError: it is no FASTA file or has too few sequences.
    """
    with path.open("rb") as database:
        if database.read(1) != b">":
            raise SplitError(f"{path}: not a FASTA file in plain text, which starts with >")
        size = os.fstat(database.fileno()).st_size
        bounds = [next_start(database, size * number // count) for number in range(count)] + [size]
        if len(set(bounds)) <= count:
            raise SplitError(f"{path}: too few sequences for {count} fragments")
        names = [f"fragment-{number:03d}.fa" for number in range(1, count + 1)]
        if said is not None:
            say(said, names, bounds)
        targets = 0
        for name, start, end in zip(names, bounds, bounds[1:], strict=False):
            targets += copy_range(database, start, end, Path(name if said is None else os.devnull))
    return names, targets


def main() -> int:
    """Run the command line; return the exit code."""
    if len(sys.argv) != 3 or not sys.argv[2].isdecimal() or int(sys.argv[2]) < 1:
        print("usage: split.py DATABASE N, with N at least 1", file=sys.stderr)
        return 1
    try:
        names, targets = split(Path(sys.argv[1]), int(sys.argv[2]), os.environ.get("SFIO_PARTS"))
    except (OSError, SplitError) as error:
        print(f"split.py: {error}", file=sys.stderr)
        return 1
    fragments = [{"class": "File", "path": name} for name in names]
    Path("cwl.output.json").write_text(json.dumps({"fragments": fragments, "targets": targets}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
