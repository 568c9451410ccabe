"""The page that shows a run while it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from msgspec.structs import replace

from lab.browser import CHROMIUM, opened
from lab.cwl import Document, found, streamable, tool, workflow
from lab.runs import Bench
from lab.telemetry import BEGIN, write
from streamflow_io.commands import watch_web
from streamflow_io.commands.watch import Newest
from streamflow_io.records.jobs import SubmittedRecord
from streamflow_io.records.records import EndRecord, RunRecord
from streamflow_io.records.runs import TELEMETRY_FILE, runs_directory
from streamflow_io.records.writer import TelemetryWriter

NOBODY: dict[str, Any] = {"label": "nobody"}


@contextlib.asynccontextmanager
async def served(newest: Newest) -> AsyncIterator[str]:
    """The address of a page."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(watch_web.serve(newest, 0, NOBODY, address.set_result))
    try:
        yield await address
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return runs_directory()


async def test_only_who_has_the_address_sees_anything(runs: Path) -> None:
    async with served(Newest(None)) as address, ClientSession() as session:
        async with session.get(address) as response:
            assert response.status == 200
            policy = response.headers["Content-Security-Policy"]
            nonce = policy.partition("script-src 'nonce-")[2].partition("'")[0]
            text = await response.text()
            assert f'<script nonce="{nonce}">' in text
            assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
            assert "https://" not in text
        base, word = address.rstrip("/").rsplit("/", 1)
        assert base.startswith("http://127.0.0.1:")
        assert len(word) >= 32
        others = [
            f"{base}/",
            f"{base}/{word[:-1]}/",
            f"{base}/{word[:-1]}/events",
            f"{base}/x{word}/events",
            f"{address}x",
        ]
        for other in others:
            async with session.get(other) as response:
                assert response.status == 404, other
        for name in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
            async with session.get(address, headers={"Host": name}) as response:
                assert response.status == 404, name


@pytest.mark.parametrize(
    "request_", [b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", b"GET http://[::1 HTTP/1.1\r\n\r\n"]
)
async def test_a_request_that_is_none_says_nothing(
    runs: Path, caplog: pytest.LogCaptureFixture, request_: bytes
) -> None:
    async with served(Newest(None)) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(address.split(":")[2].partition("/")[0]))
        writer.write(request_)
        # aiohttp answers with code 400, or closes the connection.
        assert (await reader.readline()).partition(b" ")[2][:4] in (b"400 ", b"")
        writer.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_the_next_run_takes_the_place_of_one_that_is_over(runs: Path) -> None:
    first, second, other = (runs / name / TELEMETRY_FILE for name in ("night", "night-2", "day"))
    begin = RunRecord(time=BEGIN, name="night", workflow="main.cwl", steps={"/a": ()})
    write(first, [begin, EndRecord(time=BEGIN + 5, status="failed")])
    async with contextlib.AsyncExitStack() as stack:
        address = await stack.enter_async_context(served(Newest("night")))
        session = await stack.enter_async_context(ClientSession())
        events = await stack.enter_async_context(session.get(f"{address}events"))

        async def told(label: str, state: str) -> dict[str, Any]:
            while True:
                line = (await asyncio.wait_for(events.content.readline(), 30)).decode()
                facts = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else NOBODY
                if (facts["label"], facts.get("state")) == (label, state):
                    return dict(facts)

        assert (await told("night", "failed"))["stateText"] == "has FAILED"
        writers = [stack.enter_context(TelemetryWriter(lambda file=file: file)) for file in (other, second)]
        for writer in writers:
            writer.write(replace(begin, time=time.time()))
            writer.write(SubmittedRecord(time=time.time(), job="/a/0", step="/a"))
        while (facts := await told("night-2", "running"))["steps"][0]["waiting"] == 0:
            pass
        assert facts["steps"][0]["name"] == "/a"
        writers[1].write(EndRecord(time=time.time(), status="completed"))
        await told("night-2", "completed")


STALLED = "head -c 100000 /dev/zero; while [ ! -e $go ]; do sleep 0.1; done; head -c 100000 /dev/zero"


def stalling(end: str) -> Document:
    written = found("out.txt", streamable=True)
    steps: dict[str, Document] = {
        "a": {"run": tool(f"({STALLED}) > out.txt", {"go": "string"}, {"out": written}), "in": {"go": "go"}},
        "b": {
            "run": tool(f"wc -c < $file; {end}", {"file": streamable()}, {"out": "stdout"}, stdout="b.txt"),
            "in": {"file": "a/out"},
        },
    }
    return workflow({"go": "string"}, steps, {"b": "b/out"})


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
async def test_in_a_browser(bench: Bench) -> None:
    """A stream that stands, the end, a restart that fails, and the end of the server."""
    go = bench.directory / "go"
    paths = [bench.write(stalling(end), {"go": str(go)}, True) for end in ("true", "exit 3")]
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "streamflow_io.cli", "watch", "--web"),
        env={**os.environ, "XDG_DATA_HOME": str(bench.data)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        async with opened((await server.stdout.readline()).decode().strip()) as page:
            await page.wait_for("shows the next run")
            for path, word in zip(paths, ("has succeeded", "has FAILED"), strict=True):
                process = bench.start(path)
                text = await page.wait_for("waits for its producer")
                assert "/a/out -> /b/file" in text
                assert "is running" in text
                assert await page.evaluate("document.querySelectorAll('rect.running').length") == 2
                go.touch()
                await page.wait_for(word)
                await asyncio.to_thread(bench.finish, process, path)
                go.unlink()
            assert "Failed: /b/0" in await page.text()
            server.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(server.wait(), 20) == 0
            await page.wait_for("what is here is old")
    finally:
        go.touch()
        with contextlib.suppress(ProcessLookupError):
            server.kill()
        await server.wait()
