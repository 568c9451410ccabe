"""The templates in `workflows/` that have read sessions, end to end on slow disks: with their hints, and without."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ruamel.yaml import YAML

from . import slow_disks
from .model import Comparison
from .processes import run
from .slow_disks import FAST, REQUESTS, Disk, cold_on
from .templates import WORKFLOWS, variants_digest
from .tools import MEBIBYTE
from .workflows import JSON, RESULT, Site, StreamFlowRun, tree_digest
from .workload import Outcome, Variant, Workload

_HINT = "sfio:ReadSession"
_WITHOUT, _SESSIONS = "without", "sessions"
_DISKS = (REQUESTS, FAST)
# StreamFlow runs no job where less is free than it may need: by default 1 GiB for each of its two directories.
_DISK_BYTES = 8192 * MEBIBYTE


@dataclass(frozen=True)
class Template:
    """
    :ivar prepare: what generates its input
    :ivar workflow: its CWL file
    :ivar job: the job file
    :ivar inputs: it, and what it names
    :ivar scheduler: as in its StreamFlow file
    """

    name: str
    prepare: Sequence[str]
    workflow: str
    job: str
    inputs: Sequence[str]
    scheduler: Callable[[Path], dict[str, JSON]]
    digest: Callable[[Path], str] = tree_digest


def _nothing(mount: Path) -> dict[str, JSON]:
    return {}


def _checkpoints(mount: Path) -> dict[str, JSON]:
    return {"ioExecutors": 16, "storages": [{"name": "checkpoints", "path": str(mount), "write": 200}]}


TEMPLATES = (
    Template(
        "1000genome",
        ("generate.py", "demo"),
        "main.cwl",
        "generated/demo/job.yml",
        ("data", "generated/demo"),
        _nothing,
    ),
    Template("hmmer", ("prepare.py",), "main.cwl", "generated/job.yml", ("generated",), _checkpoints),
    Template(
        "variant-calling",
        ("prepare.py",),
        "chunks.cwl",
        "job-demo.yml",
        ("generated", "job-demo.yml"),
        _nothing,
        variants_digest,
    ),
)


def _prepare(directory: Path) -> Sequence[Variant]:
    obstacle = slow_disks.obstacle()
    for template in TEMPLATES:
        run([[sys.executable, str(WORKFLOWS / template.name / template.prepare[0]), *template.prepare[1:]]], directory)
    sources = {_WITHOUT: _without_hints(directory / "workflows"), _SESSIONS: WORKFLOWS}
    mount = directory / "disk"
    return [
        Variant(_name(template, disk, way), partial(_run, template, disk, sources[way], mount), None, obstacle)
        for template in TEMPLATES
        for disk in _DISKS
        for way in (_WITHOUT, _SESSIONS)
    ]


def _run(template: Template, kind: Disk, workflows: Path, mount: Path, directory: Path) -> Outcome:
    with cold_on(kind, mount, WORKFLOWS / template.name, template.inputs, _DISK_BYTES):
        site = Site(
            {"here": {"type": "local", "config": {}, "workdir": str(mount / "work")}}, {"/": "here"}, containers=False
        )
        (mount / "work").mkdir()
        outcome = StreamFlowRun(
            workflows / template.name / template.workflow,
            template.scheduler(mount),
            settings=mount / template.job,
            digest=template.digest,
            site=site,
        ).run(directory)
    return Outcome(outcome.sample, {template.name: outcome.outputs[RESULT]})


def _without_hints(directory: Path) -> Path:
    """A copy of all templates, without their input, and without their read sessions."""
    shutil.copytree(WORKFLOWS, directory, ignore=shutil.ignore_patterns("generated", "run"))
    yaml = YAML()
    for path in directory.rglob("*.cwl"):
        document = yaml.load(path)
        hints = document.get("hints", [])
        if isinstance(hints, list) and any(hint["class"] == _HINT for hint in hints):
            document["hints"] = [hint for hint in hints if hint["class"] != _HINT]
            yaml.dump(document, path)
    return directory


def _name(template: Template, disk: Disk, way: str) -> str:
    return f"{template.name}, {way}, {disk.name}"


READ_SESSIONS_TEMPLATES = Workload(
    "read-sessions-templates",
    "the templates that have read sessions, with and without them, on a slow disk and on a fast one. As root",
    _prepare,
    tuple(
        Comparison(
            name=f"{template.name}, {disk.name}: {what}sessions / without",
            measure=measure,
            variant=_name(template, disk, _SESSIONS),
            baseline=_name(template, disk, _WITHOUT),
            at_most=at_most,
        )
        for disk in _DISKS
        for template in TEMPLATES
        for measure, what, at_most in (("wall", "", 0.60 if disk is REQUESTS else 1.02), ("cpu_s", "CPU time, ", None))
    ),
)
