"""The state of a job whose output directory is in memory."""

from __future__ import annotations

import posixpath

from msgspec import Struct

from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Memory

# Bytes. With less free space, a tool may have failed to write, and may not have said so.
_LITTLE = 16_000_000


def is_full(memory: Memory) -> bool:
    """Whether nearly no space is left in memory, or files can lie there no more."""
    return memory.directory is None or memory.space < _LITTLE


class JobInMemory(Struct):
    """The output directory in memory of a job.

    :ivar directory: its path
    :ivar on_disk: the output directory of any further attempt
    :ivar size: the bytes that the directory may hold
    :ivar location: the name of the location whose memory is charged
    :ivar runtime: the node runtime that removes the directory at its end
    :ivar has_outgrown: whether the job was ended because it wrote more
    """

    directory: str
    on_disk: str
    size: int
    location: str
    runtime: NodeRuntime
    has_outgrown: bool = False

    @property
    def name(self) -> str:
        """The name of the directory."""
        return posixpath.basename(self.directory)

    async def has_no_space(self) -> bool:
        """Whether nearly no space is left in memory, or its node does not answer."""
        try:
            return is_full(await self.runtime.memory_of_run())
        except NodeRuntimeError:
            return True
