"""Our programs in processes that are forked of one which has imported them: importing takes a second each time.

The command line and the environment that the system shows of such a process are those of the one it was forked of.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Protocol

from lab.once import once

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["lab.preloaded"])
#: The functions that are the programs.
_PROGRAMS = {
    "streamflow": ("streamflow.main", "main"),
    "streamflow believing": ("lab.believing", "main"),
    "streamflow believing later": ("lab.believing", "main_later"),
    "streamflow gathering": ("lab.gathering", "main"),
    "streamflow excerpting": ("lab.excerpting", "main"),
    "streamflow giving up late": ("lab.excerpting", "give_up_late"),
    "streamflow impatient": ("lab.excerpting", "impatient"),
    "streamflow unreachable": ("lab.unreachable", "main"),
    "streamflow-io": ("streamflow_io.cli", "main"),
    "waiting probe": ("lab.waiting_probe", "main"),
    "cwltool": ("cwltool.main", "main"),
    "runtime driver": ("lab.runtime_driver", "command"),
}
#: A variable of the environment. With the value `uvloop`, the programs use the event loop of uvloop.
LOOP = "SFIO_TEST_LOOP"
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 1 << 14, 1 << 18
_PR_SET_PDEATHSIG = 1
#: Of a socket, in bytes.
_LONGEST_ADDRESS = 100


class Driver(Protocol):
    """A process that runs a workflow: forked, or started as it is."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, number: int) -> None: ...


def prepare(directory: Path) -> None:
    """Start the process to be forked: with the environment of a test it would be taken for what is left of one.

    :param directory: of all processes that run tests. One of them starts that process for all: importing takes long
    """
    server: Any = vars(forkserver)["_forkserver"]
    address = directory / "forked"
    # From Python 3.14 on, a key is needed that only the process has that starts it.
    if len(os.fsencode(address)) > _LONGEST_ADDRESS or hasattr(server, "_forkserver_authkey"):
        server.ensure_running()
        return

    def start() -> tuple[int, int]:
        server.ensure_running()
        os.link(server._forkserver_address, address)  # The other name goes when this process ends.
        return os.getpid(), server._forkserver_alive_fd

    process, alive = once(directory / "forked.process", start)
    if process != os.getpid():
        # If the process that has started it has ended, this one starts its own.
        with contextlib.suppress(OSError):
            server._forkserver_alive_fd = os.open(f"/proc/{process}/fd/{alive}", os.O_WRONLY)
            server._forkserver_address = str(address)
            server.ensure_running = resource_tracker.ensure_running
    server.ensure_running()


class Forked:
    """A program that runs. Has what is needed of `subprocess.Popen`, and may be used by any thread."""

    # Whoever starts a process looks at all others, too, and how one has ended can be read only once.
    lock = threading.Lock()

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        with self.lock:
            return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """:raises subprocess.TimeoutExpired: if it still runs then"""
        wait([self._process.sentinel], timeout)
        if (code := self.returncode) is None:
            raise subprocess.TimeoutExpired("a forked program", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


def start(
    program: str,
    arguments: Sequence[object],
    directory: Path,
    environment: Mapping[str, str],
    output: Path | None = None,
    namespaces: Sequence[Path] = (),
) -> Forked:
    """Start a program in a session of its own.

    :param output: the directory for what it prints, in files `stdout` and `stderr`; none: where it runs
    :param namespaces: those of other processes in which it runs, as files of `/proc`; then for no longer than we do
    """
    words = [program, *map(str, arguments)]
    for name in ("stdout", "stderr"):
        # Also of one that is killed before it has begun.
        (output or directory).joinpath(name).touch()
    shared = words, directory, dict(environment), output or directory, namespaces
    process = _CONTEXT.Process(target=_main, args=shared)
    with Forked.lock:
        process.start()
    return Forked(process)


def run(
    program: str,
    *arguments: object,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    namespaces: Sequence[Path] = (),
    seconds: float = 100,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with more in its environment.

    :raises subprocess.TimeoutExpired: if it takes longer; it is killed
    """
    with tempfile.TemporaryDirectory() as output:
        printed = Path(output)
        process = start(
            program, arguments, cwd or Path.cwd(), {**os.environ, **(environment or {})}, printed, namespaces
        )
        try:
            code = process.wait(seconds)
        finally:
            process.send_signal(signal.SIGKILL)
        texts = [(printed / name).read_text(errors="surrogateescape") for name in ("stdout", "stderr")]
    return subprocess.CompletedProcess([program, *map(str, arguments)], code, *texts)


def _main(
    words: list[str], directory: Path, environment: dict[str, str], output: Path, namespaces: Sequence[Path]
) -> None:
    os.setsid()
    for number, name in ((0, os.devnull), (1, output / "stdout"), (2, output / "stderr")):
        file = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, number)
        os.close(file)
    if namespaces:
        _enter(namespaces)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    if environment.get(LOOP) == "uvloop":
        import_module("uvloop").install()
    tempfile.tempdir = None
    sys.argv = words
    module, name = _PROGRAMS[words[0]]
    code = _call(getattr(import_module(module), name), words[1:])
    atexit._run_exitfuncs()  # A child of the fork server leaves them out.
    sys.stdout.flush()
    sys.stderr.flush()
    _end_javascript(2)
    os._exit(code)


def _enter(namespaces: Sequence[Path]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    files = [os.open(path, os.O_RDONLY) for path in namespaces]
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) or any(libc.setns(file, 0) for file in files):
        sys.exit(f"cannot enter {namespaces}: {os.strerror(ctypes.get_errno())}")
    for file in files:
        os.close(file)
    # We have our own processes, and need their `/proc`, which the others must not see.
    if any(path.name == "mnt" for path in namespaces) and (
        libc.unshare(_CLONE_NEWNS)
        or libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)
        or libc.mount(b"proc", b"/proc", b"proc", 0, None)
    ):
        sys.exit(f"cannot mount /proc: {os.strerror(ctypes.get_errno())}")


def _call(main: Callable[[list[str]], int | None], arguments: list[str]) -> int:
    """Return the exit code of the program."""
    try:
        return main(arguments) or 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    return 1


def _end_javascript(seconds: float) -> None:
    """Node.js of cwl-utils ends when its pipe is closed; an interpreter that shuts down takes longer than that."""
    from cwl_utils.sandboxjs import NodeJSEngine, get_js_engine

    engine = get_js_engine()
    for process in engine.processes_to_kill if isinstance(engine, NodeJSEngine) else ():
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
