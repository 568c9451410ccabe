"""Read what the guard reports of programs, and say what is wrong with that. `guard.c` describes the reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from msgspec import Struct, field

from streamflow_io.wording import counted


class Content(Struct, frozen=True):
    """The bytes of a file, or its first ones: how many, and their digest."""

    count: int
    digest: int


class Reading(Struct, frozen=True):
    """One opening of a file that was read, and is closed.

    :ivar path: relative to `CAPIO_DIR`, as all paths here
    :ivar at_end: whether the program was told that the file ends there
    """

    path: str
    content: Content
    at_end: bool


class Reports(Struct):
    """The reports of all programs of one job.

    :ivar armed: programs that were started with the guard
    :ivar starts: programs that took the place of another one
    :ivar unfit: what a program did that CAPIO cannot do; the first of them
    :ivar modes: those that files were made with, by path: CAPIO keeps none
    """

    armed: int = 0
    starts: int = 0
    unfit: str | None = None
    opened: list[str] = field(default_factory=list)
    read: list[Reading] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    modes: dict[str, int] = field(default_factory=dict)
    written: list[tuple[str, Content]] = field(default_factory=list)

    @property
    def contents(self) -> dict[str, Content]:
        """The content of the files that were written, by path."""
        return dict(self.written)


def parse_reports(text: str) -> Reports:
    """Read the reports of a job. What is not understood makes it unfit: nothing is left out."""
    reports = Reports()
    for line in text.splitlines():
        try:
            _add(reports, line.split(" "))
        except ValueError:
            reports.unfit = reports.unfit or f"its report {line[:200]!r} is not understood"
    return reports


def _add(reports: Reports, words: list[str]) -> None:
    match words:
        case ["armed"]:
            reports.armed += 1
        case ["exec"]:
            reports.starts += 1
        case ["noexec"]:
            reports.starts -= 1
        case ["opens", path]:
            reports.opened.append(path)
        case ["writes", mode, path]:
            reports.begun.append(path)
            reports.modes[path] = int(mode, 8)
        case ["read", count, digest, at_end, path]:
            reports.read.append(Reading(path, Content(int(count), int(digest, 16)), at_end == "1"))
        case ["wrote", count, digest, path]:
            reports.written.append((path, Content(int(count), int(digest, 16))))
        case ["unfit", *reason]:
            reports.unfit = reports.unfit or " ".join(reason)
        case _:
            raise ValueError


def reports_obstacle(reports: Reports, inputs: Collection[str]) -> str | None:
    """Why a job that has succeeded may have done something else than without CAPIO. None: nothing speaks for that.

    The files that were read and written have to be compared all the same.

    :param inputs: the files that the job was to read from CAPIO
    """
    if reports.unfit is not None:
        return f"CAPIO cannot do what its program does: {reports.unfit}"
    if reports.armed < reports.starts + bool(inputs or reports.starts):
        return "one of its programs does not load CAPIO's library"
    for path, count in Counter(reports.begun).items():
        if count > 1:
            return f"it has written {path} {count} times"
    if sorted(reports.begun) != sorted(path for path, _ in reports.written):
        return "a program ended in the middle of writing a file"
    if sorted(reports.opened) != sorted(reading.path for reading in reports.read):
        return "a program ended in the middle of reading a file"
    if unread := set(inputs).difference(reports.opened):
        return f"it has not read {min(unread)} with CAPIO's library"
    return None


def reading_obstacle(reading: Reading, size: int, digest: int | None) -> str | None:
    """Why a program did not read the first bytes of a file, or all of it. None: the program did.

    :param digest: of as many of its first bytes as were read. None: the file is shorter
    """
    if reading.content.count > size or (reading.at_end and reading.content.count < size):
        return f"a program has read {counted(reading.content.count, 'byte')} of {reading.path}, which has {size}"
    if reading.content.count == 0 < size:
        return f"a program has opened {reading.path}, and read nothing with CAPIO's library"
    if reading.content.digest != digest:
        return f"a program has read other bytes of {reading.path} than it has"
    return None
