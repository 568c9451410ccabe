"""The disk that gets slower when several write at once, and what is left of it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import pytest

from benchmarks.disk import CongestedDisk, Curve, Server
from benchmarks.io_tasks import CURVE, IO_EXECUTORS, IO_TASKS, STATIC_MB, STORAGE_MB, is_remembered
from benchmarks.processes import CommandError
from benchmarks.tools import socket_address
from benchmarks.workflows import TOOL
from lab.loop_device import LoopDeviceError, limited_disk
from lab.pauses import Pauses
from streamflow_io.records.records import ChoiceRecord, RunRecord
from streamflow_io.records.runs import TELEMETRY_FILE
from streamflow_io.records.writer import to_json

SIZE = 500_000
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def disk(tmp_path: Path) -> CongestedDisk:
    return CongestedDisk(tmp_path / "disk", f"@test-disk-{os.getpid()}", Curve(4e6, 2e6, 1.0))


@pytest.fixture
def state(tmp_path: Path) -> Path:
    (path := tmp_path / "state").write_text("state")
    return path


@pytest.fixture
def loop_devices(tmp_path: Path) -> None:
    (probe := tmp_path / "probe").mkdir()
    try:
        with limited_disk(probe, 2**25):
            pass
    except LoopDeviceError as error:
        pytest.skip(str(error))


def write(disk: CongestedDisk, state: Path, directory: Path, size: int = SIZE) -> subprocess.Popen[bytes]:
    directory.mkdir()
    command = [*TOOL, "checkpoint", disk.address, str(size), str(state)]
    return subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE)


def times(disk: CongestedDisk, state: Path, writers: int, size: int = SIZE) -> tuple[float, float]:
    """When some writers begin and end, in seconds since the epoch."""
    start = time.time()
    processes = [write(disk, state, disk.directory / f"{size}.{writers}.{index}", size) for index in range(writers)]
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    return start, time.time()


def gone(path: Path) -> bool:
    deadline = time.monotonic() + 10
    while path.is_mount() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not path.is_mount()


def test_curve() -> None:
    curve = Curve(bandwidth=12, writer=5, degradation=0.5)
    assert [curve.total(writers) for writers in (0, 1, 2, 3, 5)] == [5, 5, 8, 6, 4]


def test_the_curve_of_io_tasks_is_best_in_the_middle() -> None:
    totals = [CURVE.total(int(STORAGE_MB / limit)) for limit in STATIC_MB]
    best = max(totals)
    assert best not in (totals[0], totals[-1])
    # Congestion costs, and so does one after the other.
    assert CURVE.total(IO_EXECUTORS) < 0.85 * best
    assert totals[-1] < 0.5 * best


@pytest.mark.parametrize("by_kernel", [False, True])
def test_writers_keep_to_the_curve(
    by_kernel: bool, disk: CongestedDisk, state: Path, request: pytest.FixtureRequest
) -> None:
    if by_kernel:
        request.getfixturevalue("loop_devices")
    with disk.mounted(by_kernel) as description, Pauses() as pauses:
        assert description.startswith("by the kernel" if by_kernel else "by throttled writers")
        assert disk.directory.is_mount() is by_kernel
        for writers in (1, 3):
            expected = writers * SIZE / disk.curve.total(writers)
            # How long processes take that write next to nothing: on a busy machine that is much.
            start = pauses.seconds(*times(disk, state, writers, 1))
            begun, ended = times(disk, state, writers)
            # The kernel lets a little pass at once.
            assert 0.5 * expected < ended - begun
            assert pauses.seconds(begun, ended) < 3 * expected + max(1, 3 * start)
    assert not disk.directory.exists()


async def test_a_writer_that_has_died_no_longer_counts(tmp_path: Path) -> None:
    limits: asyncio.Queue[float] = asyncio.Queue()
    path = str(tmp_path / "socket")
    async with await asyncio.start_unix_server(Server(Curve(12, 5, 0.5), limits.put_nowait).serve, path):
        assert await limits.get() == 5
        connections = []
        for limit in (5, 8):
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(b"1000\n10")  # and the beginning of another request
            assert await reader.readline() == b"\n"
            assert await limits.get() == limit
            connections.append(writer)
        for connection in connections:
            connection.transport.abort()
            assert await limits.get() == 5
        assert limits.empty()


def test_checkpoints_are_made_from_their_state_and_printed(disk: CongestedDisk, state: Path) -> None:
    with disk.mounted(by_kernel=False):
        first, again = (write(disk, state, disk.directory / name) for name in ("first", "again"))
        state_of_another = state.with_name("other")
        state_of_another.write_text("another")
        other = write(disk, state_of_another, disk.directory / "other")
        digests = [process.communicate()[0] for process in (first, again, other)]
        content = (disk.directory / "first" / "checkpoint.data").read_bytes()
    assert len(content) == SIZE
    assert digests[0].decode().strip() == hashlib.sha256(content).hexdigest()
    assert digests[0] == digests[1] != digests[2]


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    nowhere = CongestedDisk(tmp_path / "disk", str(tmp_path / "no" / "socket"), Curve(1e6, 1e6, 0))
    with pytest.raises(CommandError, match=r"the congested disk failed: (?s:.*)No such file"), nowhere.mounted():
        pytest.fail("is mounted")
    assert not nowhere.directory.is_mount()
    assert not nowhere.directory.exists()


@pytest.mark.usefixtures("loop_devices")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_mount_is_left_when_the_benchmark_is_ended(
    number: signal.Signals, disk: CongestedDisk, tmp_path: Path
) -> None:
    script = (
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "from benchmarks.disk import CongestedDisk, Curve\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "with CongestedDisk(Path(sys.argv[1]), sys.argv[2], Curve(1e6, 1e6, 0)).mounted():\n"
        "    print('mounted', flush=True)\n"
        "    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", script, str(disk.directory), disk.address]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"mounted\n"
        assert disk.directory.is_mount()
        process.send_signal(number)
    assert gone(disk.directory)
    assert not list(tmp_path.glob("*.image"))


@pytest.mark.usefixtures("loop_devices")
def test_a_disk_in_use_is_unmounted_when_it_is_no_longer(disk: CongestedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.directory.mkdir()
    monkeypatch.setattr("lab.loop_device._UNMOUNT_SECONDS", 0.2)
    with limited_disk(disk.directory, 2**25):
        file = (disk.directory / "file").open("wb")
    with file:
        assert not disk.directory.is_mount()


def test_addresses() -> None:
    assert socket_address("@name") == "\0name"
    assert socket_address("/a/path") == "/a/path"


def test_the_annotations_of_io_tasks_are_valid_and_differ(tmp_path: Path) -> None:
    names = [variant.name for variant in IO_TASKS.prepare(tmp_path) if variant.name != "plain"]
    contents = {(tmp_path / f"{name}.yml").read_text() for name in names}
    # `auto` and `remembered` differ in what was learned alone.
    assert len(contents) == len(names) - 1


@pytest.mark.parametrize(("reason", "remembered"), [("remembered", True), ("first", False)])
def test_whether_limits_were_remembered_is_read_from_the_telemetry(
    reason: Literal["remembered", "first"], remembered: bool, tmp_path: Path
) -> None:
    choice = ChoiceRecord(time=1, step="/s", storage="disk", constraint=4, reason=reason, outstanding=1)
    lines = (RunRecord(time=0, name="r", workflow="w"), choice)
    (directory := tmp_path / "runs" / "r").mkdir(parents=True)
    (directory / TELEMETRY_FILE).write_text("".join(f"{to_json(line).decode()}\n" for line in lines))
    assert is_remembered(tmp_path) is remembered
    assert not is_remembered(directory / "nothing")
