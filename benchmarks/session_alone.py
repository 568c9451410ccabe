"""A read session and its consumers without StreamFlow, which would be measured otherwise where consumers are many.

Director and `sfio-node read` are those of a run. Consumers are no processes, but what a few
processes do one after the other, as the cores of a machine do: each opens the file, reads its range in pieces of
64 KiB, and may wait instead of computing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamflow.core.deployment import LocalTarget

from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.parts.read_session import ReadAheadSession
from streamflow_io.parts.session_starter import SessionStarter
from streamflow_io.records.files import SessionEndRecord
from streamflow_io.records.records import Record
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.storage.storages import Storages

from .model import Sample
from .node import with_runtime
from .processes import CommandError
from .tools import MEBIBYTE
from .workflows import TOOL
from .workload import Outcome

_BLOCK = 65536
_AT_ONCE = 2
_GIB = 1 << 30
_EXIT_SECONDS = 10.0
RATE, MEMORY, CPU = "MB/s", "memory_mib", "cpu_s_per_gib"


@dataclass(frozen=True)
class Consumers:
    """Readers of a file, each of an equal part of it.

    :ivar wait: seconds for each MiB, after it was read
    :ivar selects: jobs that select their own part, which do not wait until it has arrived
    """

    count: int
    wait: float = 0.0
    selects: bool = False

    def cuts(self, size: int) -> list[tuple[int, int]]:
        """Where the parts begin and end."""
        return list(itertools.pairwise(size * number // self.count for number in range(self.count + 1)))


@dataclass(frozen=True)
class Session:
    """How a file is read ahead.

    :ivar readers: chunks at the same time
    :ivar bandwidth: of its storage, MB/s
    :ivar window: MB; none: what a run takes
    """

    bandwidth: int
    readers: int = 4
    window: int | None = None


def read_alone(file: Path, consumers: Consumers) -> Outcome:
    """Let consumers read a file that is not read ahead."""

    async def run() -> tuple[float, str]:
        async with _Slots(file, consumers) as slots:
            return await slots.consume(None)

    seconds, digest = asyncio.run(run())
    return _outcome(file, consumers.count, seconds, digest, {})


def read_ahead(file: Path, consumers: Consumers, session: Session, directory: Path) -> Outcome:
    """Let consumers read a file that a session reads ahead; each begins when its part has arrived.

    :param directory: an empty one, for the node runtime
    :raises CommandError: if the session did not read to its end, or its reader does not report its usage
    """

    async def action(runtime: EmbeddedRuntime) -> Outcome:
        return await _read_once(file, consumers, session, runtime)

    return with_runtime(directory, action)


async def _read_once(file: Path, consumers: Consumers, session: Session, runtime: EmbeddedRuntime) -> Outcome:
    records: list[Record] = []
    storage = StorageConfig(name="disk", path="/", read=session.bandwidth, readers=session.readers)
    config = SchedulerConfig(storages=(storage,), sessionWindow=session.window)
    storages = Storages(config.storages, Sites({}))
    starter = SessionStarter(config, storages, records.append)
    async with _Slots(file, consumers) as slots:
        if (worth := starter.look(str(file), LocalTarget())) is None:
            raise CommandError(f"{file} is not worth a read session")
        begun = time.monotonic()
        if (reading := await starter.begin("/read", worth, runtime, 1, "selected")) is None:
            raise CommandError(f"{file} is not read ahead")
        for cut in consumers.cuts(worth.identity.size):
            reading.announce([cut])
        reading.all_announced()
        _, digest = await slots.consume(reading)
        seconds = time.monotonic() - begun
    usage = await _usage(runtime.directory, worth.identity.size)
    await reading.close()
    ends = [record for record in records if isinstance(record, SessionEndRecord)]
    if [end.reason for end in ends] != ["done"]:
        raise CommandError(f"the read session has ended: {', '.join(end.reason for end in ends) or 'not at all'}")
    return _outcome(file, consumers.count, seconds, digest, usage)


class _Slots:
    """The processes that consume: as many as there are cores for."""

    def __init__(self, file: Path, consumers: Consumers) -> None:
        self._command = [*TOOL, "read-ranges", str(file), str(_BLOCK), str(consumers.wait)]
        self._cuts = consumers.cuts(file.stat().st_size)
        self._selects = consumers.selects
        self._processes: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> _Slots:
        pipe = asyncio.subprocess.PIPE
        for _ in range(min(_AT_ONCE, len(self._cuts))):
            process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
            self._processes.append(process)
            await _line(process)
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def consume(self, session: ReadAheadSession | None) -> tuple[float, str]:
        """Let all consume.

        :return: seconds, and a digest of the bytes that each consumer has read
        """
        begun = time.monotonic()
        numbers = iter(range(len(self._cuts)))
        found = [""] * len(self._cuts)

        async def slot(process: asyncio.subprocess.Process) -> None:
            assert process.stdin is not None
            for number in numbers:
                begin, end = self._cuts[number]
                if session is not None and not self._selects:
                    await session.arrived(number)
                process.stdin.write(f"{begin} {end - begin}\n".encode())
                found[number] = await _line(process)
                if session is not None:
                    session.consume(number)

        await asyncio.gather(*map(slot, self._processes))
        return time.monotonic() - begun, hashlib.sha256(" ".join(found).encode()).hexdigest()


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    if not (line := await process.stdout.readline()):
        raise CommandError("a consumer has ended")
    return line.decode().strip()


async def _usage(directory: Path, size: int) -> dict[str, float]:
    """The usage of the last reader, by its own account."""
    deadline = time.monotonic() + _EXIT_SECONDS
    while time.monotonic() < deadline:
        for event in await asyncio.to_thread(_last_events, directory):
            if event["event"] == "exit":
                usage = event["usage"]
                return {MEMORY: usage["max_rss"] / MEBIBYTE, CPU: usage["wrapper_cpu"] * _GIB / size}
        await asyncio.sleep(0.05)
    raise CommandError("the reader does not end")


def _last_events(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in max(directory.glob("jobs/*/events.jsonl")).read_bytes().splitlines()]


def _outcome(file: Path, count: int, seconds: float, digest: str, further: dict[str, float]) -> Outcome:
    size = file.stat().st_size
    sample = Sample(wall=seconds, window=seconds, further={RATE: size / seconds / 1e6, **further})
    return Outcome(sample, {f"what {count} consumers of {file.name} read": digest})
