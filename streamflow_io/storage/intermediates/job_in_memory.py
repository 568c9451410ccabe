"""The state of a job whose output directory is in memory."""

from __future__ import annotations

import os

from msgspec import Struct

#: Bytes. With less free space, a tool may have failed to write, and may not have said so.
LITTLE = 16_000_000


class JobInMemory(Struct):
    """The output directory in memory of a job.

    :ivar directory: its path
    :ivar on_disk: the output directory of any further attempt
    :ivar size: the bytes that the directory may hold
    :ivar location: the name of the location whose memory is charged
    :ivar has_outgrown: whether the job was ended because it wrote more
    """

    directory: str
    on_disk: str
    size: int
    location: str
    has_outgrown: bool = False

    @property
    def is_full(self) -> bool:
        """Whether nearly no space is left in memory."""
        found = os.statvfs(os.path.dirname(self.directory))
        return found.f_bavail * found.f_frsize < LITTLE or (found.f_files > 0 and found.f_favail == 0)
