"""Decides which steps may write their files into memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field

from streamflow_io.hints.inheritance import port_path

from .gangs import Gang
from .io_graph import Output, OutputKind, Step
from .last_readers import RESULT, Removal, reader_of
from .sites import SiteKind
from .stream_windows import StreamWindow


class MemoryPlan(Struct, frozen=True):
    """The plan for files in memory.

    :ivar limit: the most bytes
    :ivar steps: those whose files may lie in memory, by path, with the bytes that their windows hold
    :ivar why_not: why other steps with files write them to the disk, by path
    :ivar largest: the most memory that a job, or one job of each step of a gang, asks for, in MiB
    """

    limit: int
    steps: Mapping[str, int] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)
    largest: float = 0.0


# Where the node runtime sees the memory of the node that a job runs on.
_KINDS = (SiteKind.LOCAL, SiteKind.HOSTS)
# A window is held by its slowest reader, and a producer writes on until it is paused.
_WINDOWS = 3


def plan_memory(
    limit: int,
    steps: Mapping[str, Step],
    outputs: Iterable[Output],
    removal: Removal,
    windows: Iterable[StreamWindow],
    gangs: Collection[Gang],
    obstacles: Mapping[str, str],
) -> MemoryPlan:
    """Decide which steps may write into memory: those whose files are all removed before the run ends.

    :param limit: the most bytes
    :param obstacles: why some steps may not, by path
    """
    unknown = next((step.path for step in steps.values() if step.memory is None), None)
    held: dict[str, int] = {}
    for window in windows:
        if window.why is None:
            held[window.step] = held.get(window.step, 0) + _WINDOWS * window.size
    ports: dict[str, dict[str, None]] = {}
    for output in outputs:
        if output.kind is not OutputKind.OTHER:
            step, port = output.whole
            ports.setdefault(step, {})[port] = None
    may, why_not = dict[str, int](), dict[str, str]()
    for step, written in ports.items():
        why = obstacles.get(step) or next(_obstacles(step, written, steps, removal), None)
        if why is None and unknown is not None:
            why = f"an expression says how much memory {unknown} needs"
        if why is None:
            may[step] = held.get(step, 0)
        else:
            why_not[step] = why
    together = [tuple(gang.steps) for gang in gangs] + [(step,) for step in steps]
    largest = max((sum(steps[step].memory or 0.0 for step in each) for each in together), default=0.0)
    return MemoryPlan(limit, may, why_not, largest)


def _obstacles(step: str, ports: Iterable[str], steps: Mapping[str, Step], removal: Removal) -> Iterator[str]:
    site = steps[step].site
    if site.kind not in _KINDS or site.unwatched is not None:
        yield "its jobs run in containers, on a queue manager, or where no node runtime is"
    if (why := removal.held.get(step)) is not None:
        yield why
    for port in ports:
        if (step, port) in removal.kept:
            yield removal.kept[step, port]
        readers = [reader_of(name) for name in removal.readers[step, port].names]
        if RESULT in readers:
            yield f"{port_path(step, port)} may be a result of the workflow"
        for reader in filter(None, readers):
            if reader in steps and steps[reader].site.kind is not site.kind:
                yield f"{reader} reads {port_path(step, port)} elsewhere"
