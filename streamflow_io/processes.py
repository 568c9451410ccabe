"""Processes of this machine that the driver starts: their ends are waited for without threads.

No wait for the end of a process depends on other processes that hold its pipes. `srun`, for instance, has a child that
goes on for half a minute when `srun` is killed while the queue manager starts its program.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import sys
import termios
import threading
from asyncio.base_subprocess import BaseSubprocessTransport
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import cast

from typing_extensions import TypeVarTuple, Unpack

logger = logging.getLogger("streamflow")

_Ts = TypeVarTuple("_Ts")
_LIMIT = 2**16
_PIPES_SECONDS = 1.0
_END_SECONDS = 5.0


def interrupt_on_sigterm() -> Callable[[], None]:
    """Let this process end as after Ctrl-C when it gets SIGTERM, as at the end of a batch job; the next one kills it.

    Does nothing where another handler is set, or none for Ctrl-C. A shell ignores Ctrl-C for what it starts in the
    background.

    :return: restores the default
    """

    def end() -> None:
        raise KeyboardInterrupt

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        logger.warning("The run ends, because StreamFlow has got SIGTERM, as at the end of the time of a batch job")
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.raise_signal(signal.SIGINT)
            return
        try:
            # No exception is lost in a callback, as in the end of an object.
            asyncio.get_running_loop().call_soon_threadsafe(end)
        except RuntimeError:
            end()

    def restore() -> None:
        if signal.getsignal(signal.SIGTERM) is interrupt:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    is_main = threading.current_thread() is threading.main_thread()
    is_default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_main and is_default and signal.getsignal(signal.SIGINT) is not signal.SIG_DFL:
        signal.signal(signal.SIGTERM, interrupt)
    return restore


_process_exited = BaseSubprocessTransport._process_exited


def mend_interrupted_starts() -> None:
    """Let a start of a process that is cancelled end, from now on in this process.

    When all tasks are cancelled, CPython 3.11 waits for ever for the end of pipes that it has not connected yet.
    """
    BaseSubprocessTransport._process_exited = _end_of_process  # type: ignore[method-assign]


def _end_of_process(self: BaseSubprocessTransport, returncode: int) -> None:
    _process_exited(self, returncode)
    if self._pending_calls is not None and self._exit_waiters:
        for waiter in self._exit_waiters:
            if not waiter.done():
                waiter.set_result(returncode)
        self._exit_waiters.clear()


async def start_process(
    words: Sequence[str],
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    *,
    limit: int = _LIMIT,
    cwd: PurePath | None = None,
    env: Mapping[str, str] | None = None,
    start_new_session: bool = False,
) -> Process:
    """Start a process, as `asyncio.create_subprocess_exec` does.

    When the process has ended, its pipes are closed after a second, although its children may hold them. All that the
    process has printed is read before. So `wait`, `communicate` and readers of its output do not wait for its children.

    :raises OSError: if the process cannot be started
    """
    watch_children_without_threads()
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: _ClosingProtocol(limit, loop), *words, stdin=stdin, stdout=stdout, stderr=stderr,
        cwd=cwd, env=env, start_new_session=start_new_session,
    )  # fmt: skip
    return _StartedProcess(transport, protocol, loop)


async def ends_within(process: Process, seconds: float) -> bool:
    """Wait for the end of a process for at most this time, and return whether the process has ended."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(process.wait(), seconds)
    return process.returncode is not None


async def end_process(process: Process, seconds: float = 0.0) -> None:
    """End a process that may still run.

    :param seconds: for which the process may first end of itself
    """
    if seconds:
        await ends_within(process, seconds)
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        if not await ends_within(process, _END_SECONDS):
            await kill_process(process)


async def end_with_descendants(process: Process) -> None:
    """End a process that may still run, with its children and theirs. What does not end of itself is killed."""
    if process.returncode is not None:
        return
    with contextlib.ExitStack() as stack:
        # The number of a process may become that of another one meanwhile. A descriptor stays that of the process.
        found: list[int] = []
        for pid in descendants(process.pid):
            with contextlib.suppress(OSError):
                found.append(os.pidfd_open(pid))
                stack.callback(os.close, found[-1])
        _send(signal.SIGTERM, found)
        await end_process(process)
        _send(signal.SIGKILL, found)


def _send(number: signal.Signals, processes: Sequence[int]) -> None:
    for process in processes:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(process, number)


