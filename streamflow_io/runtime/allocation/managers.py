"""Queue managers other than Slurm, each as a table of commands, and what these commands print.

The sources are qsub(1B), qstat(1B), qdel(1B) and pbs_job_attributes(7B) of OpenPBS, and `bsub`, `bjobs`, `bkill` and
`blaunch` in the command reference of IBM Spectrum LSF 10.1. For Flux they are flux-batch(1), flux-jobs(1),
flux-cancel(1), flux-proxy(1), flux-exec(1) and RFC 20.

`pbsdsh` of PBS hands on no standard input. So SSH starts programs there. "The blaunch command works only under LSF. It
cannot be used as a stand-alone command": from a login node, SSH starts programs on nodes of LSF, too.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from enum import Enum, auto

from msgspec import Struct

SSH = "ssh -o BatchMode=yes {node}"
_SIZES = {"kb": 2**-10, "mb": 1.0, "gb": 2.0**10, "tb": 2.0**20}


class ManagerError(ValueError):
    """The text of a command of a queue manager is not understood, or names no allocation."""


class FoundNode(Struct, frozen=True):
    """A node of an allocation.

    :ivar cores: None: unknown
    :ivar memory: in MiB; None: unknown
    """

    name: str
    rank: int
    cores: int | None = None
    memory: int | None = None


class FoundAllocation(Struct, frozen=True):
    """An allocation.

    :ivar seconds: how long it lasts from now on; None: unknown
    :ivar end: the time when it ends, in seconds since 1970; None: unknown
    """

    nodes: tuple[FoundNode, ...]
    seconds: float | None = None
    end: float | None = None


class AllocationState(Enum):
    """The state of an allocation that was asked for."""

    WAITS = auto()
    RUNS = auto()
    HAS_ENDED = auto()


class Reason(Struct, frozen=True):
    """The reason why an allocation waits.

    :ivar text: as the queue manager says it
    :ivar remedy: what has to be changed in `submit`, because the allocation will never start; None: the allocation
        may still start
    """

    text: str
    remedy: str | None = None

    @property
    def kind(self) -> str:
        """The reason without nodes and numbers, which change."""
        return re.split(r"[,(]", self.text)[0].strip()


class Wanted(Struct, frozen=True):
    """The allocation that a user wants.

    :ivar manager: the queue manager, as the schema calls it
    :ivar limit: of time, in the notation of the queue manager
    :ivar partition: the partition, or queue; None: the queue manager chooses
    :ivar options: of the command that asks
    :ivar cores: of each node; None: the queue manager decides
    :ivar memory: of each node, in MiB; None: the queue manager decides
    """

    nodes: int
    limit: str
    manager: str = "slurm"
    partition: str | None = None
    options: tuple[str, ...] = ()
    cores: int | None = None
    memory: int | None = None


class Asking(Struct, frozen=True):
    """How an allocation is asked for and given back outside of it, as on a login node.

    The words of `state`, `show`, `launcher` and `cancel` have `{job}` for the number of the job.

    :ivar ask: the words that submit a job which holds the allocation, and print its number; raises
        :class:`ManagerError` if something that the user wants cannot be asked for
    :ivar number: the command of sed that finds the number in a line
    :ivar state: the words that print the state, for `read_state`
    :ivar read_state: None: the text tells no state. The text may be an error message
    :ivar show: the words that print the allocation, for `read`
    :ivar launcher: the words before a program that start the program on a node; with `{node}` or `{rank}`
    :ivar cancel: the words that give the allocation back
    :ivar ended: finds in what `state` prints, or in its error message, that the job has ended; for `grep -E`, too
    :ivar on_node: what follows the first of the words on a node of the allocation
    :ivar seconds: reads a limit of time; None: another text
    :ivar read_reason: reads in what `state` prints why the job waits; None: `state` prints no reason
    """

    ask: Callable[[Wanted], list[str]]
    number: str
    state: tuple[str, ...]
    read_state: Callable[[str], AllocationState | None]
    show: tuple[str, ...]
    read: Callable[[str], FoundAllocation]
    launcher: str
    cancel: tuple[str, ...]
    ended: str
    on_node: tuple[str, ...] = ()
    seconds: Callable[[str], float | None] = lambda limit: None
    read_reason: Callable[[str], Reason | None] = lambda printed: None


class Manager(Struct, frozen=True):
    """A queue manager.

    :ivar variable: its variable in the environment of a job
    :ivar show: the words that print the allocation in which StreamFlow runs, for `read`; with `{job}`, the value of the
        variable
    :ivar launcher: the words before a program that start the program on a node; with `{node}` or `{rank}`
    """

    name: str
    variable: str
    show: tuple[str, ...]
    launcher: str
    read: Callable[[str], FoundAllocation]
    asking: Asking


def pbs_allocation(printed: str) -> FoundAllocation:
    """Read what `qstat -f` prints of a job of PBS.

    :raises ManagerError: if it is not understood
    """
    fields = _pbs_fields(printed)
    if "exec_host" not in fields:
        raise ManagerError(f"qstat names no exec_host: {printed.strip()[:200]}")
    cores: dict[str, int] = {}
    for chunk in fields["exec_host"].split("+"):
        name, _, taken = chunk.strip().partition("/")
        # OpenPBS: an index and a number of cores, as 0*8. Torque: the indices of cores, as 0-7 or 3.
        _, is_counted, count = taken.partition("*")
        cores[name] = cores.get(name, 0) + (_whole(count) if is_counted else len(numbers(taken)))
    memory: dict[str, float] = {}
    # A host may have several virtual nodes, as one for each NUMA node. One chunk may take parts of several of them.
    for name, asked in re.findall(r"[(+]([^:()+\[]+)(?:\[\d+\])?:([^()+]*)", fields.get("exec_vnode", "")):
        if (size := re.search(r"(?:^|:)mem=(\d+)([kmgt]b)", asked)) is not None:
            memory[name] = memory.get(name, 0) + int(size[1]) * _SIZES[size[2]]
    limit, used = (_clock(fields.get(f"{kind}.walltime")) for kind in ("Resource_List", "resources_used"))
    nodes = (
        FoundNode(name, rank, count, int(memory[name]) if name in memory else None)
        for rank, (name, count) in enumerate(cores.items())
    )
    return FoundAllocation(tuple(nodes), None if limit is None else max(limit - (used or 0.0), 0.0))


def lsf_allocation(printed: str) -> FoundAllocation:
    """Read LSB_MCPU_HOSTS of LSF: each host with its number of slots.

    :raises ManagerError: if it is not understood
    """
    words = printed.split()
    if not words or len(words) % 2 != 0:
        raise ManagerError(f"LSB_MCPU_HOSTS names no hosts with slots: {printed.strip()[:200]}")
    slots: dict[str, int] = {}
    for name, count in zip(words[::2], words[1::2], strict=True):
        slots[name] = slots.get(name, 0) + _whole(count)
    return _of_slots(slots)


def lsf_job(printed: str) -> FoundAllocation:
    """Read the field `exec_host` of `bjobs`: the hosts, each with its number of slots if there are several.

    :raises ManagerError: if it is not understood
    """
    slots: dict[str, int] = {}
    for part in filter(None, printed.strip().split(":")):
        count, is_counted, name = part.rpartition("*")
        slots[name] = slots.get(name, 0) + (_whole(count) if is_counted else 1)
    if not slots or slots.keys() & {"", "-"}:
        raise ManagerError(f"bjobs names no hosts: {printed.strip()[:200]}")
    return _of_slots(slots)


def flux_allocation(printed: str) -> FoundAllocation:
    """Read what `flux resource R` prints: a resource set of version 1.

    :raises ManagerError: if it is not understood
    """
    try:
        found = json.loads(printed)["execution"]
        names = [name for text in found["nodelist"] for name in host_names(text)]
        nodes: list[FoundNode] = []
        for entry in found["R_lite"]:
            ranks, cores = numbers(entry["rank"]), len(numbers(entry["children"]["core"]))
            nodes += [FoundNode(names[len(nodes) + place], rank, cores) for place, rank in enumerate(ranks)]
        end = float(found.get("expiration", 0))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ManagerError(f"flux resource R is not understood: {printed.strip()[:200]}") from error
    return FoundAllocation(tuple(nodes), end=end or None)


#: What all jobs are called that hold an allocation.
JOB_NAME = "streamflow-io"
_HOLD = ("sleep", "infinity")


def ask_pbs(wanted: Wanted) -> list[str]:
    """The words that submit a job to PBS."""
    memory = "" if wanted.memory is None else f":mem={wanted.memory}mb"
    chunk = f"select={wanted.nodes}:ncpus={_cores(wanted, 'PBS')}{memory}"
    fixed = ["-N", JOB_NAME, "-r", "n", "-j", "oe", "-o", "/dev/null"]
    size = ["-l", chunk, "-l", "place=scatter", "-l", f"walltime={wanted.limit}"]
    return [
        "qsub",
        *fixed,
        *size,
        *_option("-q", wanted.partition),
        *wanted.options,
        "--",
        f"/bin/{_HOLD[0]}",
        _HOLD[1],
    ]


def ask_lsf(wanted: Wanted) -> list[str]:
    """The words that submit a job to LSF, which counts slots."""
    _refuse_memory(wanted, "LSF", '`options: ["-R", "rusage[mem=...]"]`')
    cores = _cores(wanted, "LSF")
    fixed = ["-J", JOB_NAME, "-rn", "-o", "/dev/null"]
    size = ["-n", str(wanted.nodes * cores), "-R", f"span[ptile={cores}]", "-W", wanted.limit]
    return ["bsub", *fixed, *size, *_option("-q", wanted.partition), *wanted.options, *_HOLD]


def ask_flux(wanted: Wanted) -> list[str]:
    """The words that submit a job to Flux. Without a number of cores, the job has whole nodes."""
    _refuse_memory(wanted, "Flux", "Flux gives nodes, cores and GPUs alone")
    cores = (
        ["--exclusive"] if wanted.cores is None else [f"--nslots={wanted.nodes}", f"--cores-per-slot={wanted.cores}"]
    )
    fixed = ["--wrap", f"--job-name={JOB_NAME}", "--output=/dev/null", f"--nodes={wanted.nodes}", *cores]
    queue = [] if wanted.partition is None else [f"--queue={wanted.partition}"]
    return ["flux", "batch", *fixed, f"--time-limit={wanted.limit}", *queue, *wanted.options, *_HOLD]


# Among what `qstat` prints of a job are variables of the user.
_PBS_ENDED = "^ *job_state = [^QHWTR]|qstat: .*(Unknown Job|has finished)"
_LSF_ENDED = "^(DONE|EXIT)$|is not found"
_FLUX_ENDED = "^(CLEANUP|INACTIVE)$|JobID .* unknown"


def pbs_state(printed: str) -> AllocationState | None:
    """Read what `qstat -f` prints of a job, or why it prints nothing."""
    if re.search(_PBS_ENDED, printed, re.MULTILINE):
        return AllocationState.HAS_ENDED
    found = re.search(r"^ *job_state = (\w)", printed, re.MULTILINE)
    return None if found is None else AllocationState.RUNS if found[1] == "R" else AllocationState.WAITS


def pbs_reason(printed: str) -> Reason | None:
    """Read from what `qstat -f` prints why a job of PBS waits."""
    if (comment := _pbs_fields(printed).get("comment")) is None:
        return None
    can_never_run = comment.startswith("Can Never Run")
    return Reason(comment, "`nodes`, `cores`, `memory`, `time` or `partition`" if can_never_run else None)


def lsf_state(printed: str) -> AllocationState | None:
    """Read the field `stat` of `bjobs`, or why it prints nothing."""
    return _state(printed, ("PEND", "PSUSP", "WAIT", "PROV"), _LSF_ENDED)


def flux_state(printed: str) -> AllocationState | None:
    """Read the field `state` of `flux jobs`, as in RFC 21, or why it prints nothing."""
    return _state(printed, ("DEPEND", "PRIORITY", "SCHED"), _FLUX_ENDED)


def _state(printed: str, waits: Collection[str], ended: str) -> AllocationState | None:
    """Read the one word of a state. A job that the queue manager does not know any more has ended."""
    word = printed.strip()
    if re.search(ended, printed, re.MULTILINE):
        return AllocationState.HAS_ENDED
    if word in waits:
        return AllocationState.WAITS
    return AllocationState.RUNS if word == "RUN" else None


def _minutes(limit: str) -> float | None:
    """The seconds of a time as LSF takes it, `[hour:]minute`."""
    seconds = _clock(limit)
    return None if seconds is None else seconds * 60


_FLUX_LAUNCHER = "flux exec --rank={rank} --dir=/"
MANAGERS = (
    Manager(
        "PBS", "PBS_JOBID", ("qstat", "-f", "{job}"), SSH, pbs_allocation,
        Asking(
            ask_pbs, r"s/^\([0-9][^ ]*\)$/\1/p", ("qstat", "-f", "{job}"), pbs_state, ("qstat", "-f", "{job}"),
            pbs_allocation, SSH, ("qdel", "{job}"), _PBS_ENDED, read_reason=pbs_reason,
        ),
    ),
    Manager(
        "LSF", "LSB_JOBID", ("printenv", "LSB_MCPU_HOSTS"), "blaunch {node}", lsf_allocation,
        Asking(
            ask_lsf, r"s/^Job <\([0-9]*\)>.*/\1/p", ("bjobs", "-noheader", "-o", "stat", "{job}"), lsf_state,
            ("bjobs", "-noheader", "-o", "exec_host", "{job}"), lsf_job, SSH, ("bkill", "{job}"), _LSF_ENDED,
            seconds=_minutes,
        ),
    ),
    Manager(
        "Flux", "FLUX_URI", ("flux", "resource", "R"), _FLUX_LAUNCHER, flux_allocation,
        Asking(
            ask_flux, r"s/^\([^ ]*\)$/\1/p", ("flux", "jobs", "-n", "-o", "{state}", "{job}"), flux_state,
            ("flux", "proxy", "{job}", "flux", "resource", "R"), flux_allocation,
            f"flux proxy {{job}} {_FLUX_LAUNCHER}", ("flux", "cancel", "{job}"),
            _FLUX_ENDED, ("--parent",),
        ),
    ),
)  # fmt: skip


def give_back(cancel: str, state: str, ended: str) -> str:
    """The commands of a shell that give an allocation back, and try again until it has ended.

    :param cancel: the command that gives it back
    :param state: the command that prints its state
    :param ended: see :class:`Asking`
    """
    return f"until {cancel} || {state} 2>&1 | grep -Eq {shlex.quote(ended)}; do sleep 5; done > /dev/null 2>&1"


def filled(words: tuple[str, ...], job: str) -> list[str]:
    """Words of a table, with the number of a job."""
    return [word.replace("{job}", job) for word in words]


def _of_slots(slots: dict[str, int]) -> FoundAllocation:
    return FoundAllocation(tuple(FoundNode(name, rank, count) for rank, (name, count) in enumerate(slots.items())))


def _pbs_fields(printed: str) -> dict[str, str]:
    return dict(re.findall(r"^ {4}(\S+) = (.*)$", re.sub(r"\n\t", "", printed), re.MULTILINE))


def _option(name: str, value: str | None) -> list[str]:
    return [] if value is None else [name, value]


def _cores(wanted: Wanted, manager: str) -> int:
    if wanted.cores is None:
        raise ManagerError(f"`submit` needs `cores`: {manager} gives one core of each node unless it is asked for more")
    return wanted.cores


def _refuse_memory(wanted: Wanted, manager: str, instead: str) -> None:
    if wanted.memory is not None:
        raise ManagerError(f"`submit` has `memory`, which cannot be asked of {manager} in MiB: {instead}")


def host_names(text: str) -> list[str]:
    """The names in a list of hosts, as `a,n[01-03,7]`.

    :raises ManagerError: if the list is not understood
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        found = re.fullmatch(r"([^\[\]]*)(?:\[([0-9,-]+)\]([^\[\]]*))?", part)
        if found is None:
            raise ManagerError(f"a list of hosts is not understood: {text[:200]}")
        before, ranges, after = found.groups()
        names += [before] if ranges is None else [f"{before}{number}{after}" for number in _padded(ranges)]
    return names


def numbers(text: str) -> list[int]:
    """The numbers in a text as `0-3,8`.

    :raises ManagerError: if the text is not understood
    """
    return [int(number) for number in _padded(text)]


def _padded(ranges: str) -> Iterator[str]:
    for part in ranges.split(","):
        first, is_range, last = part.partition("-")
        for number in range(_whole(first), _whole(last if is_range else first) + 1):
            yield f"{number:0{len(first)}d}"


def _whole(text: str) -> int:
    if not re.fullmatch("[0-9]+", text):
        raise ManagerError(f"{text[:200]!r} is no number")
    return int(text)


def _clock(text: str | None) -> float | None:
    """The seconds of a time as `04:00:00`; None: another text."""
    if text is None or not re.fullmatch(r"\d+(:\d+)*", text):
        return None
    seconds = 0
    for part in text.split(":"):
        seconds = seconds * 60 + int(part)
    return float(seconds)
