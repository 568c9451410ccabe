"""The fault of each trial. All of it follows from the seed and the number of the trial."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

Victim = Literal[
    "producer", "consumer", "exec", "serve", "driver", "disk", "clock", "hosts", "container", "dockerd", "srun",
    "node",
]  # fmt: skip
Kind = Literal[
    "KILL", "TERM", "STOP", "frozen", "size", "files", "memory", "full", "stuck", "jump", "network", "pause", "down"
]


@dataclass(frozen=True)
class Fault:
    """A fault.

    :ivar victim: the processes of a producer's or a consumer's command, `sfio-node exec` or `serve`, `streamflow run`;
        the disk that holds the job directories and the run directory; the clock of the driver; two SSH hosts on
        which all jobs run; a container in which some of them do, and the daemon of all containers; or an
        `srun` of an allocation, and a node of it
    :ivar kind: a signal to one process; STOP (until CONT), and `frozen`: by its cgroup, with all of its job; a limit of
        the size of files (EFBIG), of open files (EMFILE) or of memory (ENOMEM), for all processes of the victim; a disk
        that is full (ENOSPC), or does nothing for a while; a clock that jumps; a network that is down for a while; a
        container that is paused; a node that Slurm takes from the allocation
    """

    victim: Victim
    kind: Kind

    @property
    def name(self) -> str:
        return f"{self.victim} {self.kind}"

    @property
    def signal(self) -> signal.Signals:
        return signal.Signals[f"SIG{self.kind}"]

    @property
    def is_from_outside(self) -> bool:
        """Whether what it does to a tool says nothing of the tool."""
        return not self.is_limit and self.kind != "full"

    @property
    def is_limit(self) -> bool:
        return self.kind in ("size", "files", "memory")


_JOBS: tuple[Victim, ...] = ("producer", "consumer")
_PROCESSES: tuple[Victim, ...] = (*_JOBS, "exec", "serve", "driver")
LOCAL_FAULTS = (
    *(Fault(victim, "KILL") for victim in _PROCESSES),
    *(Fault(victim, "TERM") for victim in _PROCESSES),
    *(Fault(victim, "STOP") for victim in _PROCESSES),
    *(Fault(victim, "frozen") for victim in _JOBS),
    *(Fault(victim, kind) for victim in (*_JOBS, "exec") for kind in ("size", "files", "memory")),
    Fault("disk", "full"),
    Fault("disk", "stuck"),
    Fault("clock", "jump"),
)
#: These need a laboratory, and take longer.
HOST_FAULTS = (Fault("hosts", "full"), Fault("hosts", "network"))
#: These, too. The last one ends all containers.
CONTAINER_FAULTS = (
    *(Fault(victim, kind) for victim in _PROCESSES for kind in ("KILL", "STOP")),
    Fault("driver", "TERM"),
    Fault("container", "KILL"),
    Fault("container", "pause"),
    Fault("dockerd", "KILL"),
)
#: The nodes of an allocation do not see a disk that is mounted for a trial.
ALLOCATION_FAULTS = (
    *(fault for fault in LOCAL_FAULTS if fault.victim != "disk"),
    Fault("srun", "KILL"),
    Fault("srun", "STOP"),
    Fault("node", "down"),
    Fault("node", "network"),
)
FAULTS = tuple(dict.fromkeys((*LOCAL_FAULTS, *HOST_FAULTS, *CONTAINER_FAULTS, *ALLOCATION_FAULTS)))
#: For how many seconds the network is down: shorter and longer than a reader tries to come back.
OUTAGES = (10.0, 75.0)
#: A random workload is named so.
RANDOM = "random-"
#: Longer than the jobs of a workload take, so that some faults come too late.
SPAN = 2.2
RANDOM_SPAN = 1.2
#: The same for workloads whose jobs wait for containers.
CONTAINER_SPAN = 3.0
#: In containers, one of this many steps runs on the driver's node.
_LOCAL = 4


@dataclass(frozen=True)
class Case:
    """One trial.

    :ivar delay: seconds from the start of the first job, or, if `early`, of the driver
    :ivar pick: which of several victims, from 0 to 1
    :ivar retries: whether StreamFlow's failure manager allows them
    :ivar limit: greatest size of a file in bytes, for `size`
    :ivar relief: seconds until there is space again, for `full`, and until what stands still goes on; None: the space
        does not come back, or what is limited stays so
    :ivar jump: seconds by which the clock jumps
    :ivar local: of a random choice, for :meth:`local_steps`
    :ivar held: whether producers of some workloads wait in the middle of their work until the fault has come
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
    jump: float = 0.0
    local: int = 0
    held: bool = False

    def local_steps(self, steps: Iterable[str]) -> set[str]:
        """The steps that run on the driver's node where the others run in containers."""
        random = Random(self.local)
        return {name for name in steps if random.randrange(_LOCAL) == 0}

    def __str__(self) -> str:
        since = "driver" if self.early else "jobs"
        retries = ", retries" if self.retries else ""
        return f"{self.number:3} {self.workload:12} {self.fault.name:15} {self.delay:4.2f} s after {since}{retries}"


def choose(
    seed: int, number: int, workloads: Sequence[str], faults: Sequence[Fault] = LOCAL_FAULTS, span: float = SPAN
) -> Case:
    """The trial of a number. Each fault is as frequent as any other, and so is each pair of it with a workload.

    :param span: seconds in which it comes, mostly
    """
    random = Random(f"{seed}:{number}")
    fault = faults[number % len(faults)]
    # One in four at the very start, where things are set up.
    workload = workloads[(number // len(faults) + number % len(faults)) % len(workloads)]
    span = RANDOM_SPAN if workload.startswith(RANDOM) else span
    delay = random.uniform(0, span) if random.random() < 0.75 else random.expovariate(1 / 0.05)
    return Case(
        number,
        workload=workload,
        fault=fault,
        delay=delay,
        early=fault.victim in ("driver", "hosts") and random.random() < 0.3,
        pick=random.random(),
        retries=random.random() < 0.5,
        limit=random.randrange(3_000),
        relief=_relief(random, fault),
        jump=random.choice([-86_400.0, -30.0, 30.0, 86_400.0]),
        local=random.randrange(2**31),
    )


def _relief(random: Random, fault: Fault) -> float | None:
    if fault.kind == "network":
        return random.choice(OUTAGES)
    if fault.kind in ("STOP", "frozen", "stuck", "pause"):
        return random.uniform(0.05, 4.0)
    return random.choice([None, random.uniform(0.05, 1.5)])
