"""Keys and size classes of learned limits, and how the command shows them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lab.wording import shown
from streamflow_io.commands.learned import listed
from streamflow_io.records.learned.database import SizeKey, date_of, size_class_of, size_range
from streamflow_io.storage.admission.registry import ConstraintRegistry, RegisteredConstraint
from streamflow_io.storage.learned_limits import LearnedLimit

REGISTRY = ConstraintRegistry((RegisteredConstraint(28.125, 10.32, 16, 14), RegisteredConstraint(56.25, 5.1, 8, 8)))


def limit(size_class: int, registry: ConstraintRegistry = REGISTRY) -> LearnedLimit:
    key = SizeKey("a1", "scratch write 450 MB/s", size_class)
    return LearnedLimit(key, "/sort", 1_700_000_000, "scratch", 16, registry, 3)


def test_a_digest_never_changes() -> None:
    key = SizeKey("a1", "scratch write 450 MB/s", 9)
    assert key.digest == "61e1f49c06c28f691bec7c0c263a2338ff99ce35e88fa9f975b55e677b449f82"


@given(st.integers(min_value=0, max_value=2**60))
def test_a_size_lies_in_the_range_of_its_class(size: int) -> None:
    lower, upper = size_range(size_class_of(size))
    assert lower <= size < upper


@given(st.integers(min_value=1, max_value=40))
def test_ranges_are_next_to_each_other_and_span_a_factor_of_two(size_class: int) -> None:
    lower, upper = size_range(size_class)
    assert size_range(size_class - 1)[1] == lower
    assert upper == 2 * lower


def test_keys_are_as_long_as_it_takes_to_tell_them_apart() -> None:
    # The digests of these two have their first 8 digits in common.
    alike = [replace(limit(0), key=SizeKey(tool, "scratch", 0)) for tool in ("19970", "5258", "1")]
    table = shown(listed(Path("learned.db"), alike), 200)
    for entry in alike:
        assert f" {entry.key.digest[:9]} " in table


@pytest.mark.parametrize("seconds", [1e308, -1e308, 253_402_300_800.0])
def test_a_number_that_is_no_time_is_shown_as_a_number(seconds: float) -> None:
    assert date_of(seconds) == f"{seconds:g}"
