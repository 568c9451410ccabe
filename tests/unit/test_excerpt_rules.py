"""How much of a file is tried first, and what that proves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.proofs.rehearsal import excerpts_of, next_with_excerpt
from streamflow_io.proofs.rehearsal_rules import GIVEN_UP, Finding, Manner, Ran
from streamflow_io.records.learned.extents import ENOUGH

MIB = 2**20
EXCERPT, WHOLE = 65 * MIB, 1040 * MIB


def ran(**fields: Any) -> Ran:
    return replace(Ran(True, "exited", "exit code 0", (EXCERPT,), cpu=0.5), **fields)


AS_FILE = ran(read=(0,))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([130 * MIB - 1], None),
        ([130 * MIB], (65 * MIB,)),
        ([10 * 1024 * MIB], (65 * MIB,)),
        ([200 * MIB, 300 * MIB], (65 * MIB, 65 * MIB)),
        ([200 * MIB, 1000], (65 * MIB, 1000)),
        # Most of these would be read as a whole.
        ([100 * MIB] * 20, None),
        ([], None),
    ],
)
def test_how_much_is_tried_first(sizes: list[int], expected: tuple[int, ...] | None) -> None:
    assert excerpts_of(sizes) == expected


@given(st.lists(st.integers(0, 2**40)))
def test_at_most_half_is_tried_first_and_enough_for_a_proof(sizes: list[int]) -> None:
    excerpts = excerpts_of(sizes)
    if excerpts is not None:
        assert 2 * sum(excerpts) <= sum(sizes)
        pairs = list(zip(excerpts, sizes, strict=True))
        assert all(min(size, ENOUGH) <= excerpt <= size for excerpt, size in pairs)


@pytest.mark.parametrize("streamed", [ran(), ran(held_at=EXCERPT, call="lseek"), ran(cpu=0.6)])
def test_who_makes_the_same_of_a_stream_is_proven(streamed: Ran) -> None:
    assert next_with_excerpt((), EXCERPT, [WHOLE]) == "file"
    assert next_with_excerpt([("file", AS_FILE)], EXCERPT, [WHOLE]) == "net"
    finding = next_with_excerpt([("file", AS_FILE), ("net", streamed)], EXCERPT, [WHOLE])
    assert finding == Finding("net", excerpt=EXCERPT)
    assert finding.read == (EXCERPT,)


@pytest.mark.parametrize(
    "streamed",
    [
        Ran(False, GIVEN_UP, held_at=0, call="lseek"),
        ran(held_at=0, call="lseek", read=(0,)),  # The program has ended before it could be given up.
        ran(ended="unstreamable", succeeded=False),
    ],
)
def test_who_waits_for_the_file_gets_a_pipe(streamed: Ran) -> None:
    so_far: list[tuple[Manner, Ran]] = [("file", AS_FILE), ("net", streamed)]
    assert next_with_excerpt(so_far, EXCERPT, [WHOLE]) == "pipe"
    assert next_with_excerpt([*so_far, ("pipe", ran())], EXCERPT, [WHOLE]) == Finding("pipe", excerpt=EXCERPT)
    # Each of several files would be a pipe up to another place.
    assert next_with_excerpt(so_far, EXCERPT, [WHOLE, WHOLE]) is None


@pytest.mark.parametrize(
    "piped",
    [
        ran(difference="out.txt"),
        ran(succeeded=False),
        ran(asked=True),
        ran(read=(EXCERPT - 1,)),
        ran(ended="error", succeeded=False),
        ran(cpu=1.25),
    ],
)
def test_a_pipe_that_is_not_as_good_shows_nothing(piped: Ran) -> None:
    given_up = Ran(False, GIVEN_UP, held_at=0, call="lseek")
    assert next_with_excerpt([("file", AS_FILE), ("net", given_up), ("pipe", piped)], EXCERPT, [WHOLE]) is None


@pytest.mark.parametrize(
    "as_file",
    [
        ran(succeeded=False),  # As of a file in a format that has an end.
        ran(asked=True),  # The program has asked for the size.
        ran(difference="out.txt"),  # The reader makes nothing of the cut.
        ran(is_from_outside=True, succeeded=False),
    ],
)
def test_who_does_something_else_with_the_first_bytes_shows_nothing(as_file: Ran) -> None:
    assert next_with_excerpt([("file", as_file)], EXCERPT, [WHOLE]) is None


@pytest.mark.parametrize(
    "streamed",
    [
        ran(difference="out.txt"),
        ran(succeeded=False),
        ran(asked=True),
        Ran(False, GIVEN_UP, held_at=0, call="newfstatat", asked=True),
        ran(read=(EXCERPT - 1,)),  # The program has stopped early.
        ran(read=(EXCERPT,), held_at=EXCERPT - 1, call="lseek"),
        # With all of the file it would take 6.4 s more.
        ran(cpu=1.25),
    ],
)
def test_nothing_is_ever_refused(streamed: Ran) -> None:
    assert next_with_excerpt([("file", AS_FILE), ("net", streamed)], EXCERPT, [WHOLE]) is None


@given(st.integers(1, 2 * ENOUGH), st.integers(1, 2 * ENOUGH))
def test_an_excerpt_proves_with_all_or_with_enough(excerpt: int, size: int) -> None:
    streamed = ran(read=(excerpt,))
    finding = next_with_excerpt([("file", AS_FILE), ("net", streamed)], excerpt, [size])
    assert (finding is not None) is (excerpt >= min(size, ENOUGH))
