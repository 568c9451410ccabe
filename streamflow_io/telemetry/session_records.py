"""The records of read sessions. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from streamflow_io.sessions.director import Reason

from .base_record import BaseRecord

#: Who says where the parts are: the program that splits, or each job what it reads. `whole`: all of the file is read,
#: before StreamFlow reads it for its checksum.
Form = Literal["said", "selected", "whole"]


class SessionRecord(BaseRecord):
    """A read session begins."""

    event: Literal["session"] = "session"
    session: int = Field(description="its number in the run, from 1")
    step: str
    file: str
    size: int = Field(description="of the file")
    form: Form
    readers: int = Field(description="how many chunks may be read at the same time")
    constraint: str | None = Field(
        None, description="storageBW of a chunk: a number, or auto(min,max,2) where it is learned; none: it has none"
    )
    chunk: int = Field(description="bytes of a chunk, at most")
    window: int = Field(description="bytes that may have arrived and not be consumed")


class ChunkRecord(BaseRecord):
    """A chunk has arrived."""

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
    """A part has arrived; or its reader does not have to wait for it any more."""

    event: Literal["arrived"] = "arrived"
    session: int
    part: int = Field(description="from 0")


class ConsumedRecord(BaseRecord):
    """A job that reads a part has ended."""

    event: Literal["consumed"] = "consumed"
    session: int
    part: int
    held: int | None = Field(None, description="bytes that have arrived and are not consumed, now")


class SessionEndRecord(BaseRecord):
    """A read session reads nothing more."""

    event: Literal["sessionEnd"] = "sessionEnd"
    session: int
    reason: Reason
    parts: int = Field(description="how many are known")
    storage_bytes: int = Field(description="read that were not in the page cache before, as far as is known")
    cached_bytes: int = Field(description="asked for that were there before")
    peak_window: int = Field(description="most bytes that had arrived and were not consumed")
    read_seconds: float = Field(description="from the beginning of the session to its last chunk")
