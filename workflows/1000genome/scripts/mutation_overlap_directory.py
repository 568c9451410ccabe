"""How far the individuals of a population share their variants with a SIFT score, from a file for each individual."""

from __future__ import annotations

from collections import Counter

from carriers import read_members, read_sifted, run
from mutation_overlap import parse_arguments, write_genes, write_individuals, write_pairs
from sample_files import read_samples, read_variants


class Overlap:
    """What has been seen of a population so far: the variants of each individual, and the carriers per gene."""

    def __init__(self, genes: dict[bytes, bytes]) -> None:
        self.genes = genes
        self.index = {key: number for number, key in enumerate(genes)}
        self.sets: list[int] = []
        self.pairs: Counter[int] = Counter()
        self.carriers_of_gene: dict[bytes, int] = {}

    def add(self, variants: set[bytes]) -> None:
        """Take in the variants of the next individual, those without a SIFT score as well."""
        scored = variants & self.genes.keys()
        bits = sum(1 << self.index[key] for key in scored)
        self.pairs.update([(bits & other).bit_count() for other in self.sets])
        for gene in {self.genes[key] for key in scored}:
            self.carriers_of_gene[gene] = self.carriers_of_gene.get(gene, 0) | 1 << len(self.sets)
        self.sets.append(bits)


def main() -> None:
    arguments = parse_arguments(__doc__, "output of individuals_merge_directory")
    overlap = Overlap(read_sifted(arguments.sifted))
    members = read_members(arguments.population, read_samples(arguments.merged))
    for name in members:
        overlap.add(set(read_variants(arguments.merged, name)))
    write_individuals(arguments.individuals, members, overlap.sets)
    write_pairs(arguments.pairs, overlap.pairs)
    write_genes(arguments.genes, overlap.carriers_of_gene)


if __name__ == "__main__":
    run(main)
