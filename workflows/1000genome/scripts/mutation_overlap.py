"""How far the individuals of a population share their variants with a SIFT score."""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import combinations

from carriers import Table, carrier_mask, read_members, read_sifted, read_table, run


class Overlap:
    """What has been seen of a population so far: carriers per variant, and per gene."""

    def __init__(self, members: list[bytes], genes: dict[bytes, bytes]) -> None:
        self.members = members
        self.genes = genes
        self.index = {name: number for number, name in enumerate(members)}
        self.variants: list[bytes] = []
        self.carriers_of_gene: dict[bytes, int] = {}

    def add(self, row: bytes) -> None:
        """Take in one row of a carriers file; without a SIFT score it is passed over, its carriers unread."""
        _chromosome, position, _identifier, reference, alternate, rest = row.split(b"\t", 5)
        gene = self.genes.get(b"\t".join((position, reference, alternate)))
        if gene is None:
            return
        mask = carrier_mask(rest.rsplit(b"\t", 1)[1], self.index)
        if mask:
            self.variants.append(format(mask, f"0{len(self.members)}b").encode())
            self.carriers_of_gene[gene] = self.carriers_of_gene.get(gene, 0) | mask

    def variants_of_members(self) -> list[int]:
        """Per individual, the set of its variants as the bits of an integer."""
        if not self.variants:
            return [0] * len(self.members)
        table = b"".join(self.variants)
        return [int(table[number :: len(self.members)], 2) for number in range(len(self.members))]


def pair_counts(sets: list[int]) -> Counter[int]:
    """Number of pairs per number of shared variants."""
    counts: Counter[int] = Counter()
    for number, first in enumerate(sets):
        counts.update([(first & second).bit_count() for second in sets[number + 1 :]])
    return counts


def read_overlap(table: Table, population: str, sifted: str) -> Overlap:
    """Read the whole stream of variants."""
    overlap = Overlap(read_members(population, table.samples), read_sifted(sifted))
    for row in table.rows:
        overlap.add(row)
    return overlap


def write(overlap: Overlap, individuals: str, pairs: str, genes: str) -> None:
    """Write the three tables."""
    sets = overlap.variants_of_members()
    write_individuals(individuals, overlap.members, sets)
    write_pairs(pairs, pair_counts(sets))
    write_genes(genes, overlap.carriers_of_gene)


def write_individuals(path: str, members: list[bytes], sets: list[int]) -> None:
    """How many variants each member has."""
    with open(path, "w") as output:
        output.write("#SAMPLE\tVARIANTS\n")
        output.writelines(f"{name.decode()}\t{bits.bit_count()}\n" for name, bits in zip(members, sets, strict=True))


def write_pairs(path: str, counts: Counter[int]) -> None:
    """How many pairs share how many variants."""
    with open(path, "w") as output:
        output.write("#SHARED_VARIANTS\tPAIRS\n")
        output.writelines(f"{shared}\t{count}\n" for shared, count in sorted(counts.items()))


def write_genes(path: str, carriers_of_gene: dict[bytes, int]) -> None:
    """How many individuals have variants in both genes of a pair."""
    with open(path, "w") as output:
        output.write("#GENE\tGENE\tINDIVIDUALS\n")
        for (gene, mask), (other, other_mask) in combinations(sorted(carriers_of_gene.items()), 2):
            if both := (mask & other_mask).bit_count():
                output.write(f"{gene.decode()}\t{other.decode()}\t{both}\n")


def parse_arguments(description: str, merged: str) -> argparse.Namespace:
    """The command line; `description` and `merged`, the first argument, are its help."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("merged", help=merged)
    parser.add_argument("sifted", help="output of sifting")
    parser.add_argument("population", help="sample names, one per line")
    parser.add_argument("--individuals", required=True, help="output: variants per individual")
    parser.add_argument("--pairs", required=True, help="output: pairs of individuals per number of shared variants")
    parser.add_argument("--genes", required=True, help="output: individuals with variants in both genes of a pair")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments(__doc__, "output of individuals_merge")
    overlap = read_overlap(read_table(arguments.merged), arguments.population, arguments.sifted)
    write(overlap, arguments.individuals, arguments.pairs, arguments.genes)


if __name__ == "__main__":
    run(main)
