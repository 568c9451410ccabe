"""`streamflow-io doctor`: what works on this machine, what does not, and why.

What can be tried is tried, with the very program that runs jobs, in a directory like that of a job.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from .runtime import (
    EmbeddedRuntime,
    GatedInput,
    InputStream,
    JobSpec,
    NodeJob,
    NodeRuntimeError,
    OutputRule,
    WatchedOutput,
    find_sfio_node,
)
from .runtime.protocol import CommittedEvent, WarningEvent
from .telemetry.directories import data_directory

_SECONDS = 15.0
_TEXT = "what a producer writes"
_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    :ivar works: None: it does not, and nothing is missed but what `otherwise` says
    :ivar detail: what was found, or why it does not work
    :ivar otherwise: what happens without it
    """

    name: str
    works: bool | None
    detail: str
    otherwise: str = ""


class BrokenError(Exception):
    """Something does not work; says why."""


@dataclass(frozen=True)
class Diagnosis:
    """All that was found."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return all(finding.works is not False for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"findings": [vars(finding) for finding in self.findings]}

    def show(self, console: Console) -> None:
        table = Table(title="this machine", title_justify="left")
        for column in ("", "works", "what was found"):
            table.add_column(column)
        words = {True: "yes", False: "[bold red]no[/bold red]", None: "[yellow]no[/yellow]"}
        for finding in self.findings:
            without = f"\n{finding.otherwise}" if finding.works is not True and finding.otherwise else ""
            table.add_row(finding.name, words[finding.works], f"{finding.detail}{without}")
        console.print(table)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `doctor`."""
    parser.add_argument(
        "--workdir",
        metavar="PATH",
        default=tempfile.gettempdir(),
        help="a directory on the file system where jobs run: `workdir` of the deployment (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> Diagnosis:
    """`doctor`: see the module."""
    findings = [_plugin(), _runtime()]
    if findings[-1].works:
        findings += asyncio.run(_examine(arguments.workdir))
    return Diagnosis((*findings, _inotify(), _data_directory(), _report()))


def _plugin() -> Finding:
    version = importlib.metadata.version("streamflow")
    found = importlib.metadata.entry_points(group="unito.streamflow.plugin")
    if any(point.value.startswith("streamflow_io.") for point in found):
        return Finding("plugin", True, f"StreamFlow {version} finds it")
    return Finding("plugin", False, f"StreamFlow {version} does not find it", "install streamflow-io beside StreamFlow")


def _runtime() -> Finding:
    name, otherwise = "node runtime", "everything is as with plain StreamFlow"
    try:
        EmbeddedRuntime.check()
        binary = find_sfio_node()
        version = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    except (NodeRuntimeError, OSError, subprocess.SubprocessError) as error:
        return Finding(name, False, str(error), otherwise)
    return Finding(name, True, f"{version} on {platform.system()} {platform.release()}: {binary}")


async def _examine(workdir: str) -> list[Finding]:
    try:
        with tempfile.TemporaryDirectory(prefix="streamflow-io-doctor-", dir=workdir) as directory:
            runtime = await EmbeddedRuntime.start()
            try:
                examination = _Examination(runtime, Path(directory).resolve())
                return [
                    await _try("commit tokens", examination.commit, "consumers start when the producer has ended"),
                    await _try("byte streams", examination.stream, "consumers start at commit"),
                    await _try("gate", examination.gate, "`start: producer` waits before the command, not inside it"),
                    _links(Path(directory)),
                ]
            finally:
                await runtime.close()
    except (OSError, NodeRuntimeError) as error:
        return [Finding("jobs", False, f"{workdir}: {error}", "name a directory that you can write to: --workdir")]


async def _try(name: str, examine: Callable[[], Awaitable[str]], otherwise: str) -> Finding:
    try:
        return Finding(name, True, await asyncio.wait_for(examine(), _SECONDS))
    except asyncio.TimeoutError:
        return Finding(name, False, f"nothing came within {_SECONDS:.0f} s", otherwise)
    except (BrokenError, OSError, NodeRuntimeError) as error:
        return Finding(name, False, str(error), otherwise)


class _Examination:
    """Small jobs, each of which shows that something works."""

    def __init__(self, runtime: EmbeddedRuntime, directory: Path) -> None:
        self._runtime = runtime
        self._directory = directory

    async def commit(self) -> str:
        """A file is known to be committed while its job goes on."""
        directory = self._make("commit")
        producer = await self._runtime.create_job("commit")
        process = await self._start(
            producer, f"echo '{_TEXT}' > file; sleep 60", directory, outputs=[_output(directory)]
        )
        try:
            async for event in producer.events():
                if isinstance(event, WarningEvent):
                    raise BrokenError(event.message)
                if isinstance(event, CommittedEvent):
                    return f"a file was committed while its job went on, on {directory.parent.parent}"
            raise BrokenError("the job ended without a commit")
        finally:
            await producer.cancel()
            await process.wait()

    async def stream(self) -> str:
        """A file is read while it is written."""
        directory = self._make("stream")
        producer, consumer = await self._runtime.create_job("producer"), await self._runtime.create_job("consumer")
        fifo = directory / "fifo"
        stream = InputStream(
            name="producer", port="file", path=str(directory / "file"), events=str(producer.events_path),
            target={"fifo": str(fifo)},
        )  # fmt: skip
        script = f"(printf '%s' '{_TEXT[:7]}'; sleep 0.2; echo '{_TEXT[7:]}') > file"
        await self._finish(
            await self._start(producer, script, directory, outputs=[_output(directory)]),
            await self._start(consumer, f"cat '{fifo}' > copy", directory, inputs=[stream]),
        )
        _compare(directory / "copy")
        return "a reader got every byte, and the end"

    async def gate(self) -> str:
        """A command runs, and waits for a file that is not there."""
        directory = self._make("gate")
        producer, consumer = await self._runtime.create_job("producer"), await self._runtime.create_job("consumer")
        target = directory / "gated"
        gate = GatedInput(
            name="producer", port="file", path=str(directory / "file"), events=str(producer.events_path),
            target=str(target), kind="file",
        )  # fmt: skip
        reader = await self._start(consumer, f"echo > begun; cat '{target}' > copy", directory, gates=[gate])
        # Without a gate it does not begin before there is a file.
        script = f"for i in $(seq 50); do test -e begun && break; sleep 0.02; done; sleep 0.2; echo '{_TEXT}' > file"
        await self._finish(await self._start(producer, script, directory, outputs=[_output(directory)]), reader)
        async for event in consumer.events():
            if isinstance(event, WarningEvent):
                raise BrokenError(event.message)
        _compare(directory / "copy")
        return "a command was held at a file until that was committed"

    def _make(self, name: str) -> Path:
        directory = self._directory / name
        directory.mkdir()
        return directory

    async def _start(
        self,
        job: NodeJob,
        script: str,
        directory: Path,
        outputs: list[WatchedOutput] | None = None,
        inputs: list[InputStream] | None = None,
        gates: list[GatedInput] | None = None,
    ) -> asyncio.subprocess.Process:
        spec = JobSpec(
            name=job.identifier, outputs=tuple(outputs or ()), inputs=tuple(inputs or ()), gates=tuple(gates or ())
        )
        return await asyncio.create_subprocess_exec(
            *await job.wrap(spec), "sh", "-c", script, cwd=directory, stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def _finish(self, *processes: asyncio.subprocess.Process) -> None:
        try:
            for process, (_, errors) in zip(
                processes, await asyncio.gather(*(process.communicate() for process in processes)), strict=True
            ):
                if process.returncode != 0:
                    raise BrokenError(errors.decode(errors="replace").strip() or f"exit code {process.returncode}")
        finally:
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    process.terminate()


def _output(directory: Path) -> WatchedOutput:
    rule = OutputRule(globs=(), committed="on_close")
    return WatchedOutput(port="file", root=str(directory), globs=("file",), kind="file", rules=(rule,))


def _compare(copy: Path) -> None:
    if (found := copy.read_text(encoding="utf-8")) != f"{_TEXT}\n":
        raise BrokenError(f"the reader got {found!r}")


def _links(directory: Path) -> Finding:
    name, otherwise = "hard links", "files of a gated Directory are copied"
    try:
        (directory / "one").touch()
        os.link(directory / "one", directory / "other")
    except OSError as error:
        return Finding(name, None, f"{directory.parent}: {error.strerror}", otherwise)
    return Finding(name, True, f"on {directory.parent}")


def _inotify() -> Finding:
    try:
        instances, watches = int(_INSTANCES.read_text()), int(_WATCHES.read_text())
    except (OSError, ValueError) as error:
        return Finding("inotify", False, str(error), "files are committed when their job ends")
    detail = f"{instances} instances, {watches} watches for each user; a job that streams takes one instance"
    few = instances < 4 * (os.cpu_count() or 1)
    return Finding(
        "inotify", not few, detail, "files are committed when their job ends; raise fs.inotify.max_user_instances"
    )


def _data_directory() -> Finding:
    directory, otherwise = data_directory(), "set XDG_DATA_HOME to a directory that you can write to"
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    works = os.access(existing, os.W_OK | os.X_OK)
    return Finding("data directory", works, f"{directory}: learned limits and telemetry", otherwise)


def _report() -> Finding:
    if importlib.util.find_spec("plotly") is not None:
        return Finding("report", True, "plotly is there")
    return Finding("report", None, "plotly is not installed", "streamflow-io report needs it: the extra `report`")
