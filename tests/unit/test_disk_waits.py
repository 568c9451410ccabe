"""Jobs that wait for free space on a disk are told of, after a while."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.scheduling import AvailableLocation, Hardware, Storage
from streamflow.core.workflow import Status

from streamflow_io.adapters.jobs import NeverStartsError
from streamflow_io.engine import room_check
from streamflow_io.engine.room_check import DiskWaits, within
from streamflow_io.engine.scheduler import IOAwareScheduler


def hardware(*disks: tuple[str, float]) -> Hardware:
    storage = {str(index): Storage(mount_point=mount, size=size) for index, (mount, size) in enumerate(disks)}
    return Hardware(1.0, 1.0, storage)


HERE = AvailableLocation("here", "local", "host", hardware=hardware(("/", 5000), ("/data", 3000)))


def watching(scheduled: dict[str, object], is_idle: bool = False) -> DiskWaits:
    return DiskWaits(scheduled, lambda _: is_idle, lambda: None)


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(room_check, "PATIENCE_SECONDS", 0.02)
    caplog.set_level(logging.WARNING)
    return caplog.messages


async def test_who_waits_is_told_of_once(caplog: pytest.LogCaptureFixture, messages: list[str]) -> None:
    waits = watching({})
    for name in ("/a/0", "/a/1"):
        waits.look(name, HERE, hardware(("/data", 1500)), hardware(("/data", 1024), ("/data", 1024)), lambda: "host")
    assert caplog.messages == []
    await asyncio.sleep(0.1)
    (told,) = caplog.messages
    assert told.startswith("Job /a/0 waits for free space on host: it asks for 2,048 MiB on /data")
    assert "1,500 are left of 3,000 MiB that were free when the run began" in told


async def test_who_does_not_wait_long(caplog: pytest.LogCaptureFixture, messages: list[str]) -> None:
    scheduled: dict[str, object] = {}
    waits = watching(scheduled)
    enough, more = hardware(("/data", 3000), ("/elsewhere", 9000)), hardware(("/data", 3001))
    waits.look("/b/0", HERE, hardware(), enough, lambda: "host")
    waits.look("/a/0", HERE, hardware(), more, lambda: "host")
    scheduled["/a/0"] = "host"
    await asyncio.sleep(0.1)
    assert caplog.messages == []
    waits.look("/a/1", HERE, hardware(), more, lambda: "host")
    waits.look("/c/0", HERE, hardware(), more, lambda: "host")
    waits.close()
    await asyncio.sleep(0.1)
    assert caplog.messages == []
    waits = watching(scheduled)
    waits.look("/a/1", HERE, hardware(), more, lambda: "host")
    await asyncio.sleep(0.1)
    assert len(caplog.messages) == 1


async def test_who_would_wait_for_ever_is_refused(caplog: pytest.LogCaptureFixture, messages: list[str]) -> None:
    woken = asyncio.Event()
    idle = [True, False, True, True, True, True]
    waits = DiskWaits({}, lambda _: idle.pop(0), woken.set)
    more = hardware(("/data", 3001))
    waits.look("/a/0", HERE, hardware(), more, lambda: "host")
    await asyncio.wait_for(woken.wait(), 10)
    # Once, a job ran meanwhile.
    assert idle == []
    assert len(caplog.messages) == 1
    waits.look("/b/0", HERE, hardware(), more, lambda: "host")
    with pytest.raises(NeverStartsError, match="no job runs that could make space"):
        waits.look("/a/0", HERE, hardware(), more, lambda: "host")
    waits.close()


async def test_who_runs_again_waits_like_others(caplog: pytest.LogCaptureFixture, messages: list[str]) -> None:
    """The place that the job has had before is no place for its next attempt."""
    woken, more = asyncio.Event(), hardware(("/data", 3001))
    scheduled: dict[str, object] = {"/a/0": "first place", "/b/0": "first place"}
    waits = DiskWaits(scheduled, lambda _: True, woken.set)
    for name in scheduled:
        waits.look(name, HERE, hardware(), more, lambda: "host")
    scheduled["/b/0"] = "second place"
    await asyncio.wait_for(woken.wait(), 10)
    assert [told.split()[1] for told in caplog.messages] == ["/a/0"]
    with pytest.raises(NeverStartsError, match="Job /a/0 cannot start"):
        waits.look("/a/0", HERE, hardware(), more, lambda: "host")
    waits.close()


@pytest.mark.parametrize(
    ("job", "others", "is_idle"),
    [
        ("/new/0", (), True),
        ("/new/0", (Status.COMPLETED,), True),
        ("/new/0", (Status.COMPLETED, Status.RUNNING), False),
        # A failed job runs again first, and may make space.
        ("/new/0", (Status.RECOVERY,), False),
        # The failed job waits for the one that lacks space.
        ("/again/0", (Status.RECOVERY,), True),
        ("/again/0", (Status.RECOVERY, Status.FIREABLE), False),
    ],
)
@pytest.mark.parametrize("has_results", [False, True])
def test_who_can_make_space(job: str, others: tuple[Status, ...], is_idle: bool, has_results: bool) -> None:
    """The job of a result that was copied never ends for StreamFlow."""
    placed = {f"/other/{number}": SimpleNamespace(status=status) for number, status in enumerate(others)}
    if has_results:
        placed["/o-collector/0"] = SimpleNamespace(status=Status.FIREABLE)
    scheduler = SimpleNamespace(
        job_allocations={"/again/0": SimpleNamespace(status=Status.ROLLBACK), **placed},
        run=SimpleNamespace(only_copies=lambda name: name == "/o-collector/0"),
    )
    if job == "/new/0":
        del scheduler.job_allocations["/again/0"]
    assert IOAwareScheduler._is_idle(cast(Any, scheduler), job) is is_idle


def test_what_is_used_beyond_a_disk_counts_as_all_of_the_disk() -> None:
    """StreamFlow cannot subtract more than there is."""
    has, much = hardware(("/", 5000), ("/data", 3000)), hardware(("/", 10), ("/data", 2000), ("/data", 9000))
    left = has - within(has, much)
    assert {disk.mount_point: disk.size for disk in left.storage.values()} == {"/": 4990, "/data": 0}
    fits = hardware(("/", 5000), ("/data", 3000), ("/elsewhere", 7))
    assert within(has, fits) is fits
