"""Decides which jobs may write their files into the memory of a node."""

from __future__ import annotations

from msgspec import Struct

# The part of the free memory that no file gets: programs that are no jobs need memory, too.
_RESERVE = 0.1


class FreeMemory(Struct, frozen=True):
    """The memory of a node at one moment, in bytes.

    :ivar free: what is free there, of the memory and of the file system in memory
    :ivar all: what jobs may ask for together
    :ivar asked: what running jobs have asked for, with all that files have been granted
    """

    free: int
    all: int
    asked: int


class _MemoryGrant(Struct):
    bytes: int
    runs: bool = True


class MemoryLedger:
    """The memory that files of jobs have been granted.

    Guarantee: a job that runs alone finds the memory that the job asks for, whatever files stay.

    :param limit: the most bytes of all files
    :param largest: the most bytes that a job asks for
    """

    def __init__(self, limit: int, largest: int) -> None:
        self._limit = limit
        self._largest = largest
        self._grants: dict[str, _MemoryGrant] = {}

    @property
    def granted(self) -> int:
        """The bytes of all files."""
        return sum(grant.bytes for grant in self._grants.values())

    def grant(self, job: str, size: int, there: FreeMemory) -> bool:
        """Grant memory to a job if there is enough.

        :param size: the bytes of its files
        """
        # What running jobs have written already is neither free nor counted as written: the sum is on the safe side.
        unwritten = sum(grant.bytes for grant in self._grants.values() if grant.runs)
        most = min(self._limit, there.all - self._largest)
        fits = self.granted + size <= most and there.asked + size <= there.all
        if not fits or unwritten + size > there.free * (1 - _RESERVE) or job in self._grants:
            return False
        self._grants[job] = _MemoryGrant(size)
        return True

    def ended(self, job: str, size: int) -> int:
        """Take back what a job has not used.

        :param size: the bytes that lie there
        :return: the bytes that are taken back
        """
        if (grant := self._grants.get(job)) is None:
            return 0
        left, grant.runs = max(0, grant.bytes - size), False
        grant.bytes -= left
        return left

    def removed(self, job: str) -> int:
        """Take back all that a job has been granted, and return these bytes."""
        grant = self._grants.pop(job, None)
        return 0 if grant is None else grant.bytes
