"""How many chunks a read session reads at the same time, on a storage that is simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.hints.bandwidth import AutoConstraint, StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.parts.chunks import chunk_size
from streamflow_io.parts.director import (
    Announced,
    Arrived,
    Began,
    ChunkRead,
    Consumed,
    Director,
    Event,
    Granted,
    Read,
    Submit,
    Withdraw,
)
from streamflow_io.parts.reader_tasks import ReaderLimit, readers_of
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import READ_SESSIONS, AdmissionRequest, Demand, Placement
from streamflow_io.storage.admission.observations import Observation

MB = 1_000_000
GB = 1000 * MB
#: MB/s of a storage, by the number of readers.
Curve = Callable[[int], float]

BANDWIDTH = 400.0
AUTO = AutoConstraint()


def congestion(readers: int) -> float:
    return min(60 * readers, BANDWIDTH / (1 + 0.005 * (readers - 1)))


def storage(**more: object) -> StorageConfig:
    return StorageConfig.model_validate({"name": "lustre", "path": "/lustre", "read": BANDWIDTH, **more})


@dataclass
class Session:
    """A file that is read from a simulated storage, under the real director and admission.

    :ivar tasks: I/O tasks of a step: when each arrives, and how long it takes
    :ivar lost_at: the reader is gone when this many chunks have been granted; another session begins
    :ivar reading: by chunk, its bytes that are left and how many it has
    """

    curve: Curve
    readers: ReaderLimit
    size: int
    window: int = 2 * GB
    executors: int = 64
    consume_seconds: float = 0.0
    tasks: list[tuple[float, float]] = field(default_factory=list)
    lost_at: int | None = None
    now: float = 0.0
    most: int = 0
    granted: int = 0
    reading: dict[int, tuple[float, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chunk = chunk_size(BANDWIDTH)
        self.submitted: dict[int, str] = {}
        self.number = 0
        self.running: dict[str, float] = {}
        self.task_seconds: dict[str, float] = {}
        self.admission = Admission(self.executors)
        self.admission.set_locations("local", {"here": 2})
        self.demand = Demand(READ_SESSIONS, True, self.readers.constraint, "read", (Placement("local", storage()),))
        self.begin()

    def begin(self) -> None:
        self.number += 1
        self.director = Director(self.size, self.chunk, self.window, self.readers.most)
        self.ends: list[tuple[float, int]] = []

    def run(self) -> float:
        """Read all, and say how long it took."""
        self.announce()
        while self.decide() or self.reading or self.ends or self.tasks or self.running:
            self.advance()
            if self.granted == self.lost_at:
                self.lost_at = None
                self.lose()
        assert not self.submitted
        return self.now

    def announce(self) -> None:
        for begin in range(0, self.size, self.chunk):
            self.handle(Announced(((begin, min(self.size, begin + self.chunk)),)))
        self.handle("all announced")
        self.handle(Began(0))

    def lose(self) -> None:
        self.handle("lost")
        for job in self.submitted.values():
            self.admission.release(job, self.now)
        self.submitted, self.reading = {}, {}
        self.begin()
        self.announce()

    def handle(self, event: Event) -> None:
        for instruction in self.director.handle(event):
            match instruction:
                case Submit(chunk):
                    self.submitted[chunk] = f"{self.number}.{chunk}"
                    self.admission.submit(AdmissionRequest(self.submitted[chunk], self.demand), self.now)
                case Withdraw(chunk):
                    self.admission.release(self.submitted.pop(chunk), self.now)
                case Read(chunk, spans):
                    size = sum(end - begin for begin, end in spans)
                    self.reading[chunk] = size, size
                case Arrived(part):
                    self.ends.append((self.now + self.consume_seconds, part))

    def decide(self) -> bool:
        grants = self.admission.decide(self.now)
        for grant in grants:
            if grant.step != READ_SESSIONS:
                self.running[grant.job] = self.now + self.task_seconds[grant.job]
                continue
            self.granted += 1
            self.handle(Granted(int(grant.job.split(".")[1])))
        self.most = max(self.most, len(self.reading))
        return bool(grants)

    def advance(self) -> None:
        rate = self.curve(len(self.reading)) * MB / len(self.reading) if self.reading else 1.0
        times = [*self.running.values(), *(when for when, _ in (*self.ends[:1], *self.tasks[:1]))]
        step = min([left / rate for left, _ in self.reading.values()] + [max(0.0, when - self.now) for when in times])
        self.now += step
        self.run_tasks()
        done = [chunk for chunk, (left, _) in self.reading.items() if left - step * rate < 1]
        self.reading = {chunk: (left - step * rate, size) for chunk, (left, size) in self.reading.items()}
        for chunk in done:
            _, size = self.reading.pop(chunk)
            self.admission.release(self.submitted.pop(chunk), self.now)
            self.handle(ChunkRead(chunk, size))
        while self.ends and self.ends[0][0] <= self.now:
            self.handle(Consumed(self.ends.pop(0)[1]))

    def run_tasks(self) -> None:
        for job in [job for job, end in self.running.items() if end <= self.now]:
            del self.running[job]
            self.admission.release(job, self.now, Observation(1.0))
        while self.tasks and self.tasks[0][0] <= self.now:
            _, seconds = self.tasks.pop(0)
            job = f"/save/0.{len(self.task_seconds)}"
            self.task_seconds[job] = seconds
            self.admission.submit(AdmissionRequest(job, replace(self.demand, step="/save", constraint=AUTO)), self.now)


@given(
    st.floats(20, 400),
    st.floats(0, 0.3),
    st.integers(1, 20),
    st.sampled_from([2, 8, 64]),
    st.sampled_from([0.0, 0.5]),
    st.integers(1, 16),
)
def test_all_is_read_whatever_the_storage_and_the_jobs_do(
    stream: float, congested: float, window: int, executors: int, consume: float, readers: int
) -> None:
    def curve(k: int) -> float:
        return min(stream * k, BANDWIDTH / (1 + congested * (k - 1)))

    room = window * chunk_size(BANDWIDTH)
    found = readers_of(storage(readers=readers))
    session = Session(curve, found, 3 * GB, room, executors, consume_seconds=consume)
    session.run()
    assert session.most <= min(executors, readers)
    assert session.director.ended == "done"


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0.1, 30)), max_size=20).map(sorted),
    st.integers(1, 75),
    st.sampled_from([2, 64]),
    st.sampled_from([1, 5]),
)
def test_io_tasks_beside_and_a_reader_that_is_lost(
    tasks: list[tuple[float, float]], lost_at: int, executors: int, readers: int
) -> None:
    """The I/O tasks learn, and keep chunks away for some time. All of them end."""
    found = readers_of(storage(readers=readers))
    session = Session(congestion, found, 3 * GB, executors=executors, tasks=tasks, lost_at=lost_at)
    session.run()
    assert not session.running
    assert session.director.ended == "done"


def test_each_chunk_has_an_equal_part_of_the_bandwidth() -> None:
    assert readers_of(None) == ReaderLimit(4, None)
    assert readers_of(storage()) == ReaderLimit(4, StaticConstraint(100))
    assert readers_of(storage(readers=7)) == ReaderLimit(7, StaticConstraint(57.142857))
    assert readers_of(storage(read=None, write=100)) == ReaderLimit(4, StaticConstraint(25))


@pytest.mark.parametrize("number", [1, 3, 7, 64])
def test_as_many_run_as_are_given(number: int) -> None:
    session = Session(congestion, readers_of(storage(readers=number)), 4 * GB, 8 * GB)
    session.run()
    assert session.most == number
