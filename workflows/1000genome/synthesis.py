"""Sites, genotypes and annotation for `generate.py`: what is real in data/, and what is generated from it."""

from __future__ import annotations

import gzip
import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"
SUPER_POPULATIONS = ("AFR", "AMR", "EAS", "EUR", "SAS")
SITES = DATA / "chr22.phase1.vcf.gz"
PANELS = (DATA / "kidd.phase3.vcf.gz", DATA / "seldin.phase3.vcf.gz")
# The real sites span 700 kb; each further copy of them is placed into the next window of this length.
WINDOW = 710_000
# Frequencies are rounded to 1 / 2**PRECISION.
PRECISION = 16


@dataclass
class Site:
    """A variant; `frequency` is per super-population ("" for none), `known` are the real genotypes."""

    position: int
    identifier: str
    reference: str
    alternate: str
    frequency: dict[str, float]
    known: dict[str, str] = field(default_factory=dict)
    real: bool = True


def read_sites(path: Path, chromosome: str) -> list[Site]:
    """The variants of a chromosome in a VCF of data/, with their genotypes."""
    sites = []
    names: list[str] = []
    with gzip.open(path, "rt") as vcf:
        for line in vcf:
            if line.startswith("#CHROM"):
                names = line.rstrip("\n").split("\t")[9:]
            if not line.startswith(f"{chromosome}\t"):
                continue
            columns = line.rstrip("\n").split("\t")
            info = dict(item.partition("=")[::2] for item in columns[7].split(";"))
            # Phase 1 has ASN for EAS, nothing for SAS, and leaves out a frequency of 0.
            phase1 = "ERATE" in info
            frequency = {name: float(info.get(f"{name}_AF", 0)) for name in SUPER_POPULATIONS} | {"": float(info["AF"])}
            if phase1:
                frequency |= {"EAS": float(info.get("ASN_AF", 0)), "SAS": frequency[""]}
            known = {name: genotype[:3] for name, genotype in zip(names, columns[9:], strict=True)}
            identifier = columns[2] if columns[2] != "." else f"{chromosome}:{columns[1]}"
            sites.append(Site(int(columns[1]), identifier, columns[3], columns[4], frequency, known))
    return sites


def copies_of(sites: list[Site], chromosome: str, count: int) -> Iterator[Site]:
    """`count` generated sites in order of position, with the alleles and frequencies of real ones."""
    first = sites[0].position
    for number in range(count):
        copy, index = divmod(number, len(sites))
        site = sites[index]
        position = site.position - first + 1 + copy * WINDOW
        name = f"generated_{chromosome}_{position}_{number}"
        yield Site(position, name, site.reference, site.alternate, site.frequency, real=False)


def sites_of(chromosome: str, count: int) -> Iterator[Site]:
    """`count` sites of a chromosome by position: the real ones as far as they go, the others generated."""
    template = read_sites(SITES, "22")
    by_position = {site.position: site for path in PANELS for site in read_sites(path, chromosome)}
    panel = [by_position[position] for position in sorted(by_position)][:count]
    real = template[: count - len(panel)] if chromosome == "22" else []
    generated = copies_of(template, chromosome, count - len(panel) - len(real))
    return heapq.merge(panel, real, generated, key=lambda site: site.position)


class Genotypes:
    """Writes the genotype columns of one site after the other."""

    def __init__(self, names: list[str], group_of: dict[str, str], source: random.Random) -> None:
        self.names = names
        self.column = {name: number for number, name in enumerate(names)}
        self.source = source
        self.masks: dict[str, int] = {}
        for number, name in enumerate(names):
            # From the left: the first alleles of all samples, then the second ones.
            bits = 1 << (len(names) - 1 - number)
            group = group_of.get(name, "")
            self.masks[group] = self.masks.get(group, 0) | bits | bits << len(names)

    def columns(self, site: Site) -> bytearray:
        """`0|1<TAB>...<NEWLINE>`; known genotypes as they are, the others drawn."""
        count = len(self.names)
        digits = b"0" * (2 * count)
        if len(site.known) < count:
            digits = format(self.draw(site.frequency), f"0{2 * count}b").encode()
        text = bytearray(b"0|0\t") * count
        text[0::4], text[2::4], text[-1:] = digits[:count], digits[count:], b"\n"
        for name, genotype in site.known.items():
            if name in self.column:
                start = 4 * self.column[name]
                text[start : start + 3] = genotype.encode()
        return text

    def draw(self, frequency: dict[str, float]) -> int:
        """An allele for each haplotype, all at once: bit by bit, is a random number below the frequency?"""
        planes = [self.source.getrandbits(2 * len(self.names)) for _ in range(PRECISION)]
        alleles = 0
        for group, mask in self.masks.items():
            threshold = round(frequency[group] * (1 << PRECISION))
            below = mask if threshold >> PRECISION else 0
            for bit, plane in enumerate(planes):
                below = below | plane if threshold >> bit & 1 else below & plane
            alleles |= mask if threshold >> PRECISION else below & mask
        return alleles


