"""Runs of a workflow with `streaming: auto` on two cores, in simulated time: real rehearsals of jobs that do nothing.

A job uses CPU time, and nothing else. A reader of a stream is never ahead of its writers. A rehearsal gets what jobs
leave of the cores. Each of its runs needs the CPU time of its job, and makes the same outputs.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Job, Token
from streamflow.cwl.command import CWLCommand
from streamflow.workflow.token import FileToken, ListToken

from streamflow_io.adapters.attempts import StreamingJobs
from streamflow_io.adapters.jobs import JobState
from streamflow_io.graph.candidates import Candidate
from streamflow_io.jobs.programs import Programs
from streamflow_io.proofs import rehearsals as module
from streamflow_io.proofs.findings import Findings, RememberedInconclusive
from streamflow_io.proofs.rehearsable_jobs import RehearsableJobs
from streamflow_io.proofs.rehearsal import Rehearsal
from streamflow_io.proofs.rehearsal_rules import Finding
from streamflow_io.proofs.rehearsals import Rehearsals
from streamflow_io.records.learned.proofs import RememberedProofs
from streamflow_io.records.learned.remembered import Remembered
from streamflow_io.runtime.protocol import ExitEvent

CORES = 2
#: Seconds: between two looks at the cores, of StreamFlow's work before and after a command, and of a run beside its
#: command.
_TICK, _BEFORE, _AFTER, _BESIDE = 0.02, 0.15, 0.1, 0.25


@dataclass(frozen=True)
class Read:
    """An input.

    :ivar writers: the steps that write its files
    :ivar sizes: of the files, in bytes
    :ivar is_cut: the tool fails at once if the files are cut off
    """

    writers: tuple[str, ...]
    sizes: tuple[int, ...]
    is_cut: bool = False


@dataclass(frozen=True)
class Step:
    """A step with one job.

    :ivar cpu: its CPU time in seconds
    :ivar after: the steps that it waits for besides
    """

    cpu: float
    reads: Mapping[str, Read] = field(default_factory=dict)
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class SimulatedRun:
    """The outcome of a run.

    :ivar seconds: until the last job has ended
    :ivar waited: seconds from then to the end of the run
    :ivar rehearsed: seconds of CPU time of the rehearsals
    :ivar known: the inputs that stream in the next run, as step/port
    """

    seconds: float
    waited: float
    rehearsed: float
    known: frozenset[str]


class _File(FileToken):  # type: ignore[misc]
    async def get_paths(self, context: Any) -> list[str]:
        return []


class _Time(selectors.DefaultSelector):
    """Never waits: the time goes on at once."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout is not None:
            self.now += timeout
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._simulated = _Time()
        super().__init__(self._simulated)

    def time(self) -> float:
        return self._simulated.now


@dataclass(eq=False)
class _Work:
    left: float
    writers: Sequence[_Work] = ()

    def __post_init__(self) -> None:
        self.all = self.left
        self.is_done = asyncio.Event()

    def go_on(self, seconds: float) -> None:
        self.left -= seconds
        if self.left <= 0:
            self.is_done.set()

    @property
    def part(self) -> float:
        return 1 - max(0.0, self.left) / self.all

    @property
    def runs(self) -> bool:
        return self.left > 0 and all(self.part <= writer.part for writer in self.writers)


class _Cores:
    def __init__(self) -> None:
        self.jobs: set[_Work] = set()
        self.rehearsals: set[_Work] = set()
        self.rehearsed = 0.0

    async def compute(self) -> None:
        while True:
            await asyncio.sleep(_TICK)
            running = [job for job in self.jobs if job.runs]
            each = min(1.0, CORES / max(1, len(running)))
            for job in running:
                job.go_on(each * _TICK)
            left = min(1.0, CORES - each * len(running)) * _TICK
            for rehearsal in self.rehearsals:
                rehearsal.go_on(left)
                self.rehearsed += left

    async def rehearse(self, seconds: float) -> None:
        work = _Work(seconds + _BESIDE)
        self.rehearsals.add(work)
        try:
            await work.is_done.wait()
        finally:
            self.rehearsals.discard(work)


class _Runtime:
    is_here, wrapper, binary = True, "exec", "sfio-node"


