"""Limits of jobs that change at random moments, as those of `storageBW: required` do."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

from .cases import Case
from .hosts import Hosts

#: Seconds from one change to the next.
_PAUSES = (0.02, 0.3)
#: Bytes per second, as powers of ten: most jobs move all that they move when they have no limit at last.
_RATES = (3.0, 6.5)
_UNLIMITED = 0.1


@contextlib.contextmanager
def changing(case: Case, temporary: Path, hosts: Hosts | None = None) -> Iterator[None]:
    """Give all jobs of a run that have a limit others again and again, unless the driver does.

    :param temporary: the directory for temporary files of the run
    :param hosts: where its jobs run; None: here
    """
    if case.workload == "required":
        yield
        return
    over = threading.Event()

    def change() -> None:
        random = Random(case.local)
        while not over.wait(random.uniform(*_PAUSES)):
            found = temporary.glob("streamflow-io-*/jobs/*") if hosts is None else hosts.jobs()
            for job in sorted(found):
                rate = None if random.random() < _UNLIMITED else round(10 ** random.uniform(*_RATES))
                with contextlib.suppress(OSError, ValueError):
                    _tell(job, rate, is_here=hosts is None)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tell(job: Path, rate: int | None, is_here: bool) -> None:
    """Give a job another limit, if it has one and runs; a waiter for its end must not find something new then."""
    if "limit" not in json.loads((job / "job.json").read_text()):
        return
    with (job / "events.jsonl").open() as events:
        started = [event for event in map(json.loads, events) if event["event"] == "started"]
    # Elsewhere a process has another number; its `exec` runs, in whose directory this is.
    if started and not (is_here and not Path("/proc", str(started[0]["pid"])).exists()):
        (job / "limit.new").write_text(json.dumps({"rate": rate}))
        (job / "limit.new").replace(job / "limit")
