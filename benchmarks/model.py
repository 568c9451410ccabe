"""Measures, goals, and whether the goals were reached. The JSON of a benchmark is :class:`Report`."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Machine(_Model):
    """Where the measurements were taken.

    :ivar load: the mean number of processes that ran or could run, in the minute before the first run
    """

    system: str
    architecture: str
    cores: int
    memory_bytes: int
    load: float
    python: str
    streamflow: str

    @classmethod
    def here(cls) -> Machine:
        return cls(
            system=f"{platform.system()} {platform.release()}",
            architecture=platform.machine(),
            cores=len(os.sched_getaffinity(0)),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            load=os.getloadavg()[0],
            python=platform.python_version(),
            streamflow=version("streamflow"),
        )


class Sample(_Model):
    """One run of one variant.

    :ivar wall: seconds from the start of the whole run to its end
    :ivar window: seconds from the start of the first job to the end of the last one, as StreamFlow sees them
    :ivar further: other measures of the workload; the unit is part of the name
    """

    wall: float
    window: float
    further: dict[str, float] = Field(default_factory=dict)

    def measure(self, name: str) -> float:
        """:raises KeyError: if there is no measure of that name"""
        if name == "wall":
            return self.wall
        return self.window if name == "window" else self.further[name]


class Comparison(_Model):
    """A figure to report; a goal where it has a limit.

    Of several variants the one with the least median stands for all: which is the best is not known beforehand.

    :ivar measure: `wall`, `window` or a further measure of the samples
    :ivar variant: whose measure it is
    :ivar baseline: the variant by whose measure it is divided; none: the measure itself
    """

    name: str
    measure: str = "wall"
    variant: str | tuple[str, ...]
    baseline: str | tuple[str, ...] | None = None
    at_most: float | None = None
    at_least: float | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> Comparison:
        if self.at_most is not None and self.at_least is not None:
            raise ValueError("a goal has one limit: at_most or at_least")
        return self

    @property
    def is_goal(self) -> bool:
        return self.at_most is not None or self.at_least is not None

    def reached_by(self, value: float) -> bool:
        """Whether a value keeps the limit."""
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)


class Result(_Model):
    """A comparison with what came out.

    :ivar value: the median of the repetitions, of their ratios where there is a baseline; none: not measured
    :ivar met: whether the goal is reached; none: it is no goal
    """

    comparison: Comparison
    value: float | None
    met: bool | None


class VariantReport(_Model):
    """The samples of a variant, by repetition; `skipped` says why there are none."""

    name: str
    skipped: str | None = None
    samples: tuple[Sample, ...] = ()


class Report(_Model):
    """All about one run of a workload.

    :ivar date: the start of the first run, in UTC
    :ivar commit: the commit of the repository, with `-dirty` after a change. None: unknown outside a clone
    :ivar notes: what was done in another way on another machine
    :ivar differing: the outputs that were not byte for byte the same in all variants and repetitions
    """

    name: str
    date: datetime
    commit: str | None
    machine: Machine
    repetitions: int
    notes: tuple[str, ...] = ()
    variants: tuple[VariantReport, ...]
    results: tuple[Result, ...]
    differing: tuple[str, ...]

    @classmethod
    def read(cls, file: Path) -> Report:
        """Read what :meth:`write` has written.

        :raises ValidationError: if the file is not a report
        """
        document = json.loads(file.read_text(encoding="utf-8"))
        return cls.model_validate({name: document[name] for name in cls.model_fields.keys() & document.keys()})

    def write(self, file: Path) -> None:
        file.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def identical(self) -> bool:
        return not self.differing

    @computed_field  # type: ignore[prop-decorator]
    @property
    def met(self) -> bool:
        """Whether every goal is reached and all outputs are identical."""
        return self.identical and all(result.met is not False for result in self.results)


def commit_here() -> str | None:
    """Return the commit of the repository. None: unknown, outside a clone or without git."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()


def evaluate(comparison: Comparison, variants: Iterable[VariantReport]) -> Result:
    """Compare: the ratio of two variants is the median of the ratios in each repetition.

    Variants of one repetition run one after the other; what disturbs the machine for a while disturbs both.

    :return: with no value if a variant has no samples; a goal is not met then
    """
    values = single_values(comparison, variants)
    value = statistics.median(values) if values else None
    if not comparison.is_goal:
        return Result(comparison=comparison, value=value, met=None)
    return Result(comparison=comparison, value=value, met=value is not None and comparison.reached_by(value))


def single_values(comparison: Comparison, variants: Iterable[VariantReport]) -> list[float]:
    """Return the value of a comparison in each repetition. No values: a variant has no samples."""
    samples = {variant.name: variant.samples for variant in variants}
    values = _measures(comparison.measure, comparison.variant, samples)
    if comparison.baseline is None:
        return values
    base = _measures(comparison.measure, comparison.baseline, samples)
    return [value / other for value, other in zip(values, base, strict=False)]


def _measures(measure: str, names: str | tuple[str, ...], samples: Mapping[str, Sequence[Sample]]) -> list[float]:
    """By repetition, of the best of the variants; none if one of them has no samples."""
    measured = [[sample.measure(measure) for sample in samples.get(name, ())] for name in _names(names)]
    return min(measured, key=statistics.median) if measured and all(measured) else []


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
