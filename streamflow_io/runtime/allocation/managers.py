"""Queue managers other than Slurm, each as a table of commands, and what these commands print.

StreamFlow runs in a job of the queue manager. The sources are qstat(1B) and pbs_job_attributes(7B) of OpenPBS, and
`blaunch` in the command reference of IBM Spectrum LSF 10.1. For Flux they are flux-exec(1) and its RFC 20.
`pbsdsh` of PBS hands on no standard input. So SSH starts programs there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from msgspec import Struct

SSH = "ssh -o BatchMode=yes {node}"
_SIZES = {"kb": 2**-10, "mb": 1.0, "gb": 2.0**10, "tb": 2.0**20}


class ManagerError(ValueError):
    """The text of a command of a queue manager is not understood."""


class FoundNode(Struct, frozen=True):
    """A node of an allocation.

    :ivar rank: its number in the allocation
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


class Manager(Struct, frozen=True):
    """A queue manager.

    :ivar variable: its variable in the environment of a job
    :ivar show: the words that print the allocation, for `read`; with `{job}`, the value of the variable
    :ivar launcher: the words before a program that start the program on a node; with `{node}` or `{rank}`
    """

    name: str
    variable: str
    show: tuple[str, ...]
    launcher: str
    read: Callable[[str], FoundAllocation]


def pbs_allocation(printed: str) -> FoundAllocation:
    """Read what `qstat -f` prints of a job of PBS.

    :raises ManagerError: if it is not understood
    """
    fields = dict(re.findall(r"^ {4}(\S+) = (.*)$", re.sub(r"\n\t", "", printed), re.MULTILINE))
    if "exec_host" not in fields:
        raise ManagerError(f"qstat names no exec_host: {printed.strip()[:200]}")
    cores: dict[str, int] = {}
    for chunk in fields["exec_host"].split("+"):
        name, _, taken = chunk.strip().partition("/")
        # OpenPBS: an index and a number of cores, as 0*8. Torque: the indices of cores, as 0-7 or 3.
        _, is_counted, count = taken.partition("*")
        cores[name] = cores.get(name, 0) + (_whole(count) if is_counted else len(numbers(taken)))
    memory: dict[str, float] = {}
    for name, asked in re.findall(r"\(([^:()\[]+)(?:\[\d+\])?:([^()]*)\)", fields.get("exec_vnode", "")):
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
    return FoundAllocation(tuple(FoundNode(name, rank, count) for rank, (name, count) in enumerate(slots.items())))


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


MANAGERS = (
    Manager("PBS", "PBS_JOBID", ("qstat", "-f", "{job}"), SSH, pbs_allocation),
    Manager("LSF", "LSB_JOBID", ("printenv", "LSB_MCPU_HOSTS"), "blaunch {node}", lsf_allocation),
    Manager("Flux", "FLUX_URI", ("flux", "resource", "R"), "flux exec --rank={rank} --dir=/", flux_allocation),
)


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
