"""A file that jobs on the nodes of an allocation read, each its part, by read sessions on these nodes.

The file is on a distributed file system, and each node has a link of its own to the file system.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from lab.machines.allocation import held_allocation
from lab.machines.deployments import allocation_deployment
from lab.machines.hosts import link_shape
from lab.machines.laboratory import GLUSTERFS, Laboratory, missing_programs, start_slurm
from lab.machines.slurm import NODES

from .model import Comparison
from .processes import CommandError
from .tools import MEBIBYTE
from .workflows import JSON, Site, StreamFlowRun, tool, write_workflow
from .workload import Outcome, Variant

# The cores of this machine, which all nodes share, must not be what limits a link.
_MEGABITS = 200
_PART, _PARTS = 16, 16
_SIZE = _PART * _PARTS * MEBIBYTE
_MOST = len(NODES)
_READ = "received_of_file"
_HINT: JSON = {"class": "sfio:ReadSession", "rules": [{"of": "of", "part": "range", "records": "bytes"}]}


def _name(nodes: int) -> str:
    return f"read session, {nodes} nodes" if nodes > 1 else "read session, 1 node"


def _write(path: Path) -> Path:
    """A job for each part of the file."""
    read = tool(
        ["sh", "-c", f'dd if="$0" bs={_PART}M skip=`expr ${{1%of*}} - 1` count=1 iflag=fullblock status=none | cksum'],
        {
            "of": {"type": "File", "inputBinding": {"position": 1}},
            "range": {"type": "string", "inputBinding": {"position": 2}},
        },
        {"sum": "stdout"},
        stdout="$(inputs.range).sum",
        hints=[_HINT],
    )
    return write_workflow(
        path,
        inputs={
            "of": {"type": "File"},
            "ranges": {"type": "string[]", "default": [f"{number}of{_PARTS}" for number in range(1, _PARTS + 1)]},
        },
        outputs={"sums": {"type": "File[]", "outputSource": "read/sum"}},
        steps={"read": {"run": read, "scatter": "range", "in": {"of": "of", "range": "ranges"}, "out": ["sum"]}},
    )


def _run(workflow: Path, nodes: int, directory: Path) -> Outcome:
    with start_slurm(is_distributed=True) as laboratory:
        for name in NODES:
            laboratory.run("tc", "qdisc", "replace", "dev", name, *link_shape(_MEGABITS).split())
        volume = Path(f"/proc/{laboratory.pid}/root{laboratory.directory}/volume")
        with (volume / "whole").open("wb") as file:
            for number in range(_SIZE // MEBIBYTE):
                file.write(hashlib.shake_128(number.to_bytes(8, "big")).digest(MEBIBYTE))
        settings = directory / "job.json"
        whole = laboratory.directory / "volume" / "whole"
        settings.write_text(json.dumps({"of": {"class": "File", "path": str(whole)}}), encoding="utf-8")
        workdir = laboratory.directory / "volume" / "work"
        # The driver, too, is a client of the file system. The `/proc` there is of other processes.
        own = ("unshare", "--mount", "sh", "-c", 'mount -t proc proc /proc && exec "$@"', "sh")
        prefix = (*laboratory.prefix[:-1], f"--mount={laboratory.mounts}", "--", *own)
        before = _received(laboratory)
        with held_allocation(laboratory, nodes, "60") as environment:
            site = Site({"nodes": allocation_deployment(workdir)}, {"/": "nodes"}, prefix, environment)
            outcome = StreamFlowRun(workflow, {}, settings=settings, site=site).run(directory)
        received = _received(laboratory) - before
    _check_sessions(directory, nodes)
    further = {**outcome.sample.further, _READ: received / _SIZE}
    sample = outcome.sample.model_copy(update={"further": further})
    return replace(outcome, sample=sample, outputs={"read session": next(iter(outcome.outputs.values()))})


def _received(laboratory: Laboratory) -> int:
    """The bytes that all nodes have received so far."""
    links = [json.loads(laboratory.run("ip", "-s", "-j", "link", "show", name))[0] for name in NODES]
    return sum(int(link["stats64"]["tx"]["bytes"]) for link in links)


def _check_sessions(directory: Path, nodes: int) -> None:
    """Check that several nodes have had a session, if there are several.

    :raises CommandError: if not
    """
    (file,) = (directory / "data" / "streamflow-io" / "runs").glob("*/telemetry.jsonl")
    events = [json.loads(line)["event"] for line in file.read_text(encoding="utf-8").splitlines()]
    if (sessions := events.count("session")) < min(nodes, 2):
        raise CommandError(f"{nodes} nodes have had {sessions} read sessions")


def spread_sessions(directory: Path, skipped: str | None) -> list[Variant]:
    """The variants, which need a workflow in a directory.

    :param skipped: why there can be no allocation here
    """
    if skipped is None and (missing := missing_programs(GLUSTERFS)):
        skipped = f"needs programs that are not installed: {', '.join(missing)}"
    workflow = _write(directory / "spread-session.cwl")
    return [Variant(_name(nodes), partial(_run, workflow, nodes), skipped=skipped) for nodes in (1, _MOST)]


SPREAD_SESSIONS = (
    Comparison(
        name=f"execution window, {_name(1)} / {_MOST} nodes",
        measure="window",
        variant=_name(1),
        baseline=_name(_MOST),
        at_least=3,
    ),
    Comparison(
        name=f"bytes that {_MOST} nodes have received / bytes of the file, {_name(_MOST)}",
        measure=_READ,
        variant=_name(_MOST),
        at_most=1.1,
    ),
)
