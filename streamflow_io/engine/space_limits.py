"""Makes the parts of a run that limit the space of files. Only runs with such a limit import this module."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from pathlib import Path

from streamflow.core.context import StreamFlowContext
from streamflow.core.scheduling import Hardware
from streamflow.scheduling.scheduler import JobAllocation

from streamflow_io.adapters.jobs import JobState
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.storage.intermediates.disk_limit import DiskLimit
from streamflow_io.storage.intermediates.learned_sizes import RememberedSizes, SizeLearner
from streamflow_io.storage.intermediates.memory import OutputsInMemory
from streamflow_io.storage.intermediates.space_watcher import SpaceWatcher
from streamflow_io.storage.intermediates.work_directories import SharedWorkDirectories

from .plan import Plan


class SpaceLimits:
    """The limits of a run.

    :param learned: the file with learned sizes
    :param used: the resources of running jobs as StreamFlow counts them, by location
    :param wake: lets StreamFlow ask again for the jobs that wait
    :param placed: the jobs that StreamFlow's scheduler has placed, by name
    :param runtime_of: returns the node runtime at the location of a job; None: the job runs without one

    :ivar sizes: of earlier jobs
    :ivar disk: lets jobs wait for disk space; None: no job waits for space
    :ivar memory: puts files of jobs into memory; None: all files are on disk
    """

    def __init__(
        self,
        plan: Plan,
        context: StreamFlowContext,
        learned: Path,
        used: MutableMapping[str, Hardware],
        wake: Callable[[], None],
        placed: Mapping[str, JobAllocation],
        runtime_of: Callable[[JobState], Awaitable[NodeRuntime | None]],
    ) -> None:
        removal = plan.intermediates
        windowed = {window.step for window in removal.windows if window.why is None}
        self.sizes = RememberedSizes(learned, removal.tools, windowed)
        self._learner = SizeLearner(plan.workflow.steps, self.sizes)
        self.disk: DiskLimit | None = None
        if removal.disk_limit is not None:
            gangs = plan.graph.gangs if plan.service.streams else ()
            read_once = removal.removal.read_once() if removal.removal is not None else ()
            routes, sizes = plan.graph.routes, self.sizes.sizes
            shared = SharedWorkDirectories(context).shared
            self.disk = DiskLimit(removal.disk_limit, routes, gangs, sizes, wake, placed, shared, read_once)
        self.memory: OutputsInMemory | None = None
        # Without a node runtime no job would run again on disk.
        if removal.memory is not None and removal.memory.steps and plan.service.streams:
            self.memory = OutputsInMemory(removal.memory, self.sizes.sizes, used, wake, runtime_of)

    @property
    def watchers(self) -> list[SpaceWatcher]:
        """All that hears how much space files take, in order: the limits ask for what the learner has kept."""
        return [watcher for watcher in (self._learner, self.disk, self.memory) if watcher is not None]
