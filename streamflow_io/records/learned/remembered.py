"""Entries of one kind: those of earlier runs, and those of this run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic

from streamflow.log_handler import logger

from streamflow_io.messages import Code, coded

from .database import E, LearnedDatabase, LearnedKey, LearnedStoreError, known_entries

# One thread writes, so that an earlier entry never takes the place of a later one.
_WRITING = ThreadPoolExecutor(1, "learned facts")


class Remembered(Generic[E]):
    """The entries of one kind, in memory and in a file.

    A file that cannot be used never makes a run fail: one warning says so, and the file is not used from then on.

    :param path: the file; made with the first entry
    :param of: the kind
    :param known: the entries of the file. None: the file cannot be read, and is not used
    :param lost: the beginning of a warning: names what is not remembered without the file
    """

    def __init__(self, path: Path, of: type[E], known: Iterable[E] | None, lost: str) -> None:
        self._path = path
        self._kind = of
        self._known: dict[LearnedKey, E] = {entry.key: entry for entry in known or ()}
        self._lost = lost
        self._is_used = known is not None
        # The error that no warning has reported yet. None: no such error.
        self._error: LearnedStoreError | None = None

    @property
    def entries(self) -> Collection[E]:
        return self._known.values()

    def of(self, key: LearnedKey) -> E | None:
        return self._known.get(key)

    async def remember(self, *entries: E) -> None:
        """Keep entries, for this run and later ones."""
        for entry in entries:
            self._known[entry.key] = entry.merged(self._known.get(entry.key))
        await self._use(lambda file: file.save(entries))
        if self._error is not None:
            self.fail(self._error)

    def save_if(self, entry: E, others: Collection[LearnedKey], allows: Callable[[Sequence[E]], bool]) -> bool:
        """Save an entry in the file, unless other runs have learned meanwhile what forbids that.

        :param others: the keys of all that matters
        :param allows: told what the file has for these keys, and this object had not. The entries are known then
        :return: whether nothing forbids the entry. It is not in memory yet
        """
        is_allowed = True

        def decide(found: Sequence[E]) -> bool:
            nonlocal is_allowed
            new = [each for each in found if each.merged(self._known.get(each.key)) != self._known.get(each.key)]
            self._known |= {each.key: each.merged(self._known.get(each.key)) for each in new}
            is_allowed = not new or allows(new)
            return is_allowed

        # In the event loop, which changes what this object knows.
        self._try(lambda file: file.save_if(entry, others, decide))
        return is_allowed

    async def update(self, keys: Collection[LearnedKey], change: Callable[[E], E]) -> None:
        """Change entries of the file, for later runs. A failure causes no warning before an entry is lost."""
        if keys:
            await self._use(lambda file: file.update(self._kind, keys, change))

    async def forget(self, entries: Collection[E]) -> None:
        """Delete entries, for this run and later ones."""
        for entry in entries:
            self._known.pop(entry.key, None)
        if entries:
            await self._use(lambda file: file.forget(entries))

    def read(self) -> tuple[E, ...]:
        """Return the entries that the file has now. The entries of this object stay as they are."""
        try:
            return known_entries(self._path, self._kind) if self._is_used else ()
        except LearnedStoreError as error:
            self.fail(error)
            return ()

    def fail(self, error: BaseException) -> None:
        """Warn that nothing is remembered, and stop using the file."""
        self._is_used, self._error = False, None
        logger.warning(coded(f"{self._lost} not remembered in this run: {error}", Code.STORE_NOT_USED))

    async def _use(self, work: Callable[[LearnedDatabase], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(_WRITING, self._try, work)

    def _try(self, work: Callable[[LearnedDatabase], None]) -> None:
        if not self._is_used:
            return
        try:
            work(LearnedDatabase(self._path))
        except LearnedStoreError as error:
            # The next call does not wait again for a file that was locked for long.
            if self._is_used:
                self._is_used, self._error = False, error
