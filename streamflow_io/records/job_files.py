"""The use that a job made of its files, from the events of the node runtime."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct, field

from streamflow_io.grouping import grouped
from streamflow_io.runtime.protocol import (
    ClosedEvent,
    CommittedEvent,
    Event,
    JobSpec,
    ObservedInput,
    OpenedEvent,
    UsedEvent,
    WatchedOutput,
)
from streamflow_io.runtime.values import readable

from .files import InputRecord, OutputRecord

# An output or input with more files has one record for all of them.
MOST_RECORDS = 100

Origin = Callable[[str], tuple[str | None, str]]


class _FileWrites(Struct):
    """The writes of a file.

    :ivar number: how often the file was closed
    :ivar closes: the times of the first and the last close
    """

    opened: float | None = None
    closes: list[float] = field(default_factory=list)
    number: int = 0
    size: int | None = None


class JobFiles:
    """Follows the files of one attempt of a job.

    What is kept of a file does not grow with the number of its closes.

    :param spec: the job's specification for the node runtime
    """

    def __init__(self, spec: JobSpec) -> None:
        self._outputs = {output.port: output for output in spec.outputs}
        self._observed = spec.observation.reads or ()
        self._written: dict[str, dict[str, _FileWrites]] = defaultdict(dict)
        self._used: dict[str, list[UsedEvent]] = defaultdict(list)

    def add(self, event: Event) -> None:
        """Add an event. Events that are not about files are ignored."""
        if isinstance(event, UsedEvent):
            self._used[event.name].append(event)
        elif isinstance(event, OpenedEvent | ClosedEvent | CommittedEvent) and event.port in self._outputs:
            file = self._written[event.port].setdefault(event.path, _FileWrites())
            if isinstance(event, OpenedEvent):
                file.opened = event.time if file.opened is None else file.opened
            elif isinstance(event, CommittedEvent):
                file.size = event.size
            else:
                file.number = event.closes
                # Records give only the first and the last close.
                file.closes[1:] = [event.time] if file.closes else []
                file.closes = file.closes or [event.time]

    def outputs(self, job: str, step: str, time: float, ended: float) -> Iterator[OutputRecord]:
        """Yield the use of each output. A Directory, or more files than :data:`MOST_RECORDS`, give one record together.

        :param ended: when the command of the job ended
        """
        for port, written in self._written.items():
            output = self._outputs[port]
            # Files that are not committed when a job has succeeded were removed, and are no output.
            files = {path: file for path, file in written.items() if file.size is not None} or written
            together = output.kind == "directory" or len(files) > MOST_RECORDS
            for group in [list(files)] if together else [[path] for path in files]:
                yield self._output(job, step, port, group, time, ended)

    def sizes(self) -> Iterator[tuple[WatchedOutput, Mapping[str, int]]]:
        """The sizes of the files of each output that were committed, by path."""
        for port, written in self._written.items():
            sizes = {path: file.size for path, file in written.items() if file.size is not None}
            yield self._outputs[port], sizes

    def opened_alone(self) -> Iterator[ObservedInput]:
        """Yield the inputs that are one file, where the job has opened this file and no other."""
        for name, observed in grouped(self._observed, lambda one: one.name).items():
            opened = {event.path for event in self._used[name] if not event.directory and event.opens}
            if len(observed) == 1 and opened == {observed[0].path}:
                yield observed[0]

    def _output(self, job: str, step: str, port: str, paths: list[str], time: float, ended: float) -> OutputRecord:
        files = [self._written[port][path] for path in paths]
        numbers = [file.number for file in files]
        closes = [close for file in files for close in file.closes]
        opened = [file.opened for file in files if file.opened is not None]
        sizes = [file.size for file in files if file.size is not None]
        root = self._outputs[port].root
        return OutputRecord(
            time=time,
            job=job,
            step=step,
            port=port,
            path=readable(posixpath.relpath(paths[0] if len(paths) == 1 else posixpath.commonpath(paths), root)),
            files=len(paths),
            opened=min(opened, default=None),
            closes=min(numbers),
            most_closes=max(numbers),
            last_close=max(closes, default=None),
            size=sum(sizes) if len(sizes) == len(files) else None,
            ended=ended,
        )

    def inputs(self, job: str, step: str, time: float, origin: Origin) -> Iterator[InputRecord]:
        """Yield the use of each input, with inputs that were never opened.

        :param origin: maps an absolute path to the job that made the file, and to the path relative to that job's
            output directory; a path of no job maps to None and itself
        """
        for name, observed in grouped(self._observed, lambda one: one.name).items():
            observed_paths = [one.path for one in observed]
            together = len(observed_paths) > MOST_RECORDS
            for group in [observed_paths] if together else [[path] for path in observed_paths]:
                used = [event for event in self._used[name] if together or _is_within(event.path, group[0])]
                yield self._input(job, step, name, group, used, time, origin)

    def _input(
        self, job: str, step: str, name: str, paths: list[str], used: list[UsedEvent], time: float, origin: Origin
    ) -> InputRecord:
        source, path = origin(paths[0]) if len(paths) == 1 else (None, posixpath.commonpath(paths))
        files = [event for event in used if not event.directory]
        reads = [event.read for event in files if event.read is not None]
        return InputRecord(
            time=time,
            job=job,
            step=step,
            input=name,
            path=readable(path),
            source=source,
            files=max(len(paths), len(files)),
            opens=max((event.opens for event in used), default=0),
            sequential=bool(files) and all(event.sequential for event in files),
            reasons=tuple(sorted({reason for event in used for reason in event.reasons})),
            first=min((event.first for event in used), default=None),
            last=max((event.last for event in used), default=None),
            touched=min((event.first if event.touched is None else event.touched for event in used), default=None),
            read=max(reads) if reads and len(reads) == len(files) else None,
            whole=bool(files) and all(event.whole for event in files),
        )


def _is_within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
