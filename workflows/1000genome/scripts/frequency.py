"""In how many individuals of a random group a variant is found: a null distribution for shared variants.

Each draw takes a group of individuals of the population without replacement, and counts its carriers of every
variant. The histogram of a draw says how many variants had 1, 2, ... carriers: of all variants, and of those
with a SIFT score.
"""

from __future__ import annotations

import argparse
import random
from statistics import fmean, pstdev

from carriers import Table, carrier_mask, read_members, read_sifted, read_table, run

Histogram = list[int]


def draw_groups(population: int, draws: int, size: int, seed: str) -> list[int]:
    """`draws` random groups of at most `size` individuals, as bits like carrier_mask; the same seed gives the same."""
    source = random.Random(seed)
    individuals = range(population)
    return [sum(1 << n for n in source.sample(individuals, min(size, population))) for _ in range(draws)]


def count_carriers(
    table: Table, index: dict[bytes, int], scored: dict[bytes, bytes], groups: list[int], size: int
) -> tuple[list[Histogram], list[Histogram]]:
    """Per group, the histogram over all variants and that over those with a SIFT score, in one pass."""
    every = [[0] * (size + 1) for _ in groups]
    with_score = [[0] * (size + 1) for _ in groups]
    for row in table.rows:
        _chromosome, position, _identifier, reference, alternate, _frequency, carriers = row.split(b"\t")
        mask = carrier_mask(carriers, index)
        if not mask:
            continue
        counts = [(mask & group).bit_count() for group in groups]
        for histogram, count in zip(every, counts, strict=True):
            histogram[count] += 1
        if b"\t".join((position, reference, alternate)) in scored:
            for histogram, count in zip(with_score, counts, strict=True):
                histogram[count] += 1
    return every, with_score


def parse_arguments(description: str, merged: str) -> argparse.Namespace:
    """The command line; `description` and `merged`, the first argument, are its help."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("merged", help=merged)
    parser.add_argument("sifted", help="output of sifting")
    parser.add_argument("population", help="sample names, one per line")
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--group", type=int, default=52, help="individuals per draw")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--histograms", required=True, help="output: histogram of each draw")
    parser.add_argument("--summary", required=True, help="output: mean and standard deviation over all draws")
    return parser.parse_args()


def write(every: list[Histogram], with_score: list[Histogram], histograms: str, summary: str) -> None:
    """Write the two tables, from the histograms of each draw over all variants and over those with a SIFT score."""
    sizes = range(1, len(every[0]))
    with open(histograms, "w") as output:
        output.write("#DRAW\tCARRIERS\tVARIANTS\tVARIANTS_WITH_SIFT\n")
        for draw, (one, other) in enumerate(zip(every, with_score, strict=True), 1):
            output.writelines(f"{draw}\t{n}\t{one[n]}\t{other[n]}\n" for n in sizes)
    with open(summary, "w") as output:
        output.write("#CARRIERS\tMEAN\tSD\tMEAN_WITH_SIFT\tSD_WITH_SIFT\n")
        for n in sizes:
            columns = ([histogram[n] for histogram in table] for table in (every, with_score))
            output.write("\t".join([str(n), *(f"{f(c):.4f}" for c in columns for f in (fmean, pstdev))]) + "\n")


def main() -> None:
    arguments = parse_arguments(__doc__.splitlines()[0], "output of individuals_merge")
    table = read_table(arguments.merged)
    members = read_members(arguments.population, table.samples)
    index = {name: number for number, name in enumerate(members)}
    groups = draw_groups(len(members), arguments.draws, arguments.group, arguments.seed)
    every, with_score = count_carriers(table, index, read_sifted(arguments.sifted), groups, arguments.group)
    write(every, with_score, arguments.histograms, arguments.summary)


if __name__ == "__main__":
    run(main)
