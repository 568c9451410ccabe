"""The node runtime in a container: `sfio-node serve` and `exec` run in it, and shared files are in its volumes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from .access import Access
from .binary import Binary, Delivered, Neighbours, deliver
from .conversation import Conversation
from .conversing import ConversingRuntime, begin, serve
from .links import Links
from .place import Place


class ContainerRuntime(ConversingRuntime):
    """The `serve` in a container: the engine ends its input when the driver is gone.

    Commands of jobs are its children: an engine takes long to start anything, and its client some 25 MB as long as that
    runs.
    """

    unlimited = "jobs in containers are not paused"
    starts_commands = True

    def __init__(
        self,
        access: Access,
        delivered: Delivered,
        name: str,
        place: Place,
        conversation: Conversation,
        links: Links | None,
    ) -> None:
        super().__init__(access, str(delivered.binary), delivered.directory / name, links, conversation)
        self.place = place
        self._left: list[str] = []

    @classmethod
    async def start(
        cls, access: Access, workdir: str, binary: Binary, place: Place, links: Links | None = None, user: int = 0
    ) -> ContainerRuntime:
        """Deliver `sfio-node` and start `serve`.

        :param links: None: the runtime has no links
        :param user: may own directories above the runtime's own, as root may
        :raises NodeRuntimeError: if it cannot be started, with one reason; only the binary is left then
        """
        neighbours = Neighbours(user, place.volumes)
        # Jobs of other users must not guess the name.
        name = f"streamflow-io-{os.getpid()}-{os.urandom(16).hex()}"
        mounts = (word for mount in place.volumes for word in ("--within", mount))
        options = ["--readable", "--trust", str(user), *mounts, *(links.serve_options if links else [])]

        def script(delivered: Delivered) -> str:
            return serve(delivered.binary, delivered.directory / name, options)

        delivering = deliver(access, workdir, binary, neighbours)
        delivered, conversation, event = await begin(access, delivering, script, cls.stop_seconds)
        runtime = cls(access, delivered, name, place, conversation, links)
        runtime._workdir = workdir, neighbours
        runtime._listens(event)
        return runtime

    @property
    def ended(self) -> str:
        # In a container that was killed, no process is left that could tell which of the two has ended.
        return f"{self.location} has ended, or sfio-node serve in it"

    def lose(self, reason: str) -> None:
        self._left += [fifo for job in self._jobs.values() for fifo in job.fifos]
        super().lose(reason)

    async def _remove(self, ended: bool) -> None:
        directory, *fifos = map(self._here, (str(self.directory), *self._left))
        if directory is not None:
            await asyncio.to_thread(_remove, directory, filter(None, fifos))

    def _here(self, path: str) -> Path | None:
        """The path of a container's file on the driver's node; None: the driver does not see the file."""
        seen = None if self.place is None else Place().path_of(self.place, path)
        return None if seen is None else Path(seen)


def _remove(directory: Path, fifos: Iterable[Path]) -> None:
    """Remove the files that a killed container has left, because no process in it can; as far as permitted."""
    try:
        alive = os.open(directory / "alive", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:  # `serve` has removed all itself
        return
    try:
        if os.read(alive, 1) != b"":
            return
    except BlockingIOError:  # `serve` is alive, and removes all itself
        return
    finally:
        os.close(alive)
    for fifo in fifos:
        with contextlib.suppress(OSError):
            if stat.S_ISFIFO(fifo.lstat().st_mode):
                fifo.unlink()
    shutil.rmtree(directory, ignore_errors=True)
