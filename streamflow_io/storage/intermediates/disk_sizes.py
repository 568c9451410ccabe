"""Learned sizes: how many bytes the jobs of a step leave in their directories, for the bytes of their input files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import ceil
from typing import Literal

from msgspec import Struct

from streamflow_io.records.learned.sizes import size_class_of, size_range

#: `known`: a job with about as much input has been measured. `estimated`: jobs with more or less input have been.
#: `unknown`: no job of the step has ended.
Certainty = Literal["known", "estimated", "unknown"]


class ExpectedSize(Struct, frozen=True):
    """The size of all that a job will write.

    :ivar bytes: of an unknown job: those of its input files
    """

    bytes: int
    certainty: Certainty


class MeasuredSize(Struct, frozen=True):
    """The job of a size class that has written most.

    :ivar inputs: bytes of its input files
    :ivar written: bytes in its directories
    """

    inputs: int
    written: int


class StepSizes:
    """The largest jobs of each step, by the class of their input.

    An expected size is never below that of a job that was measured with as much input, or with more. For more input
    than any measured job had, and more than 1 MiB, the size grows with the input. From a job without input it does not.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[int, MeasuredSize]] = defaultdict(dict)

    def measured(self, step: str, inputs: int, written: int) -> None:
        """Note what a job has written."""
        of_class, known = size_class_of(inputs), self._known[step]
        if of_class not in known or known[of_class].written < written:
            known[of_class] = MeasuredSize(inputs, written)

    def expect(self, step: str, inputs: int) -> ExpectedSize:
        """Return what a job will write."""
        known, of_class = self._known.get(step), size_class_of(inputs)
        if not known:
            return ExpectedSize(inputs, "unknown")
        if of_class in known:
            return ExpectedSize(_scaled(known[of_class], inputs), "known")
        larger = [each for each in known if each > of_class]
        if larger:
            return ExpectedSize(known[min(larger)].written, "estimated")
        return ExpectedSize(_scaled(known[max(known)], inputs), "estimated")

    def all(self) -> Iterator[tuple[str, int, MeasuredSize]]:
        """Yield what is known: the step, the class of the input, and the largest job."""
        for step, known in self._known.items():
            for of_class, measured in known.items():
                yield step, of_class, measured


def _scaled(measured: MeasuredSize, inputs: int) -> int:
    # Streams of unknown size count nothing. So a job without input says nothing about more input.
    if measured.inputs == 0:
        return measured.written
    # Few bytes are parameters: how much a job writes does not depend on their number.
    least = max(measured.inputs, size_range(0)[1])
    return ceil(measured.written * max(inputs, least) / least)
