"""Runs that share a storage, without StreamFlow: how long a look takes, and whether all stay within the bandwidth.

Eight processes have jobs that do nothing but hold bandwidth; some are killed, whatever they do, and started anew.
Another process takes the lock again and again, reads the entries by itself, and adds up what is held.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from streamflow_io.storage.sharing import session as sessions
from streamflow_io.storage.sharing.client import LeaseClient
from streamflow_io.storage.sharing.directory import SharedDirectory
from streamflow_io.storage.sharing.lease import Lease, LeaseRequest

from .model import Comparison, Sample
from .processes import CommandError
from .workload import Outcome, Variant, Workload

PROCESSES = 8
SECONDS = 30.0
KILLS = 20
_BANDWIDTH, _JOB = 100, 25
_JOB_SECONDS, _PAUSE_SECONDS = 0.02, 0.04
_CHECK_SECONDS = 0.01
_START_SECONDS = 60.0


def _prepare(directory: Path) -> Sequence[Variant]:
    return (Variant("ledger", _run),)


def _run(directory: Path) -> Outcome:
    shared = directory / "shared"
    chance = random.Random(os.urandom(8))
    kills = sorted(chance.uniform(1.0, SECONDS - 1.0) for _ in range(KILLS))
    running = [_start(shared) for _ in range(PROCESSES)]
    checked = _Checked(shared)
    try:
        _wait_for(shared / "runs", PROCESSES)
        began = time.monotonic()
        while (passed := time.monotonic() - began) < SECONDS:
            checked.check()
            if kills and passed > kills[0]:
                kills.pop(0)
                victim = chance.randrange(PROCESSES)
                running[victim].kill()
                running[victim].wait()
                running[victim] = _start(shared)
            time.sleep(_CHECK_SECONDS)
        found = [_end(process) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    looks = [seconds for each in found for seconds in each.looks]
    further = {
        "look_ms": 1000 * statistics.median(looks),
        "look_99_ms": 1000 * statistics.quantiles(looks, n=100)[-1],
        "core_percent": max(100 * each.cpu / each.seconds for each in found),
        "grants_per_s": sum(each.grants / each.seconds for each in found),
        "above_bandwidth": float(checked.above),
        "full": checked.full / checked.checks,
    }
    sample = Sample(wall=time.monotonic() - began, window=SECONDS, further=further)
    return Outcome(sample, notes=[f"{checked.checks} times the sum was looked at, under the lock."])


def _wait_for(runs: Path, count: int) -> None:
    """Wait until a number of runs have begun."""
    end = time.monotonic() + _START_SECONDS
    while not runs.is_dir() or len(list(runs.iterdir())) < count:
        if time.monotonic() > end:
            raise CommandError(f"{count} processes of the ledger do not start in {_START_SECONDS:g} s")
        time.sleep(0.01)


class _Checked:
    """Adds up what is held by runs that live, by other code than theirs."""

    def __init__(self, shared: Path) -> None:
        self._shared = shared
        self.checks = self.above = self.full = 0

    def check(self) -> None:
        lock = os.open(self._shared / "lock", os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = sum(map(self._held, (self._shared / "runs").iterdir()))
        finally:
            os.close(lock)
        self.checks += 1
        self.above += held > _BANDWIDTH
        self.full += held == _BANDWIDTH

    @staticmethod
    def _held(path: Path) -> int:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return 0  # its run is dead
            return int(json.loads(os.read(descriptor, 4096))["held"].get("write", 0))
        finally:
            os.close(descriptor)


def _start(shared: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(shared)],
        cwd=Path(__file__).resolve().parent.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True)
class _Figures:
    """Figures of one process: seconds of its CPU, of its run and of each look; and how often it was given something."""

    cpu: float
    seconds: float
    grants: int
    looks: list[float]


def _end(process: subprocess.Popen[str]) -> _Figures:
    output, _ = process.communicate(timeout=30)
    try:
        return _Figures(**json.loads(output))
    except json.JSONDecodeError:
        raise CommandError(f"a process of the ledger failed: {process.returncode}") from None


def _wait_for_end(ended: threading.Event) -> None:
    sys.stdin.read()
    ended.set()


class _Run:
    """One process: one job after the other, each with a pause before it."""

    def __init__(self, shared: Path) -> None:
        self._told = threading.Condition()
        self._leases: list[Lease] = []
        self._failed: str | None = None
        self.looks: list[float] = []
        self._measure()
        directory = SharedDirectory(shared, "disk", True, "/disk")
        self._member = LeaseClient(directory, f"{os.getpid()}", {"write": _BANDWIDTH}, self._tell, self._fail)

    def run(self) -> None:
        """Until standard input ends."""
        ended = threading.Event()
        threading.Thread(target=_wait_for_end, args=(ended,), daemon=True).start()
        cpu, began, grants = time.process_time(), time.monotonic(), 0
        while not ended.is_set():
            time.sleep(random.expovariate(1 / _PAUSE_SECONDS))
            self._job()
            grants += 1
        figures = _Figures(time.process_time() - cpu, time.monotonic() - began, grants, self.looks)
        self._member.close()
        print(json.dumps(asdict(figures)))

    def _job(self) -> None:
        with self._told:
            seen = self._leases[-1].number if self._leases else 0
            self._member.request(LeaseRequest({}, {"write": _JOB}, True, {"write": _JOB}, 0.1, seen, time.time()))
            self._told.wait_for(lambda: self._failed is not None or self._is_given(seen))
            if self._failed is not None:
                sys.exit(self._failed)
            seen = self._leases[-1].number
            self._leases = self._leases[-1:]
        time.sleep(random.expovariate(1 / _JOB_SECONDS))
        self._member.request(LeaseRequest(seen=seen))

    def _is_given(self, seen: int) -> bool:
        return any(each.given for each in self._leases if each.number > seen)

    def _tell(self, lease: Lease) -> None:
        with self._told:
            self._leases.append(lease)
            self._told.notify()

    def _fail(self, reason: str) -> None:
        with self._told:
            self._failed = reason
            self._told.notify()

    def _measure(self) -> None:
        look = sessions.LeaseSession.look

        def measured(session: sessions.LeaseSession) -> Lease | None:
            began = time.perf_counter()
            try:
                return look(session)
            finally:
                self.looks.append(time.perf_counter() - began)

        setattr(sessions.LeaseSession, "look", measured)  # noqa: B010


LEDGER = Workload(
    name="ledger",
    summary=f"{PROCESSES} processes share a storage for {SECONDS:g} s, {KILLS} are killed",
    prepare=_prepare,
    comparisons=(
        Comparison(name="99 % of looks take at most, ms", measure="look_99_ms", variant="ledger", at_most=10.0),
        Comparison(name="of a core, each process, percent", measure="core_percent", variant="ledger", at_most=2.0),
        Comparison(name="times above the bandwidth", measure="above_bandwidth", variant="ledger", at_most=0.0),
        Comparison(name="grants a second", measure="grants_per_s", variant="ledger", at_least=80.0),
        Comparison(name="a look, ms", measure="look_ms", variant="ledger"),
        Comparison(name="times at the bandwidth", measure="full", variant="ledger"),
    ),
)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Run(Path(sys.argv[1])).run()
