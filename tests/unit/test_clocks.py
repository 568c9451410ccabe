"""Whether runs differ in nothing but the time of day: what counts as that, and that nothing else does."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import formatdate

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.proofs.clocks import Span, Unlike, differ_only_in_times

#: Three runs, one after the other.
JOB, STREAM, FILE = (
    (1_790_000_000.2, 1_790_000_010.9),
    (1_790_000_011.5, 1_790_000_020.0),
    (1_790_000_021.0, 1_790_000_030.0),
)


def at(moment: float, form: str) -> str:
    return datetime.fromtimestamp(moment, timezone.utc).strftime(form)


FORMS: dict[str, Callable[[float], str]] = {
    "bcftools": lambda moment: f"##bcftools_viewCommand=view x; Date={at(moment, '%a %b %e %H:%M:%S %Y')}",
    "date": lambda moment: at(moment, "made: %a %b %e %H:%M:%S UTC %Y"),
    "mail": lambda moment: formatdate(moment, usegmt=True),
    "iso": lambda moment: at(moment, "[%Y-%m-%dT%H:%M:%SZ] done"),
    "with-a-zone": lambda moment: at(moment + 19_800, "at %Y-%m-%d %H:%M:%S.125+05:30"),
    "slashes": lambda moment: at(moment, "%Y/%m/%d %H:%M:%S"),
    "epoch": lambda moment: f'{{"started": {moment:.0f}}}',
    "fine": lambda moment: f"t={moment:.6f};",
    "milliseconds": lambda moment: f"t={moment * 1000:.0f};",
    "two": lambda moment: f"{at(moment, '%Y-%m-%d %H:%M:%S')} to {at(moment + 1, '%Y-%m-%d %H:%M:%S')}",
}


def only(plain: str, streamed: str, again: str, spans: tuple[Span, Span, Span] = (JOB, STREAM, FILE)) -> bool:
    job, stream, file = spans
    lines = [("0:1", plain, streamed)] if plain != streamed else []
    control = [("0:1", plain, again)] if plain != again else []
    return differ_only_in_times(Unlike({"out": lines}, job, stream), Unlike({"out": control}, job, file))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_time_of_the_run(form: Callable[[float], str]) -> None:
    assert only(*(form(begin + 2) for begin, _ in (JOB, STREAM, FILE)))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("late", [(0, 0, 30), (0, 30, 0), (30, 0, 0), (0, -4, 0), (0, 86_400, 0)])
def test_a_moment_that_is_not_of_the_run(form: Callable[[float], str], late: tuple[int, int, int]) -> None:
    moments = (begin + 1 + more for (begin, _), more in zip((JOB, STREAM, FILE), late, strict=True))
    assert not only(*map(form, moments))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_moment_that_both_runs_with_the_file_write(form: Callable[[float], str]) -> None:
    """The time of the input is such a moment: with a stream it is another one."""
    assert not only(form(JOB[0] + 1), form(STREAM[0] + 1), form(JOB[0] + 1))


@pytest.mark.parametrize(
    ("plain", "streamed", "again"),
    [
        ("reads: 1790000001", "reads: 1790000012", "reads: 1790000001"),
        ("took 1.2 s", "took 1.3 s", "took 1.4 s"),
        ("pid 4711", "pid 4712", "pid 4713"),
        ("12:00:01", "12:00:12", "12:00:23"),
        ("x", "y", "z"),
        ("size 0, 2026-09-21 14:13:21", "size 9, 2026-09-21 14:13:32", "size 0, 2026-09-21 14:13:42"),
        ("2026-09-21 14:13:21", "none", "2026-09-21 14:13:42"),
        ("2026-09-21 14:13:21", "Mon Sep 21 14:13:32 2026", "2026-09-21 14:13:42"),
        ("2026-99-21 14:13:21", "2026-99-21 14:13:32", "2026-99-21 14:13:42"),
        ("0000-09-21 14:13:21", "0000-09-21 14:13:32", "0000-09-21 14:13:42"),
        ("v1790000001", "v1790000012", "v1790000022"),
        # Beside the time of day stands something else: a number of lines, a weekday, a zone, a separator.
        ("1790000001.250", "1790000012.0", "1790000022.250"),
        ("1790000001250", "1790000012000", "1790000022250"),
        ("2026-09-21 14:13:21.250", "2026-09-21 14:13:32.0", "2026-09-21 14:13:42.250"),
        ("Mon Sep 21 14:13:21 2026", "Tue Sep 21 14:13:32 2026", "Mon Sep 21 14:13:42 2026"),
        ("2026-09-21 14:13:21 UTC", "2026-09-21 14:13:32 GMT", "2026-09-21 14:13:42 UTC"),
        ("2026-09-21 14:13:21+00:00", "2026-09-21 15:13:32+01:00", "2026-09-21 14:13:42+00:00"),
        ("2026-09-21 14:13:21", "2026/09/21 14:13:32", "2026-09-21 14:13:42"),
        ("0.1790000001", "0.1790000012", "0.1790000022"),
    ],
)
def test_what_is_no_time_of_day(plain: str, streamed: str, again: str) -> None:
    assert not only(plain, streamed, again)


def test_a_line_that_the_runs_with_the_file_have_alike() -> None:
    date = FORMS["date"]
    lines = [("0:1", date(JOB[0]), date(STREAM[0] + 1)), ("0:7", "a", "b")]
    again = Unlike({"out": [("0:1", date(JOB[0]), date(FILE[0]))]}, JOB, FILE)
    assert not differ_only_in_times(Unlike({"out": lines}, JOB, STREAM), again)
    assert differ_only_in_times(Unlike({"out": lines[:1]}, JOB, STREAM), again)
    assert not differ_only_in_times(Unlike({"other": lines[:1]}, JOB, STREAM), again)
    assert not differ_only_in_times(Unlike({"out": lines[:1]}, JOB, STREAM), replace(again, job=STREAM))


def test_what_is_not_lines_is_something_else() -> None:
    some = Unlike({}, JOB, STREAM)
    assert not differ_only_in_times(None, some)
    assert not differ_only_in_times(some, None)


def test_the_clock_of_the_host() -> None:
    texts = [at(begin + 3601, "%Y-%m-%d %H:%M:%S") for begin, _ in (JOB, STREAM, FILE)]
    streamed = Unlike({"out": [("0:1", texts[0], texts[1])]}, JOB, STREAM, (0, 3600))
    again = Unlike({"out": [("0:1", texts[0], texts[2])]}, JOB, FILE, (0, 3600))
    assert differ_only_in_times(streamed, again)
    assert not differ_only_in_times(replace(streamed, offsets=(0,)), again)


_MOMENTS = st.floats(0, 8)
_PIECES = st.lists(st.one_of(st.text(max_size=6), st.sampled_from([*FORMS])), min_size=1, max_size=5)


def written(pieces: list[str], moment: float) -> str:
    return " ".join(FORMS[piece](moment) if piece in FORMS else piece for piece in pieces)


@given(_PIECES, _MOMENTS, _MOMENTS, _MOMENTS, st.data())
def test_nothing_else_that_a_stream_changes_passes(
    pieces: list[str], job: float, stream: float, file: float, data: st.DataObject
) -> None:
    """Any change of a byte that is in no moment, and any of a byte that both runs with the file have."""
    plain, streamed, again = (
        written(pieces, begin + more) for (begin, _), more in ((JOB, job), (STREAM, stream), (FILE, file))
    )
    place = data.draw(st.integers(0, len(streamed)))
    changed = streamed[:place] + data.draw(st.characters()) + streamed[place + 1 :]
    assume(changed != streamed)
    if only(plain, changed, again):
        # The digits differ by another moment of the same run, or by a finer one.
        assert len(changed) == len(streamed)
        assert changed[place].isdigit()
        assert again[place : place + 1].isdigit()
        assert plain != again


@given(st.text(), st.text(), st.text())
def test_texts_without_times_never_pass(plain: str, streamed: str, again: str) -> None:
    assume(plain != streamed)
    assert not only(plain, streamed, again)


def test_the_forms_are_those_of_now() -> None:
    """The clock that programs use shows times that are read here."""
    now = time.time()
    spans = ((now - 10, now - 7), (now - 6, now - 4), (now - 3, now))
    assert only(*(time.strftime("%a %b %e %H:%M:%S %Y", time.gmtime(begin + 1)) for begin, _ in spans), spans)
