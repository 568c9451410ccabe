"""The commands of Slurm for an allocation, and what they print."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from .managers import JOB_NAME, ManagerError, Reason, Wanted, give_back, numbers

_GROUP = re.compile(r"(?<!\S)Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+)")
_FIELD = re.compile(r"(?<!\S)([A-Za-z][\w:/-]*)=(\S*)")
_GONE = ("DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN", "REBOOT")
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
#: The name of the step that gives an allocation back when the driver is gone.
GUARD = "sfio-guard"
# The driver is gone when no line has come for 30 s. Half a minute later, a driver that lives has started another guard.
# Slurm may not answer: then nothing is known of another guard, and nothing was given back.
_GUARD = (
    'while line=$(timeout 30 sh -c \'read -r line; echo "$line"\') && test "$line" = alive; do :; done; '
    'test "$line" = done && exit; sleep 30; '
    "until steps=$(squeue -h -s -j {job} -o %j); do sleep 5; done; "
    'test "$(echo "$steps" | grep -cx {name})" -gt 1 || {give_back}'
)
_ENDED = "Invalid job id"
# Waits for the end of its input, and gives the allocation back. `salloc` of Slurm 22.05 loops for ever when its command
# ends at the moment at which the allocation ends. Therefore the command goes on for some seconds.
_HOLD = 'trap : TERM; cat; trap - TERM; scancel "$SLURM_JOB_ID"; exec sleep 5'
# The reasons for which an allocation never starts as it was asked for, with what to change in `submit`. The source is
# the page "Job Reason Codes" of Slurm. Other reasons pass, as a limit for all jobs of a user, or nodes that are down.
_NEVER = {
    "PartitionNodeLimit": "`nodes` or `partition`",
    "PartitionTimeLimit": "`time` or `partition`",
    "PartitionConfig|BadConstraints": "`nodes`, `cores`, `memory`, `partition` or `options`",
    "(Assoc|QOS)Max.+Per(Job|Node)(Limit)?|QOSMin.+|MaxMemPerLimit": "`nodes`, `time`, `cores` or `memory`",
    "InvalidAccount|AccountNotAllowed": "`--account` in `options`, or `partition`",
    "InvalidQOS|QOSNotAllowed": "`--qos` in `options`, or `partition`",
    "DependencyNeverSatisfied|DeadLine|ReservationDeleted": "`options`",
}
#: The programs that the driver's node must have.
PROGRAMS = ("srun", "scontrol")


class NodeGroup(Struct, frozen=True):
    """Nodes on which an allocation has the same.

    :ivar nodes: in the notation of Slurm, as `n[1-4]`
    :ivar memory: of each node, in MiB; 0: all that the node has
    """

    nodes: str
    cores: int
    memory: int


class Held(Struct, frozen=True):
    """An allocation.

    :ivar state: as Slurm calls it
    :ivar end: the time when it ends, in seconds since 1970; None: no limit
    :ivar groups: its nodes; empty: it has none yet, or none any more
    :ivar reason: why it waits in the queue; None: Slurm does not say, or it does not wait
    """

    state: str
    end: float | None
    groups: tuple[NodeGroup, ...]
    reason: Reason | None = None

    @property
    def runs(self) -> bool:
        """Whether its nodes can be used."""
        return self.state == "RUNNING"


class SlurmNode(Struct, frozen=True):
    """A node as its queue manager knows it.

    :ivar memory: in MiB
    :ivar gone: the state that Slurm gives as the reason why nothing runs there; None: the node can be used
    """

    name: str
    address: str
    memory: int
    gone: str | None


def allocation_of(printed: str, job: str) -> Held:
    """Read what `scontrol show job --details --oneliner` printed.

    One task of an array has the number of the array. Then there is a line for each task, with a number of its own.

    :raises ManagerError: if it is not understood
    """
    line = next((line for line in printed.splitlines() if line.split(None, 1)[:1] == [f"JobId={job}"]), "")
    fields: dict[str, str] = dict(_FIELD.findall(line))
    if "JobState" not in fields:
        raise ManagerError(f"scontrol names no state of the allocation: {printed.strip()[:200]}")
    groups = [NodeGroup(nodes, len(numbers(ids)), int(memory)) for nodes, ids, memory in _GROUP.findall(line)]
    return Held(fields["JobState"], _time(fields.get("EndTime", "")), tuple(groups), _reason(fields))


def nodes_of(printed: str) -> list[SlurmNode]:
    """Read what `scontrol show node --oneliner` printed.

    :raises ManagerError: if it is not understood
    """
    found = []
    for line in filter(str.strip, printed.splitlines()):
        fields: dict[str, str] = dict(_FIELD.findall(line))
        if "NodeName" not in fields:
            raise ManagerError(f"scontrol names no node: {line.strip()[:200]}")
        name, state = fields["NodeName"], fields.get("State", "")
        # An asterisk says that the node does not respond.
        gone = state if "*" in state or any(word in state.split("+") for word in _GONE) else None
        memory = fields.get("RealMemory", "0")
        found.append(SlurmNode(name, fields.get("NodeAddr", name), int(memory) if memory.isdigit() else 0, gone))
    return found


def on_node(job: str, node: str, cores: int, words: Sequence[str], name: str | None = None) -> list[str]:
    """The words that run a program on a node of an allocation, with all that the allocation has there.

    Without its number of cores, Slurm gives a step one core. `--overlap` lets steps share cores.

    :param name: of the step; None: the one of the program
    """
    named = [] if name is None else [f"--job-name={name}"]
    step = [f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--cpus-per-task={cores}"]
    return ["srun", *step, "--mem=0", "--chdir=/", "--cpu-bind=none", "--quiet", "--kill-on-bad-exit=0", *named, *words]


def guard(job: str) -> str:
    """The script that gives an allocation back when its input has brought no line for a minute."""
    return _GUARD.format(job=job, name=GUARD, give_back=give_back(f"scancel {job}", f"squeue -h -j {job}", _ENDED))


def ask(wanted: Wanted) -> list[str]:
    """The words that ask for an allocation, and hold it as long as their standard input is open."""
    queue = [] if wanted.partition is None else [f"--partition={wanted.partition}"]
    cores = [] if wanted.cores is None else ["--ntasks-per-node=1", f"--cpus-per-task={wanted.cores}"]
    memory = [] if wanted.memory is None else [f"--mem={wanted.memory}M"]
    fixed = [f"--nodes={wanted.nodes}", f"--time={wanted.limit}", *queue, *cores, *memory]
    return ["salloc", *fixed, "--no-kill", f"--job-name={JOB_NAME}", *wanted.options, "sh", "-c", _HOLD]


def asked(line: str) -> tuple[str, bool] | None:
    """Read a line that :func:`ask` printed: the number of the allocation, and whether it is granted.

    None: the line tells neither that it waits nor that it is granted.
    """
    if (found := re.search(r"(Pending|Granted) job allocation (\d+)", line)) is None:
        return None
    return found[2], found[1] == "Granted"


def environment(outer: Mapping[str, str]) -> dict[str, str]:
    """The environment for commands of Slurm: options that a batch script had are not those of our steps."""
    return {name: value for name, value in outer.items() if not name.startswith("SLURM_") or name in _KEPT}


def _reason(fields: Mapping[str, str]) -> Reason | None:
    text = fields.get("Reason", "None")
    if fields["JobState"] != "PENDING" or text == "None":
        return None
    # What one of several partitions refuses, another one may grant.
    never = {} if "," in fields.get("Partition", "") else _NEVER
    remedy = next((remedy for names, remedy in never.items() if re.fullmatch(names, text)), None)
    # Slurm writes its spaces as underscores, before the names of nodes.
    said, is_named, nodes = text.partition(":")
    return Reason(f"{said.replace('_', ' ')}{is_named}{nodes}", remedy)


def _time(text: str) -> float | None:
    """Seconds since 1970 of a time that Slurm prints in the local time zone; None: no time limit."""
    try:
        moment = time.strptime(text, "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return None
    return time.mktime(moment)
