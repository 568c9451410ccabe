"""In how many individuals of a random group a variant is found, from a file for each individual.

The same result as that of frequency.py, counted the other way round: each individual is added to its groups.
"""

from __future__ import annotations

from carriers import read_members, read_sifted, run
from frequency import Histogram, draw_groups, parse_arguments, write
from sample_files import read_samples, read_variants


class Carriers:
    """How many carriers each variant has in a group. Variants are the bits of integers: all are counted at once.

    :ivar digits: the counts in binary, turned: the n-th integer has the n-th binary digit of every count
    """

    def __init__(self) -> None:
        self.digits: list[int] = []

    def add(self, variants: int) -> None:
        """Take in an individual."""
        carry = variants
        for place, digit in enumerate(self.digits):
            self.digits[place], carry = digit ^ carry, digit & carry
        if carry:
            self.digits.append(carry)

    def histogram(self, size: int, among: int) -> Histogram:
        """How many of the variants `among` have 0 (left at 0), 1, ... `size` carriers."""
        return [0, *(self._having(count, among).bit_count() for count in range(1, size + 1))]

    def _having(self, count: int, among: int) -> int:
        if count >> len(self.digits):
            return 0
        for place, digit in enumerate(self.digits):
            among &= digit if count >> place & 1 else ~digit
        return among


class Numbers:
    """Numbers the variants as they come; `scored` has the bits of those with a SIFT score."""

    def __init__(self, sifted: dict[bytes, bytes]) -> None:
        self.sifted = sifted
        self.number_of: dict[bytes, int] = {}
        self.scored = 0

    def bits(self, variants: list[bytes]) -> int:
        """A set of variants as the bits of an integer."""
        for key in variants:
            if key not in self.number_of:
                if key in self.sifted:
                    self.scored |= 1 << len(self.number_of)
                self.number_of[key] = len(self.number_of)
        digits = bytearray(b"0") * len(self.number_of)
        for key in variants:
            digits[-1 - self.number_of[key]] = 0x31
        return int(digits or b"0", 2)


def main() -> None:
    arguments = parse_arguments(__doc__.splitlines()[0], "output of individuals_merge_directory")
    numbers = Numbers(read_sifted(arguments.sifted))
    members = read_members(arguments.population, read_samples(arguments.merged))
    groups = draw_groups(len(members), arguments.draws, arguments.group, arguments.seed)
    carriers = [Carriers() for _ in groups]
    # The groups count their members from the left, as carrier_mask does.
    for member, name in zip(reversed(range(len(members))), members, strict=True):
        bits = numbers.bits(read_variants(arguments.merged, name))
        for group, counts in zip(groups, carriers, strict=True):
            if group >> member & 1:
                counts.add(bits)
    every, with_score = (
        [counts.histogram(arguments.group, among) for counts in carriers] for among in (-1, numbers.scored)
    )
    write(every, with_score, arguments.histograms, arguments.summary)


if __name__ == "__main__":
    run(main)
