"""Runs that share a storage, as processes: kills, stops, damaged files, and file systems where it cannot work."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import pwd
import re
import resource
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from lab import cluster, forked
from lab.cwl import found, tool, workflow
from lab.runs import Bench
from streamflow_io.adapters.jobs import JobState
from streamflow_io.commands import doctor
from streamflow_io.commands.plan import plan_file
from streamflow_io.hints.config import StorageConfig
from streamflow_io.hints.models import Way
from streamflow_io.storage import shared_storages, storage_admission
from streamflow_io.storage.admission.demand import Amounts, StoragePlace
from streamflow_io.storage.shared_storages import Meeting
from streamflow_io.storage.sharing import allocation, other_entries, status
from streamflow_io.storage.sharing import directory as files
from streamflow_io.storage.sharing import session as sessions
from streamflow_io.storage.sharing.allocation import Lease, LeaseRequest, amount
from streamflow_io.storage.sharing.client import LeaseClient
from streamflow_io.storage.sharing.directory import SharedDirectory, make_own, make_shared, shared_directories
from streamflow_io.storage.sharing.entries import LedgerFile
from streamflow_io.storage.sharing.other_entries import (
    MOST_ENTRIES,
    MOST_OF_OWNER,
    NAMELESS,
    OtherEntries,
    SharingError,
    owner_of,
    user_name,
)
from streamflow_io.storage.sharing.status import sharers, status_to_json

BANDWIDTH: dict[Way, int] = {"read": 100, "write": 100}
#: After so long without an event, there will be none: on a busy machine one takes seconds.
SECONDS = 60.0
GROUP, MEMBERS, STRANGER = 61234, (61001, 61002), 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be other users or to mount")


def writes(much: int) -> dict[Way, int]:
    return {"write": much} if much else {}


class Run:
    """A run in this process: what it was told, and what it holds."""

    def __init__(self, shared: SharedDirectory, name: str = "run", bandwidth: Amounts = BANDWIDTH) -> None:
        self.leases: list[Lease] = []
        self.failures: list[str] = []
        self.warnings: list[str] = []
        tell, failed, warn = self.leases.append, self.failures.append, self.warnings.append
        self.client = LeaseClient(shared, name, bandwidth, tell, failed, warn)
        self.name = name
        self._began = 0.0

    def request(self, kept: int = 0, lacks: int = 0, useful: int = 0, seconds: float = 1.0) -> None:
        seen = self.leases[-1].number if self.leases else 0
        self._began = (self._began or time.time()) if kept or lacks else 0.0
        useful = max(lacks, useful)
        self.client.request(LeaseRequest(writes(kept), writes(lacks), True, writes(useful), seconds, seen, self._began))

    @property
    def given(self) -> int:
        return sum(amount(lease.given, "write") for lease in [*self.leases])

    def wait_for(self, what: Callable[[Run], object], seconds: float = SECONDS) -> None:
        end = time.monotonic() + seconds
        while not what(self):
            assert time.monotonic() < end, (self.leases, self.failures, self.warnings)
            time.sleep(0.005)


@pytest.fixture
def shared(tmp_path: Path) -> SharedDirectory:
    return SharedDirectory(tmp_path / "data" / "shared", "scratch", True, "/scratch")


@pytest.fixture
def runs(shared: SharedDirectory) -> Iterator[Callable[..., Run]]:
    """Makes runs, which end with the test."""
    with ExitStack() as opened:

        def make(name: str = "run", **others: Any) -> Run:
            run = Run(others.pop("shared", shared), name, **others)
            opened.callback(run.client.close)
            return run

        yield make


def entries(shared: SharedDirectory) -> dict[str, dict[str, Any]]:
    """The content of the entries, by the names of the runs. An entry that is being written is read again."""
    end = time.monotonic() + SECONDS
    while True:
        try:
            found = [json.loads(path.read_text()) for path in (shared.path / "runs").iterdir()]
            return {each["run"]: each for each in found}
        except (json.JSONDecodeError, FileNotFoundError):
            assert time.monotonic() < end


Does = Callable[[Connection], None]


class Process:
    """A run in a process of its own, which is forked from this one."""

    def __init__(self, does: Does, user: int | None = None, groups: tuple[int, ...] = ()) -> None:
        context = get_context("fork")
        self.pipe, inner = context.Pipe()

        def main() -> None:
            if user is not None:
                os.setgroups(groups)
                os.setgid(user)
                os.setuid(user)
            os.umask(0o077)
            does(inner)

        self.process = context.Process(target=main, daemon=True)
        self.process.start()
        inner.close()

    def answer(self) -> Any:
        assert self.pipe.poll(SECONDS)
        return self.pipe.recv()

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process.pid is not None
        if self.process.is_alive():
            os.kill(self.process.pid, number)
        if number == signal.SIGKILL:
            self.process.join(SECONDS)


def holding(shared: SharedDirectory, much: int, lacks: int = 0, die: bool = False) -> Callable[[Connection], None]:
    """A run that gets an amount, says so, and then wants more.

    :param die: it is killed inside the lock when it has got it
    """

    def does(pipe: Connection) -> None:
        if die:
            write = files.OpenDirectory.write

            def write_and_die(self: files.OpenDirectory, entry: Any) -> None:
                write(self, entry)
                os.kill(os.getpid(), signal.SIGKILL)

            files.OpenDirectory.write = write_and_die  # type: ignore[method-assign]
        run = Run(shared, f"process {os.getpid()}")
        run.request(lacks=much)
        run.wait_for(lambda run: run.given or run.failures)
        if lacks:
            run.request(kept=much, lacks=lacks)
            run.wait_for(lambda _: entries(shared)[run.name]["wanted"])
        pipe.send(run.failures or run.given)
        pipe.recv()

    return does


@pytest.fixture
def processes() -> Iterator[Callable[..., Process]]:
    with ExitStack() as opened:

        def make(*arguments: Any, **others: Any) -> Process:
            process = Process(*arguments, **others)
            opened.callback(process.kill)
            return process

        yield make


Runs = Callable[..., Run]
Processes = Callable[..., Process]


# What runs do to each other


def test_a_run_that_is_alone_has_all_that_it_can_use_at_once(runs: Runs, shared: SharedDirectory) -> None:
    run = runs()
    time.sleep(0.05)
    assert not shared.path.exists()  # nothing is opened before something is wanted
    run.request(lacks=30, useful=250)
    run.wait_for(lambda run: run.given)
    assert run.leases[0].given == writes(100)
    assert run.leases[0].bandwidth == BANDWIDTH
    assert not run.leases[0].contended
    run.client.close()
    assert not entries(shared)
    assert stat.S_IMODE(shared.path.stat().st_mode) == 0o700
    run.client.close()


@pytest.fixture
def never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no run taken for one that has stopped, however long nothing is heard of the run."""
    monkeypatch.setattr(sessions, "HOLDS_BACK_NOBODY", 1e9)
    monkeypatch.setattr(sessions, "HOLDS_NOTHING", 1e9)


