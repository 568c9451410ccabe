"""Adapter: limits that were learned in earlier runs, for the learners of this one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import aiofiles.os
from streamflow.core.workflow import Job, Token
from streamflow.log_handler import logger
from streamflow.workflow.token import FileToken, ListToken, ObjectToken

from streamflow_io.admission.demand import Demand
from streamflow_io.admission.learner import Learner
from streamflow_io.admission.learners import LearningEvent, Subject
from streamflow_io.admission.registry import ConstraintRegistry
from streamflow_io.hints.bandwidth import AutoConstraint
from streamflow_io.messages import Code, coded

from .database import LearnedLimitsError
from .store import LearnedFacts, LearnedKey, LearnedLimits, size_class_of


@dataclass(frozen=True)
class _Known:
    """:ivar registry: what was learned before; none: nothing"""

    key: LearnedKey
    registry: ConstraintRegistry | None


class RememberedLimits:
    """Constraint registries of earlier runs, by tool, storage and size class.

    What is kept on disk never makes a run fail: if it cannot be read or written, one warning says so.

    :param path: the file; none: the default one
    :param tools: the digest of the tool of each step
    """

    def __init__(self, path: Path, tools: Mapping[str, str]) -> None:
        self._path = path
        self._tools = tools
        self._limits: LearnedLimits | None = None
        self._failed = False
        self._known: dict[Subject, _Known] = {}
        # By step and by digest of the tool, the size class of the first job.
        self._classes: dict[str, int] = {}
        self._classes_of_tools: defaultdict[str, list[int]] = defaultdict(list)
        self._lock = asyncio.Lock()
        self._saving: set[asyncio.Task[None]] = set()

    async def load(self, demand: Demand, job: Job) -> Demand:
        """Read what is known of a step, before its first job is submitted.

        :return: the demand, with the name of the tool: steps with the same tool, and jobs of about the same size, have
            one name
        """
        if not isinstance(demand.constraint, AutoConstraint):
            return demand
        tool = self._tools[demand.step]
        demand, _ = await self.load_tool(demand, tool, self._size_class(demand.step, tool, job))
        return demand

    async def load_tool(
        self, demand: Demand, tool: str, size_class: int
    ) -> tuple[Demand, Mapping[str, ConstraintRegistry]]:
        """Read what is known of a tool.

        :param demand: with an auto constraint
        :param tool: its digest
        :param size_class: of the jobs
        :return: the demand, with the name of the tool; and what is known, by the name of the storage
        """
        constraint = demand.constraint
        assert isinstance(constraint, AutoConstraint)
        demand = replace(demand, tool=f"{tool} {size_class}")
        found = {}
        async with self._lock:
            for storage in dict.fromkeys(placement.storage for placement in demand.placements):
                if storage is not None:
                    subject = Subject(demand.tool, storage, constraint, demand.direction)
                    if subject not in self._known:
                        key = LearnedKey(tool, _identity(subject), size_class)
                        self._known[subject] = _Known(key, await self._read(key))
                    if (registry := self._known[subject].registry) is not None:
                        found[storage.name] = registry
        return demand, found

    def _size_class(self, step: str, tool: str, job: Job) -> int:
        """That of the first job of a step, or of another step with the same tool if it is about the same."""
        if step not in self._classes:
            found = size_class_of(sum(map(input_bytes, job.inputs.values())))
            of_tool = self._classes_of_tools[tool]
            near = min(of_tool, key=lambda other: abs(other - found), default=None)
            if near is None or abs(near - found) > 1:
                of_tool.append(found)
                near = found
            self._classes[step] = near
        return self._classes[step]

    def make_learner(self, subject: Subject, executors: int) -> Learner:
        """A learner that knows what was learned in earlier runs; :meth:`load` has been called before."""
        bandwidth = subject.storage.bandwidth(subject.direction)
        remembered = self._known[subject].registry
        return Learner(bandwidth, executors, subject.constraint.bounds, remembered=remembered)

    def learned(self, event: LearningEvent) -> None:
        """Keep what has been learned."""
        task = asyncio.create_task(self._save(event))
        self._saving.add(task)
        task.add_done_callback(self._saved)

    async def close(self) -> None:
        """Wait until all is kept."""
        await asyncio.gather(*self._saving, return_exceptions=True)
        if self._limits is not None:
            await self._limits.close()
            self._limits = None

    async def _read(self, key: LearnedKey) -> ConstraintRegistry | None:
        try:
            if self._failed or (self._limits is None and not await aiofiles.os.path.exists(self._path)):
                return None
            limits = await self._open()
            by_class = await limits.load(key.tool, key.storage)
            # Jobs of about the same size; what does not fit after all will be contradicted.
            near = [size for size in by_class if abs(size - key.size_class) <= 1]
            if not near:
                return None
            size_class = min(near, key=lambda size: abs(size - key.size_class))
        except LearnedLimitsError as error:
            self._fail(error)
            return None
        # A file that cannot be written is no reason to forget what was read.
        with contextlib.suppress(LearnedLimitsError):
            await limits.mark_used(LearnedKey(key.tool, key.storage, size_class))
        return by_class[size_class]

    async def _save(self, event: LearningEvent) -> None:
        known = self._known[event.subject]
        if self._failed:
            return
        try:
            async with self._lock:
                limits = await self._open()
                facts = LearnedFacts(
                    step=event.step,
                    storage=event.subject.storage.name,
                    learned=time.time(),
                    executors=event.executors,
                )
                await limits.save(known.key, event.registry, facts)
        except LearnedLimitsError as error:
            self._fail(error)

    def _saved(self, task: asyncio.Task[None]) -> None:
        self._saving.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _open(self) -> LearnedLimits:
        if self._limits is None:
            self._limits = await LearnedLimits.open(self._path)
        return self._limits

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        logger.warning(coded(f"Learned limits are not remembered in this run: {error}", Code.STORE_NOT_USED))


def _identity(subject: Subject) -> str:
    """What must be the same so that a registry holds again."""
    storage = subject.storage
    where = f"{storage.path} ({storage.scope}{f', {storage.deployment}' if storage.deployment else ''})"
    bandwidth = f"{subject.direction} {storage.bandwidth(subject.direction):g} MB/s"
    return f"{storage.name}: {where}, {bandwidth}, {subject.constraint}"


def input_bytes(token: Token) -> float:
    """The bytes of the files of a token whose size is known."""
    if isinstance(token, ListToken):
        return sum(map(input_bytes, token.value))
    if isinstance(token, ObjectToken):
        return sum(map(input_bytes, token.value.values()))
    if isinstance(token, FileToken) and isinstance(token.value, Mapping):
        return float(token.value.get("size") or 0)
    return 0
