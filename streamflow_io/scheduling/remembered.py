"""Adapter: limits that were learned in earlier runs, for the learners of this one."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamflow.core.workflow import Job, Token
from streamflow.log_handler import logger
from streamflow.workflow.token import FileToken, ListToken, ObjectToken

from streamflow_io.hints.bandwidth import AutoConstraint
from streamflow_io.telemetry.learned import LearnedFacts, LearnedKey, LearnedLimits, LearnedLimitsError, size_class_of

from .demand import Demand, Placement
from .learner import Learner
from .learners import LearningEvent
from .registry import ConstraintRegistry


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
        self._known: dict[tuple[str, Placement], _Known] = {}
        self._executors: dict[tuple[str, Placement], int] = {}
        self._lock = asyncio.Lock()
        self._saving: set[asyncio.Task[None]] = set()

    async def load(self, demand: Demand, job: Job) -> None:
        """Read what is known of a step, before its first job is submitted."""
        if not isinstance(demand.constraint, AutoConstraint):
            return
        async with self._lock:
            for placement in demand.placements:
                if placement.storage is not None and (demand.step, placement) not in self._known:
                    key = LearnedKey(
                        self._tools[demand.step],
                        _identity(demand, placement),
                        size_class_of(sum(map(_input_bytes, job.inputs.values()))),
                    )
                    self._known[demand.step, placement] = _Known(key, await self._read(key))

    def make_learner(self, demand: Demand, placement: Placement, executors: int) -> Learner:
        """A learner that knows what was learned in earlier runs; :meth:`load` has been called before."""
        assert isinstance(demand.constraint, AutoConstraint)
        assert placement.storage is not None
        self._executors[demand.step, placement] = executors
        registry = self._known[demand.step, placement].registry
        return Learner(
            placement.storage.bandwidth(demand.direction), executors, demand.constraint.bounds, remembered=registry
        )

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
            if self._failed or (self._limits is None and not self._path.exists()):
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
        known = self._known[event.step, event.placement]
        storage = event.placement.storage
        assert storage is not None
        if self._failed:
            return
        try:
            async with self._lock:
                limits = await self._open()
                facts = LearnedFacts(
                    step=event.step,
                    storage=storage.name,
                    learned=time.time(),
                    executors=self._executors[event.step, event.placement],
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
        logger.warning(f"Learned limits are not remembered in this run: {error}")


def _identity(demand: Demand, placement: Placement) -> str:
    """What must be the same so that a registry holds again."""
    storage = placement.storage
    assert storage is not None
    where = f"{storage.path} ({storage.scope}{f', {storage.deployment}' if storage.deployment else ''})"
    bandwidth = f"{demand.direction} {storage.bandwidth(demand.direction):g} MB/s"
    return f"{storage.name}: {where}, {bandwidth}, {demand.constraint}"


def _input_bytes(token: Token) -> float:
    if isinstance(token, ListToken):
        return sum(map(_input_bytes, token.value))
    if isinstance(token, ObjectToken):
        return sum(map(_input_bytes, token.value.values()))
    if isinstance(token, FileToken) and isinstance(token.value, Mapping):
        return float(token.value.get("size") or 0)
    return 0