def descendants(root: int) -> dict[int, list[bytes]]:
    """Return the children of a process, and theirs: by number, the fields of `/proc/PID/stat` from the state on."""
    fields: dict[int, list[bytes]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        # The name of a program, in parentheses, may hold anything.
        with contextlib.suppress(OSError):
            fields[int(each.parent.name)] = each.read_bytes().rpartition(b")")[2].split()
    children: dict[int, list[int]] = {}
    for pid, (_state, parent, *_others) in fields.items():
        children.setdefault(int(parent), []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return {pid: fields[pid] for pid in found}


async def kill_process(process: Process) -> None:
    """Kill a process. A process that a device holds ends later: one warning says so."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if not await ends_within(process, _END_SECONDS):
        logger.warning(
            f"Process {process.pid} was killed and does not end: a file system or a device of this machine does not "
            f"answer. `ps -fp {process.pid}` shows the process"
        )


class _ClosingProtocol(SubprocessStreamProtocol):
    """Closes the pipes of a process that has ended.

    :ivar over: the process has ended; its pipes are closed, or others hold them, or they are not read
    """

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self.over = asyncio.Event()
        self._open = {0, 1, 2}
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Transports of uvloop are of no class of asyncio.
        self._process = cast(asyncio.SubprocessTransport, transport)
        self._open = {number for number in self._open if self._process.get_pipe_transport(number) is not None}

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        super().pipe_connection_lost(fd, exc)
        self._open.discard(fd)
        self._look()

    def process_exited(self) -> None:
        super().process_exited()
        self._has_ended = True
        asyncio.get_running_loop().call_later(_PIPES_SECONDS, self._close)
        self._look()

    def _look(self) -> None:
        if self._has_ended and not self._open:
            self.over.set()

    def _close(self) -> None:
        self.over.set()
        for number in self._open:
            pipe = self._process.get_pipe_transport(number)
            if pipe is not None and number == 0:
                cast(asyncio.WriteTransport, pipe).abort()
            elif pipe is not None and not _unread(pipe):
                pipe.close()
        if self._open:
            # A reader may be slow.
            asyncio.get_running_loop().call_later(_PIPES_SECONDS, self._close)


class _StartedProcess(Process):
    def __init__(
        self, transport: asyncio.SubprocessTransport, protocol: _ClosingProtocol, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(transport, protocol, loop)
        self._over = protocol.over

    async def wait(self) -> int:
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode


def _unread(pipe: asyncio.BaseTransport) -> int:
    """The bytes that wait in a pipe, or in the socket that uvloop has in place of one."""
    file = pipe.get_extra_info("pipe") or pipe.get_extra_info("socket")
    if file is None or pipe.is_closing():
        return 0
    return int.from_bytes(fcntl.ioctl(file.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)


def watch_children_without_threads() -> None:
    """Wait for processes with pidfds, as Python 3.12 does: before, asyncio starts a thread for each process.

    Does nothing where the kernel has no pidfds, and where asyncio's event loop was replaced, for instance by uvloop's.
    A process that already runs is waited for all the same. May be called again, and in any event loop.
    """
    if sys.version_info >= (3, 12) or not isinstance(asyncio.get_event_loop_policy(), asyncio.DefaultEventLoopPolicy):
        return
    if isinstance(asyncio.get_child_watcher(), _PidfdWatcher):
        return
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return
    asyncio.set_child_watcher(_PidfdWatcher())


if sys.version_info < (3, 12):

    class _PidfdWatcher(asyncio.AbstractChildWatcher):
        """Waits in the loop that has started the process, like the watcher of Python 3.12.

        The watcher of Python 3.11 waits in a single loop, and forgets its processes when another takes its place.
        """

        def add_child_handler(
            self, pid: int, callback: Callable[[int, int, Unpack[_Ts]], object], *args: Unpack[_Ts]
        ) -> None:
            pidfd = os.pidfd_open(pid)
            loop = asyncio.get_running_loop()
            loop.add_reader(pidfd, self._ended, loop, pid, pidfd, callback, args)

        def _ended(
            self,
            loop: asyncio.AbstractEventLoop,
            pid: int,
            pidfd: int,
            callback: Callable[[int, int, Unpack[_Ts]], object],
            args: tuple[Unpack[_Ts]],
        ) -> None:
            loop.remove_reader(pidfd)
            os.close(pidfd)
            try:
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            except ChildProcessError:
                # Other code has waited for the process: asyncio reports such a process in the same way.
                code = 255
            callback(pid, code, *args)

        def remove_child_handler(self, pid: int) -> bool:
            # asyncio never asks for this.
            return True

        def attach_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
            pass

        def close(self) -> None:
            pass

        def is_active(self) -> bool:
            return True

        def __enter__(self) -> _PidfdWatcher:
            return self

        def __exit__(self, *_: object) -> None:
            pass
