"""The directories of a job have the same content wherever they are looked at."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.workflow import Job, Token
from streamflow.data.remotepath import StreamFlowPath

from streamflow_io.adapters.outputs import EarlyOutput
from streamflow_io.adapters.paths import NoChecksumsError, checksums_below, job_path
from streamflow_io.graph.io_graph import OutputKind
from streamflow_io.hints.models import StreamingRule
from streamflow_io.jobs import delivering
from streamflow_io.jobs.delivery import DeliverySource

NAMES = (
    "a",
    "deep/b c",
    "deep/er/d\\e",
    ".hidden",
    "deep/two\nlines\\n\r",
    "deep/caf\udce9",
    "deep/" + 255 * "x",
    "café ",
)


class ShellConnector:
    """Runs commands as connectors do, in a shell here."""

    deployment_name = "site"

    def __init__(self, path: str | None = None) -> None:
        self._environment = {**os.environ, **({} if path is None else {"PATH": path})}

    async def run(self, location: ExecutionLocation, command: list[str], capture_output: bool) -> tuple[str, int]:
        shell = await asyncio.create_subprocess_shell(
            f"{' '.join(command)} 2>&1",
            stdout=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.DEVNULL,
            env=self._environment,
        )
        said, _ = await shell.communicate()
        return said.decode().strip(), shell.returncode or 0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    root = tmp_path / "it's a directory"
    (root / "deep" / "er").mkdir(parents=True)
    for name in NAMES:
        (root / name).write_bytes(os.fsencode(name))
    (root / "link").symlink_to("a")
    (root / "dangling").symlink_to("nowhere")
    (root / "again").symlink_to("deep")
    return root


JOB = Job("/a/0", 1, {}, "/in", "/out", "/tmp")


def site(connector: ShellConnector) -> StreamFlowContext:
    """A run whose job is on another host."""
    location = ExecutionLocation("host", "site")
    manager = SimpleNamespace(get_connector=lambda _: connector)
    scheduler = SimpleNamespace(get_locations=lambda _: [location])
    return cast(StreamFlowContext, SimpleNamespace(deployment_manager=manager, scheduler=scheduler))


def elsewhere(directory: Path, connector: ShellConnector) -> StreamFlowPath:
    return job_path(site(connector), JOB, str(directory))


async def test_no_checksums_are_an_error(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(NoChecksumsError, match="site/host has no sha1sum"):
        await checksums_below(elsewhere(directory, ShellConnector(without_sha1sum(tmp_path / "bin"))))


async def test_what_cannot_be_compared_is_said(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(delivering.logger, "warning", said.append)
    rules = (StreamingRule.model_validate({"port": "d", "committed": "on_n_files", "nFiles": 1}),)
    outputs = (
        EarlyOutput(port="d", kind=OutputKind.DIRECTORY, rules=rules),
        EarlyOutput(port="f", kind=OutputKind.FILE, rules=(StreamingRule(port="f"),)),
    )
    tokens = {
        "d": Token({"class": "Directory", "path": str(directory), "basename": directory.name}),
        # What StreamFlow makes of a command that is not there.
        "f": Token({"class": "File", "path": "/out/f", "basename": "f", "checksum": "sha1$sh: 1: sha1sum: not found"}),
    }

    async def process(_: delivering.Deliverer, source: DeliverySource) -> Token:
        return tokens[source.port]

    async def deliver_regular(*_: object) -> None:
        pass

    monkeypatch.setattr(delivering.Deliverer, "_process", process)
    context = site(ShellConnector(without_sha1sum(tmp_path / "bin")))
    workflow = SimpleNamespace(context=context)
    step = SimpleNamespace(early_outputs=outputs, workflow=workflow, deliver_regular=deliver_regular)
    tested = delivering.Deliverer(cast(Any, step), JOB, {})
    for port in tokens:
        assert await tested.final(port, "f") is tokens[port]
    await tested.succeeded(tokens)
    assert [message.partition("from its content: ")[2] for message in said] == [
        "site/host has no sha1sum",
        "its location has no sha1sum",
    ]


def without_sha1sum(directory: Path) -> str:
    """A PATH with no more programs than have to be there."""
    directory.mkdir()
    for tool in ("sh", "find", "od", "test"):
        program = shutil.which(tool)
        assert program is not None
        (directory / tool).symlink_to(program)
    return str(directory)


async def test_files_and_checksums_are_the_same_elsewhere(directory: Path) -> None:
    found = []
    for local in (True, False):
        location = ExecutionLocation("host", "site", local=local)
        manager = SimpleNamespace(get_connector=lambda _: ShellConnector())
        scheduler = SimpleNamespace(get_locations=lambda _, location=location: [location])
        context = cast(Any, SimpleNamespace(deployment_manager=manager, scheduler=scheduler))
        job = Job("/a/0", 1, {}, "/in", "/out", "/tmp")
        found.append(await checksums_below(job_path(context, job, str(directory))))
        assert not await checksums_below(job_path(context, job, str(directory / "nowhere")))
    here, there = found
    assert here == there
    assert set(here) == {*NAMES, "link"}
