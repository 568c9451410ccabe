"""The state of a job whose output directory is in memory."""

from __future__ import annotations

from msgspec import Struct


class JobInMemory(Struct):
    """The output directory in memory of a job.

    :ivar directory: its path
    :ivar on_disk: the output directory of any further attempt
    :ivar size: the bytes that the directory may hold
    :ivar location: the name of the location whose memory is charged
    """

    directory: str
    on_disk: str
    size: int
    location: str
    has_outgrown: bool = False
