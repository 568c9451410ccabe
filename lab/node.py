"""Drives the built sfio-node in tests: a serve of its own for each test, and jobs in it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol, TypeVar, cast

from lab.processes import find_processes, of_processes
from streamflow_io.runtime.conversing import Certificate

#: Seconds after which an event will not come: on a busy machine one may take ten times as long as on an idle one.
TIMEOUT = 40.0

Event = dict[str, object]


def node_binary() -> Path | None:
    """Returns the binary to test: SFIO_NODE, beside the interpreter, or freshly built; None when there is none."""
    root = Path(__file__).resolve().parent.parent
    candidates = [
        os.environ.get("SFIO_NODE"),
        Path(sys.executable).parent / "sfio-node",
        root / "node" / "target" / "release" / "sfio-node",
    ]
    return next((Path(found) for found in candidates if found and Path(found).is_file()), None)


def wait_for(
    condition: Callable[[], object],
    what: str,
    timeout: float = TIMEOUT,
    progress: Callable[[], object] | None = None,
) -> None:
    """Waits until ``condition`` holds. One that takes long, as a look at all processes, is asked for less often.

    :param progress: something that changes while what is waited for goes on; without it, nothing tells
    :raises AssertionError: when it does not within ``timeout`` seconds after the last progress; names ``what``.
    """
    deadline, last = time.monotonic() + timeout, None
    while True:
        asked = time.monotonic()
        if condition():
            return
        if progress is not None and (now := progress()) != last:
            deadline, last = time.monotonic() + timeout, now
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(min(max(0.005, 4 * (time.monotonic() - asked)), 0.25))


def output(
    root: Path,
    globs: str | list[str],
    committed: str = "on_termination",
    kind: str = "file",
    port: str = "out",
    **rule: object,
) -> dict[str, object]:
    """Returns an entry of ``outputs`` with one rule."""
    patterns = [globs] if isinstance(globs, str) else globs
    rules = [{"globs": [], "committed": committed, **rule}]
    return {"port": port, "root": str(root), "kind": kind, "globs": patterns, "rules": rules}


def job_text(name: str, inputs: Sequence[Event] = (), **fields: object) -> str:
    """Returns a job.json; ``inputs`` are streams and parts."""
    streams = [each for each in inputs if "part" not in each]
    parts = [each for each in inputs if "part" in each]
    return json.dumps({"name": name, "streams": streams, "parts": parts, **fields})


def lock_events(events: IO[bytes]) -> None:
    """Locks the events of a job, as its exec does."""
    fcntl.fcntl(events, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))


class Owner(Protocol):
    """The owner of a job: a run directory, and the lines that its serve has printed."""

    run: Path
    printed: list[Event]


class Job:
    """A job that runs under ``sfio-node exec``."""

    def __init__(self, node: Owner, name: str, process: subprocess.Popen[bytes]) -> None:
        self.directory = node.run / "jobs" / name
        self.name = name
        self.node = node
        self.process = process

    def wait(self, timeout: float = TIMEOUT) -> int:
        """Waits for the end of exec and returns its code as subprocess has it (negative: a signal)."""
        return self.process.wait(timeout)

    def events(self) -> list[Event]:
        """Returns the complete events so far, as the file has them."""
        file = self.directory / "events.jsonl"
        text = file.read_text() if file.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def served(self) -> list[Event]:
        """Returns the events of this job that serve has printed."""
        return [event for event in self.node.printed if event.get("job") == self.name]

    def named(self, event: str) -> list[Event]:
        """Returns the events of one name."""
        return [found for found in self.events() if found["event"] == event]

    def commits(self) -> list[Event]:
        """Returns what was told of committed files, those of directories among them."""
        return [found for found in self.events() if found["event"] in ("committed", "entry")]

    def committed(self) -> list[str]:
        """Returns the names of committed files, in order."""
        return [os.path.basename(str(event["path"])) for event in self.commits()]

    def exit(self) -> Event:
        """Returns the exit event, which has to be the last one, and the only one."""
        events = self.events()
        assert [event["event"] for event in events].count("exit") == 1, events
        assert events[-1]["event"] == "exit", events
        return events[-1]

    def wait_for(self, event: str, timeout: float = TIMEOUT) -> Event:
        """Waits for the first event of that name."""
        wait_for(lambda: self.named(event), f"{event} of {self.name}: {self.events()}", timeout)
        return self.named(event)[0]

    def cancel(self) -> None:
        """Cancels the job, as the driver does."""
        (self.directory / "cancel").touch()

    def limit(self, text: str | None = None, **limits: object) -> None:
        """Gives the job other limits, as the driver does; ``text`` is the whole file."""
        new = self.directory / "limit.new"
        new.write_text(json.dumps(limits) if text is None else text)
        new.replace(self.directory / "limit")

    def command_pid(self) -> int:
        """Returns the main process of the job."""
        pid = self.wait_for("started")["command_pid"]
        assert isinstance(pid, int)
        return pid

    def mark(self) -> re.Pattern[bytes]:
        """Returns what is in the environments of the job's processes."""
        place = re.escape(os.fsencode(self.directory.resolve()))
        return re.compile(rb"SFIO_JOB=" + place + rb"(?:\0|$)")

    def processes(self) -> list[int]:
        """Returns the processes of this job that live."""
        return find_processes("environ", self.mark())


