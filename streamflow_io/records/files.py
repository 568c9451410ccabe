"""The records of files: how they are delivered, used, cut into parts, and read ahead."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.graph.possible import PossibleRoute
from streamflow_io.hints.reasons import SessionReason

from .jobs import BaseRecord, JobRecord

#: Value of `EdgeRecord.capio` for an edge that CAPIO serves.
SERVED = "served"


#: The reason why nothing is delivered early in a run without a node runtime, a baseline.
OFF = "`runtime: off`"


class RouteRecord(PossibleRoute, frozen=True, tag_field="event", tag="route", kw_only=True):
    """A route from an output of a step to an input of another; written at the start of a run that is observed."""

    time: Annotated[float, Meta(description="seconds since the epoch")]


class EdgeRecord(BaseRecord, frozen=True, tag="edge", kw_only=True):
    """A file that is to be delivered before its job ends, with its way of delivery; recorded as the run starts."""

    output: Annotated[str, Meta(description="as /step/port")]
    input: Annotated[str | None, Meta(description="as /step/port; none: an output of the workflow")] = None
    delivery: Delivery
    fallback: Annotated[str | None, Meta(description="why the delivery is not as the rule asks")] = None
    capio: Annotated[str | None, Meta(description="with `runtime: capio`: `served`, or why not")] = None


class FallbackRecord(JobRecord, frozen=True, tag="fallback", kw_only=True):
    """A delivery that a job could not get early; recorded once for each reason and output."""

    output: Annotated[str | None, Meta(description="as /step/port; none: all outputs")] = None
    reason: str
    without: Annotated[str | None, Meta(description="`CAPIO`: the job started again without CAPIO")] = None


class ReadingRecord(JobRecord, frozen=True, tag="reading"):
    """A job that is about to run, and reads an output that is not known to be complete."""

    input: Annotated[str, Meta(description="as /step/port")]
    output: Annotated[str, Meta(description="as /step/port: the output that is read")]
    delivery: Literal["stream", "gate"]
    sources: Annotated[tuple[str, ...], Meta(description="jobs that write the output")]


class StreamedRecord(JobRecord, frozen=True, tag="streamed", kw_only=True):
    """The end, without an error, of a byte stream into a job."""

    input: Annotated[str | None, Meta(description="as /step/port; none: not known")] = None
    outputs: Annotated[
        tuple[str, ...],
        Meta(description="as /step/port; several: one of these"),
    ]
    source: Annotated[str | None, Meta(description="job that wrote it")] = None
    bytes: Annotated[int, Meta(description="bytes given to the job")]
    first: Annotated[float | None, Meta(description="first byte")] = None
    last: Annotated[float | None, Meta(description="last byte")] = None
    waited: Annotated[float | None, Meta(description="seconds in which the job waited for bytes")] = None
    behind: Annotated[float | None, Meta(description="seconds in which bytes waited for the job")] = None
    capio: Annotated[
        bool | None,
        Meta(description="CAPIO carried the stream: waits are unknown, times known to 0.2 s"),
    ] = None


class CommittedRecord(JobRecord, frozen=True, tag="committed", kw_only=True):
    """An output, or part of one, that a job committed before it ended.

    The record comes before the `ended` of a job that succeeded. Times are by the clock of the job's node.
    """

    output: Annotated[str, Meta(description="as /step/port")]
    path: Annotated[str | None, Meta(description="relative to the output directory; none: several files")] = None
    files: int
    bytes: int
    first: Annotated[float, Meta(description="when the first file was committed")]
    last: Annotated[float, Meta(description="when the last file was committed")]
    ended: Annotated[float, Meta(description="when the command ended")]


class DiscardedRecord(JobRecord, frozen=True, tag="discarded", kw_only=True):
    """The bytes of an output that its window has removed behind the readers, while the job wrote."""

    output: Annotated[str, Meta(description="as /step/port")]
    bytes: int
    size: Annotated[int, Meta(description="all bytes that the job has written")]


class OutputRecord(JobRecord, frozen=True, tag="output", kw_only=True):
    """The use that an observed job made of one or several files of an output; recorded before its `ended`."""

    port: str
    path: Annotated[str, Meta(description="relative to the output directory; of several files: a directory above them")]
    files: int = 1
    opened: Annotated[float | None, Meta(description="when a file was first opened")] = None
    closes: Annotated[int, Meta(description="closes after writing; of several files: the least")]
    most_closes: Annotated[int, Meta(description="of several files: the most")]
    last_close: float | None = None
    size: Annotated[int | None, Meta(description="bytes, together; none: not known")] = None
    ended: Annotated[float, Meta(description="when the command ended")]


class InputRecord(JobRecord, frozen=True, tag="input", kw_only=True):
    """The use that an observed job made of one or several files of an input; recorded before its `ended`."""

    input: str
    path: Annotated[str, Meta(description="absolute, or relative to the output directory of `source`")]
    source: Annotated[str | None, Meta(description="job that wrote the file")] = None
    files: int = 1
    opens: Annotated[int, Meta(description="openings; of several files: the most")]
    sequential: Annotated[bool, Meta(description="each opening only read, front to back")]
    reasons: Annotated[tuple[str, ...], Meta(description="why the reading was not sequential")] = ()
    first: Annotated[float | None, Meta(description="first opening")] = None
    last: Annotated[float | None, Meta(description="last opening")] = None
    touched: Annotated[float | None, Meta(description="first opening, listing, or question by path")] = None
    read: Annotated[float | None, Meta(description="when the job last read it; none: not known")] = None
    whole: Annotated[bool, Meta(description="at `read`, no output was written")] = False


class SplitRecord(JobRecord, frozen=True, tag="split", kw_only=True):
    """A job that has written parts of an input: the rule of `sfio:ReadSession` that gives the same parts."""

    port: str
    of: str
    count: Annotated[int, Meta(description="number of parts")]
    names: str
    first: int
    records: str
    every: int | None = None
    parts: int | None = None
    chunk: int | None = None
    equal: Annotated[bool, Meta(description="`count` parts of equal bytes are the same parts")]


#: Origin of the parts: `said` by the program that splits, or `selected` by each job.
SessionForm = Literal["said", "selected"]


class SessionRecord(BaseRecord, frozen=True, tag="session", kw_only=True):
    """The beginning of a read session."""

    session: Annotated[int, Meta(description="its number in the run, from 1")]
    step: str
    file: str
    size: Annotated[int, Meta(description="bytes of the file")]
    form: Annotated[
        SessionForm,
        Meta(description="parts are said by a program, or selected by each job"),
    ]
    readers: Annotated[int, Meta(description="the most chunks at a time")]
    chunk: Annotated[int, Meta(description="bytes of a chunk, at most")]
    window: Annotated[int, Meta(description="the most bytes that may wait for their jobs")]


class ChunkRecord(BaseRecord, frozen=True, tag="chunk", kw_only=True):
    """The arrival of a chunk."""

    session: int
    bytes: int
    cached: Annotated[int | None, Meta(description="bytes cached before; none: not known")] = None
    seconds: Annotated[float, Meta(description="time of the read")]
    held: Annotated[int, Meta(description="bytes that wait for their jobs")]


class ConsumedRecord(BaseRecord, frozen=True, tag="consumed"):
    """The end of a job that reads a part."""

    session: int
    part: Annotated[int, Meta(description="from 0")]
    held: Annotated[int | None, Meta(description="bytes that wait for their jobs")] = None


class SessionEndRecord(BaseRecord, frozen=True, tag="sessionEnd"):
    """The end of a read session, which reads nothing more."""

    session: int
    reason: Annotated[SessionReason, Meta(description="why nothing more is read")]
