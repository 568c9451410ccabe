"""One directory of a chromosome, with a compressed file per sample, from those of its ranges, given in their order."""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator

from carriers import InputError, run
from sample_files import COMPRESSED, position, read_content, read_samples, write_directory


def merge(parts: list[str], samples: list[bytes], level: int) -> Iterator[tuple[bytes, bytes]]:
    """Name and compressed lines of each sample: of all parts for the first one, then for the second ..."""
    for name in samples:
        # wbits=31 writes the gzip header without name and time: same lines, same bytes.
        compressor = zlib.compressobj(level, wbits=31)
        yield name, compressor.compress(b"".join(contents(parts, name))) + compressor.flush()


def contents(parts: list[str], name: bytes) -> Iterator[bytes]:
    """What all parts have of a sample. Raises InputError if a part begins before the end of the last one."""
    last = 0
    for part in parts:
        lines = read_content(part, name)
        if lines:
            first = position(lines[: lines.index(b"\n")])
            if first < last:
                raise InputError(f"{part}: position {first} after {last}; ranges must be given in order")
            last = position(lines[lines.rfind(b"\n", 0, -1) + 1 :])
        yield lines


def common_samples(parts: list[str]) -> list[bytes]:
    """The samples of all parts. Raises InputError if they differ."""
    samples = read_samples(parts[0])
    for part in parts[1:]:
        if read_samples(part) != samples:
            raise InputError(f"{part}: its samples differ from those of {parts[0]}")
    return samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", help="a new directory")
    parser.add_argument("parts", nargs="+", help="directories of individuals_directory, in the order of their ranges")
    parser.add_argument("--level", type=int, default=6, choices=range(1, 10), help="of compression")
    arguments = parser.parse_args()
    samples = common_samples(arguments.parts)
    write_directory(arguments.output, samples, merge(arguments.parts, samples, arguments.level), COMPRESSED)


if __name__ == "__main__":
    run(main)