class Node:
    """A serve and its jobs."""

    def __init__(self, binary: Path, base: Path, options: Sequence[str] = (), wrapper: Sequence[str] = ()) -> None:
        self.binary = binary
        self.base = base
        self.run = base / "run"
        self.jobs: list[Job] = []
        self.printed: list[Event] = []
        self.arrived: list[float] = []
        self.server = subprocess.Popen(
            [*wrapper, binary, "serve", "--directory", self.run, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.server.stdout is not None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        wait_for(lambda: self.printed, "ready")
        ready = self.printed[0]
        #: Where it listens, for links from other nodes; empty without the option ``--listen``.
        self.address = str(ready.get("address", ""))
        self.uid = ready.get("uid")
        address = {"address": self.address} if self.address else {}
        assert ready == {"event": "ready", "uid": self.uid, "pid": ready["pid"], **address}

    def _read(self) -> None:
        assert self.server.stdout is not None
        for line in self.server.stdout:
            self.arrived.append(time.time())
            self.printed.append(json.loads(line))

    def place(self, name: str, text: str) -> None:
        """Makes the directory of a job, with ``job.json``."""
        directory = self.run / "jobs" / name
        directory.mkdir(exist_ok=True)
        (directory / "job.json").write_text(text)

    def start(
        self,
        name: str,
        command: Sequence[str | bytes | Path],
        /,
        *,
        job: object = None,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = None,
        stderr: int | None = None,
        environment: dict[str, str] | None = None,
        wrapper: Sequence[str] = (),
        words: Sequence[str] = ("exec",),
        **fields: object,
    ) -> Job:
        """Starts a job; ``fields`` are those of job.json, or ``job`` is its whole text; exec runs under ``wrapper``.

        ``inputs`` are streams and parts, in any order.
        """
        directory = self.run / "jobs" / name
        inputs = cast("Sequence[Event]", fields.pop("inputs", ()))
        self.place(name, job if isinstance(job, str) else job_text(name, inputs, **fields))
        process = subprocess.Popen(
            [*wrapper, self.binary, *words, "--job", directory, "--", *command],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=environment,
        )
        self.jobs.append(Job(self, name, process))
        return self.jobs[-1]

    def shell(self, name: str, script: str, **options: object) -> Job:
        """Starts a job that runs ``script`` in sh."""
        return self.start(name, ["sh", "-c", script], **options)  # type: ignore[arg-type]

    def python(self, name: str, script: str, *arguments: str | Path, **options: object) -> Job:
        """Starts a job that runs ``script`` in Python, without site packages."""
        return self.start(name, [sys.executable, "-ISc", script, *arguments], **options)  # type: ignore[arg-type]

    def stream(
        self, producer: Job | str, path: Path, target: Path | None, name: str = "in", port: str = "out"
    ) -> Event:
        """Returns an entry of ``inputs``: ``path`` of ``producer`` into the FIFO ``target``, or standard input."""
        source = producer if isinstance(producer, str) else producer.name
        events = self.run / "jobs" / source / "events.jsonl"
        where: dict[str, object] = {"stdin": True} if target is None else {"fifo": str(target)}
        return {"name": name, "port": port, "path": str(path), "events": str(events), "target": where}

    def set_certificate(self, certificate: Certificate) -> None:
        """Writes the certificate of the run, and before it its private key."""
        for name, content in (("certificate.key", certificate.key), ("certificate.pem", certificate.certificate)):
            path = self.run / name
            path.touch(mode=0o600)
            path.write_bytes(content)

    @property
    def certificate(self) -> Path:
        return self.run / "certificate.pem"

    def link(
        self,
        producer: Job | str,
        path: Path,
        target: Path | None,
        address: str,
        name: str = "in",
        port: str = "out",
    ) -> Event:
        """Returns an entry of ``inputs``: as ``stream``, but from the node that listens at ``address``."""
        source = producer if isinstance(producer, str) else producer.name
        where: dict[str, object] = {"stdin": True} if target is None else {"fifo": str(target)}
        link = {"address": address, "job": source, "certificate": str(self.certificate)}
        return {"name": name, "port": port, "path": str(path), "link": link, "target": where}

    def leave(self) -> int:
        """Ends serve as the driver does, and returns its exit code, when all that it printed has been read."""
        assert self.server.stdin is not None
        self.server.stdin.close()
        code = self.server.wait(TIMEOUT)
        self._reader.join(TIMEOUT)
        return code

    def left_behind(self) -> list[str]:
        """Returns what should not be there when all has ended: the run directory and FIFOs, then processes."""
        left = [f"exec of {job.name}" for job in self.jobs if job.process.poll() is None]
        try:
            left += [str(path) for path in self.base.rglob("*") if path.is_fifo()]
        except FileNotFoundError as error:  # The directory is being removed.
            left.append(str(error.filename))
        left += [str(self.run)] if self.run.exists() else []
        if left or not self.jobs:
            return left  # One looks at all processes when nothing else is left.
        marks = {job.name: job.mark() for job in self.jobs}
        return [
            f"process {pid} of {name}"
            for pid, (environment,) in of_processes("environ")
            if b"SFIO_JOB=" in environment
            for name, mark in marks.items()
            if mark.search(environment)
        ]


Running = TypeVar("Running", bound=Node)


@contextmanager
def ended(running: Running) -> Iterator[Running]:
    """Ends a serve; then everything has to be gone.

    :raises AssertionError: when a process, a FIFO or the run directory is left.
    """
    try:
        yield running
        if running.server.poll() is None:
            assert running.leave() == 0
        try:
            wait_for(lambda: not running.left_behind(), "the end of everything")
        except AssertionError as error:
            raise AssertionError(f"these are left: {running.left_behind()}") from error
    finally:
        for job in running.jobs:
            if job.process.poll() is None:
                job.process.kill()
            job.process.wait()
        running.server.kill()
        running.server.wait()
        shutil.rmtree(running.run, ignore_errors=True)


def built() -> Path:
    """Returns the binary to test, which has to be there."""
    binary = node_binary()
    assert binary is not None, "sfio-node is not built: cargo build --release in node/"
    return binary


@contextmanager
def node(base: Path, *options: str) -> Iterator[Node]:
    """Runs a serve, with these options; in the end everything has to be gone: see :func:`ended`."""
    with ended(Node(built(), base, options)) as running:
        yield running
