"""The parts of a workload: variants that do the same in different ways, and the comparisons of their measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .model import Comparison, Sample


@dataclass(frozen=True)
class Outcome:
    """The result of one run of a variant.

    :ivar outputs: a digest of each output, by a name that is the same in all variants
    :ivar notes: what was done in another way on another machine, for the report
    """

    sample: Sample
    outputs: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Variant:
    """One way to do the work.

    :ivar run: does it in an empty directory of its own, which is removed afterwards
    :ivar verify: done once before all repetitions, not timed; raises CommandError if the output is wrong
    :ivar skipped: why it cannot be run here
    """

    name: str
    run: Callable[[Path], Outcome]
    verify: Callable[[Path], None] | None = None
    skipped: str | None = None


@dataclass(frozen=True)
class Workload:
    """A named benchmark.

    :ivar prepare: writes input and workflows to an empty directory, and gives the variants, in the order of their runs
    """

    name: str
    summary: str
    prepare: Callable[[Path], Sequence[Variant]]
    comparisons: Sequence[Comparison]
