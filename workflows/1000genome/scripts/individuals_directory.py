"""One file per sample with the SNPs of which it carries the minor allele, from one range of lines of a VCF.

As individuals.py, in the layout of the Pegasus 1000genome-workflow: one pass over the range, then the files one after
the other. Needs as many bytes of memory as the range has genotypes: more ranges need less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress

from carriers import InputError, run
from individuals import Snp, lines_of_range, parse_arguments, parse_range, read_header, snps
from sample_files import write_directory


def sample_files(variants: Iterable[Snp], samples: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Name and lines of each sample, in their order. Raises InputError if positions go back."""
    lines: list[bytes] = []
    carried = bytearray()
    last = 0
    for snp in variants:
        if int(snp.position) < last:
            raise InputError(f"position {int(snp.position)} after {last}; the VCF must be sorted by position")
        last = int(snp.position)
        columns = (snp.position, snp.reference, snp.alternate, snp.identifier, snp.frequency)
        lines.append(b"\t".join(columns) + b"\n")
        carried += snp.carried
    for number, name in enumerate(samples):
        yield name, b"".join(compress(lines, carried[number :: len(samples)]))


def main() -> None:
    arguments = parse_arguments(__doc__.splitlines()[0], "a new directory: the variants of each sample")
    part, parts = parse_range(arguments.range)
    with open(arguments.vcf, "rb") as vcf:
        samples = read_header(vcf, arguments.field)
        variants = snps(lines_of_range(vcf, part, parts), len(samples), arguments.field)
        write_directory(arguments.output, samples, sample_files(variants, samples))


if __name__ == "__main__":
    run(main)
