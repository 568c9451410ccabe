"""CAPIO's server: found, started, supervised and cleaned up after, with a stand-in that can be told to misbehave."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab.installed_capio import SHARED, left_in_shared_memory
from streamflow_io.features.capio.runtime import server as capio_server
from streamflow_io.features.capio.runtime.installation import CapioError, Installation, find_capio
from streamflow_io.features.capio.runtime.job import wait_until_idle
from streamflow_io.features.capio.runtime.runtime import CapioRuntime
from streamflow_io.features.capio.runtime.server import CapioServer, remove_leftovers
from streamflow_io.features.capio.runtime.supported import CapioMapping, capio_configuration
from streamflow_io.runtime.embedded import EmbeddedRuntime
from tests.features.capio.stand_in.support import install

MAPPING = CapioMapping((), {})
CONFIGURE = partial(capio_configuration, mapping=MAPPING)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return install(tmp_path / "capio")


@pytest.fixture
def behave(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Tell the stand-in how to behave."""
    return partial(monkeypatch.setenv, "CAPIO_STAND_IN")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files, so that what is left is seen."""
    (directory := tmp_path / "t").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    return directory


@asynccontextmanager
async def running(home: Path) -> AsyncIterator[tuple[CapioServer, EmbeddedRuntime]]:
    runtime = await EmbeddedRuntime.start()
    try:
        server = await CapioServer.start(find_capio({"CAPIO_HOME": str(home)}), runtime, CONFIGURE)
        try:
            yield server, runtime
        finally:
            await server.close()
            await server.close()
    finally:
        await runtime.close()


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o755)
    return path


def test_capio_is_found_in_its_home_and_only_there(tmp_path: Path) -> None:
    server = program(tmp_path / "home/bin/capio_server")
    other = program(tmp_path / "other/bin/capio_server")
    environment = {"CAPIO_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}
    with pytest.raises(CapioError, match=f"libcapio_posix.so is in none of {tmp_path}/home/lib, {tmp_path}/home/lib64"):
        find_capio(environment)
    library = program(tmp_path / "home/lib64/libcapio_posix.so")
    assert find_capio(environment) == Installation(server, library)
    server.unlink()
    with pytest.raises(CapioError, match=f"capio_server is not in {tmp_path}/home/bin"):
        find_capio(environment)
    with pytest.raises(CapioError, match="CAPIO_HOME is not set"):
        find_capio({"PATH": str(other.parent)})


@pytest.mark.parametrize("behaviour", [pytest.param("", marks=pytest.mark.long), "slow deaf untidy"])
async def test_a_server_that_starts_works_and_leaves_nothing(
    home: Path, behave: Callable[[str], None], temporary: Path, behaviour: str
) -> None:
    behave(behaviour)
    async with running(home) as (server, _):
        assert (await server.new_directory("a")).is_dir()
    assert left_in_shared_memory() == list(temporary.iterdir()) == []


def patience_ends_with(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """Let the time for the start of a server be over when the server has said these words."""
    read, passed = capio_server._read, [0.0]

    def heard(path: Path) -> str:
        text = read(path)
        passed[0] = 1e6 if words in text else 0.0
        return text

    monkeypatch.setattr(capio_server, "_read", heard)
    monkeypatch.setattr(capio_server, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("mute", "capio_server does not start in 15 s: CAPIO - Cross Application Programmable IO / V. 1.0.0"),
        ("error", "capio_server has ended with exit code 1: .* / Error: libmpi.so.40 is not what it was"),
    ],
)
async def test_a_server_that_does_not_start_leaves_nothing(
    home: Path,
    behave: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    temporary: Path,
    behaviour: str,
    message: str,
) -> None:
    behave(behaviour)
    if behaviour == "mute":
        patience_ends_with(monkeypatch, "V. 1.0.0")
    with pytest.raises(CapioError, match=message):
        async with running(home):
            pass
    assert left_in_shared_memory() == list(temporary.iterdir()) == []


async def test_a_server_that_dies_is_noticed(home: Path, behave: Callable[[str], None], tmp_path: Path) -> None:
    behave(f"untidy dies={tmp_path / 'deadly'}")
    async with running(home) as (server, _):
        waiting = asyncio.create_task(
            server.client("collect", "1", str(server.directory / "none"), "copy", application="a")
        )
        await waiting
        waiting = asyncio.create_task(
            server.client("feed", str(server.directory / "none"), application="a", seconds=None)
        )
        (tmp_path / "deadly").touch()
        with pytest.raises(CapioError, match=r"capio_server has ended by SIGABRT: .*std::runtime_error"):
            await asyncio.wait_for(waiting, 10)
        assert server.has_ended
        # The shell around it has cleaned up; a client that was still there may have made something since.
    assert left_in_shared_memory() == []


async def test_a_server_that_ends_at_its_start_is_started_once_more(
    home: Path, behave: Callable[[str], None], tmp_path: Path
) -> None:
    behave(f"once={tmp_path / 'started'}")
    async with running(home) as (server, _):
        assert not server.has_ended
    assert (tmp_path / "started").exists()


async def test_capio_is_given_up_once(
    home: Path, behave: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    behave("error")
    used = await CapioRuntime.start_with(find_capio({"CAPIO_HOME": str(home)}), MAPPING)
    try:
        assert await asyncio.gather(*(used.server() for _ in range(3))) == [None, None, None]
        assert await used.server() is None
    finally:
        await used.close()
    assert len([record for record in caplog.records if "CAPIO is not used any more" in record.getMessage()]) == 1


async def test_a_client_has_a_time_limit_and_each_attempt_a_directory(home: Path) -> None:
    async with running(home) as (server, _):
        with pytest.raises(CapioError, match=r"CAPIO does not answer \(feed\)"):
            await server.client("feed", str(server.directory / "none"), application="a", seconds=0.3)
        one = await server.new_directory("a")
        two = await server.new_directory("a")
        assert one.is_dir()
        assert two.is_dir()
        assert one != two
        with pytest.raises(CapioError, match="CAPIO takes paths of 200 characters at most, without spaces: "):
            await server.new_directory("a" * 200)
        with pytest.raises(CapioError, match="without spaces"):
            await server.new_directory("a b")


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        (
            ("sfio-{dead}-{namespace}abcd", "sem.sfio-{dead}-{namespace}abcd_x"),
            ("sfio-{own}-{namespace}abcd", "sfio-{dead}-of-somebody-else", "sfio-{dead}-{another}abcd"),
        ),
        (
            ("capio_snapshot_{dead}", "capio_snapshot_path_{dead}_3"),
            ("capio_snapshot_{own}_3", "capio_snapshot_of_somebody_else"),
        ),
    ],
    ids=["run", "program"],
)
def test_what_the_killed_have_left_is_removed(left: tuple[str, ...], kept: tuple[str, ...]) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    namespace = os.stat("/proc/self/ns/pid").st_ino & 0xFFFF
    numbers = {"dead": dead.pid, "own": os.getpid(), "namespace": f"{namespace:04x}", "another": f"{namespace ^ 1:04x}"}
    entries = [SHARED / name.format(**numbers) for name in (*left, *kept)]
    try:
        for entry in entries:
            entry.touch()
        remove_leftovers()
        assert [entry.exists() for entry in entries] == [False] * len(left) + [True] * len(kept)
    finally:
        for entry in entries:
            entry.unlink(missing_ok=True)


@asynccontextmanager
async def shell(script: str) -> AsyncIterator[int]:
    """A shell, whose processes are its own: those of the tests have other work."""
    process = await asyncio.create_subprocess_exec("sh", "-c", f"{script}; :", start_new_session=True)
    try:
        yield process.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_idle_processes_are_told_from_busy_ones() -> None:
    begin = time.monotonic()
    async with shell("sh -c 'while :; do :; done' & busy=$!; sleep 1; kill $busy; sleep 600") as pid:
        await asyncio.wait_for(wait_until_idle(lambda: pid, 0.5, 0.1), 30)
        assert time.monotonic() - begin > 1.0
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(wait_until_idle(lambda: None, 0.1, 0.05), 0.5)


async def test_a_program_that_uses_no_processor_and_reads_is_not_idle(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    async with shell(f"cat {tmp_path}/file > /dev/null") as pid:
        with (tmp_path / "file").open("wb", buffering=0) as file:
            waiting = asyncio.create_task(wait_until_idle(lambda: pid, 1.0, 0.2))
            for _ in range(20):
                file.write(b"x" * 65_536)
                await asyncio.sleep(0.1)
            assert not waiting.done()
            await asyncio.wait_for(waiting, 30)


@pytest.mark.long
async def test_a_client_that_is_not_answered_ends_itself(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")  # To open it waits for ever.
    script = (
        "from streamflow_io.features.capio.runtime import client as c; c.PATIENCE = 1; "
        "c.main(['collect', '1', 'file', 'copy'])"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, cwd=tmp_path)
    assert await asyncio.wait_for(process.wait(), 30) == -signal.SIGALRM
