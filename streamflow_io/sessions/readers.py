"""How many chunks a session may read at the same time: fixed, learned, or as was learned before. Pure.

What is learned is the storageBW of a chunk, by the learner of I/O tasks: as many are read at once as the bandwidth of
the storage has room for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from streamflow_io.admission.objective import best_constraint
from streamflow_io.admission.registry import ConstraintRegistry
from streamflow_io.admission.storages import BYTES_PER_MEGABYTE, bytes_per_second
from streamflow_io.hints.bandwidth import AutoConstraint, Bounds, StaticConstraint, StorageBW
from streamflow_io.hints.config import StorageConfig

#: The most that are tried.
MOST = 16
#: Where nothing is known.
USUAL = 4
# Of all chunks that are read at once, at full bandwidth: a reader that says nothing for longer may be taken for dead.
_MOST_SECONDS = 4.0


@dataclass(frozen=True)
class Readers:
    """
    :ivar most: how many chunks may be read at the same time
    :ivar constraint: the storageBW of each; none: it takes nothing of a bandwidth
    """

    most: int
    constraint: StorageBW | None


def fixed_readers(storage: StorageConfig | None) -> Readers | None:
    """Where the number is given, or no storage is known to learn of; None: it is learned."""
    if storage is None:
        return Readers(USUAL, None)
    if storage.readers == "auto" or (storage.readers is None and storage.read is not None):
        return None
    most = storage.readers or USUAL
    return Readers(most, StaticConstraint(_share(storage, most)))


def learned_readers(storage: StorageConfig, chunk: int, window: int) -> Readers:
    """The numbers that are tried: the most that may be of use, half of it, and so on, down to one.

    :param chunk: bytes of a chunk
    :param window: bytes that may be read ahead
    """
    bandwidth = bytes_per_second(storage.bandwidth("read"))
    room = min(MOST, window // chunk, int(_MOST_SECONDS * bandwidth / chunk))
    most = 1 << max(1, room).bit_length() - 1
    return Readers(most, AutoConstraint(Bounds(_share(storage, most), storage.bandwidth("read"), 2.0)))


def readers_of(learned: Readers, storage: StorageConfig, chunks: int, remembered: ConstraintRegistry | None) -> Readers:
    """What holds for a file: one that has too few chunks to try all numbers uses what is remembered.

    :param learned: what :func:`learned_readers` says
    :param chunks: how many the file has
    """
    if chunks >= 2 * learned.most - 1:
        return learned
    if remembered and remembered.is_complete:
        return Readers(learned.most, StaticConstraint(best_constraint(chunks, remembered)))
    usual = min(USUAL, learned.most)
    return Readers(usual, StaticConstraint(_share(storage, usual)))


def reader_tool(chunk: int) -> str:
    """A digest of what the time of a chunk depends on, beside its storage."""
    return hashlib.sha256(f"reader {chunk}".encode()).hexdigest()


def _share(storage: StorageConfig, readers: int) -> float:
    """The bandwidth of each of so many, rounded down to what the ledger counts in: so many do fit then."""
    return max(1, bytes_per_second(storage.bandwidth("read")) // readers) / BYTES_PER_MEGABYTE
