"""Reasons for rates and waiting: the words that decisions and records of a run share."""

from __future__ import annotations

from typing import Literal

#: The job that moves a request. `task`: an I/O task moves all of it. `write`: a compute job moves its own writes.
RequestKind = Literal["task", "write"]

#: Why a job waits for a request from the required end on. `need`: the job lacks nothing else. `next`: the next request
#: of the channel is ready. `within`: the user has said so. `end`: no job computes any more. `exposed`: a job waits for
#: the request at once, or the request is too small to count.
EndRule = Literal["need", "next", "within", "end", "exposed"]

#: Why a request has its rate. `strategy`: its strategy says so. `need`: it needs more to be in time. `executors`:
#: others wait for its I/O executor. `share`: the storage has no more for it. `late`: a job waits for it, so that no
#: rate holds.
RateReason = Literal["strategy", "need", "executors", "share", "late"]

#: What a byte stream waits for: its producer, the command that reads it, or the opening by that command.
StreamWait = Literal["producer", "reader", "opening"]

#: Why a read session ended. `done`: all was read. `cached`: all was in the page cache before. `not kept`: the file
#: system keeps nothing there. `window`: no job would make room in the window. `stalled`: nothing came for long. `lost`:
#: the reader or the run ended.
SessionReason = Literal["done", "cached", "not kept", "window", "stalled", "lost"]