@pytest.mark.usefixtures("never_stopped")
def test_two_runs_have_no_more_than_there_is(runs: Runs, shared: SharedDirectory) -> None:
    one, two = runs("one"), runs("two")
    one.request(lacks=60, useful=100)
    one.wait_for(lambda run: run.given == 100)
    one.request(kept=100, lacks=60, useful=60)
    two.request(lacks=60)
    one.wait_for(lambda run: run.leases[-1].contended == {"write"})
    assert two.given == 0
    one.request(kept=40)
    two.wait_for(lambda run: run.given == 60)
    found = entries(shared)
    assert found["one"]["held"] == {"write": 40}
    assert found["two"]["held"] == {"write": 60}


def test_a_ledger_that_a_crash_has_left_empty_is_written_again(runs: Runs, shared: SharedDirectory) -> None:
    make_own(shared)
    (shared.path / "ledger.json").write_bytes(b"")
    run = runs()
    run.request(lacks=70)
    run.wait_for(lambda run: run.given or run.failures)
    assert (run.given, run.failures) == (70, [])


def test_on_a_network_file_system_runs_look_again_and_again(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts hear nothing of each other's writes there: they look."""
    monkeypatch.setattr(files, "_is_network", lambda path: True)
    monkeypatch.setattr(files.OpenDirectory, "tell", lambda *_, **__: None)
    one, two = runs("one"), runs("two")
    one.request(lacks=100)
    one.wait_for(lambda run: run.given)
    one.request(kept=100)
    two.request(lacks=60)
    one.wait_for(lambda run: run.leases[-1].contended)
    one.request()
    two.wait_for(lambda run: run.given == 60)


def test_a_run_is_told_when_others_begin_to_use_the_storage(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run does not have to look for itself."""
    monkeypatch.setattr(sessions, "_LOCAL", replace(sessions._LOCAL, beat=1_000.0))
    one, two = runs("one"), runs("two")
    one.request(lacks=20)
    one.wait_for(lambda run: run.given)
    one.request(kept=20)
    two.request(lacks=30)
    one.wait_for(lambda run: run.leases[-1].others == writes(30))


def test_the_least_bandwidth_that_a_run_says_holds(runs: Runs) -> None:
    one, two = runs("one", bandwidth={"read": 100, "write": 40}), runs("two")
    one.request(lacks=10)
    one.wait_for(lambda run: run.given)
    two.request(lacks=10, useful=100)
    two.wait_for(lambda run: run.given == 30)
    assert len(two.warnings) == 1
    assert "the lowest one counts" in two.warnings[0]


# Kills and stops


@pytest.mark.usefixtures("never_stopped")
def test_what_killed_runs_held_is_free(runs: Runs, processes: Processes, shared: SharedDirectory) -> None:
    killed = processes(holding(shared, 100))
    assert killed.answer() == 100
    run = runs()
    run.request(lacks=100)
    run.wait_for(lambda run: run.leases)
    assert not run.given
    killed.kill()
    run.wait_for(lambda run: run.given == 100)
    assert [*entries(shared)] == ["run"]


def test_a_run_that_is_killed_inside_the_lock(runs: Runs, processes: Processes, shared: SharedDirectory) -> None:
    killed = processes(holding(shared, 100, die=True))
    killed.process.join(SECONDS)
    assert killed.process.exitcode == -signal.SIGKILL
    assert [each["held"] for each in entries(shared).values()] == [{"write": 100}]
    run = runs()
    run.request(lacks=100)
    run.wait_for(lambda run: run.given == 100)


def test_a_run_that_is_stopped(
    runs: Runs, processes: Processes, shared: SharedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First it holds back others no more, then it holds nothing; when it goes on it takes part again."""
    stopped = processes(holding(shared, 50, lacks=90))
    assert stopped.answer() == 50
    stopped.kill(signal.SIGSTOP)
    monkeypatch.setattr(sessions, "_LOCAL", replace(sessions._LOCAL, beat=0.2))
    monkeypatch.setattr(sessions, "HOLDS_BACK_NOBODY", 1.0)
    first, second = runs("first"), runs("second")
    first.request(lacks=30, seconds=1000)
    first.wait_for(lambda run: run.leases)
    assert first.leases[0].contended == {"write"}
    assert not first.given
    first.wait_for(lambda run: run.given == 30)
    assert next(lease for lease in first.leases if lease.given).others == writes(50)
    first.request(kept=30)
    second.request(lacks=70)
    second.wait_for(lambda run: run.leases)
    assert not second.given
    monkeypatch.setattr(sessions, "HOLDS_NOTHING", 2.0)
    second.wait_for(lambda run: run.given == 70)
    assert len(second.warnings) == 1
    assert "has not been heard of for 2 s: its bandwidth is given to other runs" in second.warnings[0]
    stopped.kill(signal.SIGCONT)
    name = next(name for name in entries(shared) if name.startswith("process"))
    second.wait_for(lambda _: entries(shared)[name]["beat"] > 2)
    assert entries(shared)[name]["held"] == writes(50)


def test_a_lock_that_somebody_keeps(
    runs: Runs, processes: Processes, shared: SharedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.3)
    run = runs()
    run.request(lacks=100)
    run.wait_for(lambda run: run.given)

    def keeps(pipe: Connection) -> None:
        with open(shared.path / "lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            pipe.send(os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)

    holder = processes(keeps).answer()
    assert sharers(status.status_of(shared)).endswith(f"held its lock for 0.3 s: process {holder} has it")
    run.request(kept=50)
    run.wait_for(lambda run: run.failures)
    run.request(lacks=3)
    time.sleep(0.1)
    assert run.failures == ["another process has held its lock for 0.3 s"]


# Files that are not as they should be


@pytest.mark.parametrize("damage", ["torn", "empty", "newer", "noise"])
def test_an_entry_that_cannot_be_read_counts_as_before_while_its_run_lives(
    runs: Runs, processes: Processes, shared: SharedDirectory, damage: str
) -> None:
    """The amount that the entry last held stays its own; an entry that was never understood tells nothing."""
    other = processes(holding(shared, 70))
    assert other.answer() == 70
    run = runs()
    run.request(lacks=20)
    run.wait_for(lambda run: run.given)
    (path,) = [path for path in (shared.path / "runs").iterdir() if b"process" in path.read_bytes()]
    whole = path.read_bytes()
    other.kill(signal.SIGSTOP)  # or it would soon write it anew
    damaged = {"torn": whole[:100] + bytes(3996), "empty": b"", "newer": whole.replace(b'"version":1', b'"version":2')}
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(damaged.get(damage, os.urandom(100_000)))
    run.request(kept=20, lacks=20)
    run.wait_for(lambda _: entries_of(shared, "run")["wanted"])
    assert run.given == 20
    late = runs("late")
    late.request(lacks=80)
    late.wait_for(lambda run: run.given or run.leases)
    other.kill()
    run.wait_for(lambda run: run.given == 40)


def entries_of(shared: SharedDirectory, name: str) -> dict[str, Any]:
    """The entry of one run, where others may be damaged."""
    end = time.monotonic() + SECONDS
    while True:
        found = [path.read_bytes() for path in (shared.path / "runs").iterdir()]
        try:
            (entry,) = [json.loads(text) for text in found if f'"run":"{name}"'.encode() in text]
            return dict(entry)
        except ValueError:
            assert time.monotonic() < end


def test_odd_things_among_the_entries_are_no_entries(runs: Runs, shared: SharedDirectory, tmp_path: Path) -> None:
    first = runs("first")
    first.request(lacks=10)
    first.wait_for(lambda run: run.given)
    target = tmp_path / "target"
    target.write_text("untouched")
    entry_names = [f"{number:032x}.json" for number in range(4)]
    (shared.path / "runs" / entry_names[0]).symlink_to(target)
    os.mkfifo(shared.path / "runs" / entry_names[1])
    (shared.path / "runs" / entry_names[2]).mkdir()
    (shared.path / "runs" / entry_names[3]).symlink_to("/dev/zero")
    (shared.path / "runs" / "notes.txt").write_text("x")
    run = runs()
    run.request(lacks=90)
    run.wait_for(lambda run: run.given == 90)
    assert target.read_text() == "untouched"
    assert (shared.path / "runs" / "notes.txt").exists()


@pytest.mark.parametrize(
    ("place", "reason"), [("lock", "symbolic link"), ("runs", "Not a directory"), ("ledger.json", "symbolic link")]
)
def test_links_are_not_followed(runs: Runs, shared: SharedDirectory, tmp_path: Path, place: str, reason: str) -> None:
    run = runs()
    run.request(lacks=1)
    run.wait_for(lambda run: run.given)
    run.client.close()
    (shared.path / place).rename(tmp_path / "moved")
    (shared.path / place).symlink_to(tmp_path / "moved")
    run = runs()
    run.request(lacks=1)
    run.wait_for(lambda run: run.failures)
    assert reason in run.failures[0]
    assert not run.given


@pytest.mark.parametrize("what", ["all", "entry"])
def test_files_that_somebody_removes(runs: Runs, shared: SharedDirectory, what: str) -> None:
    run = runs()
    run.request(lacks=1)
    run.wait_for(lambda run: run.given)
    for path in [*(shared.path / "runs").iterdir(), *([shared.path / "lock"] if what == "all" else [])]:
        path.unlink()
    run.request(lacks=1)
    run.wait_for(lambda run: run.failures)
    removed = {"all": "its files were removed", "entry": "the entry of this run was removed"}
    assert removed[what] in run.failures[0]


# File systems where it cannot work


@pytest.mark.parametrize("does", ["nothing", "refuses"])
def test_no_locks(runs: Runs, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    def flock(descriptor: int, how: int) -> None:
        if does == "refuses":
            raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    run = runs()
    run.request(lacks=1)
    run.wait_for(lambda run: run.failures)
    why = "two processes hold one lock at once" if does == "nothing" else "No locks available"
    assert run.failures == [f"locks do not work there: {why}"]


def test_locks_of_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS 4 gives an exclusive lock only on a file that is open for writing."""
    lock, tried = fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        if how & fcntl.LOCK_EX:
            tried.append(descriptor)
            if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    make_shared(tmp_path / "shared", LedgerFile(path="/scratch", write=100), os.getegid())
    assert len(tried) == 2, "a lock was tried where this file system does not see it"
    assert doctor._locks().works is True


@pytest.mark.parametrize("does", ["nothing", "refuses"])
def test_no_directory_is_shared_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    def flock(descriptor: int, how: int) -> None:
        if does == "refuses":
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(SharingError, match="locks do not work there"):
        make_shared(tmp_path / "shared", LedgerFile(path="/scratch", write=100), os.getegid())
    assert [*tmp_path.iterdir()] == []
    assert doctor._locks().works is None


_IN_NAMESPACE = """
import sys, time
from pathlib import Path
from streamflow_io.storage.sharing.directory import SharedDirectory
from streamflow_io.storage.sharing.client import LeaseClient
from streamflow_io.storage.sharing.allocation import LeaseRequest
done = []
shared = SharedDirectory(Path(sys.argv[1]), "scratch", True, "/scratch")
client = LeaseClient(shared, "run", {"write": 100}, lambda lease: done.append("given"), lambda why: done.append(why))
client.request(LeaseRequest({}, {"write": 1}, began=time.time()))
while not done:
    time.sleep(0.01)
print(done)
client.close()
"""


@needs_root
@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        ("", "given"),
        ("dd if=/dev/zero of={0}/full bs=4k status=none 2>/dev/null;", "No space left on device"),
        ("mkdir -p {0}/a && mount -o remount,ro {0};", "Read-only file system"),
    ],
    ids=["works", "full", "read-only"],
)
def test_disks_that_cannot_be_written(tmp_path: Path, prepare: str, expected: str) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mounted = f"mount -t tmpfs -o size=32k none {place} && mkdir -m 700 {place}/a"
    command = f'{mounted} && {{ {prepare.format(place)} true; }} && exec {sys.executable} -c "$0" {place}/a/shared'
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command, _IN_NAMESPACE], capture_output=True, text=True, timeout=30
    )
    assert expected in ended.stdout, ended.stderr


# A directory of several users


@pytest.fixture
def of_all(public: Path) -> SharedDirectory:
    shared = SharedDirectory(public / "ledger", "scratch", False, "/scratch")
    make_shared(shared.path, LedgerFile(path="/scratch", write=100), GROUP)
    return shared


@needs_root
def test_several_users(of_all: SharedDirectory, processes: Processes) -> None:
    first = processes(holding(of_all, 80), MEMBERS[0], (GROUP,))
    assert first.answer() == 80

    def second(pipe: Connection) -> None:
        (entry,) = (of_all.path / "runs").iterdir()
        refused = []
        for tried in (entry.unlink, partial(os.truncate, entry, 0), (of_all.path / "lock").unlink):
            try:
                tried()
            except PermissionError:
                refused.append(True)
        run = Run(of_all, "second", {"read": 500, "write": 500})
        run.request(lacks=50)
        run.wait_for(lambda run: run.leases)
        pipe.send((len(refused), run.given, run.warnings))
        pipe.recv()
        run.wait_for(lambda run: run.given)
        pipe.send((run.given, len(list((of_all.path / "runs").iterdir()))))

    other = processes(second, MEMBERS[1], (GROUP,))
    refused, given, warnings = other.answer()
    assert (refused, given) == (3, 0)
    assert warnings == [
        "its bandwidth is 0.0001 MB/s (write) and 0.0001 MB/s (read), not 0.0005 MB/s (write) and "
        "0.0005 MB/s (read): the runs share the first"
    ]
    first.kill()
    other.pipe.send(None)
    # Files that a user left can be removed only by this user: the directory is sticky.
    assert other.answer() == (50, 2)

    def stranger(pipe: Connection) -> None:
        run = Run(of_all, "stranger")
        run.request(lacks=50)
        run.wait_for(lambda run: run.failures)
        pipe.send(run.failures)

    assert processes(stranger, STRANGER).answer() == [f"{of_all.path}: Permission denied"]


@needs_root
def test_a_member_who_writes_what_he_likes(of_all: SharedDirectory, processes: Processes) -> None:
    """The worst effect is that the member has all of the bandwidth; files of others are not touched."""

    def attacker(pipe: Connection) -> None:
        place = of_all.path / "runs"
        entry = {
            "version": 1,
            "run": "\x1b[31m",
            "host": "h",
            "pid": 1,
            "started": 0,
            "now": 0,
            "beat": 1,
            "bandwidth": {"write": 10**18},
            "held": {"write": 10**18},
            "wanted": {"write": 1},
            "due": -1e11,
        }
        odd = {**entry, "ticket": 2**80}
        texts = [json.dumps({**entry, "started": 0.0, "now": 0.0}), "{" * 4096, "[" * 100_000, json.dumps(odd)]
        for number, text in enumerate(texts):
            path = place / f"{number:032x}.json"
            path.write_text(text)
            path.chmod(0o644)
            fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)
        leased = place / f"{8:032x}.json"
        leased.write_text(texts[0])
        leased.chmod(0o644)
        fcntl.fcntl(os.open(leased, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_WRLCK)
        signal.signal(signal.SIGIO, signal.SIG_IGN)
        (place / f"{9:032x}.json").symlink_to("/etc/shadow")
        os.mkfifo(place / f"{10:032x}.json")
        (of_all.path / "lock").write_bytes(os.urandom(3))
        pipe.send(None)
        pipe.recv()

    bad = processes(attacker, MEMBERS[0], (GROUP,))
    bad.answer()

    def good(pipe: Connection) -> None:
        run = Run(of_all, "good")
        run.request(lacks=50)
        run.wait_for(lambda run: run.leases)
        pipe.send((run.given, run.leases[0].others, run.failures))
        pipe.recv()
        run.wait_for(lambda run: run.given or run.failures)
        pipe.send((run.given, run.failures))

    run = processes(good, MEMBERS[1], (GROUP,))
    assert run.answer() == (0, writes(100), [])
    bad.kill()
    run.pipe.send(None)
    assert run.answer() == (50, [])


@needs_root
@needs_root
@pytest.mark.parametrize("number", [1, 1500])
@pytest.mark.parametrize("does", [{"held": 10**18}, {"wanted": 10**18}])
def test_a_member_who_keeps_others_from_their_share(
    of_all: SharedDirectory, processes: Processes, monkeypatch: pytest.MonkeyPatch, number: int, does: dict[str, int]
) -> None:
    """The others have at least their share after a few looks, and get the member's name."""
    monkeypatch.setattr(allocation, "GRACE_SECONDS", 0.3)
    looks: list[float] = []
    look = sessions.LeaseSession.look

    def counted(session: sessions.LeaseSession) -> Lease | None:
        looks.append(time.monotonic())
        return look(session)

    monkeypatch.setattr(sessions.LeaseSession, "look", counted)
    bad_user, good_user = pwd.getpwnam("daemon").pw_uid, pwd.getpwnam("bin").pw_uid
    amounts = {each: {"write": much} for each, much in does.items()}

    def attacker(pipe: Connection) -> None:
        times = {"started": 0.0, "now": 0.0, "asked": 0.0, "due": -1e11, "beat": 1}
        entry = {"version": 1, "run": "greedy", "host": "h", "pid": 7, "bandwidth": {}, **times, **amounts}
        for one in range(number):
            path = of_all.path / "runs" / f"{one:032x}.json"
            path.write_text(json.dumps(entry))
            path.chmod(0o644)
            fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)
        pipe.send(None)
        pipe.recv()

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        bad = processes(attacker, bad_user, (GROUP,))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    bad.answer()

    def good(pipe: Connection) -> None:
        run = Run(of_all, "good")
        run.request(lacks=25, seconds=0.5)
        run.wait_for(lambda run: run.given == 25 or run.failures)
        run.request(kept=25, lacks=25, seconds=0.5)
        run.wait_for(lambda run: run.given == 50 or run.failures)
        needed = len(looks)
        run.request(kept=50, lacks=25, seconds=0.5)
        run.wait_for(lambda run: entries(of_all)["good"]["wanted"])
        pipe.send((run.given, run.failures, run.warnings, needed))
        pipe.recv()

    one = processes(good, good_user, (GROUP,))
    given, failures, warnings, needed = one.answer()
    assert (given, failures, len(warnings)) == (50, [], 1), warnings
    assert "of user daemon" in warnings[0]
    assert str(of_all.path / "runs" / "0") in warnings[0]
    assert warnings[0].endswith("[SFIO-B007]")
    # Three where the machine is idle. On a busy one, more time passes from one to the next.
    assert needed <= 5, needed


@needs_root
def test_many_entries_of_one_user_hide_none_of_others(tmp_path: Path) -> None:
    """A namespace with user ids without names, as in an own container, counts them as one user."""
    names = [f"{number:032x}.json" for number in range(MOST_ENTRIES + 1)]
    users = {name: 1 if number % 2 else MEMBERS[number % 4 // 2] for number, name in enumerate(names)}
    users[last := f"{'f' * 32}.json"] = 2
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with ExitStack() as closing:
        closing.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for name, user in users.items():
            descriptor = os.open(tmp_path / name, os.O_RDWR | os.O_CREAT)
            closing.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.chown(descriptor, user, -1)
        directory = os.open(tmp_path, os.O_RDONLY)
        closing.callback(os.close, directory)
        found = OtherEntries(directory).look("")
    assert Counter(owner_of(each.owner) for each in found) == {1: MOST_OF_OWNER, NAMELESS: MOST_OF_OWNER, 2: 1}
    assert found[1].entry is None
    assert last in {each.identifier for each in found}


def test_a_directory_with_too_many_files_is_not_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_entries, "_MOST_FILES", 2)
    for name in "abc":
        (tmp_path / name).touch()
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(SharingError, match=f"3 files, most of user {user_name(os.getuid())}; allowed: 2"):
            OtherEntries(directory).look("")
    finally:
        os.close(directory)


def test_a_lock_that_somebody_keeps_again_and_again(
    runs: Runs, processes: Processes, shared: SharedDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LOCK_SECONDS", 0.5)
    run = runs()
    run.request(lacks=100)
    run.wait_for(lambda run: run.given)

    def keeps(pipe: Connection) -> None:
        with open(shared.path / "lock", "rb") as lock:
            while True:
                fcntl.flock(lock, fcntl.LOCK_EX)
                time.sleep(0.4)
                fcntl.flock(lock, fcntl.LOCK_UN)

    processes(keeps)
    kept = 100
    while not run.failures:
        run.request(kept=(kept := 90 if kept == 100 else 100))
        time.sleep(0.02)
    assert run.failures == ["another process has held its lock for 0.5 s"]


@needs_root
def test_directories_that_are_not_safe(of_all: SharedDirectory, runs: Runs) -> None:
    def refused() -> str:
        run = runs(shared=of_all)
        run.request(lacks=1)
        run.wait_for(lambda run: run.failures or run.given)
        return "".join(run.failures)

    assert refused() == ""
    of_all.path.chmod(0o2770)
    assert refused() == f"{of_all.path} can be written by others and is not sticky"
    of_all.path.chmod(0o3770)
    os.chown(of_all.path / "runs", STRANGER, -1)
    assert refused() == f"{of_all.path / 'runs'} belongs to user {STRANGER}, not a member of its group {GROUP}"
    os.chown(of_all.path / "runs", 0, -1)
    (of_all.path / "ledger.json").write_text("{}")
    assert refused() == f"{of_all.path} is no shared ledger; allowed: one made by streamflow-io storage share"
    with pytest.raises(SharingError, match="is there already"):
        make_shared(of_all.path, LedgerFile(path="/scratch", write=1), GROUP)


# Jobs that hold nothing


class Required:
    """No job is so small that it is admitted with a storageBW."""

    def spacing(self, job: JobState, bandwidth: float, executors: int) -> None:
        return None


async def test_what_is_required_is_of_what_other_runs_leave(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has only such jobs holds nothing, and has to know what others hold, and when that has changed.

    Another run says a lower bandwidth, which holds for all as long as that run is there.
    """
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    storage = StorageConfig(name="disk", path="/", write=0.0001)
    directory = shared_directories([storage], {})["disk"]
    other = runs(shared=directory, bandwidth={"read": 100, "write": 90})
    other.request(lacks=70)
    other.wait_for(lambda run: run.given)
    other.request(kept=70)
    admission = cluster.io_task_admission(
        cluster.Cluster(1), spacing=Required().spacing, storage=storage,
        meeting=Meeting("required", [storage], {}),
    )  # fmt: skip
    place = StoragePlace("disk", "cluster/node00000")

    async def has(much: int, seconds: float = SECONDS) -> bool:
        deadline = time.monotonic() + seconds
        while (found := admission.capacity(place, "write")) is None or found.bandwidth != much:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.02)
        return True

    await asyncio.wait_for(admission.admit(cluster.job(0, storage_bw="required"), [cluster.target()]), SECONDS)
    try:
        assert await has(20)
        other.request(kept=20)
        assert await has(70)
        assert entries(directory)["required"]["held"] == {}
        other.client.close()
        assert await has(100)
    finally:
        await admission.run_closed()


class Spaced(Required):
    """All jobs are small."""

    def __init__(self) -> None:
        self.bandwidths: list[float] = []

    def spacing(self, job: JobState, bandwidth: float, executors: int) -> None:
        self.bandwidths.append(bandwidth)


async def test_small_jobs_are_spaced_by_the_bandwidth_that_the_runs_share(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    storage = StorageConfig(name="disk", path="/", write=0.0001)
    other = runs(shared=shared_directories([storage], {})["disk"], bandwidth={"read": 100, "write": 40})
    other.request(lacks=10)
    other.wait_for(lambda run: run.given)
    other.request(kept=10)
    required = Spaced()
    admission = cluster.io_task_admission(
        cluster.Cluster(1), spacing=required.spacing, storage=storage, meeting=Meeting("required", [storage], {})
    )
    place, deadline = StoragePlace("disk", "cluster/node00000"), time.monotonic() + SECONDS
    await asyncio.wait_for(admission.admit(cluster.job(0, storage_bw="required"), [cluster.target()]), SECONDS)
    try:
        while (found := admission.capacity(place, "write")) is None or found.bandwidth != 30:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        await asyncio.wait_for(admission.admit(cluster.job(1, storage_bw="required"), [cluster.target()]), SECONDS)
        assert required.bandwidths == [0.0001, 0.00004]
    finally:
        await admission.run_closed()


async def test_what_no_job_uses_goes_back_when_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    storage = StorageConfig(name="disk", path="/", write=100)
    directory = shared_directories([storage], {})["disk"]
    admission = cluster.io_task_admission(cluster.Cluster(1), storage=storage, meeting=Meeting("run", [storage], {}))
    task = cluster.job(0)
    await asyncio.wait_for(admission.admit(task, [cluster.target()]), SECONDS)
    try:
        admission.ended(task)
        past = SimpleNamespace(time=lambda: time.time() - 3600, monotonic=time.monotonic)
        for module in (storage_admission, shared_storages):
            monkeypatch.setattr(module, "time", past)
        deadline = time.monotonic() + SECONDS
        while entries(directory)["run"]["held"]:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
    finally:
        await admission.run_closed()


# The command line


def command(*words: str | Path, data: Path, columns: int = 200) -> subprocess.CompletedProcess[str]:
    environment = {"XDG_DATA_HOME": str(data), "COLUMNS": str(columns)}
    return forked.run("streamflow-io", "storage", *words, environment=environment)


def test_what_the_command_line_makes_and_shows(tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    made = command("share", tmp_path / "group", "--write", "0.0001", "--path", "/scratch", data=tmp_path)
    assert made.returncode == 0, made.stderr
    assert f"share: {tmp_path / 'group'}" in made.stdout
    again = command("share", tmp_path / "group", "--write", "1", data=tmp_path)
    assert again.returncode == 1
    assert "is there already" in again.stderr + again.stdout
    shared = SharedDirectory(tmp_path / "group", "scratch", False, "/scratch")
    one, two = runs("one", shared=shared), runs("\x1b[31mtwo", shared=shared)
    one.request(lacks=70)
    one.wait_for(lambda run: run.given)
    one.request(kept=70)
    two.request(lacks=60)
    two.wait_for(lambda run: run.leases)
    known = status.status_of(shared)
    shown = sharers(known)
    assert "\x1b[31mtwo" not in shown
    # A waiting run is shown first.
    assert re.fullmatch(
        rf"all runs that name {shared.path}; now with \\x1b\[31mtwo of \S+ on \S+ \(waits for 6e-05 write MB/s\), "
        r"one of \S+ on \S+ \(holds 7e-05 write MB/s\)",
        shown,
    ), shown
    assert [(run["run"], run["held"], run["wanted"]) for run in status_to_json(known)["runs"]] == [
        ("\x1b[31mtwo", {}, {"write": 6e-05}),
        ("one", {"write": 7e-05}, {}),
    ]


def test_what_is_wrong_with_a_directory_is_said(tmp_path: Path) -> None:
    def said(*words: str | Path) -> str:
        made = command(*words, data=tmp_path / "data")
        assert made.returncode == 1
        return made.stdout + made.stderr

    assert f"{tmp_path / 'no'} is no directory" in said("share", tmp_path / "no" / "group", "--write", "1")
    assert "it has 5,000 characters" in said("share", tmp_path / "group", "--write", "1", "--path", "x" * 5000)
    assert not list(tmp_path.iterdir())
    shared = SharedDirectory(tmp_path, "scratch", False, "/scratch")
    assert f"{tmp_path} is no shared ledger; allowed: " in sharers(status.status_of(shared))


def test_a_run_without_the_feature_of_turns_begins_at_once_and_says_so(
    shared: SharedDirectory, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_own(shared)
    (shared.path / "ledger.json").write_text(LedgerFile(path="/scratch", holds="auto").model_dump_json())
    # As `LeaseClient` and `status` are where no feature extends `TurnPolicy`.
    monkeypatch.setattr(status, "subclass_of", lambda core: core)
    run = runs()
    run.request(lacks=70)
    run.wait_for(lambda run: run.given)
    missing = "its ledger says `holds: auto`, which needs the feature `schedules` of streamflow-io"
    assert run.warnings == [f"the bursts of this run take no turns in {shared.path}: {missing}"]
    assert status.status_of(shared).schedule == f"no turns: {missing}"


def test_the_plan_says_with_whom_a_storage_is_shared_now(
    bench: Bench, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    hints = [{"class": "sfio:IOTask"}, {"class": "sfio:StorageBandwidth", "storageBW": 1, "storage": "disk"}]
    writer = tool("echo 1 > out.txt", {}, {"out": found("out.txt")}, hints)
    storages = [
        {"name": "disk", "path": str(tmp_path), "write": 2},
        {"name": "unused", "path": "/nowhere", "write": 2},
    ]
    document = workflow({}, {"a": {"run": writer, "in": {}}}, {"out": "a/out"})
    path = bench.write(document, {}, True, {"storages": storages})
    plans = plan_file(path)
    assert [*plans.shared] == ["disk"]
    assert sharers(plans.shared["disk"]) == "all your runs; no run uses it now"
    assert not (tmp_path / "data").exists()
    place = shared_directories(map(StorageConfig.model_validate, storages), {})["disk"]
    run = runs("another\n", shared=place, bandwidth={"read": 2_000_000, "write": 2_000_000})
    run.request(lacks=1_000_000)
    run.wait_for(lambda run: run.given)
    said = sharers(plan_file(path).shared["disk"])
    assert re.fullmatch(r"all your runs; now with another\\n of \S+ on \S+ \(holds 1 write MB/s\)", said), said
