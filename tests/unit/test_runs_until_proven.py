"""How soon streams without a hint pay: what the first runs prove of the two templates whose steps stream.

The CPU times are those of the templates `1000genome` and `variant-calling` on their demo data.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lab.learning import Read, Step, simulate_runs

MB = 10**6


def chain(**steps: tuple[float, int]) -> dict[str, Step]:
    """Steps that each read the file of the one before.

    :param steps: the CPU time of a step, and the size of the file that it reads
    """
    names = [*steps]
    return {
        name: Step(cpu, {"text": Read((before,), (size,))})
        for before, (name, (cpu, size)) in zip(names, [*steps.items()][1:], strict=False)
    }


MERGED, SIFTED = Read(("merge",), (13 * MB,), is_cut=True), Read(("sift",), (MB // 5,))
GENOMES = {
    "sift": Step(0.25),
    "select1": Step(1.8),
    "select2": Step(1.8),
    "merge": Step(3.8, {"parts": Read(("select1", "select2"), (28 * MB, 28 * MB))}),
    "overlap": Step(0.5, {"merged": MERGED, "sifted": SIFTED}),
    "frequency": Step(8.0, {"merged": MERGED, "sifted": SIFTED}),
}
READS = {f"reads_{mate}": Read((f"decompress_{mate}",), (60 * MB,), is_cut=True) for mate in (1, 2)}
CALLING = {
    "index": Step(0.2),
    "decompress_1": Step(0.9),
    "decompress_2": Step(0.9),
    "align": Step(12.0, READS, ("index",)),
    **chain(
        align=(0, 0),
        fixmate=(2.0, 110 * MB),
        sort=(2.7, 40 * MB),
        markdup=(2.3, 40 * MB),
        mpileup=(5.5, 40 * MB),
        call=(1.8, 30 * MB),
        filter=(0.3, MB),
    ),
}


@pytest.mark.parametrize(
    ("steps", "paying", "most"),
    [
        (GENOMES, {"merge/parts", "overlap/merged", "frequency/merged"}, 0.75),
        (CALLING, {f"{step}/text" for step in ("fixmate", "sort", "markdup", "mpileup", "call")}, 0.6),
    ],
)
def test_the_third_run_streams_what_pays(steps: Mapping[str, Step], paying: set[str], most: float) -> None:
    first, second, third, *_ = runs = simulate_runs(steps, 5)
    assert second.known >= paying
    assert third.seconds <= most * first.seconds
    assert min(each.seconds for each in runs) >= 0.95 * third.seconds, "later runs gain little more"
    assert all(each.waited <= 1.1 for each in runs)
    assert runs[-1].rehearsed == 0, "nothing is tried for ever"
