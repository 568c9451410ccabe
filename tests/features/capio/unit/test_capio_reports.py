"""Reports of the guard in front of CAPIO about a job, and mistakes in them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.features.capio.runtime.installation import Guard
from streamflow_io.features.capio.runtime.reports import (
    Content,
    Reading,
    parse_reports,
    reading_obstacle,
    reports_obstacle,
)

WRITER = "armed\nwrites 644 a-1/out\nwrote 3 ff a-1/out\n"
READER = "armed\nopens a-1/out\nread 3 ff 1 a-1/out\n"


@pytest.mark.parametrize(
    ("text", "inputs", "why"),
    [
        ("", (), None),  # A program without libraries writes into the file system.
        ("", ("a-1/out",), "does not load CAPIO's library"),
        (WRITER, (), None),
        (READER, ("a-1/out",), None),
        (READER + READER, ("a-1/out",), None),
        ("armed\nexec\n" + READER, ("a-1/out",), None),
        ("armed\nexec\nnoexec\n" + READER, ("a-1/out",), None),
        ("exec\n" + READER, ("a-1/out",), "does not load CAPIO's library"),
        ("armed\nexec\nnoexec\nexec\n", (), "does not load CAPIO's library"),
        (READER, ("a-1/out", "b-2/out"), "it has not read b-2/out with CAPIO's library"),
        (WRITER + WRITER, (), "it has written a-1/out 2 times"),
        ("armed\nwrites 644 a-1/out\n", (), "in the middle of writing"),
        ("armed\nopens a-1/out\n", ("a-1/out",), "in the middle of reading"),
        (WRITER + "unfit it seeks in a-1/out, which it writes\n", (), "it seeks in a-1/out, which it writes"),
        (WRITER + "wrote three ff a-1/out\n", (), "is not understood"),
        (WRITER + "something new\n", (), "is not understood"),
        ("armed\nwrites a-1/out\nwrote 3 ff a-1/out\n", (), "is not understood"),
        ("armed\nwrites rw- a-1/out\nwrote 3 ff a-1/out\n", (), "is not understood"),
    ],
)
def test_what_is_reported_is_judged(text: str, inputs: tuple[str, ...], why: str | None) -> None:
    found = reports_obstacle(parse_reports(text), inputs)
    assert found is None if why is None else why in str(found)


@pytest.mark.parametrize(
    ("reading", "digest", "why"),
    [
        (Reading("a", Content(9, 5), True), 5, None),
        (Reading("a", Content(9, 5), False), 5, None),
        (Reading("a", Content(4, 7), False), 7, None),
        (Reading("a", Content(4, 7), True), 7, "has read 4 bytes of a, which has 9"),
        (Reading("a", Content(10, 7), True), 7, "has read 10 bytes of a, which has 9"),
        (Reading("a", Content(9, 6), True), 5, "other bytes"),
        (Reading("a", Content(4, 7), False), None, "other bytes"),
        (Reading("a", Content(0, 0), False), 0, "read nothing"),
    ],
)
def test_what_was_read_is_compared(reading: Reading, digest: int | None, why: str | None) -> None:
    found = reading_obstacle(reading, 9, digest)
    assert found is None if why is None else why in str(found)


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc): the guard cannot be built")
    return Guard.build(tmp_path_factory.mktemp("guard"))


@given(data=st.binary(max_size=40), cut=st.integers(0, 40), other=st.binary(max_size=40))
def test_digests_are_of_the_first_bytes(guard: Guard, data: bytes, cut: int, other: bytes) -> None:
    whole, start = guard.library.with_name("whole"), guard.library.with_name("start")
    whole.write_bytes(data)
    start.write_bytes(data[:cut])
    assert guard.content(whole, min(cut, len(data))) == guard.content(start)
    start.write_bytes(other)
    assert (guard.content(whole) == guard.content(start)) == (data == other)


def test_a_file_that_is_too_short_has_no_digest(guard: Guard) -> None:
    path = guard.library.with_name("short")
    path.write_bytes(b"abc")
    with pytest.raises(OSError, match="No data"):
        guard.content(path, 4)


def test_no_digest_of_a_file_that_is_not_there(guard: Guard, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        guard.content(tmp_path / "none")
