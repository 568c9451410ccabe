"""The jobs of declared splits that are known before the run."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from streamflow.core.workflow import Step

from streamflow_io.adapters.outputs import Declaration
from streamflow_io.graph.partitions import Partition
from streamflow_io.hints.cwl import file_of

from .known_tokens import KnownTokens, UnknownValue, is_open
from .plan import Plan

_AT_RUN_TIME = "known at run time only"


class KnownSplit(Struct, frozen=True):
    """A job that splits; or a step that splits, if nothing is known of its jobs.

    :ivar tag: of the job; None: the jobs are known at run time only
    :ivar inputs: the known inputs, as CWL objects; files have a `path`
    :ivar globs: where the output is found
    :ivar unknown: by input: why it is not known
    """

    partition: Partition
    declaration: Declaration
    globs: tuple[str, ...]
    tag: str | None
    inputs: Mapping[str, Any]
    unknown: Mapping[str, str]


def known_splits(plan: Plan, step: str | None = None) -> Iterator[KnownSplit]:
    """Yield the jobs of all steps with declared cuts.

    :param step: the only step to look at; None: all steps
    """
    tokens = KnownTokens()
    globs = {(output.step, output.port): output.globs for output in plan.graph.outputs}
    for partition in plan.parts.partitions:
        key = (partition.step, partition.port or "")
        if key not in plan.parts.declared or step not in (None, partition.step):
            continue
        tags = tokens.tags_of(tool) if (tool := plan.workflow.steps.get(partition.step)) is not None else None
        split = (partition, plan.parts.declared[key])
        if tool is None or tags is None or any(map(is_open, tags)):
            yield KnownSplit(*split, (), None, {}, {partition.of: _AT_RUN_TIME})
            continue
        for tag in tags:
            found = plan.jobs.globs.get((*key, tag), globs.get(key, ()))
            yield KnownSplit(*split, found, tag, *known_inputs(tokens, tool, tag))


def known_inputs(tokens: KnownTokens, tool: Step, tag: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The known inputs of a job, and by name of each other input why it is not known."""
    known, unknown = dict[str, Any](), dict[str, str]()
    for name, port in tool.get_input_ports().items():
        if name != "__job__":
            try:
                known[name] = with_paths(tokens.value(port, tag))
            except UnknownValue:
                unknown[name] = _AT_RUN_TIME
    return known, unknown


def with_checksums(value: Any) -> Any:
    """A value whose files have size and checksum, as at run time. Reads all of these files.

    :raises OSError: if a file cannot be read
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


def with_paths(value: Any) -> Any:
    """A value whose files all have a path.

    :raises UnknownValue: if a file is not on this machine
    """
    if isinstance(value, Mapping):
        value = {key: with_paths(inner) for key, inner in value.items()}
        if value.get("class") in ("File", "Directory"):
            path = str(value.get("path") or value.get("location") or "")
            path = file_of(path) if path.startswith("file:") else path
            if not path or "://" in path:
                raise UnknownValue
            value |= {"path": path, "basename": value.get("basename") or posixpath.basename(path)}
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [with_paths(inner) for inner in value]
    return value
