"""Classes of jobs whose input files have about the same size together."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from .database import LearnedKey

_MEBIBYTE = 2**20


def size_class_of(input_bytes: float) -> int:
    """Return the class of a job: sizes within a factor of two have one class, and all below 1 MiB have class 0."""
    return (int(input_bytes) // _MEBIBYTE).bit_length()


def size_range(size_class: int) -> tuple[int, int]:
    """Return the bytes of a class: from the first number to below the second."""
    return (_MEBIBYTE << size_class - 1 if size_class else 0), _MEBIBYTE << size_class


class SizeKey(LearnedKey, frozen=True):
    """The conditions under which a limit, or a window, holds.

    :ivar storage: a text that is the same as long as the storage and its configuration are
    :ivar size_class: the class of the input files of a job
    """

    storage: str
    size_class: int

    @property
    def near(self) -> Iterator[SizeKey]:
        """The keys of jobs of about the same size, the key itself first."""
        return (replace(self, size_class=self.size_class + more) for more in (0, -1, 1))
