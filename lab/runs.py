"""The real `streamflow run`, with the plugin and without it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from lab import forked
from lab.cwl import Document, streamflow_file, versioned
from lab.node import wait_for
from lab.processes import is_dead, of_processes

#: Of a StreamFlow file: a job that fails is tried again at once.
RETRY: Document = {"failureManager": {"type": "default", "config": {"max_retries": 3, "retry_delay": 0}}}
STREAMFLOW = Path(sys.executable).with_name("streamflow")
# By the name of a namespace in `/proc`, the option of `nsenter`.
_JOINED = {"net": "net", "mnt": "mount"}


@dataclass
class Run:
    """A finished `streamflow run`.

    :ivar outputs: the output object, without what differs from run to run
    :ivar files: the content of every file below the output directory
    :ivar trace: what the tools noted: (time, what), in the order of time; at the same time, in that in which they did
    :ivar parts: what the tools of each part noted, for workflows of :func:`lab.cwl.side_by_side`
    """

    code: int
    log: str
    outputs: Any
    files: dict[str, bytes]
    trace: list[tuple[float, str]]
    parts: Mapping[str, list[tuple[float, str]]] = field(default_factory=dict)

    def part(self, name: str) -> Run:
        """The run, with what the tools of one part noted."""
        return replace(self, trace=self.parts[name])

    @property
    def ok(self) -> bool:
        return self.code == 0

    @property
    def results(self) -> tuple[Any, dict[str, bytes]]:
        return self.outputs, self.files

    @property
    def errors(self) -> str:
        """The warnings and errors of the log with what programs said, without the stack traces around them."""
        lines, is_quoting = [], False
        for line in self.log.splitlines():
            if not (is_quoting and line.startswith("\t")):
                is_quoting = " WARNING " in line or " ERROR " in line
            if is_quoting or "Error" in line:
                lines.append(line)
        return "\n".join(dict.fromkeys(lines))[-4000:]

    def time(self, what: str) -> float:
        return next(time for time, noted in self.trace if noted == what)

    def times(self, what: str) -> list[float]:
        return [time for time, noted in self.trace if noted == what]


@dataclass
class Bench:
    """A directory in which workflows are run, each with a database and temporary files of its own.

    What the plugin keeps for its user is in one place for all of them.

    :ivar prefix: what is put before the command `streamflow`
    :ivar environment: more of its environment
    :ivar namespaces: those of other processes in which it runs, as files of `/proc`
    :ivar program: what is run, by its name in `lab/forked.py`
    """

    directory: Path
    prefix: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    namespaces: tuple[Path, ...] = ()
    program: str = "streamflow"
    count: int = field(default=0, init=False)

    @property
    def data(self) -> Path:
        """The data directory of the user."""
        return self.directory / "data"

    def telemetry(self) -> list[Document]:
        """The telemetry of the last run."""
        file = max(
            (self.data / "streamflow-io" / "runs").glob("*/telemetry.jsonl"), key=lambda path: path.stat().st_mtime
        )
        return [json.loads(line) for line in file.read_text().splitlines()]

    def write(
        self,
        document: Document,
        job: Mapping[str, Any],
        io: bool,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        """Write all that a run needs.

        :param io: choose the scheduler `sfio.io-aware`, with `config`
        :param settings: more of the StreamFlow file
        :return: the StreamFlow file
        """
        self.count += 1
        place = self.directory / f"run{self.count}"
        for name in ("tmp", "out"):
            (place / name).mkdir(parents=True)
        (place / "main.cwl").write_text(json.dumps(versioned(document), indent=1))
        (place / "job.json").write_text(json.dumps({"trace": str(place / "trace"), **job}))
        scheduler = dict(config or {}) if io else None
        streamflow = streamflow_file(
            "main.cwl", "job.json", io=scheduler, connection=place / "streamflow.db", **settings
        )
        path = place / "streamflow.yml"
        path.write_text(json.dumps(streamflow))
        return path

    def write_plain(self, document: Document, job: Mapping[str, Any]) -> Path:
        """Write what plain StreamFlow runs, for comparison."""
        return self.write(document, job, io=False)

    def start(self, path: Path, **environment: str) -> forked.Driver:
        """Start `streamflow run` in a session of its own."""
        place = path.parent
        added = {**self.environment, **environment}
        variables = {**os.environ, "TMPDIR": str(place / "tmp"), "XDG_DATA_HOME": str(self.data), **added}
        # Variables with these beginnings are for an interpreter that starts.
        if not self.prefix and not any(name.startswith(("PYTHON", "LD_")) for name in added):
            return forked.start(self.program, self._arguments(path), place, variables, namespaces=self.namespaces)
        joined = [f"--{_JOINED[namespace.name]}={namespace}" for namespace in self.namespaces]
        return subprocess.Popen(
            [*(["nsenter", *joined, "--"] if joined else []), *self.prefix, str(STREAMFLOW), *self._arguments(path)],
            stdout=(place / "stdout").open("w"),
            stderr=(place / "stderr").open("w"),
            stdin=subprocess.DEVNULL,
            env=variables,
            cwd=place,
            start_new_session=True,
            text=True,
        )

    def _arguments(self, path: Path) -> list[str]:
        return ["run", str(path), "--outdir", str(path.parent / "out")]

    def finish(self, process: forked.Driver, path: Path, seconds: float = 60) -> Run:
        """Wait for a run; one that takes too long is killed, and fails the test."""
        place = path.parent
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            kill_group(process)
            log = (place / "stderr").read_text()
            raise AssertionError(f"streamflow run takes longer than {seconds} s:\n{log}") from None
        out = place / "out"
        stdout = (place / "stdout").read_text()
        start = stdout.find("\n{") + 1 if not stdout.startswith("{") else 0
        text = stdout[start:]
        files = {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}
        parts = {path.suffix[1:]: _noted(path) for path in place.glob("trace-of.*")}
        return Run(
            code,
            (place / "stderr").read_text() + stdout,
            _without_places(json.loads(text)) if code == 0 and text.startswith("{") else None,
            files,
            _noted(place / "trace"),
            parts,
        )

    def run(
        self,
        document: Document,
        job: Mapping[str, Any] | None = None,
        *,
        io: bool = True,
        seconds: float = 60,
        **settings: Any,
    ) -> Run:
        """Run a workflow to its end."""
        path = self.write(document, job or {}, io, **settings)
        return self.finish(self.start(path), path, seconds)

    def run_all(
        self, paths: Sequence[Path], seconds: float = 60, meanwhile: Callable[[], None] = lambda: None
    ) -> list[Run]:
        """Run what was written, all at the same time, to its end: most workflows of tests sleep more than they compute.

        :param meanwhile: called when all have started
        :return: the runs, in their order
        """
        with contextlib.ExitStack() as ending:
            processes = [self.start(path) for path in paths]
            for process in processes:
                ending.callback(kill_group, process)
            meanwhile()
            return [self.finish(*started, seconds) for started in zip(processes, paths, strict=True)]

    def run_both(
        self, document: Document, job: Mapping[str, Any] | None = None, *, seconds: float = 60, **settings: Any
    ) -> tuple[Run, Run]:
        """Run a workflow with plain StreamFlow and with ours; the results must be the same, and nothing be left."""
        paths = [self.write_plain(document, job or {}), self.write(document, job or {}, io=True, **settings)]
        plain, ours = self.run_all(paths, seconds)
        assert plain.ok, plain.errors
        assert ours.ok, ours.errors
        assert ours.results == plain.results
        assert self.leftovers() == []
        return plain, ours

    def run_ours(self, document: Document, job: Mapping[str, Any] | None = None, **settings: Any) -> Run:
        """Run a workflow whose results a test knows with ours; nothing may be left."""
        ours = self.run(document, job, **settings)
        assert ours.ok, ours.errors
        assert self.leftovers() == []
        return ours

    def leftovers(self) -> list[str]:
        """List what is left of our runs: processes, FIFOs, sockets, run directories."""
        left = [f"process {pid}: {command}" for pid, command in self._processes()]
        # What is being removed while one looks is no error here, as it is for rglob.
        for directory, directories, files in os.walk(self.directory):
            for path in (Path(directory, name) for name in (*directories, *files)):
                if path.is_fifo() or path.is_socket() or path.name.startswith("streamflow-io-"):
                    left.append(str(path))
        return left

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Processes whose environment or command line names a directory of ours."""
        places = [str(place).encode() for place in self._places()]
        for pid, (command, environment) in of_processes("cmdline", "environ"):
            ours = any(place in environment or place in command for place in places)
            if ours and pid != os.getpid() and not is_dead(pid):
                yield pid, command.replace(b"\0", b" ").decode(errors="replace")

    def _places(self) -> list[Path]:
        """The directories of our runs."""
        return [self.directory]


def kill_group(process: forked.Driver) -> None:
    """Kill a driver that still runs, and what it has in its group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for_note(run: Path, what: str, times: int = 1, seconds: float = 60) -> None:
    """Wait until the tools of a run have noted something.

    :param run: the StreamFlow file, or another file beside the notes
    :param what: a part of a line, which begins with the time
    :raises AssertionError: if the note is not there after this number of seconds
    """
    trace = run.with_name("trace")
    wait_for(lambda: trace.exists() and trace.read_text().count(what) >= times, f"{what!r} in {trace}", seconds)


def _noted(trace: Path) -> list[tuple[float, str]]:
    noted = [line.split(" ", 1) for line in trace.read_text().splitlines()] if trace.exists() else []
    return sorted(((float(time), what) for time, what in noted), key=itemgetter(0))


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _without_places(v) for k, v in value.items() if k not in ("path", "location", "dirname")}
    if isinstance(value, list):
        return [_without_places(element) for element in value]
    return value
