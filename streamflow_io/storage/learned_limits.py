"""Learned limits: how many MB/s of a storage the jobs of a tool should have."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.workflow import Job
from typing_extensions import Self

from streamflow_io.adapters.tokens import file_bytes
from streamflow_io.hints.bandwidth import AutoConstraint
from streamflow_io.records.learned.database import LearnedEntry, SizeKey, size_class_of
from streamflow_io.records.learned.remembered import Remembered

from .admission.demand import Demand
from .admission.learner import Learner
from .admission.learners import LearningEvent, Subject
from .admission.registry import ConstraintRegistry


class LearnedLimit(LearnedEntry, frozen=True):
    """The constraint registry of a tool on a storage.

    :ivar storage: the name of the storage, for people
    :ivar executors: the ioExecutors of the location
    :ivar used: how many runs have started from the registry
    """

    kind: ClassVar[str] = "limit"
    key: SizeKey
    storage: str
    executors: int
    registry: ConstraintRegistry
    used: int = 0

    @property
    def order(self) -> tuple[Any, ...]:
        return self.step, self.storage, self.key.size_class

    def merged(self, known: Self | None) -> Self:
        """Return the entry to be kept: another run may have had more jobs of the tool meanwhile, and learned more."""
        if known is None or self.registry.is_complete:
            return self
        has_more = known.registry.is_complete or len(known.registry.entries) > len(self.registry.entries)
        return known if has_more else self


class _Known(Struct, frozen=True):
    """The registry of a subject from earlier runs.

    :ivar registry: None: nothing was learned before
    """

    key: SizeKey
    registry: ConstraintRegistry | None


class RememberedLimits:
    """Constraint registries of earlier runs, by tool, storage and size class.

    The file on disk never makes a run fail. If the file cannot be read or written, one warning says so.

    :param path: the file
    :param tools: the digest of the tool of each step
    """

    def __init__(self, path: Path, tools: Mapping[str, str]) -> None:
        self._path = path
        self._tools = tools
        self._kept = Remembered(path, LearnedLimit, (), "Learned limits are")
        self._known: dict[Subject, _Known] = {}
        # The size class of the first job, by step and by digest of the tool.
        self._classes: dict[str, int] = {}
        self._classes_of_tools: defaultdict[str, list[int]] = defaultdict(list)
        self._lock = asyncio.Lock()
        self._saving: set[asyncio.Task[None]] = set()

    async def load(self, demand: Demand, job: Job) -> Demand:
        """Read the registries of a step, before its first job is submitted.

        :return: the demand with the name of the tool. Steps with the same tool and jobs of about the same size have one
            name
        """
        if not isinstance(demand.constraint, AutoConstraint):
            return demand
        tool = self._tools[demand.step]
        return await self.load_tool(demand, demand.constraint, tool, self._size_class(demand.step, tool, job))

    async def load_tool(self, demand: Demand, constraint: AutoConstraint, tool: str, size_class: int) -> Demand:
        """Read the registries of a tool, by its digest. Otherwise like :meth:`load`."""
        demand = replace(demand, tool=f"{tool} {size_class}")
        async with self._lock:
            for storage in dict.fromkeys(placement.storage for placement in demand.placements):
                if storage is not None:
                    subject = Subject(demand.tool, storage, constraint, demand.direction)
                    if subject not in self._known:
                        key = SizeKey(tool, _identity(subject), size_class)
                        self._known[subject] = _Known(key, await self._read(key))
        return demand

    def _size_class(self, step: str, tool: str, job: Job) -> int:
        """Return the size class of a step's first job, or a near one of another step with the same tool."""
        if step not in self._classes:
            found = size_class_of(file_bytes(job.inputs))
            of_tool = self._classes_of_tools[tool]
            near = min(of_tool, key=lambda other: abs(other - found), default=None)
            if near is None or abs(near - found) > 1:
                of_tool.append(found)
                near = found
            self._classes[step] = near
        return self._classes[step]

    def make_learner(self, subject: Subject, executors: int) -> Learner:
        """Make a learner with the registry of earlier runs. :meth:`load` must have been called before."""
        bandwidth = subject.storage.bandwidth(subject.direction)
        remembered = self._known[subject].registry
        return Learner(bandwidth, executors, subject.constraint.bounds, remembered=remembered)

    def learned(self, event: LearningEvent) -> None:
        """Save what has been learned, in the background."""
        self._save(self._kept.remember(self._limit(event)))

    def contradicted(self, event: LearningEvent) -> None:
        """Forget the registry of earlier runs, in the background: what is learned now has fewer results at first."""
        self._save(self._kept.forget([self._limit(event)]))

    async def close(self) -> None:
        """Wait until everything is saved."""
        await asyncio.gather(*self._saving)

    async def _read(self, key: SizeKey) -> ConstraintRegistry | None:
        # Read again for each key: another run may have learned meanwhile.
        found = {limit.key: limit for limit in await asyncio.to_thread(self._kept.read)}
        # Jobs of about the same size have one registry. A registry that does not fit will be contradicted.
        limit = next((found[near] for near in key.near if near in found), None)
        if limit is None:
            return None
        await self._kept.update([limit.key], lambda known: replace(known, used=known.used + 1))
        return limit.registry

    def _limit(self, event: LearningEvent) -> LearnedLimit:
        key, storage = self._known[event.subject].key, event.subject.storage.name
        return LearnedLimit(key, event.step, time.time(), storage, event.executors, event.registry)

    def _save(self, saving: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(saving)
        self._saving.add(task)
        task.add_done_callback(self._saving.discard)


def _identity(subject: Subject) -> str:
    """Return a text of all that must be the same for a registry to hold again."""
    storage = subject.storage
    where = f"{storage.path} ({storage.scope}{f', {storage.deployment}' if storage.deployment else ''})"
    bandwidth = f"{subject.direction} {storage.bandwidth(subject.direction):g} MB/s"
    return f"{storage.name}: {where}, {bandwidth}, {subject.constraint}"
