"""Orders to the reader of a session that is on another machine."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path, PurePosixPath
from typing import Any, cast
from unittest.mock import Mock

import pytest
from streamflow.core.deployment import LocalTarget

from lab.fakes import until
from streamflow_io.adapters.deployment_sites import Sites
from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.parts.session_starter import SessionStarter, default_window
from streamflow_io.records.records import Record
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.protocol import FileIdentity, Memory, SessionSpec
from streamflow_io.runtime.session_job import RemoteSessionJob
from streamflow_io.storage.storages import Storages


class Access:
    """A host, to which a command takes a moment."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.written: dict[str, bytes] = {}
        self.calls: list[list[dict[str, Any]]] = []
        self.running = 0

    async def write(self, path: PurePosixPath, data: bytes, parent: int) -> None:
        self.written[str(path)] = data

    async def run(self, script: str) -> tuple[str, int]:
        self.running += 1
        assert self.running == 1, "one after the other"
        await asyncio.sleep(0.01)
        self.running -= 1
        command, form, text, append, path = shlex.split(script)
        assert (command, form, append, path) == ("printf", "%s", ">>", "/run/jobs/1/control.jsonl")
        assert text.endswith("\n")
        self.calls.append([json.loads(line) for line in text.splitlines()])
        return "no space\n", self.code


def session(access: Access) -> RemoteSessionJob:
    return RemoteSessionJob(Mock(directory=PurePosixPath("/run"), place=None), "1", cast(Any, access))


async def test_orders_that_come_meanwhile_go_together() -> None:
    job = session(access := Access())
    await job.begin(SessionSpec(file="/all", identity=FileIdentity(inode=1, size=9, mtime=2), threads=3))
    assert json.loads(access.written["/run/jobs/1/session.json"])["threads"] == 3
    job.read(0, [(0, 5)])
    await asyncio.sleep(0)
    job.read(1, [(5, 9)])
    job.drop([(0, 5)])
    await until(lambda: len(access.calls) == 2)
    job.end()
    await until(lambda: len(access.calls) == 3)
    assert access.calls == [
        [{"read": [0, [[0, 5]]]}],
        [{"read": [1, [[5, 4]]]}, {"drop": [[0, 5]]}],
        [{"end": True}],
    ]


async def test_many_orders_are_no_command_that_is_too_long() -> None:
    job = session(access := Access())
    for chunk in range(100):
        job.read(chunk, [(start, start + 1) for start in range(0, 1000, 2)])
    assert job._sending is not None
    await job._sending
    assert [order["read"][0] for call in access.calls for order in call] == list(range(100))
    assert all(len(json.dumps(call)) < 100_000 for call in access.calls)


async def test_an_order_that_cannot_be_told_is_the_end_of_the_session() -> None:
    job = session(Access(code=1))
    job.end()
    with pytest.raises(NodeRuntimeError, match=r"control.jsonl cannot be written: no space$"):
        await anext(job.events())


@pytest.mark.parametrize(
    ("memory", "window"),
    [
        (Memory(available=4_000_000), 1_000_000),
        (Memory(available=4_000_000, limit=9_000_000), 1_000_000),
        (Memory(available=4_000_000, limit=1_500_000), 750_000),
        (Memory(limit=1_500_000), 750_000),
        (Memory(available=1 << 50, limit=(1 << 63) - 4096), 2_048_000_000),
        (Memory(), 2_048_000_000),
    ],
)
def test_the_window_is_within_the_memory(memory: Memory, window: int) -> None:
    assert default_window(memory) == window


@pytest.mark.parametrize(("storages", "readers"), [((), 4), (({},), 4), (({"readers": 7},), 7)])
def test_as_many_chunks_are_read_at_once_as_the_storage_says(
    storages: tuple[dict[str, int], ...], readers: int, tmp_path: Path
) -> None:
    (file := tmp_path / "file").write_bytes(bytes(2**24))
    found = [StorageConfig.model_validate({"name": "disk", "path": "/", "read": 10, **more}) for more in storages]
    config = SchedulerConfig(storages=found)
    starter = SessionStarter(config, Storages(found, Sites({})), list[Record]().append)
    worth = starter.look(str(file), LocalTarget())
    assert worth is not None
    assert (worth.readers, worth.chunk) == (readers, 2**23)