def vcf_header(source: str, lines: list[str], columns: list[str]) -> bytes:
    """The header lines of a VCF."""
    start = [
        "##fileformat=VCFv4.1",
        '##FILTER=<ID=PASS,Description="All filters passed">',
        f"##source={source}",
    ]
    return ("\n".join([*start, *lines, "\t".join(columns)]) + "\n").encode()


COLUMNS = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO"]


def genotype_header(names: list[str]) -> bytes:
    """The header of a generated VCF of genotypes."""
    infos = ["AC", "AF", "AN", "NS", *(f"{name}_AF" for name in SUPER_POPULATIONS)]
    lines = [f'##INFO=<ID={name},Number=1,Type=Float,Description="As in 1000 Genomes">' for name in infos] + [
        '##INFO=<ID=GENERATED_GT,Number=0,Type=Flag,Description="Has generated genotypes">',
        '##INFO=<ID=GENERATED_SITE,Number=0,Type=Flag,Description="This site is generated">',
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">',
    ]
    return vcf_header("1000 Genomes sites and frequencies, generated genotypes", lines, [*COLUMNS, "FORMAT", *names])


def genotype_record(chromosome: str, site: Site, genotypes: Genotypes) -> bytes:
    """One line of a generated VCF of genotypes."""
    columns = genotypes.columns(site)
    count = len(genotypes.names)
    carried = columns.count(b"1")
    info = [f"AC={carried}", f"AF={carried / (2 * count):.6g}", f"AN={2 * count}", f"NS={count}"]
    info += [f"{name}_AF={site.frequency[name]:g}" for name in SUPER_POPULATIONS]
    info += ["GENERATED_GT"] * (not genotypes.column.keys() <= site.known.keys()) + ["GENERATED_SITE"] * (not site.real)
    start = (chromosome, str(site.position), site.identifier, site.reference, site.alternate, "100", "PASS")
    return "\t".join([*start, ";".join(info), "GT", ""]).encode() + columns


def annotation_header() -> bytes:
    """The header of an annotated VCF, as VEP writes it."""
    form = "Allele|Consequence|IMPACT|SYMBOL|Gene|Feature_type|Feature|BIOTYPE|Amino_acids|SIFT|PolyPhen"
    csq = f'##INFO=<ID=CSQ,Number=.,Type=String,Description="Generated, not predicted. Format: {form}">'
    return vcf_header("generated annotation", [csq], COLUMNS)


def annotation_record(chromosome: str, number: int, site: Site, coding: float, source: random.Random) -> bytes:
    """One line of an annotated VCF: a gene of 50 sites, one to three transcripts."""
    gene = f"GENERATED_{chromosome}_{number // 50:05d}"
    missense = source.random() < coding
    consequence = "missense_variant|MODERATE" if missense else "intron_variant|MODIFIER"
    transcripts = []
    for transcript in range(source.randint(1, 3)):
        sift = polyphen = ""
        if missense:
            score = round(source.random() ** 2, 2)
            sift = f"{'deleterious' if score < 0.05 else 'tolerated'}({score:g})"
            polyphen = source.choice(("benign(0.003)", "possibly_damaging(0.61)", "probably_damaging(0.98)"))
        transcripts.append(
            f"{site.alternate}|{consequence}|{gene}|{gene}|Transcript|{gene}.{transcript}|protein_coding||{sift}|{polyphen}"
        )
    start = (chromosome, str(site.position), site.identifier, site.reference, site.alternate, "100", "PASS")
    return "\t".join([*start, "CSQ=" + ",".join(transcripts)]).encode() + b"\n"


def sample_names(count: int) -> tuple[list[str], dict[str, str]]:
    """`count` samples, and the super-population of each; beyond the 2,504 real samples, generated ones."""
    with gzip.open(PANELS[0], "rt") as vcf:
        real = next(line for line in vcf if line.startswith("#CHROM")).rstrip("\n").split("\t")[9:]
    group_of = {
        name: group for group in SUPER_POPULATIONS for name in (DATA / "populations" / group).read_text().split()
    }
    if count <= len(real):
        return [real[number * len(real) // count] for number in range(count)], group_of
    generated = [f"GENERATED{number:06d}" for number in range(1, count - len(real) + 1)]
    group_of |= zip(generated, cycle(SUPER_POPULATIONS), strict=False)
    return real + generated, group_of
