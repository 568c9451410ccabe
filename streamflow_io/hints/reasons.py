"""Why data moves as fast as it does, and what waits for it: words that decisions and records of a run share."""

from __future__ import annotations

from typing import Literal

#: What moves a request: an I/O task all of it, a byte stream one burst of it, a compute job what it writes itself.
RequestKind = Literal["task", "stream", "write"]

#: Why a job waits for a request from the required end on: the job lacks nothing else (`need`), the next request of the
#: channel is ready (`next`), the user has said so (`within`), or no job computes any more (`end`). `exposed`: a job
#: waits for the request at once, or the request is too small to count.
EndRule = Literal["need", "next", "within", "end", "exposed"]

#: Why a request has its rate: its strategy says so; it needs more to be in time (`need`); others wait for its I/O
#: executor (`executors`); the storage has no more for it (`share`); a job waits for it, so that no rate holds (`late`).
RateReason = Literal["strategy", "need", "executors", "share", "late"]

#: Why a byte stream has its rate: its strategy says so; it needs more to be in time (`need`); the next burst is
#: expected before this one is delivered (`late`); the file is complete, and the rest of it is needed now (`commit`).
StreamReason = Literal["strategy", "need", "late", "commit"]

#: What a byte stream waits for: its producer, the command that reads it, the opening by that command, or its rate.
StreamWait = Literal["producer", "reader", "opening", "rate"]

#: Why a read session ended: all was read (`done`), all was in the page cache before (`cached`), the file system keeps
#: nothing there (`not kept`), no job would make room in the window (`window`), nothing came for long (`stalled`), or
#: the reader or the run ended (`lost`).
SessionReason = Literal["done", "cached", "not kept", "window", "stalled", "lost"]
