"""Merge tables of hits, as `hmmsearch --tblout` writes them, into one: by model, best hits first.

merge.py OUTPUT TABLE...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

HEADER = "#model\ttarget\tE-value\tscore\tbias\tdomains\tdescription\n"
COLUMNS = 19  # of the table; the last is free text


class Hit(NamedTuple):
    """A row of a table; numbers as hmmsearch wrote them."""

    model: str
    target: str
    e_value: str
    score: str
    bias: str
    domains: str
    description: str

    @property
    def rank(self) -> tuple[str, float, float, str]:
        """Model, E-value; of equal ones, as all below 1e-300 are, score and name: the order is always the same."""
        return self.model, float(self.e_value), -float(self.score), self.target


def parse(line: str) -> Hit:
    """Read a row.

    Raises:
        ValueError: it has too few columns, or something else where a number should be.
    """
    fields = line.split(None, COLUMNS - 1)
    if len(fields) < COLUMNS:
        raise ValueError(f"not a row of hmmsearch --tblout: {line[:60]!r}")
    hit = Hit(fields[2], fields[0], fields[4], fields[5], fields[6], fields[15], fields[18].strip())
    float(hit.e_value), float(hit.score)
    return hit


def main() -> int:
    """Run the command line; return the exit code."""
    if len(sys.argv) < 3:
        print("usage: merge.py OUTPUT TABLE...", file=sys.stderr)
        return 1
    hits = []
    for table in map(Path, sys.argv[2:]):
        try:
            hits += [parse(line) for line in table.read_text().splitlines() if not line.startswith("#")]
        except (OSError, ValueError) as error:
            print(f"merge.py: {table}: {error}", file=sys.stderr)
            return 1
    hits.sort(key=lambda hit: hit.rank)
    Path(sys.argv[1]).write_text(HEADER + "".join("\t".join(hit) + "\n" for hit in hits))
    return 0


if __name__ == "__main__":
    sys.exit(main())
