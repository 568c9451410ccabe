"""Drives `sfio-node serve --shared` and `sfio-node run` in tests: one run directory, and jobs of several machines.

A machine is a directory for temporary files of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lab.node import Event, Job, Node, Owner, built, ended, wait_for
from lab.processes import find_processes

#: A tree of processes; the main one tells when all run.
TREE = "(sleep 60 & sleep 60) & sh -c 'setsid sleep 60 & wait' & echo up > {}; wait"


@dataclass
class Alone:
    """A shared run directory without a serve."""

    run: Path
    printed: list[Event] = field(default_factory=list)


class RemoteJob(Job):
    """A job under ``sfio-node run``."""

    def __init__(self, node: Owner, name: str, process: subprocess.Popen[bytes], machine: Path | None) -> None:
        super().__init__(node, name, process)
        self.machine = machine

    def local(self) -> list[Path]:
        """Returns the run directory of its machine, if it is there."""
        name = f"streamflow-io-{self.process.pid}-*"
        return ([] if self.machine is None else list(self.machine.glob(name))) + list(Path("/tmp").glob(name))

    def mark(self) -> re.Pattern[bytes]:
        if self.machine is None:
            return super().mark()
        return _marked(rf"/streamflow-io-{self.process.pid}-[0-9a-f]{{8}}/jobs/{re.escape(self.name)}".encode())

    def attendants(self) -> dict[str, int]:
        """Returns its `serve` and its `exec`, by these names."""
        found = {}
        for word in ("serve", "exec"):
            line = rf"\0{word}\0(?:[^\0]+\0)+?[^\0]*/streamflow-io-{self.process.pid}-[0-9a-f]{{8}}(?:/jobs/|\0|$)"
            for pid in find_processes("cmdline", re.compile(line.encode())):
                found[word] = pid
        return found


def find_marked(place: bytes) -> list[int]:
    """Returns the processes of jobs in a run directory that matches a regular expression."""
    return find_processes("environ", _marked(place))


def _marked(place: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"SFIO_JOB=[^\0]*" + place + rb"(?:\0|$)")


class RemoteNode(Node):
    """A ``serve --shared``, and jobs in its run directory, on machines of their own."""

    def __init__(self, binary: Path, base: Path, wrapper: Sequence[str] = ()) -> None:
        super().__init__(binary, base, ("--shared", "--patience", "60"), wrapper)

    def start(  # type: ignore[override]  # the options of its superclass are passed on
        self,
        name: str,
        command: Sequence[str | bytes | Path],
        *,
        machine: str = "one",
        patience: int | None = None,
        environment: dict[str, str] | None = None,
        **options: object,
    ) -> RemoteJob:
        """Starts a job on a machine; see :meth:`Node.start`."""
        temporary = self.base / f"tmp-{machine}"
        temporary.mkdir(exist_ok=True)
        words = ["run"] if patience is None else ["run", "--patience", str(patience)]
        variables = {**(os.environ if environment is None else environment), "TMPDIR": str(temporary)}
        super().start(name, command, words=words, environment=variables, **options)  # type: ignore[arg-type]
        plain = self.jobs.pop()
        job = RemoteJob(self, plain.name, plain.process, temporary)
        self.jobs.append(job)
        return job

    def left_behind(self) -> list[str]:
        """Returns what should not be there when all has ended."""
        local = [str(path) for job in self.jobs if isinstance(job, RemoteJob) for path in job.local()]
        return super().left_behind() + local


@contextmanager
def remote_node(base: Path, wrapper: Sequence[str] = ()) -> Iterator[RemoteNode]:
    """Runs a ``serve --shared``; in the end everything has to be gone: see :func:`lab.node.ended`."""
    with ended(RemoteNode(built(), base, wrapper)) as running:
        yield running


def shell(node: RemoteNode, name: str, script: str, **options: object) -> RemoteJob:
    """Starts a job that runs `script` in sh."""
    return node.start(name, ["sh", "-c", script], **options)  # type: ignore[arg-type]


def make_run(base: Path) -> Path:
    """Makes a run directory with a job `j`, of a `serve` that is not there; returns the job's directory."""
    directory = base / "run" / "jobs" / "j"
    directory.mkdir(parents=True)
    (directory / "job.json").write_text('{"name": "j"}')
    return directory


def run_alone(job: Path, command: Sequence[str], *options: str) -> RemoteJob:
    """Runs a job in a run directory without a `serve`."""
    temporary = job.parents[2] / "tmp"
    temporary.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [built(), "run", *options, "--job", job, "--", *command],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    return RemoteJob(Alone(job.parents[1]), job.name, process, temporary)


def has_left_nothing(job: RemoteJob) -> None:
    """Waits until nothing of a job is left on its machine."""
    wait_for(lambda: not job.local() and not job.processes() and not job.attendants(), "the end of everything")