class _Run:
    """A run that knows what earlier runs have learned."""

    def __init__(self, steps: Mapping[str, Step], proofs: RememberedProofs, unknown: RememberedInconclusive) -> None:
        self._steps = steps
        self.cores = _Cores()
        self._used = {"host": Hardware(0, 0)}
        self._host = AvailableLocation("host", "d", "host", hardware=Hardware(CORES, 2**20))
        self._known = known_inputs(proofs)
        self._context = SimpleNamespace(
            deployment_manager=SimpleNamespace(get_connector=lambda _: object()),
            scheduler=SimpleNamespace(get_hardware=lambda _: Hardware(1, 100)),
        )
        candidates = {
            f"/{name}": Candidate(
                f"the tool of {name}",
                tuple(step.reads),
                writers={port: [f"/{writer}" for writer in read.writers] for port, read in step.reads.items()},
            )
            for name, step in steps.items()
            if step.reads
        }
        rehearsable = RehearsableJobs(candidates, True, Programs(), StreamingJobs())
        self._rehearsals = Rehearsals(
            rehearsable, Findings(proofs, unknown, "recover", lambda _: None), cast(Any, self._used)
        )
        self._runtime = _Runtime()
        self._free = asyncio.Condition()
        self._began = {name: asyncio.Event() for name in steps}
        self._ended = {name: asyncio.Event() for name in steps}
        self._work: dict[str, _Work] = {}

    async def run(self) -> tuple[float, float, float]:
        """The seconds of the jobs, the seconds to the end of the run, and the CPU time of the rehearsals."""
        time = asyncio.get_running_loop().time
        began, computing = time(), asyncio.create_task(self.cores.compute())
        await asyncio.gather(*map(self._job, self._steps))
        ended = time()
        await self._rehearsals.close()
        computing.cancel()
        return ended - began, time() - ended, self.cores.rehearsed

    async def _job(self, name: str) -> None:
        step = self._steps[name]
        streams = [read for port, read in step.reads.items() if f"{name}/{port}" in self._known]
        files = [read for read in step.reads.values() if read not in streams]
        for other in (*step.after, *(writer for read in files for writer in read.writers)):
            await self._ended[other].wait()
        writers = [writer for read in streams for writer in read.writers]
        for writer in writers:
            await self._began[writer].wait()
        is_guest = not all(self._ended[writer].is_set() for writer in writers)
        async with self._free:
            await self._free.wait_for(lambda: is_guest or self._used["host"].cores + 1 <= CORES)
            self._used["host"] += Hardware(1, 100)
        job = JobState(Job(f"/{name}/0", 0, {}, "/in", "/out", "/tmp"))
        job.allocation = cast(Any, SimpleNamespace(target=SimpleNamespace(deployment=SimpleNamespace(name="d"))))
        job.places = [self._host]
        self._rehearsals.placed(job)
        await asyncio.sleep(_BEFORE)
        await self._command(name, job, [self._work[writer] for writer in writers])
        await asyncio.sleep(_AFTER)
        async with self._free:
            self._used["host"] -= Hardware(1, 100)
            self._free.notify_all()
        self._rehearsals.look()
        self._ended[name].set()

    async def _command(self, name: str, job: JobState, writers: Sequence[_Work]) -> None:
        step, time = self._steps[name], asyncio.get_running_loop().time
        of: Any = SimpleNamespace(
            name=f"/{name}",
            command=CWLCommand(step=cast(Any, None)),
            output_connectors={},
            workflow=SimpleNamespace(context=self._context),
        )
        inputs = {port: _token(port, read.sizes) for port, read in step.reads.items()}
        if not writers:
            self._rehearsals.begins(of, job, cast(Any, self._runtime), inputs)
        began, work = time(), _Work(step.cpu, writers)
        self._work[name] = work
        self.cores.jobs.add(work)
        self._began[name].set()
        await work.is_done.wait()
        self.cores.jobs.discard(work)
        if writers:
            self._rehearsals.begins(of, job, cast(Any, self._runtime), inputs)
        self._rehearsals.succeeded(
            job, {}, ExitEvent(job="0", time=0, success=True, reason="exited", started=began, ended=time())
        )
        self._rehearsals.attempt_ended(job)


def _token(port: str, sizes: Sequence[int]) -> Token:
    names = [f"{port}{number}.txt" for number in range(len(sizes))]
    values = [{"class": "File", "path": f"/none/{name}", "basename": name} for name in names]
    files = [_File({**value, "size": size}) for value, size in zip(values, sizes, strict=True)]
    return ListToken(files) if len(files) > 1 else files[0]


@contextmanager
def _simulated(steps: Mapping[str, Step], runs: Sequence[_Run], loop: _Loop) -> Iterator[None]:
    """Let rehearsals use the cores of the last run, in place of commands."""

    def parts(rehearsal: Rehearsal) -> tuple[Step, Read, int, int]:
        step = steps[rehearsal.original.step.name.strip("/")]
        read = step.reads[rehearsal.port]
        return step, read, sum(read.sizes), sum(sum(each.sizes) for each in step.reads.values())

    async def tried(rehearsal: Rehearsal) -> Finding:
        step, read, *_ = parts(rehearsal)
        await runs[-1].cores.rehearse(step.cpu)
        return Finding("net", read=read.sizes)

    async def refuted_by(rehearsal: Rehearsal, *_: object) -> None:
        step, read, own, everything = parts(rehearsal)
        for _run in range(1 if read.is_cut else 2):
            await runs[-1].cores.rehearse(0 if read.is_cut else step.cpu * (1 - own / everything))

    async def refuted_together(rehearsal: Rehearsal, *_: object) -> None:
        if rehearsal.beside:
            await runs[-1].cores.rehearse(parts(rehearsal)[0].cpu)

    async def nothing(*_: object) -> None:
        return None

    logger = logging.getLogger("streamflow")
    level = logger.level
    with (
        patch.multiple(
            Rehearsal,
            _lack_of_room=nothing,
            _tried=tried,
            _refuted_by=refuted_by,
            _refuted_together=refuted_together,
            _changed=nothing,
        ),
        patch.object(module, "time", SimpleNamespace(monotonic=loop.time)),
        # A file would take real time, in which the simulated time goes on.
        patch.object(Remembered, "_use", nothing),
    ):
        logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logger.setLevel(level)


def known_inputs(proofs: RememberedProofs) -> frozenset[str]:
    """The proven inputs, as step/port."""
    return frozenset(f"{proof.step}/{proof.key.port}".strip("/") for proof in proofs.entries if proof.is_proven)


def simulate_runs(steps: Mapping[str, Step], count: int) -> list[SimulatedRun]:
    """Run a workflow several times with one memory."""
    loop, runs, outcomes = _Loop(), list[_Run](), list[SimulatedRun]()
    proofs, unknown = RememberedProofs(Path("/none"), None), RememberedInconclusive(Path("/none"), None)

    async def all_runs() -> None:
        for _ in range(count):
            runs.append(_Run(steps, proofs, unknown))
            times = await runs[-1].run()
            outcomes.append(SimulatedRun(*times, known_inputs(proofs)))

    try:
        with _simulated(steps, runs, loop):
            loop.run_until_complete(all_runs())
    finally:
        loop.close()
    return outcomes
