"""A disk that gets slower when several write at once, as shared storage does.

The bandwidth of all writers together follows a curve over their number. Each writer is connected to a small server for
as long as it writes, and asks it before each piece. So the number of writers is known, also when one dies. For root,
the disk is a loop device: the server lets all pieces pass at once and sets the kernel's limit. For others it is a
directory: the server answers so slowly that the same curve results.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from lab.loop_device import LimitedDisk, Limits, LoopDeviceError, limited_disk

from .processes import CommandError
from .tools import MEBIBYTE, socket_address

_SIZE = 2048 * MEBIBYTE
_STOP_SECONDS = 30.0

SetBandwidth = Callable[[float], None]


@dataclass(frozen=True)
class Curve:
    """Bandwidths in bytes per second.

    :ivar bandwidth: of the disk, before it is congested
    :ivar writer: the most that one writer gets
    :ivar degradation: what each writer more costs: k of them get at most bandwidth / (1 + degradation * (k - 1))
    """

    bandwidth: float
    writer: float
    degradation: float

    def total(self, writers: int) -> float:
        """The bandwidth of all writers together; 0 writers count as one."""
        count = max(1, writers)
        return min(count * self.writer, self.bandwidth / (1 + self.degradation * (count - 1)))


@dataclass(frozen=True)
class CongestedDisk:
    """Where the disk is.

    :ivar directory: its root
    :ivar address: of its server; `@` and a name: an abstract Unix socket
    :ivar curve: how fast it is
    """

    directory: Path
    address: str
    curve: Curve

    @contextmanager
    def mounted(self, by_kernel: bool = True) -> Iterator[str]:
        """Make the disk, empty, for as long as the context lasts.

        Guarantee: its server ends with the context, or with this process, whatever ends it, and leaves neither mount
        nor device. The directory is removed with the context.

        :param by_kernel: let the kernel limit the bandwidth, if possible
        :return: what limits it, for people
        :raises CommandError: if the server cannot be started, or fails
        """
        self.directory.mkdir()
        try:
            server = self._start(by_kernel)
            assert server.stdout is not None
            try:
                if description := server.stdout.readline().strip():
                    yield description
            finally:
                _stop(server)
        finally:
            shutil.rmtree(self.directory)

    def _start(self, by_kernel: bool) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", __name__, str(self.directory), self.address]
        return subprocess.Popen(
            [*command, json.dumps(asdict(self.curve)), str(int(by_kernel))],
            cwd=Path(__file__).resolve().parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C first ends the writers
        )


def _stop(server: subprocess.Popen[str]) -> None:
    """End the standard input of the server: that is how it knows."""
    try:
        _, errors = server.communicate(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        _, errors = server.communicate()
    if server.returncode != 0:
        raise CommandError(f"the congested disk failed: {errors.strip() or server.returncode}")


class Server:
    """Counts writers, and keeps them to the curve.

    :param set_bandwidth: sets the limit that the kernel enforces; none: the answers are delayed instead
    """

    def __init__(self, curve: Curve, set_bandwidth: SetBandwidth | None) -> None:
        self._curve = curve
        self._set_bandwidth = set_bandwidth
        self._writers = 0
        self._free_at = 0.0
        self._count(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a writer until it closes its connection: a line with a number of bytes is answered by an empty one."""
        self._count(1)
        try:
            while line := await reader.readline():
                await self._admit(int(line))
                writer.write(b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # it was killed
        finally:
            self._count(-1)
            writer.close()

    def _count(self, change: int) -> None:
        self._writers += change
        if self._set_bandwidth is not None:
            self._set_bandwidth(self._curve.total(self._writers))

    async def _admit(self, size: int) -> None:
        if self._set_bandwidth is not None:
            return
        seconds = size / self._curve.total(self._writers)
        now = time.monotonic()
        # One piece at a time, as they come. The time that a writer needs for the writing itself is not lost.
        self._free_at = max(self._free_at, now - seconds) + seconds
        await asyncio.sleep(self._free_at - now)


@contextmanager
def _limited(directory: Path, by_kernel: bool) -> Iterator[tuple[SetBandwidth | None, str]]:
    with ExitStack() as stack:
        description = "by throttled writers"
        set_bandwidth: SetBandwidth | None = None
        if by_kernel:
            try:
                disk = stack.enter_context(limited_disk(directory, _SIZE))
                set_bandwidth = partial(_limit_writers, disk)
                description = "by the kernel (loop device, cgroup v1 blkio)"
            except LoopDeviceError as error:
                description += f"; not by the kernel: {error}"
        yield set_bandwidth, description


def _limit_writers(disk: LimitedDisk, bandwidth: float) -> None:
    disk.limit(Limits(write=bandwidth))


async def _main(directory: Path, address: str, curve: Curve, by_kernel: bool) -> None:
    """Until standard input ends, or a signal comes."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stopped.set)
    loop.add_reader(sys.stdin.fileno(), stopped.set)
    with _limited(directory, by_kernel) as (set_bandwidth, description):
        server = await asyncio.start_unix_server(Server(curve, set_bandwidth).serve, socket_address(address))
        async with server:
            with contextlib.suppress(BrokenPipeError):
                print(description, flush=True)
            await stopped.wait()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2], Curve(**json.loads(sys.argv[3])), sys.argv[4] == "1"))
