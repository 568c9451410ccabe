"""Decides which jobs read a file last, from the ways that files can take through a workflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct, field


class Passage(Struct, frozen=True):
    """A step of StreamFlow that reads a port.

    :ivar kind: `job`: the step schedules the jobs that read the files. `on`: each file goes on once. `many`: a file may
        go on several times, or as another value
    :ivar next: the ports on which files go on
    :ivar depth: by how much the tags of tokens get longer
    :ivar makes_lists: the value that goes on may be a list with the same file several times
    """

    step: str
    port: str
    kind: Literal["job", "on", "many"]
    next: tuple[str, ...] = ()
    depth: int = 0
    makes_lists: bool = False


class JobReader(Struct, frozen=True):
    """The jobs of a step. Exactly one of them reads each file of an output.

    :ivar step: the step that schedules them
    :ivar depth: by how much their tags are longer than the tag of the output
    """

    step: str
    port: str
    depth: int


class LastReaders(Struct, frozen=True):
    """All that can read the files of an output.

    :ivar jobs: read each file once
    :ivar steps: the names of the other steps that can read the files; these steps have to end
    """

    jobs: frozenset[JobReader] = frozenset()
    steps: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """The names of all steps."""
        return self.steps | {reader.step for reader in self.jobs}


class Removal(Struct, frozen=True):
    """The facts about the removal of intermediate files that are known before a run.

    :ivar readers: by step and output: all that can read the output
    :ivar kept: why outputs stay, by step and output
    :ivar held: why nothing of the jobs of a step is removed before the end of the run, by step
    :ivar passing: the steps whose outputs may be the files that they read
    """

    readers: Mapping[tuple[str, str], LastReaders] = field(default_factory=dict)
    kept: Mapping[tuple[str, str], str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    passing: frozenset[str] = frozenset()

    def read_once(self) -> frozenset[tuple[str, str]]:
        """The outputs whose files go, each when the only job that reads the file has ended."""
        return frozenset(
            (step, port)
            for (step, port), readers in self.readers.items()
            if len(readers.jobs) == 1 and not readers.steps and (step, port) not in self.kept and step not in self.held
            if self.passing.isdisjoint(reader_of(reader.step) for reader in readers.jobs)
        )


class RemovalOutcome(Struct, frozen=True):
    """The fate of the files of an output, for people.

    :ivar goes: whether the files are removed
    :ivar why: when the files go, or why they stay
    """

    step: str
    port: str
    goes: bool
    why: str


def outcome(removal: Removal, step: str, port: str) -> RemovalOutcome:
    """Say what happens to the files of an output."""
    readers = removal.readers[step, port]
    # A step may read the files by several inputs.
    once = set(filter(None, (reader_of(each.step) for each in readers.jobs)))
    ended = set(filter(None, map(reader_of, readers.steps)))
    if (why := removal.kept.get((step, port))) is not None:
        return RemovalOutcome(step, port, False, why)
    if RESULT in once:
        return RemovalOutcome(step, port, False, "a result of the workflow")
    if (why := removal.held.get(step)) is not None:
        return RemovalOutcome(step, port, True, f"at the end of the run: {why}")
    jobs = {"its jobs": once - ended, "all jobs": ended - {RESULT}}
    when = [f"after {which} of {_named(sorted(names))}" for which, names in jobs.items() if names]
    why = ", and ".join(when) or "when its job has ended: no step reads it"
    if RESULT in ended:
        why = f"{why}, unless it is a result"
    if passing := sorted(removal.passing & (once | ended)):
        why = f"{why}, or later: {_named(passing)} may pass it on"
    return RemovalOutcome(step, port, True, why)


def _named(steps: Sequence[str]) -> str:
    *others, last = steps
    return f"{', '.join(others)} and {last}" if others else last


#: Stands for the collection of a result of the workflow.
RESULT = "result"


def reader_of(schedule: str) -> str | None:
    """The step whose jobs a step of StreamFlow schedules; None: the step schedules no jobs."""
    step, found, _ = schedule.rpartition("/__schedule__")
    return None if not found else RESULT if step.endswith("-collector") else step


def last_readers(passages: Mapping[str, Sequence[Passage]], port: str) -> LastReaders:
    """Find all that can read the files that a step puts on a port.

    :param passages: by port: the steps that read the port
    """
    walk = _ReaderSearch(passages)
    walk.follow(port)
    readers = Counter((reader.step, reader.port) for reader in walk.jobs)
    # A job that gets a file in two ways may be two jobs.
    once = [reader for reader in walk.jobs if readers[reader.step, reader.port] == 1 and reader.step not in walk.steps]
    steps = {step for step, _ in readers} - {reader.step for reader in once}
    # A step with one input of each kind needs both conditions.
    return LastReaders(frozenset(once), frozenset(walk.steps | steps))


class _ReaderSearch:
    def __init__(self, passages: Mapping[str, Sequence[Passage]]) -> None:
        self._passages = passages
        self._seen: set[tuple[str, str]] = set()
        self.jobs: list[JobReader] = []
        self.steps: set[str] = set()

    def follow(self, port: str) -> None:
        """Follow a file on all ways on which the file goes on once, and then on all others."""
        many = [*self._follow_once(port, 0, False, frozenset())]
        while many:
            passage = many.pop()
            if (passage.step, passage.port) not in self._seen:
                self._seen.add((passage.step, passage.port))
                self.steps.add(passage.step)
                many += [further for name in passage.next for further in self._passages.get(name, ())]

    def _follow_once(self, port: str, depth: int, in_lists: bool, seen: frozenset[str]) -> Iterator[Passage]:
        """Yield the steps from which on a file may be read several times."""
        for passage in self._passages.get(port, ()):
            repeats = in_lists and passage.depth > 0
            if passage.kind == "job":
                self.jobs.append(JobReader(passage.step, passage.port, depth))
            elif passage.kind == "many" or repeats or port in seen:
                yield passage
            else:
                # What reads the file itself, such as `loadContents`, has read the file when a job behind it has it.
                if not any(self._passages.get(name) for name in passage.next):
                    self.steps.add(passage.step)
                for name in passage.next:
                    further = in_lists or passage.makes_lists
                    yield from self._follow_once(name, depth + passage.depth, further, seen | {port})
