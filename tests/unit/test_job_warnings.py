"""A thousand jobs of a step that are warned of the same give two lines."""

from __future__ import annotations

import pytest
from msgspec import convert

from lab.jobs import job_state
from streamflow_io.engine import context
from streamflow_io.engine.context import JobWarnings
from streamflow_io.runtime.protocol import WarningEvent


def warning(message: str, **fields: str) -> WarningEvent:
    return convert({"event": "warning", "job": "1", "time": 1.0, "message": message, **fields}, WarningEvent)


async def test_once_for_each_step_and_input(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(context.logger, "warning", said.append)
    warnings = JobWarnings()
    for number in range(1000):
        for _ in range(2):  # it was tried again
            asks = warning(f"input /w/0.{number}: it asks for /tmp/{number}", input=f"/w/0.{number}", port="out")
            warnings.event(job_state(f"/a/b/0.{number}"), asks)
    warnings.event(job_state("/a/b/0.3"), warning("it asks for /tmp/o", input="/w/0.3", port="log"))
    warnings.event(job_state("/c/0"), warning("it asks for /tmp/c", input="/w/0.0", port="out"))
    for number in range(2):
        warnings.event(job_state(f"/c/{number}"), warning("no inotify"))
    assert said == [
        "Job /a/b/0.0: /w/out: it asks for /tmp/0",
        "Job /a/b/0.3: /w/log: it asks for /tmp/o",
        "Job /c/0: /w/out: it asks for /tmp/c",
        "Job /c/0: no inotify",
    ]
    said.clear()
    await warnings.run_closed()
    await warnings.run_closed()
    assert said == [
        "999 more jobs of /a/b, with the same warning: /w/out: it asks for /tmp/0",
        "1 more job of /c, with the same warning: no inotify",
    ]


async def test_that_there_is_no_gate_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(context.logger, "warning", said.append)
    warnings = JobWarnings()
    for step in ("/a", "/b"):
        warnings.event(
            job_state(f"{step}/0"), warning("no gate (EPERM): the command starts when all that it reads is committed")
        )
    await warnings.run_closed()
    assert said == ["Job /a/0: no gate (EPERM): the command starts when all that it reads is committed"]
