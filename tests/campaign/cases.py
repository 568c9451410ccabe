"""What is done in each trial. All of it follows from the seed and the number of the trial."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Victim = Literal["producer", "consumer", "exec", "serve", "driver", "disk"]


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    :ivar victim: one process of a producer's or a consumer's command, `sfio-node exec` or `serve`, `streamflow run`; or
        the disk that holds the job directories and the run directory
    :ivar kind: a signal, a limit of the size of files (EFBIG), or no space (ENOSPC)
    """

    victim: Victim
    kind: Literal["KILL", "TERM", "limit", "full"]

    @property
    def name(self) -> str:
        return f"{self.victim} {self.kind}"

    @property
    def signal(self) -> signal.Signals:
        return signal.Signals[f"SIG{self.kind}"]


_KILLED: tuple[Victim, ...] = ("producer", "consumer", "exec", "serve", "driver")
_LIMITED: tuple[Victim, ...] = ("producer", "consumer", "exec")
FAULTS = (
    *(Fault(victim, "KILL") for victim in _KILLED),
    *(Fault(victim, "TERM") for victim in _KILLED),
    *(Fault(victim, "limit") for victim in _LIMITED),
    Fault("disk", "full"),
)
#: Longer than the jobs of a workload take, so that some faults come too late.
SPAN = 2.2


@dataclass(frozen=True)
class Case:
    """One trial.

    :ivar delay: seconds from the start of the first job, or, if `early`, of the driver
    :ivar pick: which of several victims, from 0 to 1
    :ivar retries: whether StreamFlow's failure manager allows them
    :ivar limit: greatest size of a file in bytes, for `limit`
    :ivar relief: seconds until there is space again, for `full`; None: never
    """

    number: int
    workload: str
    fault: Fault
    delay: float
    early: bool
    pick: float
    retries: bool
    limit: int
    relief: float | None

    def __str__(self) -> str:
        since = "driver" if self.early else "jobs"
        retries = ", retries" if self.retries else ""
        return f"{self.number:3} {self.workload:12} {self.fault.name:14} {self.delay:4.2f} s after {since}{retries}"


def choose(seed: int, number: int, workloads: Sequence[str], faults: Sequence[Fault] = FAULTS) -> Case:
    """The trial of a number. Each fault is as frequent as any other, and so is each pair of it with a workload."""
    random = Random(f"{seed}:{number}")
    fault = faults[number % len(faults)]
    # One in four at the very start, where things are set up.
    delay = random.uniform(0, SPAN) if random.random() < 0.75 else random.expovariate(1 / 0.05)
    return Case(
        number,
        workload=workloads[(number // len(faults) + number % len(faults)) % len(workloads)],
        fault=fault,
        delay=delay,
        early=fault.victim == "driver" and random.random() < 0.3,
        pick=random.random(),
        retries=random.random() < 0.5,
        limit=random.randrange(60_000),
        relief=random.choice([None, random.uniform(0.05, 1.5)]),
    )
