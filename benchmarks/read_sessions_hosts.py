"""A split that writes nothing on two SSH hosts that read one slow storage, each with a page cache of its own.

The jobs wait instead of computing, as if each host had cores of its own. Input is on the storage; work directories are
in the memory of the hosts, so that what plain StreamFlow writes there costs it no time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lab import memory_limit
from lab.machines.deployments import ssh_deployment
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory, obstacle
from lab.memory_limit import limited_memory

from . import slow_disks
from .cluster_sites import SCRATCH, deliver, hosts, on_host, program_on_host
from .model import Comparison
from .processes import run
from .shared_storage import shared_storage
from .slow_disks import BANDWIDTH, READ, cold_on, counted, write_lines
from .tools import MEBIBYTE, WAIT
from .workflows import JSON, RESULT, Site, StreamFlowRun, tool, write_workflow
from .workload import Outcome, Variant, Workload

SIZE = 256 * MEBIBYTE
PARTS = 32
_LITTLE = 256 * MEBIBYTE
_DISK_BYTES = 2048 * MEBIBYTE
_FILE = "whole"
_DIRECTORY = "/data"
#: Jobs read more than they compute: two at once on each host want four times what the storage gives.
_WAIT_SECONDS = 0.01
_SPLIT = Path(__file__).resolve().parent.parent / "workflows" / "tools" / "partition.py"
_UNSPLIT, _PLAIN, _SESSION = "one job", "split", "read session"
_COLD, _LITTLE_MEMORY = "read session, cold", "read session, little memory"
DRIVER = "through the driver / file"
_HINT: JSON = {"class": "sfio:ReadSession", "rules": [{"port": "parts", "of": "whole"}]}


@dataclass(frozen=True)
class _Way:
    """One way to get the parts to their jobs.

    :ivar scheduler: as of :class:`~.workflows.StreamFlowRun`
    :ivar memory: bytes that each host has for all its processes; none: what the machine has
    """

    workflow: Path
    scheduler: Mapping[str, JSON] | None = None
    size: int = SIZE
    memory: int | None = None

    def run(self, source: Path, directory: Path) -> Outcome:
        """Run it on new hosts.

        :param source: a directory with the file
        """
        with ExitStack() as stack:
            disk = stack.enter_context(cold_on(BANDWIDTH, directory / "disk", directory, (), _DISK_BYTES))
            storage = stack.enter_context(shared_storage(disk, source, len(ADDRESSES)))
            # Removed after the hosts, whose processes are in there.
            groups = [stack.enter_context(limited_memory(size)) for size in (self.memory,) * len(ADDRESSES) if size]
            laboratory = stack.enter_context(hosts())
            storage.mount(laboratory, ADDRESSES, _DIRECTORY)
            deliver(laboratory, _SPLIT, _SPLIT.name)
            for group, address in zip(groups, ADDRESSES, strict=False):
                run([on_host(laboratory, address, ["sh", "-c", f"echo 1 > {group.processes}"])], directory)
            streamflow = replace(self._streamflow(directory), site=_site(laboratory))
            return counted(disk, self.size, lambda: self._counted(streamflow, laboratory, directory))

    def verify(self, directory: Path) -> None:
        """Verify the plan: see :meth:`~.workflows.StreamFlowRun.verify`."""
        with hosts() as laboratory:
            streamflow = replace(self._streamflow(directory), site=_site(laboratory), deliveries=["part"])
            streamflow.verify(directory)

    def _streamflow(self, directory: Path) -> StreamFlowRun:
        settings = directory / "job.json"
        settings.write_text(json.dumps({"whole": {"class": "File", "path": _FILE}}), encoding="utf-8")
        return StreamFlowRun(self.workflow, self.scheduler, settings=settings)

    def _counted(self, streamflow: StreamFlowRun, laboratory: Laboratory, directory: Path) -> Outcome:
        before = _driver_bytes(laboratory)
        outcome = streamflow.run(directory)
        through_driver = (_driver_bytes(laboratory) - before) / self.size
        sample = outcome.sample
        further = {**sample.further, DRIVER: through_driver}
        return Outcome(
            sample.model_copy(update={"further": further}), {f"sums of {self.size}": outcome.outputs[RESULT]}
        )


def _site(laboratory: Laboratory) -> Site:
    deployment = {**ssh_deployment(laboratory, *ADDRESSES), "workdir": SCRATCH}
    return Site({"hosts": deployment}, {"/": "hosts"}, laboratory.prefix, inputs={_FILE: ("hosts", _DIRECTORY)})


def _driver_bytes(laboratory: Laboratory) -> int:
    """The bytes that the node of the driver has sent to hosts, and got from them."""
    (link,) = json.loads(laboratory.run("ip", "-json", "-statistics", "link", "show", "bridge"))
    return sum(link["stats64"][way]["bytes"] for way in ("rx", "tx"))


def _write(path: Path, is_split: bool = True, is_cold: bool = False) -> Path:
    """The sums of the blocks of a file, by one job, or in parts of whole lines, with a job for each.

    :param is_cold: a job before the split gives back what StreamFlow has brought into the page cache for its checksum
    """
    # StreamFlow runs no job where less is free than it may need.
    resources: JSON = {"coresMin": 1, "ramMin": 16, "outdirMin": 1, "tmpdirMin": 1}  # MiB
    needs: dict[str, JSON] = {"ResourceRequirement": resources}
    parts = ("--parts", str(PARTS), "--names", "part-%04d")
    split = tool(
        [*program_on_host(_SPLIT.name), "--records", "lines", *parts],
        {"whole": {"type": "File", "inputBinding": {}}, "done": "File?"},
        {"parts": {"type": "File[]", "outputBinding": {"glob": "part-*"}}},
        requirements=needs,
    )
    wait = _WAIT_SECONDS if is_split else 0
    read = tool(
        [*program_on_host("tools.py"), "sum-blocks", str(MEBIBYTE), f"{WAIT}{wait}"],
        {"part": {"type": "File", "streamable": True}},
        {"sums": "stdout"},
        stdin="$(inputs.part.path)",
        stdout="sums.txt" if is_split else "all.txt",
        requirements=needs,
    )
    gather = tool(
        ["cat"],
        {"sums": {"type": {"type": "array", "items": "File"}, "inputBinding": {}}},
        {"all": "stdout"},
        stdout="all.txt",
        requirements=needs,
    )
    steps: dict[str, JSON] = {
        "split": {"run": split, "in": {"whole": _FILE}, "out": ["parts"]},
        "read": {"run": read, "scatter": "part", "in": {"part": "split/parts"}, "out": ["sums"]},
        "gather": {"run": gather, "in": {"sums": "read/sums"}, "out": ["all"]},
    }
    if is_cold:
        forget = tool(
            ["dd", "iflag=nocache", "count=0", "status=none"],
            {"whole": {"type": "File", "inputBinding": {"prefix": "if=", "separate": False}}},
            {"done": "stdout"},
            stdout="done.txt",
            requirements=needs,
        )
        steps["forget"] = {"run": forget, "in": {"whole": _FILE}, "out": ["done"]}
        steps["split"] = {"run": split, "in": {"whole": _FILE, "done": "forget/done"}, "out": ["parts"]}
    if not is_split:
        steps = {"read": {"run": read, "in": {"part": _FILE}, "out": ["sums"]}}
    source = "gather/all" if is_split else "read/sums"
    return write_workflow(
        path, inputs={_FILE: "File"}, outputs={"sums": {"type": "File", "outputSource": source}}, steps=steps
    )


def _prepare(directory: Path) -> Sequence[Variant]:
    no_hosts = slow_disks.obstacle() or obstacle()
    no_cgroup = no_hosts or memory_limit.obstacle()
    sources = {size: directory / f"files-{size}" for size in (SIZE, 2 * SIZE)}
    if no_hosts is None:
        for size, source in sources.items():
            source.mkdir()
            write_lines(source / _FILE, size)
    unsplit, split = _write(directory / "unsplit.cwl", is_split=False), _write(directory / "split.cwl")
    cold = _write(directory / "cold.cwl", is_cold=True)
    annotations = directory / "annotations.json"
    annotations.write_text(json.dumps({"steps": {"/split": [_HINT]}}), encoding="utf-8")
    scheduler: dict[str, JSON] = {"annotations": str(annotations)}
    ways = {
        _UNSPLIT: _Way(unsplit),
        _PLAIN: _Way(split),
        _SESSION: _Way(split, scheduler),
        _COLD: _Way(cold, scheduler),
        _LITTLE_MEMORY: _Way(cold, scheduler, 2 * SIZE, _LITTLE),
    }
    return [
        Variant(
            name,
            partial(way.run, sources[way.size]),
            way.verify if way.scheduler is not None else None,
            no_cgroup if way.memory is not None else no_hosts,
        )
        for name, way in ways.items()
    ]


def _moved(measure: str, variant: str, at_most: float | None = None) -> Comparison:
    return Comparison(name=f"{measure}: {variant}", measure=measure, variant=variant, at_most=at_most)


READ_SESSIONS_HOSTS = Workload(
    "read-sessions-hosts",
    "a file that is split for 32 jobs on two SSH hosts, which read it from one slow storage. As root",
    _prepare,
    (
        # Before it, and in both, StreamFlow reads all for its checksum.
        Comparison(
            name="execution window, read session / split",
            measure="window",
            variant=_SESSION,
            baseline=_PLAIN,
            at_most=0.50,
        ),
        Comparison(name="read session / split", variant=_SESSION, baseline=_PLAIN),
        _moved(READ, _SESSION, at_most=1.02),
        # Once for the checksum, and once by the session.
        _moved(READ, _COLD, at_most=2.02),
        _moved(READ, _LITTLE_MEMORY, at_most=2.05),
        _moved(READ, _PLAIN),
        _moved(DRIVER, _SESSION, at_most=0.1),
        _moved(DRIVER, _PLAIN),
    ),
)
