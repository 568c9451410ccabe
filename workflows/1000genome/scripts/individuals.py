"""Which samples carry the minor allele of each SNP in one range of lines of a chromosome's VCF.

The rule is that of the Pegasus 1000genome-workflow: a sample carries a variant when the first allele of its
genotype is the less frequent one, judged by a frequency field of INFO (there: the ninth, EUR_AF). Variants
that nobody carries and variants other than SNPs with one alternate allele are left out.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from itertools import compress
from typing import BinaryIO, NamedTuple

from carriers import InputError, header, run

NUCLEOTIDES = frozenset(b"ACGT")
# Selects the genotypes whose first allele is 0, or is 1.
FIRST_IS = {allele: bytes(int(code == ord(allele)) for code in range(256)) for allele in "01"}


def parse_range(text: str) -> tuple[int, int]:
    """`2of4` is (2, 4). Raises InputError for anything else."""
    match = re.fullmatch(r"(\d+)of(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise InputError(f"range '{text}': expected KofN with 1 <= K <= N, for example 2of4")
    return int(match[1]), int(match[2])


def read_header(vcf: BinaryIO, field: str) -> list[bytes]:
    """Read up to and including the #CHROM line and return the sample names."""
    if vcf.read(2) == b"\x1f\x8b":
        raise InputError(f"{vcf.name}: is compressed; ranges of lines need the plain text, unpack it with gunzip first")
    vcf.seek(0)
    declared = False
    for line in iter(vcf.readline, b""):
        declared = declared or line.startswith(b"##INFO=<ID=%s," % field.encode())
        if line.startswith(b"#CHROM\t"):
            if not declared:
                raise InputError(f"{vcf.name}: the header declares no INFO field '{field}'")
            return line.rstrip(b"\r\n").split(b"\t")[9:]
        if not line.startswith(b"#"):
            break
    raise InputError(f"{vcf.name}: no #CHROM line before the first variant; is this a VCF?")


def lines_of_range(vcf: BinaryIO, part: int, parts: int) -> Iterator[bytes]:
    """The lines that begin in the given part, by bytes, of what follows the header.

    Each line belongs to exactly one part, and finding it costs no reading of the lines before.
    """
    begin = vcf.tell()
    length = os.fstat(vcf.fileno()).st_size - begin
    start, stop = (begin + length * n // parts for n in (part - 1, part))
    if start > begin:
        vcf.seek(start - 1)
        start += len(vcf.readline()) - 1
    while start < stop and (line := vcf.readline()):
        start += len(line)
        yield line


def first_alleles(form: bytes, genotypes: bytes, count: int, tabs: bytes) -> bytes:
    """The first character of each of `count` genotypes; `tabs` are `count - 1` tabs."""
    if form == b"GT" and len(genotypes) == 4 * count - 1 and genotypes[3::4] == tabs:
        return genotypes[0::4]
    return b"".join(genotype[:1] for genotype in genotypes.split(b"\t"))


class Snp(NamedTuple):
    """One variant of the VCF; `carried` has a byte per sample, 1 if it carries the minor allele and else 0."""

    chromosome: bytes
    position: bytes
    identifier: bytes
    reference: bytes
    alternate: bytes
    frequency: bytes
    carried: bytes


def snps(lines: Iterator[bytes], samples: int, field: str) -> Iterator[Snp]:
    """The SNPs with one alternate allele. Raises InputError for a line that is no VCF record of so many samples."""
    frequency_of = re.compile(rb"(?:^|;)" + re.escape(field.encode()) + rb"=([0-9][0-9.eE+-]*)").search
    tabs = b"\t" * (samples - 1)
    for line in lines:
        columns = line.rstrip(b"\r\n").split(b"\t", 9)
        if len(columns) != 10:
            raise InputError(f"not a VCF record with genotypes: {line[:60]!r}")
        chromosome, position, identifier, reference, alternate, _quality, _filter, info, form, genotypes = columns
        if len(reference) != 1 or len(alternate) != 1 or alternate[0] not in NUCLEOTIDES:
            continue
        # Phase 1 leaves out the frequency of a population in which the variant was not seen.
        match = frequency_of(info)
        frequency = match[1] if match else b"0"
        alleles = first_alleles(form, genotypes, samples, tabs)
        if len(alleles) != samples:
            raise InputError(f"position {position.decode()}: {len(alleles)} genotypes for {samples} samples")
        minor = "1" if float(frequency) < 0.5 else "0"
        carried = alleles.translate(FIRST_IS[minor])
        yield Snp(chromosome, position, identifier, reference, alternate, frequency, carried)


def carrier_rows(lines: Iterator[bytes], samples: list[bytes], field: str) -> Iterator[bytes]:
    """One row per SNP with carriers. Raises InputError for a line that is no VCF record of these samples."""
    for snp in snps(lines, len(samples), field):
        carriers = b",".join(compress(samples, snp.carried))
        if carriers:
            yield b"\t".join((*snp[:6], carriers)) + b"\n"


def parse_arguments(description: str, output: str) -> argparse.Namespace:
    """The command line; `description` and `output` are its help."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("vcf", help="VCF of one chromosome, plain text")
    parser.add_argument("range", help="KofN: the K-th of N ranges of about the same size")
    parser.add_argument("output", help=output)
    parser.add_argument("--field", default="EUR_AF", help="INFO field with the frequency of the alternate allele")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments(__doc__.splitlines()[0], "one file: the carriers of each variant")
    part, parts = parse_range(arguments.range)
    with open(arguments.vcf, "rb") as vcf, open(arguments.output, "wb", buffering=1 << 16) as output:
        samples = read_header(vcf, arguments.field)
        output.write(header(samples))
        output.writelines(carrier_rows(lines_of_range(vcf, part, parts), samples, arguments.field))


if __name__ == "__main__":
    run(main)
