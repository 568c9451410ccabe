"""StreamFlow's command in a process that is forked of one which has imported StreamFlow: that takes 1.2 s each time.

For runs that are left alone until they end: whoever looks for the process by its name or environment does not find it.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    ["streamflow.main", "streamflow.cwl.main", "streamflow.cwl.translator", "cwl_utils.parser", "streamflow_io.plugin"]
)


def prepare() -> None:
    """Start the process to be forked: with the environment of a test it would be taken for what is left of one."""
    forkserver.ensure_running()


class Forked:
    """A command that runs. Has what is needed of `subprocess.Popen`."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid = process.pid

    def wait(self, seconds: float | None = None) -> int:
        """:raises subprocess.TimeoutExpired: if it still runs then"""
        self._process.join(seconds)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("streamflow", seconds or 0)
        return self.returncode

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode


def start(arguments: Sequence[str], directory: Path, environment: Mapping[str, str]) -> Forked:
    """Start `streamflow` in a session of its own; what it prints goes to `stdout` and `stderr` in its directory."""
    process = _CONTEXT.Process(target=_main, args=(list(arguments), str(directory), dict(environment)))
    process.start()
    return Forked(process)


def _main(arguments: list[str], directory: str, environment: dict[str, str]) -> None:
    os.setsid()
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, number)
        os.close(file)
    from streamflow.main import main

    code = main(arguments)
    atexit._run_exitfuncs()  # A child of the fork server leaves them out.
    sys.stdout.flush()
    sys.stderr.flush()
    _end_javascript(2)
    os._exit(code)


def _end_javascript(seconds: float) -> None:
    """Node.js of cwl-utils ends when its pipe is closed; an interpreter that shuts down takes longer than that."""
    from cwl_utils.sandboxjs import NodeJSEngine, get_js_engine

    engine = get_js_engine()
    for process in engine.processes_to_kill if isinstance(engine, NodeJSEngine) else ():
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
