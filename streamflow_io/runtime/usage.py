"""The resources that a job has used, as the node runtime has measured them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from streamflow_io.hints.models import Direction


class JobUsage(Struct, frozen=True, rename="camel"):
    """The resources that a job's process tree used, as the node runtime measured them."""

    started: Annotated[float, Meta(description="by the clock of its node")]
    ended: Annotated[float, Meta(description="by the clock of its node")]
    bytes_read: Annotated[int, Meta(description="by system calls")]
    bytes_written: Annotated[int, Meta(description="by system calls")]
    storage_bytes_read: Annotated[int, Meta(description="from storage, as the kernel accounts them")]
    storage_bytes_written: Annotated[int, Meta(description="to storage, as the kernel accounts them")]
    cpu_seconds: Annotated[float, Meta(description="CPU time of all processes")]
    io_seconds: Annotated[float | None, Meta(description="seconds in which one of its threads waited for a device")] = (
        None
    )
    held_seconds: Annotated[float | None, Meta(description="seconds in which one of its calls waited at the gate")] = (
        None
    )
    paused_seconds: Annotated[float | None, Meta(description="seconds in which the job was paused by a limit")] = None
    pauses: int | None = None

    def moved(self, direction: Direction) -> int:
        """The bytes moved in a direction; for both directions, their sum."""
        read = _moved(self.bytes_read, self.storage_bytes_read)
        written = _moved(self.bytes_written, self.storage_bytes_written)
        return {"read": read, "write": written, "both": read + written}[direction]

    def ran(self, since: float, until: float) -> tuple[float, float]:
        """The start and the end of the command, by the driver's clock.

        If the clock of its node disagrees, the end is taken to be when the driver saw it.

        :param since: when the job was submitted
        :param until: when the job had ended
        """
        if self.started < since or self.ended > until:
            return max(since, until - (self.ended - self.started)), until
        return self.started, self.ended


def _moved(by_calls: int, by_kernel: int) -> int:
    # Only the kernel's accounts see files that are mapped into memory. These accounts count whole folios, up to 32
    # times the bytes that were written. So they are used only where system calls explain next to nothing.
    return by_kernel if by_kernel > 64 * by_calls else by_calls
