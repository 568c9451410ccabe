"""The values of `storageBW`: the bandwidth constraint of a step.

Sources: static, auto (unbounded) and auto with bounds are the storage bandwidth constraints of H. Elshazly et al.,
I/O-aware PyCOMPSs. `required` is from A. Tarraf et al., I/O Behind the Scenes: Bandwidth Requirements of HPC
Applications with Asynchronous I/O (CLUSTER 2024).
"""

from __future__ import annotations

import math
import re

from msgspec import Struct

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_AUTO = rf"auto(?:\(\s*{_NUMBER}\s*,\s*{_NUMBER}\s*,\s*{_NUMBER}\s*\))?"
_REQUIRED = rf"required(?:\(\s*{_NUMBER}\s*\))?"
PATTERN = f"^(?:{_NUMBER}|{_AUTO}|{_REQUIRED})$"
_REQUIRED_ALLOWED = "required, or required(tolerance) with a number of at least 1"
ALLOWED = (
    f"a number of MB/s above 0; auto, or auto(min,max,delta) with 0 < min <= max and delta > 1; {_REQUIRED_ALLOWED}"
)
WITHIN_ALLOWED = "a number of seconds above 0, up to 10^9, with `storageBW: required` only"
# In MB/s: more than any storage has, and a byte per second. Between the two no learner takes many steps.
HIGHEST = 1e12
_LOWEST = 1e-6
_SMALLEST_STEP = 1.001
_LONGEST = 1e9


class StaticConstraint(Struct, frozen=True):
    """A constraint by which every job needs `value` MB/s (10^6 bytes per second)."""

    value: float

    def __str__(self) -> str:
        return _text(self.value)


class Bounds(Struct, frozen=True):
    """The range of an auto constraint: from `minimum` to `maximum` MB/s, growing by the factor `delta`."""

    minimum: float
    maximum: float
    delta: float


class AutoConstraint(Struct, frozen=True):
    """A constraint that is learned while the workflow runs, within `bounds` if there are any."""

    bounds: Bounds | None = None

    def __str__(self) -> str:
        if self.bounds is None:
            return "auto"
        bounds = self.bounds
        return f"auto({_text(bounds.minimum)},{_text(bounds.maximum)},{_text(bounds.delta)})"


class RequiredConstraint(Struct, frozen=True):
    """A constraint by which every job moves its data as fast as needed, so that no job waits for the data.

    :ivar tolerance: factor on the required bandwidth; at least 1
    """

    tolerance: float = 1.1

    def __str__(self) -> str:
        if self == RequiredConstraint():
            return "required"
        return f"required({_text(self.tolerance)})"


StorageBW = StaticConstraint | AutoConstraint | RequiredConstraint


def parse_storage_bw(value: object) -> StorageBW:
    """Read a `storageBW`.

    :param value: a number, or one of the strings of :data:`PATTERN`
    :return: the constraint; `parse_storage_bw(str(c)) == c` for every constraint `c`
    :raises ValueError: with one sentence that says what is wrong
    """
    if isinstance(value, StorageBW):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return _static(float(value))
        except OverflowError:
            raise ValueError("a number of MB/s must be finite") from None
    if not isinstance(value, str) or re.match(PATTERN, value.strip()) is None:
        raise ValueError(f"{value!r} is no storage bandwidth")
    text = value.strip()
    if text == "auto":
        return AutoConstraint()
    if text.startswith("required"):
        return _required(text)
    if not text.startswith("auto"):
        return _static(float(text))
    minimum, maximum, delta = (float(number) for number in text[len("auto(") : -1].split(","))
    return AutoConstraint(_bounds(minimum, maximum, delta))


def as_written(constraint: StorageBW) -> float | str:
    """Return a value that :func:`parse_storage_bw` reads as this constraint."""
    return constraint.value if isinstance(constraint, StaticConstraint) else str(constraint)


def parse_within(value: object) -> float:
    """Read a `within`, in seconds.

    :raises ValueError: with one sentence that says what is wrong
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _LONGEST:
        raise ValueError(f"within is {value!r}")
    return float(value)


def _required(text: str) -> RequiredConstraint:
    if text == "required":
        return RequiredConstraint()
    tolerance = float(text[len("required(") : -1])
    if not 1 <= tolerance <= HIGHEST:
        raise ValueError(f"{text!r} is no storage bandwidth")
    return RequiredConstraint(tolerance)


def _static(value: float) -> StaticConstraint:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{_text(value)} MB/s is not above 0")
    if value > HIGHEST:
        raise ValueError(f"{_text(value)} MB/s is above {HIGHEST:g} MB/s")
    return StaticConstraint(value)


def _bounds(minimum: float, maximum: float, delta: float) -> Bounds:
    for is_wrong, why in (
        (not all(map(math.isfinite, (minimum, maximum, delta))), "min, max and delta must be finite"),
        (minimum <= 0, f"min {_text(minimum)} is not above 0"),
        (minimum < _LOWEST, f"min {_text(minimum)} is below {_LOWEST:g}"),
        (minimum > maximum, f"min {_text(minimum)} is above max {_text(maximum)}"),
        (delta <= 1, f"delta {_text(delta)} is not above 1"),
        (maximum > HIGHEST, f"max {_text(maximum)} is above {HIGHEST:g}"),
        (delta < _SMALLEST_STEP, f"delta {_text(delta)} is below {_SMALLEST_STEP}"),
    ):
        if is_wrong:
            raise ValueError(why)
    return Bounds(minimum, maximum, delta)


def _text(number: float) -> str:
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
