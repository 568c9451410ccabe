"""The records of files: how they are delivered, used, cut into parts, and read ahead."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.graph.possible import PossibleRoute
from streamflow_io.hints.reasons import SessionReason

from .jobs import BaseRecord, JobRecord

#: Value of `EdgeRecord.capio` for an edge that CAPIO serves.
SERVED = "served"


#: The reason why nothing is delivered early in a run without a node runtime, a baseline.
OFF = "`runtime: off`"


class RouteRecord(PossibleRoute, BaseRecord):
    """A route from an output of a step to an input of another; written at the start of a run that is observed."""

    event: Literal["route"] = "route"


class EdgeRecord(BaseRecord):
    """A file that is to be delivered before its job ends, with its way of delivery; recorded as the run starts."""

    event: Literal["edge"] = "edge"
    output: str = Field(description="as /step/port")
    input: str | None = Field(None, description="as /step/port; none: an output of the workflow")
    delivery: Delivery
    fallback: str | None = Field(None, description="why the delivery is not as the rule asks")
    capio: str | None = Field(
        None, description="with `runtime: capio`: `served`, or why the embedded runtime serves the edge"
    )


class FallbackRecord(JobRecord):
    """A delivery that a job could not get early; recorded once for each reason and output."""

    event: Literal["fallback"] = "fallback"
    output: str | None = Field(None, description="as /step/port: delivered when it was complete; none: all outputs")
    reason: str
    without: str | None = Field(
        None, description="`CAPIO`: the job started again without CAPIO; none: the job fell back at once"
    )


class ReadingRecord(JobRecord):
    """A job that is about to run, and reads an output that is not known to be complete."""

    event: Literal["reading"] = "reading"
    input: str = Field(description="as /step/port")
    output: str = Field(description="as /step/port: the output that is read")
    delivery: Literal["stream", "gate"]
    sources: tuple[str, ...] = Field(description="the jobs that write the output")


class StreamedRecord(JobRecord):
    """The end, without an error, of a byte stream into a job."""

    event: Literal["streamed"] = "streamed"
    input: str | None = Field(None, description="as /step/port; none: not known")
    outputs: tuple[str, ...] = Field(
        description="as /step/port: the output that was read; several: one of these, not known which"
    )
    source: str | None = Field(None, description="the job that has written the output")
    bytes: int = Field(description="the bytes that the job was given")
    first: float | None = Field(None, description="when the first byte was given to the job")
    last: float | None = Field(None, description="when the last byte was given to the job")
    waited: float | None = Field(None, description="seconds in which the job had taken all bytes, and waited for more")
    behind: float | None = Field(None, description="seconds in which the job had not taken the bytes that it was given")
    lag: int | None = Field(None, description="the most bytes that were there and not yet given to the job")
    capio: bool | None = Field(
        None, description="CAPIO carried the stream; its waits are not known, and its times are known to 0.2 s"
    )


class CommittedRecord(JobRecord):
    """An output, or part of one, that a job committed before it ended.

    The record comes before the `ended` of a job that succeeded. Times are by the clock of the job's node.
    """

    event: Literal["committed"] = "committed"
    output: str = Field(description="as /step/port")
    path: str | None = Field(None, description="relative to the output directory; none: several files")
    files: int
    bytes: int
    first: float = Field(description="when the first file was committed")
    last: float = Field(description="when the last file was committed")
    ended: float = Field(description="when the command ended")


class OutputRecord(JobRecord):
    """The use that an observed job made of one or several files of an output; recorded before its `ended`."""

    event: Literal["output"] = "output"
    port: str
    path: str = Field(description="relative to the output directory; of several files: a directory above all of them")
    files: int = Field(1, description="the number of files in this record")
    opened: float | None = Field(None, description="when a file was first opened")
    closes: int = Field(description="closes after writing; of several files: the least")
    most_closes: int = Field(description="of several files: the most")
    first_close: float | None = None
    last_close: float | None = None
    size: int | None = Field(None, description="bytes, together; none: not known")
    ended: float = Field(description="when the command ended")


class InputRecord(JobRecord):
    """The use that an observed job made of one or several files of an input; recorded before its `ended`."""

    event: Literal["input"] = "input"
    input: str
    path: str = Field(description="absolute, or relative to the output directory of `source`")
    source: str | None = Field(None, description="the job that wrote the file")
    files: int = Field(1, description="the number of files in this record")
    opens: int = Field(description="openings; of several files: the most")
    sequential: bool = Field(description="each opening only read, front to back")
    reasons: tuple[str, ...] = Field((), description="why the reading was not sequential")
    first: float | None = Field(None, description="the first opening")
    last: float | None = Field(None, description="the last opening")
    touched: float | None = Field(None, description="the first opening, listing, or question for size or kind by path")
    read: float | None = Field(None, description="after this time the job read nothing of it; none: not known")
    whole: bool = Field(False, description="at the time `read` the job had written to none of its outputs")


class SplitRecord(JobRecord):
    """A job that has written parts of an input: the rule of a read session that gives the same parts."""

    event: Literal["split"] = "split"
    port: str
    of: str = Field(description="the input")
    count: int = Field(description="the number of parts")
    names: str = Field(description="the name of a part, with one %d for its number")
    first: int = Field(description="the number of the first part")
    records: str
    every: int | None = Field(None, description="this many records in each part")
    parts: int | None = Field(None, description="this many parts of equal bytes")
    chunk: int | None = Field(None, description="at most this many MiB in each part")
    equal: bool = Field(description="this many parts of equal bytes are the same parts")


#: Origin of the parts: `said` by the program that splits, or `selected` by each job. `whole`: the whole file is read
#: ahead, before StreamFlow reads the file for its checksum.
SessionForm = Literal["said", "selected", "whole"]


class SessionRecord(BaseRecord):
    """The beginning of a read session."""

    event: Literal["session"] = "session"
    session: int = Field(description="its number in the run, from 1")
    step: str
    file: str
    size: int = Field(description="bytes of the file")
    form: SessionForm = Field(
        description="how parts are selected: by a program that says them, or by each job; `whole`: all is read ahead"
    )
    readers: int = Field(description="the most chunks that may be read at the same time")
    constraint: str | None = Field(
        None, description="storageBW of a chunk: a number, or auto(min,max,2) where it is learned"
    )
    chunk: int = Field(description="bytes of a chunk, at most")
    window: int = Field(description="bytes that may have arrived and not be consumed")


class ChunkRecord(BaseRecord):
    """The arrival of a chunk."""

    event: Literal["chunk"] = "chunk"
    session: int
    bytes: int
    cached: int | None = Field(None, description="bytes that were in the page cache before; none: not known")
    seconds: float = Field(description="the time in which the chunk was read")
    requests: int = Field(description="the requests to the storage")
    held: int = Field(description="bytes of the session that had arrived before and were not consumed")
    waited: float | None = Field(None, description="seconds until the chunk was admitted")
    readers: int | None = Field(None, description="chunks of the session that were read then, with this one")
    constraint: float | None = Field(None, description="storageBW of the chunk")


class ArrivedRecord(BaseRecord):
    """The arrival of a part, or the end of the reader's need to wait for it."""

    event: Literal["arrived"] = "arrived"
    session: int
    part: int = Field(description="from 0")


class ConsumedRecord(BaseRecord):
    """The end of a job that reads a part."""

    event: Literal["consumed"] = "consumed"
    session: int
    part: int
    held: int | None = Field(None, description="bytes that have arrived and are not consumed, now")


class SessionEndRecord(BaseRecord):
    """The end of a read session, which reads nothing more."""

    event: Literal["sessionEnd"] = "sessionEnd"
    session: int
    reason: SessionReason = Field(description="why nothing more is read")
    parts: int = Field(description="the number of known parts")
    storage_bytes: int = Field(description="bytes read that were not in the page cache before, as far as is known")
    cached_bytes: int = Field(description="bytes that were in the page cache before")
    peak_window: int = Field(description="most bytes that had arrived and were not consumed")
    read_seconds: float = Field(description="from the beginning of the session to its last chunk")
