"""`streamflow-io partition`: where declared splits of a StreamFlow file cut."""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from streamflow_io.commands.console import say, table
from streamflow_io.commands.plan import plan_workflow
from streamflow_io.engine.known_tokens import KnownTokens, is_open
from streamflow_io.engine.plan import Plan
from streamflow_io.graph.partitions import Partition
from streamflow_io.hints.errors import HintErrors
from streamflow_io.runtime.embedded import find_sfio_node
from streamflow_io.runtime.node_commands import NodeRuntimeError

from .planning import KNOWN_AT_RUN_TIME, DeclaredCuts, known_inputs
from .split_key import Declaration, NoRuleError, parts_of, reason, rule_of

_MOST_ROWS = 200


class KnownSplit(Struct, frozen=True):
    """A job that splits, or a step whose jobs are not known.

    :ivar tag: of the job. None: the jobs are known at run time only
    :ivar inputs: those that are known, as in CWL; files have a `path`
    :ivar unknown: by input, why the input is not known
    """

    partition: Partition
    declaration: Declaration
    tag: str | None
    inputs: Mapping[str, Any]
    unknown: Mapping[str, str]


def declared_of(plan: Plan) -> Mapping[tuple[str, str], Declaration]:
    """The declared cuts of a plan, by step and output."""
    cuts = plan.parts.cuts
    return cuts.declared if isinstance(cuts, DeclaredCuts) else {}


def known_splits(plan: Plan, step: str | None = None) -> Iterator[KnownSplit]:
    """The jobs of all steps with declared cuts."""
    tokens = KnownTokens()
    declared = declared_of(plan)
    for partition in plan.parts.partitions:
        key = (partition.step, partition.port or "")
        if key not in declared or step not in (None, partition.step):
            continue
        tags = tokens.tags_of(tool) if (tool := plan.workflow.steps.get(partition.step)) is not None else None
        split = (partition, declared[key])
        if tool is None or tags is None or any(map(is_open, tags)):
            yield KnownSplit(*split, None, {}, {partition.of: KNOWN_AT_RUN_TIME})
            continue
        for tag in tags:
            yield KnownSplit(*split, tag, *known_inputs(tokens, tool, tag))


class _UnknownError(Exception):
    """No cuts can be shown for a split. The message says why."""


class ShownSplit(Struct, frozen=True):
    """The parts of one job that splits.

    :ivar real: why its files cannot be parts in a run. None: the files can be
    :ivar parts: as `sfio-node cut` says them
    :ivar problem: why the parts are not known. None: the parts are known
    """

    job: str
    port: str
    real: str | None
    of: str | None = None
    parts: Sequence[dict[str, Any]] = ()
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.problem is None

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "port": self.port,
            "real": self.real,
            "of": self.of,
            "parts": [
                {"number": number, "name": part["path"], "size": _size(part), "extents": part["extents"]}
                for number, part in _numbered(self.parts)
            ],
            "problem": self.problem,
        }

    def show(self, console: Console) -> None:
        say(console, f"{self.job}: {self.port}: {len(self.parts)} parts of {self.of or 'a file'}")
        if self.real is not None:
            say(console, f"In a run the real split is used: {self.real}", "yellow")
        if self.parts:
            console.print(_table(self.parts))
        if len(self.parts) > _MOST_ROWS:
            say(console, f"{len(self.parts) - _MOST_ROWS} more: all of them with --json")
        if self.problem is not None:
            say(console, self.problem, "yellow")


class ShownSplits(Struct, frozen=True):
    """The result of the command."""

    splits: Sequence[ShownSplit]

    @property
    def ok(self) -> bool:
        return all(split.ok for split in self.splits)

    def to_json(self) -> dict[str, Any]:
        return {"splits": [split.to_json() for split in self.splits]}

    def show(self, console: Console) -> None:
        for split in self.splits:
            split.show(console)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "streamflow_file", metavar="STREAMFLOW_FILE", help="the StreamFlow file, as for `streamflow run`"
    )
    parser.add_argument("--workflow", metavar="NAME", help="one of its CWL workflows (default: the only one)")
    parser.add_argument("--step", metavar="STEP", help="only this step, such as /split")


def run(arguments: argparse.Namespace) -> ShownSplits:
    """Show the declared splits of a workflow.

    :raises HintErrors: if the file, a workflow or a hint has mistakes, or has no declared split
    """
    path = Path(arguments.streamflow_file)
    plan = plan_workflow(path, arguments.workflow)
    splits = list(known_splits(plan, arguments.step))
    if not splits:
        known = ", ".join(dict.fromkeys(step for step, _ in declared_of(plan))) or "none of this workflow"
        message = f"no cuts are declared of {arguments.step}" if arguments.step else "no cuts are declared"
        raise HintErrors.one(path, "--step", message, f"a step with `records` in a rule of sfio:ReadSession: {known}")
    return ShownSplits(list(map(_shown, splits)))


def _shown(split: KnownSplit) -> ShownSplit:
    partition = split.partition
    job = f"{partition.step}/{split.tag}" if split.tag is not None else partition.step
    found = ShownSplit(job, partition.name, partition.real)
    try:
        path, rule = _known(split)
        found = replace(found, of=path)
        return replace(found, parts=_cut(path, rule))
    except (_UnknownError, NodeRuntimeError) as error:
        return replace(found, problem=str(error))


def _known(split: KnownSplit) -> tuple[str, str]:
    """Return the file that is split, and the rule for `sfio-node cut`.

    :raises _UnknownError: if one of the two is not known before a run
    """
    of, rule = split.partition.of, split.declaration.rule
    for name in (of, rule.parts):
        if isinstance(name, str) and name in split.unknown:
            raise _UnknownError(f"its input {name} is {split.unknown[name]}")
    file = split.inputs.get(of)
    if not isinstance(file, dict) or file.get("class") != "File":
        raise _UnknownError(f"its input {of} is no file")
    try:
        return str(file["path"]), rule_of(rule, split.inputs)
    except NoRuleError as error:
        raise _UnknownError(str(error)) from None


def _cut(path: str, rule: str) -> list[dict[str, Any]]:
    """The parts of a file, as `sfio-node cut` says them.

    :raises _UnknownError: if the file cannot be cut so
    """
    environment = {name: value for name, value in os.environ.items() if name != "SFIO_PARTS"}
    words = [str(find_sfio_node()), "cut", "--of", path, "--rule", rule]
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    said = reason((done.stdout or done.stderr).decode(errors="replace").strip())
    if done.returncode != 0:
        raise _UnknownError(said)
    return parts_of(said)


def _table(parts: Sequence[dict[str, Any]]) -> Table:
    rows = [
        (str(number), part["path"], f"{_size(part):,}", " + ".join(f"{o}:{length}" for o, length in part["extents"]))
        for number, part in _numbered(parts[:_MOST_ROWS])
    ]
    return table(None, ("part", "name", "bytes", "offset:length"), rows, numbers=("part", "bytes"))


def _numbered(parts: Sequence[dict[str, Any]]) -> enumerate[dict[str, Any]]:
    return enumerate(parts, start=1)


def _size(part: dict[str, Any]) -> int:
    return sum(length for _, length in part["extents"])
