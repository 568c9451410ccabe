"""One compressed carriers file of a chromosome from those of its ranges, given in their order."""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator

from carriers import InputError, header, read_table, run

# After so many rows the compressor hands out all it has: a reader of the growing file never lags far behind.
# A number of rows, not a time: the bytes must be the same in each run.
FLUSH_ROWS = 256


def merge(paths: list[str]) -> Iterator[bytes]:
    """The header, then all rows. Raises InputError if samples differ or positions go back."""
    last, samples, previous = 0, None, ""
    for path in paths:
        table = read_table(path)
        if samples is None:
            samples = table.samples
            yield header(samples)
        elif samples != table.samples:
            raise InputError(f"{path}: its samples differ from those of {previous}")
        for row in table.rows:
            position = int(row.split(b"\t", 2)[1])
            if position < last:
                raise InputError(f"{path}: position {position} after {last}; ranges must be given in order, sorted VCF")
            last = position
            yield row + b"\n"
        previous = path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output")
    parser.add_argument("parts", nargs="+", help="outputs of individuals, in the order of their ranges")
    parser.add_argument("--level", type=int, default=6, choices=range(1, 10), help="of compression")
    arguments = parser.parse_args()
    # wbits=31 writes the gzip header without name and time: same rows, same bytes.
    compressor = zlib.compressobj(arguments.level, wbits=31)
    with open(arguments.output, "wb", buffering=0) as output:
        for number, row in enumerate(merge(arguments.parts)):
            output.write(compressor.compress(row))
            if number % FLUSH_ROWS == 0:
                output.write(compressor.flush(zlib.Z_SYNC_FLUSH))
        output.write(compressor.flush())


if __name__ == "__main__":
    run(main)
