"""`streamflow-io storage probe`: the bounds hold, and nothing remains, whatever happens."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import pty
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lab import forked
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.errors import HintErrors
from streamflow_io.storage.probe import measuring
from streamflow_io.storage.probe.measuring import LEAST_BYTES, measure

COMMAND = [sys.executable, "-m", "streamflow_io.cli", "storage", "probe"]
QUICK = ["--bytes", "8MB", "--seconds", "2"]
LIMIT = 8 * 2**20
NOBODY = 65534


@pytest.fixture
def storage() -> Iterator[Path]:
    """A directory on the disk, if /var/tmp is on one, that every user can enter. Nothing remains in it."""
    directory = Path(tempfile.mkdtemp(dir="/var/tmp"))
    directory.chmod(0o755)
    yield directory
    directory.chmod(0o755)
    remains, writers = list(directory.iterdir()), files_below(directory)
    shutil.rmtree(directory)
    assert (remains, writers) == ([], {})


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure with one writer and with two."""
    monkeypatch.setattr(measuring, "LEVELS", (1, 2))


def probe(path: object, *options: str) -> subprocess.CompletedProcess[str]:
    return forked.run("streamflow-io", "storage", "probe", path, *options)


def files_below(path: Path) -> dict[int, int]:
    """The processes that hold a file below a directory open, with a name or without; and the size of the file."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # The process may have ended meanwhile.
            for file in (process / "fd").iterdir():
                if os.readlink(file).startswith(f"{path}/"):
                    found[int(process.name)] = file.stat().st_size
    return found


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_text_has_an_entry_to_paste(storage: Path) -> None:
    ended = probe(os.path.relpath(storage), *QUICK)
    assert (ended.returncode, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    first = lines.index("storages:")
    (pasted,) = YAML(typ="safe", pure=True).load("\n".join(lines[first : first + 2]))["storages"]
    assert StorageConfig.model_validate(pasted).path == str(storage)
    assert "per writer" in ended.stdout


def test_json_and_progress_which_goes_to_the_terminal_only(storage: Path) -> None:
    master, terminal = pty.openpty()
    shown: list[bytes] = []

    def watch() -> None:
        """Read what is shown until the terminal is closed. A terminal that is full holds up whoever writes to it."""
        with suppress(OSError):
            while True:
                shown.append(os.read(master, 2**16))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        ended = subprocess.run(
            [*COMMAND, str(storage), *QUICK, "--json"],
            stdout=subprocess.PIPE,
            stderr=terminal,
            env=os.environ | {"TERM": "xterm"},
            timeout=100,
            check=True,
        )
    finally:
        os.close(terminal)
        watcher.join()
        os.close(master)
    assert b"writers" in b"".join(shown)
    result = json.loads(ended.stdout)
    assert result["ok"] is True
    entry = StorageConfig.model_validate(result["entry"])
    assert entry.path == str(storage)
    assert [level["writers"] for level in result["levels"]] == [1, 2, 4, 8]
    for direction in ("write", "read"):
        samples = [level[direction] for level in result["levels"]]
        assert 0 < entry.bandwidth(direction) <= max(sample["bandwidth"] for sample in samples)
        for level, sample in zip(result["levels"], samples, strict=True):
            assert len(sample["perWriter"]) == level["writers"]
            assert 0 < sample["bytes"] == sum(each["bytes"] for each in sample["perWriter"]) <= LIMIT
            assert sample["bandwidth"] == pytest.approx(sample["bytes"] / 1e6 / sample["seconds"])


@pytest.mark.usefixtures("few")
def test_time_is_a_bound(storage: Path) -> None:
    """With 0.1 s for each sample, no disk moves 1 GiB."""
    measured = measure(str(storage), 2**30, 0.1)
    for level in measured.levels:
        assert level.write.bytes < 2**30
        for each in level.write.transfers:
            assert each.seconds >= 0.1 or each.bytes == 2**30 // level.writers


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("call", ["open", "pwrite"])
def test_without_direct_io(storage: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Some file systems refuse to open a file for direct I/O, some refuse to write."""
    real = os.open

    def refuse_open(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return real(path, flags, mode, dir_fd=dir_fd)

    write = os.pwrite

    def refuse_write(descriptor: int, data: bytes, offset: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return write(descriptor, data, offset)

    monkeypatch.setattr(os, call, refuse_open if call == "open" else refuse_write)
    measured = measure(str(storage), LEAST_BYTES, 2)
    assert measured.access == "buffered"
    assert [level.writers for level in measured.levels] == [1, 2]
    assert all(level.read.bytes == level.write.bytes > 0 for level in measured.levels)


def test_refusals(storage: Path) -> None:
    for path, words in [
        (storage / "none", "does not exist"),
        (Path(__file__), "is not a directory"),
        (Path(__file__) / "none", "does not exist"),
    ]:
        ended = probe(path, *QUICK)
        assert ended.returncode == 1
        assert f"{path} {words}" in ended.stderr
        assert "allowed: " in ended.stderr
    ended = probe(storage, "--bytes", "1000000GB", "--json")
    assert ended.returncode == 1
    assert "of free space, too little to write 1000000000 MB" in json.loads(ended.stdout)["errors"][0]["message"]


@pytest.mark.parametrize("options", [["--bytes", "1MB"], ["--seconds", "nan"]])
def test_wrong_bounds(storage: Path, options: list[str]) -> None:
    ended = probe(storage, *options)
    assert ended.returncode == 2
    assert "allowed: " in ended.stderr


def test_not_writable(storage: Path) -> None:
    storage.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        with pytest.raises(HintErrors, match="is not writable for you"):
            measure(str(storage), LEAST_BYTES, 1)
    finally:
        if root:
            os.seteuid(0)


def test_a_mount_that_is_read_only(tmp_path: Path) -> None:
    mounted = [
        "unshare",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o ro,size=100m tmpfs "$0" || exit 99; exec "$@"',
    ]
    code = f"import sys; from {measuring.__name__} import measure; measure(sys.argv[1], {LIMIT}, 2)"
    command = [*mounted, str(tmp_path), sys.executable, "-c", code, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 99 or ended.stderr.startswith("unshare:"):
        pytest.skip("needs the right to mount")
    assert ended.returncode == 1
    assert f"{tmp_path} " in ended.stderr
    assert "is read-only" in ended.stderr


def test_a_writer_that_fails(storage: Path) -> None:
    """Files may not grow beyond 328 kB: the first level fails in the middle."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 * 65536, before[1]))
    try:
        with pytest.raises(HintErrors, match=f"{storage} cannot be measured: File too large"):
            measure(str(storage), LIMIT, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    gc.collect()  # The error refers to the file.


@pytest.mark.usefixtures("few")
def test_a_storage_that_hangs(storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that goes on later still has its own file."""
    answers, ended, read = threading.Event(), threading.Event(), os.preadv
    monkeypatch.setattr(measuring, "_PATIENCE_SECONDS", 1.0)

    def hang(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        answers.wait()
        found = read(descriptor, buffers, offset)
        ended.set()
        return found

    monkeypatch.setattr(os, "preadv", hang)
    with pytest.raises(HintErrors, match="hangs: a writer did not answer"):
        measure(str(storage), LEAST_BYTES, 0.5)
    answers.set()
    assert ended.wait(30)
    wait_until(lambda: not files_below(storage))


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(number, marks=pytest.mark.long) for number in (signal.SIGTERM, signal.SIGHUP)),
        signal.SIGKILL,
    ],
)
def test_nothing_remains_after_a_signal(storage: Path, tmp_path: Path, number: signal.Signals) -> None:
    words = ("storage", "probe", storage, *QUICK)
    running = forked.start("waiting probe", words, tmp_path, os.environ)
    printed = tmp_path / "stdout"
    try:
        wait_until(lambda: printed.read_text() == "has written\n")
        assert files_below(storage)[running.pid] > 0
        os.killpg(running.pid, number)  # as a terminal does
        code = running.wait(30)
        assert (printed.read_text(), (tmp_path / "stderr").read_text()) == ("has written\n", "")
        assert code == (-number if number == signal.SIGKILL else 128 + number)
        assert not files_below(storage)
    finally:
        running.send_signal(signal.SIGKILL)
