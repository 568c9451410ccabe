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
    fallback: str | None = Field(None, description="why it is not delivered as the rule asks, if so")
    capio: str | None = Field(
        None, description="with `runtime: capio`: `served`, or why the embedded node runtime serves it"
    )


class FallbackRecord(JobRecord):
    """A delivery that a job could not get early; recorded once for each reason and output."""

    event: Literal["fallback"] = "fallback"
    output: str | None = Field(None, description="as /step/port: what it has got when it was complete; none: all")
    reason: str
    without: str | None = Field(None, description="it started again without this, `CAPIO`; none: it fell back at once")


class ReadingRecord(JobRecord):
    """A job that is about to run, and reads an output that is not known to be complete."""

    event: Literal["reading"] = "reading"
    input: str = Field(description="as /step/port")
    output: str = Field(description="as /step/port: what it reads")
    delivery: Literal["stream", "gate"]
    sources: tuple[str, ...] = Field(description="the jobs that write it")


class StreamedRecord(JobRecord):
    """The end, without an error, of a byte stream into a job."""

    event: Literal["streamed"] = "streamed"
    input: str | None = Field(None, description="as /step/port; none: not known")
    outputs: tuple[str, ...] = Field(
        description="as /step/port: what it has read; several, if it reads several of one job: then it is one of these"
    )
    source: str | None = Field(None, description="the job that has written it")
    bytes: int
    first: float | None = Field(None, description="when its first byte was given to the job")
    last: float | None = Field(None, description="when its last byte was")
    waited: float | None = Field(None, description="seconds in which the job had taken all bytes, and waited for more")
    behind: float | None = Field(None, description="seconds in which the job had not taken the bytes that it was given")
    lag: int | None = Field(None, description="the most bytes that were there and not yet given to the job")
    capio: bool | None = Field(
        None, description="CAPIO carried it: what it was given is what it read, and it is not known how it waited"
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
    last: float = Field(description="when the last one was")
    ended: float = Field(description="when the command ended")


class OutputRecord(JobRecord):
    """The use that an observed job made of one or several files of an output; recorded before its `ended`."""

    event: Literal["output"] = "output"
    port: str
    path: str = Field(description="relative to the output directory; of several files: a directory above all of them")
    files: int = Field(1, description="of how many files this is")
    opened: float | None = Field(None, description="the first time")
    closes: int = Field(description="how often it was closed after writing; of several files: the least")
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
    files: int = Field(1, description="of how many files this is")
    opens: int = Field(description="how often it was opened; 0: never; of several files: the most")
    sequential: bool = Field(description="it was only read, front to back, in each opening")
    reasons: tuple[str, ...] = Field((), description="why not, if so")
    first: float | None = Field(None, description="when it was opened first")
    last: float | None = Field(None, description="when it was opened last")
    touched: float | None = Field(
        None, description="when it was first opened, listed, or asked for its size or kind by its path"
    )
    read: float | None = Field(None, description="it was not read later; none: not known")
    whole: bool = Field(False, description="by `read` the job had written to none of its outputs")


class SplitRecord(JobRecord):
    """A job that has written parts of an input: the rule of a read session that gives the same parts."""

    event: Literal["split"] = "split"
    port: str
    of: str = Field(description="the input")
    count: int = Field(description="how many parts")
    names: str = Field(description="the name of a part, with one %d for its number")
    first: int = Field(description="the number of the first")
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
    size: int = Field(description="of the file")
    form: SessionForm
    readers: int = Field(description="how many chunks may be read at the same time")
    constraint: str | None = Field(
        None, description="storageBW of a chunk: a number, or auto(min,max,2) where it is learned; none: it has none"
    )
    chunk: int = Field(description="bytes of a chunk, at most")
    window: int = Field(description="bytes that may have arrived and not be consumed")


class ChunkRecord(BaseRecord):
    """The arrival of a chunk."""

    event: Literal["chunk"] = "chunk"
    session: int
    bytes: int
    cached: int | None = Field(None, description="bytes that were in the page cache before; none: not known")
    seconds: float
    requests: int
    held: int = Field(description="bytes that had arrived before, and were not consumed")
    waited: float | None = Field(None, description="seconds, until it was admitted")
    readers: int | None = Field(None, description="chunks of the session that were read then, with this one")
    constraint: float | None = Field(None, description="its storageBW; none: it took nothing of a bandwidth")


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
    reason: SessionReason
    parts: int = Field(description="how many are known")
    storage_bytes: int = Field(description="read that were not in the page cache before, as far as is known")
    cached_bytes: int = Field(description="asked for that were there before")
    peak_window: int = Field(description="most bytes that had arrived and were not consumed")
    read_seconds: float = Field(description="from the beginning of the session to its last chunk")
