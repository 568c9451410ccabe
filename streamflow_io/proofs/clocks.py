"""Recognises outputs of runs of a job that differ only in the time of day that the program has written.

Many programs write the date into a header: no two runs of them make the same output. Such a difference says nothing
about a stream if all of the following holds. Otherwise it counts.

- Three runs are compared: the job, which has read the file; a run with the stream; one more run with the file. The two
  runs with the file differ there, too, so the program writes something else each time.
- All three have the same lines but for moments: dates with a time, or seconds since the epoch, in a form that programs
  use. Around the moments, and in all other lines, each byte is the same.
- Each moment lies within the run that has written it, from its start to its end, by the clock of its host. Its weekday
  is that of its date.
- What a moment has beside its date and time of day is the same in all three: zone and separators. Of parts of a second,
  those that both runs with the file have alike are no clock's, so the stream has to have them, too.

So a stream may have changed only one thing unseen: which moment of its own run the program has written. A moment cannot
be data. Data was there before both runs with the file began, and so would be the same in both. This holds for the times
of the file itself, too. Durations, sizes, numbers of bytes and process numbers are no moments.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

#: Seconds. A moment is written to the second, and so may seem to be before the start.
_RESOLUTION = 1.0
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# The epoch began on a Thursday.
_FIRST_DAY = _DAYS.index("Thu")
_DAY = f"(?P<weekday>{'|'.join(_DAYS)})"
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
_ZONE = r"(?: ?(?P<zone>UTC|GMT|Z|[+-]\d\d:?\d\d))?"
_FORMS = tuple(
    re.compile(rf"(?<![\w.:-]){form}(?![\w:]|[.,-]\d)", re.ASCII)
    for form in (
        # `ctime`, and `date`; HTTP and mail; ISO 8601, with `/` as well; seconds since the epoch, and finer units.
        rf"{_DAY} {_MONTH} (?P<day>[ \d]\d) {_CLOCK}{_ZONE} (?P<year>\d{{4}})",
        rf"(?:{_DAY},? )?(?P<day>\d{{1,2}})[ -]{_MONTH}[ -](?P<year>\d{{4}}) {_CLOCK}{_ZONE}",
        rf"(?P<year>\d{{4}})[-/]?(?P<digits>\d\d)[-/]?(?P<day>\d\d)[T ]{_CLOCK}{_ZONE}",
        r"(?P<epoch>1\d{9})(?:\.(?P<fraction>\d{1,9}))?",
        r"(?P<epoch>1\d{9})(?P<fraction>\d{3}|\d{6}|\d{9})",
    )
)

#: A line that differs: its place, the text of the job itself, and the text of the other run.
Line = tuple[str, str, str]
#: The start and the end of a run, in seconds since the epoch.
Span = tuple[float, float]


class Unlike(Struct, frozen=True):
    """The differences of another run from the job: lines of some files, and nothing else.

    :ivar lines: by the path of the file in the job itself
    :ivar job: the time of the job
    :ivar other: the time of the other run
    :ivar offsets: possible offsets of the clock from UTC, in seconds; later than UTC is positive
    """

    lines: Mapping[str, Sequence[Line]]
    job: Span
    other: Span
    offsets: tuple[int, ...] = (0,)


def differ_only_in_times(streamed: Unlike | None, again: Unlike | None) -> bool:
    """Whether a run with a stream, and one more with the file, differ from the job only in moments of their own.

    :param streamed: the differences of the run with the stream; None: more than lines differ
    """
    if streamed is None or again is None or streamed.job != again.job:
        return False
    controls = {(file, at): (plain, its) for file, lines in again.lines.items() for at, plain, its in lines}
    return all(
        (control := controls.get((file, at))) is not None
        and control[0] == plain
        and _is_of_three(plain, its, control[1], streamed, again)
        for file, lines in streamed.lines.items()
        for at, plain, its in lines
    )


def _is_of_three(plain: str, its: str, control: str, streamed: Unlike, again: Unlike) -> bool:
    spans = (streamed.job, streamed.other, again.other)
    split = [list(_split(text)) for text in (plain, its, control)]
    if len({len(parts) for parts in split}) != 1:
        return False
    for parts in zip(*split, strict=True):
        texts = [text for text, _ in parts]
        if texts[0] == texts[1]:
            continue
        # Where the two runs with the file are the same, a stream has made the difference.
        if texts[0] == texts[2] or len({form for _, form in parts}) != 1 or parts[0][1] is None:
            return False
        rests, fractions = zip(*map(_beside, texts), strict=True)
        if len(set(rests)) != 1 or (fractions[0] == fractions[2] != fractions[1]):
            return False
        if not all(_is_within(text, span, streamed.offsets) for text, span in zip(texts, spans, strict=True)):
            return False
    return True


def _split(text: str) -> Iterator[tuple[str, int | None]]:
    """Yield the moments in a text, each with its form, and the texts between them, without a form."""
    place = 0
    while (found := _next_moment(text, place)) is not None:
        match, form = found
        yield text[place : match.start()], None
        yield match[0], form
        place = match.end()
    yield text[place:], None


def _next_moment(text: str, place: int) -> tuple[re.Match[str], int] | None:
    found = ((match, form) for form, each in enumerate(_FORMS) if (match := each.search(text, place)) is not None)
    return min(found, key=lambda one: (one[0].start(), one[1]), default=None)


def _beside(text: str) -> tuple[str, str | None]:
    """Return the text of a moment without its date, its time of day and its weekday, and its parts of a second."""
    match = _match(text)
    fields = [match.span(name) for name, value in match.groupdict().items() if value is not None and name != "zone"]
    inside = {place for begin, end in fields for place in range(begin, end)}
    rest = "".join(letter for place, letter in enumerate(text) if place not in inside)
    return rest, match.groupdict().get("fraction")


def _match(text: str) -> re.Match[str]:
    return next(match for form in _FORMS if (match := form.fullmatch(text)) is not None)


def _is_within(text: str, span: Span, offsets: Sequence[int]) -> bool:
    """Whether a moment lies within a run, by a clock that shows one of these offsets, or the one that is written."""
    begin, end = span
    return any(begin - _RESOLUTION <= moment <= end for moment in _moments(text, offsets))


def _moments(text: str, offsets: Sequence[int]) -> Iterator[float]:
    fields = _match(text).groupdict()
    if (epoch := fields.get("epoch")) is not None:
        yield float(epoch)
        return
    month = _MONTHS.index(fields["month"]) + 1 if fields.get("month") else int(fields["digits"])
    day, hour, minute, second = (int(fields[name]) for name in ("day", "hour", "minute", "second"))
    year = int(fields["year"])
    if year > 0 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60:
        written = timegm((year, month, day, hour, minute, second))
        if fields.get("weekday") not in (None, _DAYS[(written // 86_400 + _FIRST_DAY) % 7]):
            return
        for offset in _offsets(fields.get("zone"), offsets):
            yield written - offset


def _offsets(zone: str | None, offsets: Sequence[int]) -> Sequence[int]:
    if zone is None:
        return offsets
    if zone[0] not in "+-":
        return (0,)
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    return ((hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1),)
