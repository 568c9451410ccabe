"""Begins read sessions where they may gain something."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import PurePosixPath

from msgspec import Struct
from streamflow.core.deployment import Target
from streamflow.log_handler import logger

from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.messages import Code, coded
from streamflow_io.records.files import SessionForm, SessionRecord
from streamflow_io.records.records import Record
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.protocol import FileIdentity, FoundFile, Memory, SessionSpec
from streamflow_io.runtime.remote import RemoteRuntime
from streamflow_io.runtime.values import readable
from streamflow_io.runtime.wire import identity_of
from streamflow_io.storage.storages import Storages

from .chunks import chunk_size
from .director import Director
from .read_session import ReadAheadSession

_MOST = 2_048_000_000
# How many chunks are read at the same time, where the user has given no number.
_READERS = 4


def default_window(memory: Memory) -> int:
    """Bytes of a read session's window: a quarter of the free memory, half of the cgroup's limit, 2048 MB at most."""
    parts = ((memory.available, 4), (memory.limit, 2))
    return min([_MOST, *(whole // part for whole, part in parts if whole is not None)])


_MB = 1_000_000


class WorthReading(Struct, frozen=True):
    """A file that a session may read ahead.

    :ivar chunk: bytes of a chunk
    :ivar readers: how many chunks are read at the same time
    """

    path: PurePosixPath
    identity: FileIdentity
    chunk: int
    readers: int


class SessionStarter:
    """Begins a session for each regular file of more than one chunk.

    A session leaves a file alone that is in the page cache already, when its reader has looked.

    :ivar sessions: all of the run

    :param record: keeps a record for telemetry
    """

    def __init__(self, config: SchedulerConfig, storages: Storages, record: Callable[[Record], None]) -> None:
        self.sessions: list[ReadAheadSession] = []
        self._count = 0
        self._record = record
        self._megabytes = config.session_window
        self._storages = storages

    async def _window_at(self, runtime: EmbeddedRuntime | RemoteRuntime) -> int:
        """Bytes that may have arrived and not be consumed, in each session.

        :raises NodeRuntimeError: if it cannot be told
        """
        return default_window(await runtime.memory()) if self._megabytes is None else self._megabytes * _MB

    def look(self, path: str, target: Target) -> WorthReading | None:
        """Whether a file is worth a session.

        :param path: on the driver's node
        :param target: of the jobs that read it
        """
        try:
            found = os.stat(path)
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        file = FoundFile(path=os.path.realpath(path), identity=identity_of(found))
        return self.look_at(file, os.path.dirname(path), target)

    def look_at(self, file: FoundFile, directory: str, target: Target) -> WorthReading | None:
        """The same of a file that was found where it is.

        :param directory: in which jobs find it
        """
        storage = self._storages.of(None, target, directory)
        chunk = chunk_size(None if storage is None else storage.bandwidth("read"))
        if file.identity.size <= chunk:
            return None
        readers = _READERS if storage is None else storage.readers or _READERS
        return WorthReading(PurePosixPath(file.path), file.identity, chunk, readers)

    async def begin(
        self,
        step: str,
        file: WorthReading,
        runtime: EmbeddedRuntime | RemoteRuntime,
        consumers: int,
        form: SessionForm,
        guess: bool = False,
    ) -> ReadAheadSession | None:
        """Begin a session. None: a warning says why nothing is read.

        :param consumers: how many jobs say that they have consumed a part. 0: no job does
        :param form: whether a program says the parts one by one, or the jobs of a list select them
        :param guess: whether bytes are read that may be of the next part
        """
        size = file.identity.size
        try:
            window = await self._window_at(runtime)
            self._count += 1
            number = self._count
            director = Director(size, file.chunk, window, file.readers, consumers, guess)
            job = runtime.create_session(f"read-{step}")
            await job.begin(SessionSpec(file=str(file.path), identity=file.identity, threads=file.readers))
        except (NodeRuntimeError, OSError) as error:
            logger.warning(coded(f"{readable(str(file.path))} is not read ahead: {error}", Code.NOT_READ_AHEAD))
            return None
        facts = SessionRecord(
            time=time.time(),
            session=number,
            step=step,
            file=readable(str(file.path)),
            size=size,
            form=form,
            readers=file.readers,
            chunk=file.chunk,
            window=window,
        )
        session = ReadAheadSession(facts, director, job, self._record)
        self.sessions.append(session)
        return session
