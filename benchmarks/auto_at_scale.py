"""`storageBW: auto` in settings of its paper, simulated with the real admission: beside the best limit, and no limit.

Nothing is measured but the simulated time: the figures are the same on every machine. The disks are those of the tests:
450 MB/s, 10 MB/s for one writer, and 2 percent less with each writer beyond 45; the same disks without congestion; and
writers of 2 MB/s, which never wait for the disk. The last are no goal. With a limit until the first jobs have ended,
jobs that could all start at once take 1.3 to 4.0 times as long there. Without a limit nothing is gained elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from lab.simulation import Disk, Task, Work, simulate
from streamflow_io.hints.bandwidth import AutoConstraint, StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import Demand, Placement

from .model import Comparison, Sample
from .workload import Outcome, Variant, Workload

CORES, BANDWIDTH = 48, 450.0
CONGESTS = Disk(bandwidth=BANDWIDTH, writer=10, congestion=0.02)
SHARES = replace(CONGESTS, congestion=0.0)
AMPLE = Disk(bandwidth=BANDWIDTH, writer=2, congestion=0.0)
STATIC_MB = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Setting:
    """I/O tasks on nodes of 48 cores, each node with a disk of its own.

    :ivar executors: I/O executors of a node
    :ivar megabytes: what each task writes
    :ivar compute: seconds that a task computes on a core before it writes, 10 percent more or less; none: all tasks
        are ready at once
    """

    name: str
    nodes: int
    executors: int
    tasks: int
    megabytes: float
    compute: float | None = None

    def seconds(self, constraint: StorageBW | None, disk: Disk) -> float:
        """The time until the last task has ended."""
        storage = StorageConfig(name="ssd", path="/ssd", scope="node", write=BANDWIDTH)
        demand = Demand("/write", True, constraint, "write", (Placement("hpc", storage if constraint else None),))
        admission = Admission[str](self.executors)
        admission.set_locations("hpc", {f"n{index}": CORES for index in range(self.nodes)})
        if self.compute is None:
            tasks = [Task(f"/write/{number}", demand, self.megabytes) for number in range(self.tasks)]
        else:
            random = Random(1)
            computing = [self.compute * random.uniform(0.9, 1.1) for _ in range(self.tasks)]
            tasks = Work(self.nodes, CORES, disk, self.megabytes, computing).as_io_tasks(demand)
        return simulate(admission, tasks, lambda location, now: disk, in_turn=True).seconds


SETTINGS = (
    Setting("paper", 12, 225, 2304, 290.0),
    Setting("paper, after compute", 12, 225, 2304, 290.0, compute=30.0),
    Setting("k-means", 12, 225, 1500, 109.0),
    Setting("one node", 1, 192, 150, 109.0),
    Setting("435 of 500", 1, 225, 500, 290.0),
)
DISKS = {"congests": CONGESTS, "shares": SHARES, "ample": AMPLE}
WAYS: dict[str, StorageBW | None] = {
    "no limit": None,
    "auto": AutoConstraint(),
    **{f"static {limit}": StaticConstraint(float(limit)) for limit in STATIC_MB},
}
_STATIC = tuple(way for way in WAYS if way.startswith("static"))


def _variant(setting: Setting, disk: str, way: str) -> Variant:
    def run(_: Path) -> Outcome:
        seconds = setting.seconds(WAYS[way], DISKS[disk])
        return Outcome(Sample(wall=seconds, window=seconds))

    return Variant(_name(setting, disk, way), run)


def _name(setting: Setting, disk: str, way: str) -> str:
    return f"{setting.name}, {disk}: {way}"


def _comparisons(setting: Setting) -> list[Comparison]:
    def compare(disk: str, baseline: str | tuple[str, ...], at_most: float | None, what: str) -> Comparison:
        names = (baseline,) if isinstance(baseline, str) else baseline
        return Comparison(
            name=f"{setting.name}, {disk}: auto / {what}",
            variant=_name(setting, disk, "auto"),
            baseline=tuple(_name(setting, disk, name) for name in names),
            at_most=at_most,
        )

    return [
        compare("congests", _STATIC, 1.10, "best static"),
        compare("congests", "no limit", None, "no limit"),
        compare("shares", "no limit", 1.02, "no limit"),
        compare("ample", "no limit", None, "no limit"),
    ]


def _prepare(directory: Path) -> Sequence[Variant]:
    return [
        _variant(setting, disk, way)
        for setting in SETTINGS
        for disk in DISKS
        for way in (WAYS if disk == "congests" else ("no limit", "auto"))
    ]


AUTO_AT_SCALE = Workload(
    "auto-at-scale",
    "`storageBW: auto` in settings of its paper, simulated, beside the best limit and no limit",
    _prepare,
    [comparison for setting in SETTINGS for comparison in _comparisons(setting)],
)
