"""The disk that gets slower when several write at once, and what is left of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.disk import CongestedDisk, Curve, Server
from benchmarks.io_tasks import CURVE, IO_EXECUTORS, STATIC_MB, STORAGE_MB
from benchmarks.workflows import TOOL
from lab.loop_device import LoopDeviceError, limited_disk
from lab.pauses import Pauses

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
