"""`streamflow-io partition`: where declared splits of a StreamFlow file cut, and whether their programs do so."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
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
from streamflow_io.errors import WITH_CWLTOOL
from streamflow_io.files import file_of
from streamflow_io.graph.partitions import Partition
from streamflow_io.hints.config import SchedulerConfig
from streamflow_io.hints.errors import HintErrors
from streamflow_io.hints.yaml_files import read_scheduler_config
from streamflow_io.records.learned.database import LearnedDatabase, LearnedStoreError, learned_path
from streamflow_io.runtime.embedded import find_sfio_node
from streamflow_io.runtime.node_commands import NodeRuntimeError

from .planning import KNOWN_AT_RUN_TIME, DeclaredCuts, known_inputs
from .split_key import (
    DIFFERENT,
    SAME,
    Compared,
    Declaration,
    InconclusiveError,
    NoRuleError,
    compared,
    parts_of,
    reason,
    rule_of,
    verdict_key,
)
from .verdicts import Verdict

_MOST_ROWS = 200
# `-m cwltool` ends with 0 whatever happens.
_CWLTOOL = "import sys; from cwltool.main import main; sys.exit(main())"


class KnownSplit(Struct, frozen=True):
    """A job that splits, or a step whose jobs are not known.

    :ivar tag: of the job. None: the jobs are known at run time only
    :ivar inputs: those that are known, as in CWL; files have a `path`
    :ivar unknown: by input, why the input is not known
    """

    partition: Partition
    declaration: Declaration
    globs: tuple[str, ...]
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
    globs = {(output.step, output.port): output.globs for output in plan.graph.outputs}
    declared = declared_of(plan)
    for partition in plan.parts.partitions:
        key = (partition.step, partition.port or "")
        if key not in declared or step not in (None, partition.step):
            continue
        tags = tokens.tags_of(tool) if (tool := plan.workflow.steps.get(partition.step)) is not None else None
        split = (partition, declared[key])
        if tool is None or tags is None or any(map(is_open, tags)):
            yield KnownSplit(*split, (), None, {}, {partition.of: KNOWN_AT_RUN_TIME})
            continue
        for tag in tags:
            found = plan.jobs.globs.get((*key, tag), globs.get(key, ()))
            yield KnownSplit(*split, found, tag, *known_inputs(tokens, tool, tag))


class ToolError(Exception):
    """Why the tool could not be run, or has failed."""


class _UnknownError(Exception):
    """No cuts can be shown for a split. The message says why."""


class ShownSplit(Struct, frozen=True):
    """The parts of one job that splits, and the outcome of a comparison.

    :ivar real: why its files cannot be parts in a run. None: the files can be
    :ivar parts: as `sfio-node cut` says them
    :ivar outcome: of a comparison, if it was asked for
    :ivar problem: why the parts or the outcome are not known. None: both are known
    """

    job: str
    port: str
    real: str | None
    of: str | None = None
    parts: Sequence[dict[str, Any]] = ()
    outcome: Compared | None = None
    problem: str | None = None

    @property
    def ok(self) -> bool:
        return self.problem is None and (self.outcome is None or self.outcome.difference is None)

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
            "verified": None if self.outcome is None else self.outcome.difference is None,
            "difference": None if self.outcome is None else self.outcome.difference,
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
        if self.outcome is not None:
            different = self.outcome.difference
            text = "Verified: this is what the program has written" if different is None else f"Refuted: {different}"
            say(console, text, "green" if different is None else "red")


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
    parser.add_argument(
        "--verify",
        action="store_true",
        help="run the tool with cwltool in a temporary directory, compare its files, and keep the outcome",
    )


def run(arguments: argparse.Namespace) -> ShownSplits:
    """Show, and perhaps compare, the declared splits of a workflow.

    :raises HintErrors: if the file, a workflow or a hint has mistakes, or has no declared split
    """
    path = Path(arguments.streamflow_file)
    plan = plan_workflow(path, arguments.workflow)
    splits = list(known_splits(plan, arguments.step))
    if not splits:
        known = ", ".join(dict.fromkeys(step for step, _ in declared_of(plan))) or "none of this workflow"
        message = f"no cuts are declared of {arguments.step}" if arguments.step else "no cuts are declared"
        raise HintErrors.one(path, "--step", message, f"a step with `records` in a rule of sfio:ReadSession: {known}")
    command = _CutReport(plan, path, arguments.verify)
    return ShownSplits([command.split(split) for split in splits])


class _CutReport:
    def __init__(self, plan: Plan, streamflow_file: Path, verifies: bool) -> None:
        self._plan = plan
        self._verifies = verifies
        config = read_scheduler_config(streamflow_file) or SchedulerConfig()
        self._learned = learned_path(config, streamflow_file)

    def split(self, split: KnownSplit) -> ShownSplit:
        partition = split.partition
        job = f"{partition.step}/{split.tag}" if split.tag is not None else partition.step
        found = ShownSplit(job, partition.name, partition.real)
        try:
            path, rule = _known(split)
            found = replace(found, of=path)
            said, code = _cut(path, rule)
            if code != SAME:
                raise _UnknownError(said)
            found = replace(found, parts=parts_of(said))
            return replace(found, outcome=self._compare(split, path, rule))
        except (_UnknownError, ToolError, InconclusiveError, LearnedStoreError, NodeRuntimeError) as error:
            return replace(found, problem=str(error))

    def _compare(self, split: KnownSplit, path: str, rule: str) -> Compared | None:
        if not self._verifies:
            return None
        if split.unknown:
            name, why = next(iter(split.unknown.items()))
            raise _UnknownError(f"the tool cannot be run: its input {name} is {why}")
        with tempfile.TemporaryDirectory(prefix="streamflow-io-") as temporary:
            directory = os.path.join(os.path.realpath(temporary), "out")
            outputs = run_tool(self._plan.file, split.partition.step, split.inputs, Path(directory))
            said, code = _cut(path, rule, "--compare", directory)
            files = outputs.get(split.partition.port or "") or []
            count = outputs.get(split.declaration.rule.count or "")
            outcome = _outcome(said, code) or compared(rule, said, split.globs, files, directory, count)
        asyncio.run(self._remember(split, outcome))
        return outcome

    async def _remember(self, split: KnownSplit, outcome: Compared) -> None:
        try:
            key = verdict_key(split.declaration, with_checksums(split.inputs))
        except (NoRuleError, OSError) as error:
            raise _UnknownError(f"the outcome is not remembered: {error}") from None
        verdicts = await LearnedDatabase.open(self._learned)
        try:
            await verdicts.save([Verdict(key, split.partition.step, time.time(), *outcome)])
        finally:
            await verdicts.close()


def with_checksums(value: Any) -> Any:
    """Files with size and checksum, as StreamFlow has them at run time. Reads them all.

    :raises OSError: if one cannot be read
    """
    if isinstance(value, Mapping):
        value = {key: with_checksums(inner) for key, inner in value.items()}
        if value.get("class") == "File":
            with open(value["path"], "rb") as file:
                digest = hashlib.sha1(usedforsecurity=False)
                while block := file.read(1 << 20):
                    digest.update(block)
            value |= {"checksum": f"sha1${digest.hexdigest()}", "size": Path(value["path"]).stat().st_size}
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [with_checksums(inner) for inner in value]
    return value


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


def _cut(path: str, rule: str, *options: str) -> tuple[str, int]:
    environment = {name: value for name, value in os.environ.items() if name != "SFIO_PARTS"}
    words = [str(find_sfio_node()), "cut", "--of", path, "--rule", rule, *options]
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    said = (done.stdout or done.stderr).decode(errors="replace").strip()
    return reason(said), done.returncode


def _outcome(said: str, code: int) -> Compared | None:
    """Return the outcome if bytes differ.

    :raises _UnknownError: if `sfio-node cut` could not compare
    """
    if code not in (SAME, DIFFERENT):
        raise _UnknownError(said)
    return Compared(0, said) if code == DIFFERENT else None


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


def run_tool(document: str, step: str, inputs: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Run a tool to its end.

    :param step: its path; not of a workflow in it
    :param inputs: of the tool, as in CWL
    :param directory: where its outputs are put; the directory above it exists
    :return: its outputs, as in CWL
    :raises ToolError: if there are none
    """
    name = step.strip("/")
    if "/" in name:
        raise ToolError(f"{step}: cwltool cannot run a step of a workflow in another alone")
    if importlib.util.find_spec("cwltool") is None:
        raise ToolError(f"the tool of {step} can only be run by cwltool: {WITH_CWLTOOL}")
    job = directory.with_name("job.json")
    job.write_text(json.dumps(inputs))
    alone = ["--single-process", name] if name else []
    words = [sys.executable, "-c", _CWLTOOL, "--quiet", "--enable-ext", "--outdir", str(directory)]
    done = subprocess.run(
        [*words, *alone, file_of(document), str(job)], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-10:])
        raise ToolError(f"the tool of {step} could not be run by cwltool, or has failed:\n{said}")
    outputs = json.loads(done.stdout)
    if not isinstance(outputs, dict):
        raise ToolError(f"the tool of {step} has no outputs")
    return outputs
