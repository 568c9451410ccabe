"""How many chunks a read session reads at the same time: fixed, or learned on storages that are simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.admission.admission import Admission
from streamflow_io.admission.demand import READ_SESSIONS, Demand, Placement, Request
from streamflow_io.admission.epochs import EpochEnded
from streamflow_io.admission.learner import Chosen, Learner
from streamflow_io.admission.learners import Subject
from streamflow_io.admission.observations import Observation
from streamflow_io.admission.registry import ConstraintRegistry, RegisteredConstraint
from streamflow_io.hints.bandwidth import AutoConstraint, Bounds, StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.sessions.chunks import chunk_size
from streamflow_io.sessions.director import (
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
from streamflow_io.sessions.readers import Readers, fixed_readers, learned_readers, readers_of

MB = 1_000_000
GB = 1000 * MB
#: MB/s of a storage with so many readers.
Curve = Callable[[int], float]

BANDWIDTH = 400.0
AUTO = AutoConstraint()
CURVES: dict[str, Curve] = {
    "one stream saturates": lambda k: BANDWIDTH,
    "60 MB/s per stream": lambda k: min(60 * k, BANDWIDTH),
    "25 MB/s per stream": lambda k: min(25 * k, BANDWIDTH),
    "seeks": lambda k: BANDWIDTH / (1 + 0.3 * (k - 1)),
    "congestion": lambda k: min(60 * k, BANDWIDTH / (1 + 0.005 * (k - 1))),
    "steep congestion": lambda k: min(100 * k, BANDWIDTH / (1 + 0.1 * max(0, k - 4))),
}


def storage(**more: object) -> StorageConfig:
    return StorageConfig.model_validate({"name": "lustre", "path": "/lustre", "read": BANDWIDTH, **more})


@dataclass
class Session:
    """A file that is read from a simulated storage, under the real director, admission and learner.

    :ivar tasks: I/O tasks of a step: when each arrives, and how long it takes
    :ivar lost_at: the reader is gone when so many chunks have been granted; another session begins
    :ivar reading: by chunk, its bytes that are left, how many it has, and since when it is read
    """

    curve: Curve
    readers: Readers
    size: int
    window: int = 2 * GB
    executors: int = 64
    remembered: ConstraintRegistry | None = None
    noise: Callable[[], float] = lambda: 1.0
    consume_seconds: float = 0.0
    tasks: list[tuple[float, float]] = field(default_factory=list)
    lost_at: int | None = None
    now: float = 0.0
    most: int = 0
    granted: int = 0
    reading: dict[int, tuple[float, int, float]] = field(default_factory=dict)
    chosen: list[tuple[int, Chosen]] = field(default_factory=list)
    epochs: list[EpochEnded] = field(default_factory=list)
    registry: ConstraintRegistry | None = None

    def __post_init__(self) -> None:
        self.chunk = chunk_size(BANDWIDTH)
        self.submitted: dict[int, str] = {}
        self.number = 0
        self.running: dict[str, float] = {}
        self.task_seconds: dict[str, float] = {}
        self.admission = Admission(self.executors, self._learner)
        self.admission.set_locations("local", {"here": 2})
        self.demand = Demand(READ_SESSIONS, True, self.readers.constraint, "read", (Placement("local", storage()),))
        self.begin()

    @property
    def alike(self) -> bool:
        return isinstance(self.readers.constraint, AutoConstraint)

    def begin(self) -> None:
        self.number += 1
        self.director = Director(self.size, self.chunk, self.window, self.readers.most, alike=self.alike)
        self.ends: list[tuple[float, int]] = []

    def _learner(self, subject: Subject, executors: int) -> Learner:
        return Learner(BANDWIDTH, executors, subject.constraint.bounds, self.remembered)

    def run(self) -> float:
        """Read all, and say how long it took."""
        self.announce()
        while self.decide() or self.reading or self.ends or self.tasks or self.running:
            self.advance()
            if self.granted == self.lost_at:
                self.lost_at = None
                self.lose()
        # Else the first ones are smaller.
        assert self.number > 1 or not self.alike or self.granted == -(-self.size // self.chunk)
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
                    self.admission.submit(Request(self.submitted[chunk], self.demand), self.now)
                case Withdraw(chunk):
                    self.admission.release(self.submitted.pop(chunk), self.now)
                case Read(chunk, spans):
                    size = sum(end - begin for begin, end in spans)
                    self.reading[chunk] = size * self.noise(), size, self.now
                case Arrived(part):
                    self.ends.append((self.now + self.consume_seconds, part))

    def decide(self) -> bool:
        self.drain()
        grants = self.admission.decide(self.now)
        for grant in grants:
            if grant.step != READ_SESSIONS:
                self.running[grant.job] = self.now + self.task_seconds[grant.job]
                continue
            self.granted += 1
            self.handle(Granted(int(grant.job.split(".")[1])))
        self.most = max(self.most, len(self.reading))
        self.drain()
        return bool(grants)

    def drain(self) -> None:
        for told in self.admission.drain():
            self.registry = told.registry
            if isinstance(told.event, EpochEnded):
                self.epochs.append(told.event)
            else:
                self.chosen.append((self.granted, told.event))

    def advance(self) -> None:
        rate = self.curve(len(self.reading)) * MB / len(self.reading) if self.reading else 1.0
        times = [*self.running.values(), *(when for when, _ in (*self.ends[:1], *self.tasks[:1]))]
        step = min(
            [left / rate for left, _, _ in self.reading.values()] + [max(0.0, when - self.now) for when in times]
        )
        self.now += step
        self.run_tasks()
        done = [chunk for chunk, (left, _, _) in self.reading.items() if left - step * rate < 1]
        self.reading = {chunk: (left - step * rate, *rest) for chunk, (left, *rest) in self.reading.items()}  # type: ignore[misc]
        for chunk in done:
            _, size, since = self.reading.pop(chunk)
            observation = Observation(self.now - since, size, is_io_only=True)
            self.admission.release(self.submitted.pop(chunk), self.now, observation)
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
            self.admission.submit(Request(job, replace(self.demand, step="/save", constraint=AUTO)), self.now)

    @property
    def learned(self) -> tuple[int, int]:
        """How many readers were learned, and of how many chunks."""
        ((chunks, chosen),) = [(chunks, event) for chunks, event in self.chosen if event.reason == "learned"]
        return int(BANDWIDTH / chosen.constraint + 1e-6), chunks


def auto(window: int = 2 * GB) -> Readers:
    return learned_readers(storage(), chunk_size(BANDWIDTH), window)


@pytest.mark.parametrize("name", CURVES)
def test_the_number_that_is_learned_of_31_chunks_is_within_ten_percent_of_the_best(name: str) -> None:
    curve = CURVES[name]
    session = Session(curve, auto(), 10 * GB)
    session.run()
    readers, chunks = session.learned
    assert chunks <= 31
    assert curve(readers) >= 0.9 * max(map(curve, range(1, 17)))
    assert [(epoch.concurrency, epoch.jobs) for epoch in session.epochs] == [(k, k) for k in (16, 8, 4, 2, 1)]


@pytest.mark.parametrize("name", CURVES)
def test_what_was_learned_is_as_fast_as_the_best_number(name: str) -> None:
    curve, size = CURVES[name], 4 * GB
    first = Session(curve, auto(), size)
    first.run()
    again = Session(curve, auto(), size, remembered=first.registry)
    fixed = {
        readers: Session(curve, Readers(readers, StaticConstraint(BANDWIDTH / readers)), size).run()
        for readers in (1, 2, 4, 8, 16)
    }
    assert again.run() <= 1.1 * min(fixed.values())
    assert not again.epochs


@pytest.mark.parametrize("seed", range(5))
def test_chunks_that_take_more_or_less_than_others(seed: int) -> None:
    chance = Random(seed)
    curve = CURVES["congestion"]
    session = Session(curve, auto(), 10 * GB, noise=lambda: chance.uniform(0.9, 1.1))
    session.run()
    readers, chunks = session.learned
    assert (chunks, curve(readers) >= 0.9 * max(map(curve, range(1, 17)))) == (31, True)


def test_what_takes_less_than_a_second_does_not_count_as_drift() -> None:
    """Chunks of 0.02 to 0.18 s: three of them say nothing of their storage."""
    learned_again = 0
    for seed in range(10):
        chance = Random(seed)
        session = Session(CURVES["seeks"], auto(), 10 * GB, noise=partial(chance.uniform, 0.2, 1.8))
        session.run()
        learned_again += sum(event.reason == "drifted" for _, event in session.chosen)
    assert learned_again <= 30


@given(
    st.floats(20, 400), st.floats(0, 0.3), st.integers(1, 20), st.sampled_from([2, 8, 64]), st.sampled_from([0.0, 0.5])
)
def test_all_is_read_whatever_the_storage_and_the_jobs_do(
    stream: float, congestion: float, window: int, executors: int, consume: float
) -> None:
    def curve(k: int) -> float:
        return min(stream * k, BANDWIDTH / (1 + congestion * (k - 1)))

    room = window * chunk_size(BANDWIDTH)
    session = Session(curve, auto(room), 3 * GB, room, executors, consume_seconds=consume)
    session.run()
    assert session.most <= min(executors, session.readers.most)
    assert session.director.ended == "done"


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0.1, 30)), max_size=20).map(sorted),
    st.integers(1, 75),
    st.sampled_from([2, 64]),
    st.sampled_from([None, 1, 5]),
)
def test_io_tasks_beside_and_a_reader_that_is_lost(
    tasks: list[tuple[float, float]], lost_at: int, executors: int, fixed: int | None
) -> None:
    """Both learn, each keeps the other away for some time, and all of them end."""
    readers = auto() if fixed is None else fixed_readers(storage(readers=fixed))
    assert readers is not None
    session = Session(CURVES["congestion"], readers, 3 * GB, executors=executors, tasks=tasks, lost_at=lost_at)
    session.run()
    assert not session.running
    assert session.director.ended == "done"


def test_a_number_that_is_given() -> None:
    assert fixed_readers(None) == Readers(4, None)
    assert fixed_readers(storage(readers=7)) == Readers(7, StaticConstraint(57.142857))
    assert fixed_readers(storage(read=None, write=100)) == Readers(4, StaticConstraint(25))
    assert fixed_readers(storage()) is None
    assert fixed_readers(storage(readers="auto")) is None
    assert fixed_readers(storage(readers="auto", read=None, write=100)) is None


@pytest.mark.parametrize("number", [1, 3, 7, 64])
def test_as_many_run_as_are_given(number: int) -> None:
    readers = fixed_readers(storage(readers=number))
    assert readers is not None
    session = Session(CURVES["congestion"], readers, 4 * GB, 8 * GB)
    session.run()
    assert session.most == number
    assert not session.epochs


@pytest.mark.parametrize(
    ("bandwidth", "window", "most"),
    [(400, 2 * GB, 16), (400, 10 * 40 * MB, 8), (400, MB, 1), (1, 2 * GB, 1), (10, 2 * GB, 4), (1e12, 2 * GB, 16)],
)
def test_no_more_are_tried_than_may_be_of_use(bandwidth: float, window: int, most: int) -> None:
    found = learned_readers(storage(read=bandwidth), chunk_size(bandwidth), window)
    assert found.most == most
    assert isinstance(found.constraint, AutoConstraint)
    assert found.constraint.bounds == Bounds(pytest.approx(bandwidth / most, rel=1e-6), bandwidth, 2)


def test_a_file_of_few_chunks_uses_what_is_remembered() -> None:
    known = ConstraintRegistry(
        tuple(RegisteredConstraint(400 / k, 1.0 * k if k > 8 else 1.0, k, k) for k in (16, 8, 4))
    )
    learned = auto()
    assert readers_of(learned, storage(), 31, None) is learned
    assert readers_of(learned, storage(), 30, known) == Readers(16, StaticConstraint(50))
    half = ConstraintRegistry(known.entries[:1], is_complete=False)
    for remembered in (None, half):
        assert readers_of(learned, storage(), 30, remembered) == Readers(4, StaticConstraint(100))
