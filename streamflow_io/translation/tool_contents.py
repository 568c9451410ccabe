"""Edge: what tells a tool from others, that may do something else with what they read."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streamflow_io.graph.candidates import Stamp
from streamflow_io.hints.cwl import Walk, file_of, name_of, tool_digest

# What a program does can depend on these, on whichever level they stand.
_RELEVANT = {
    "DockerRequirement",
    "EnvVarRequirement",
    "InitialWorkDirRequirement",
    "InlineJavascriptRequirement",
    "ResourceRequirement",
    "SchemaDefRequirement",
    "ShellCommandRequirement",
    "SoftwareRequirement",
}

# What may be a program, or an absolute path, whoever looks: no option, expression, URI or part of a script.
_PROGRAM = re.compile(r"/[^\s$]+|[\w+.][\w+.-]*")


def content_digests(walk: Walk, steps: Collection[str]) -> dict[str, str]:
    """A hex digest of all that is known of the tool of each step before it runs: of its command line, image, the
    requirements and hints that it inherits, and the files that these name, as they are on this node: its program, too.

    :param walk: before StreamFlow changes the document
    """
    return {path: _digest(walk, path) for path in steps}


def _digest(walk: Walk, path: str) -> str:
    tool = walk.tools[path]
    inherited = _inherited(walk, path)
    words = [word for word in _texts([*_command(tool), inherited]) if word]
    content = [tool_digest(tool), inherited, {word: stamp for word in words if (stamp := _stamp(word)) is not None}]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def named_programs(walk: Walk, steps: Collection[str]) -> dict[str, tuple[tuple[str, Stamp], ...]]:
    """The words in the command line of the tool of each step that may name programs and scripts, with what this node
    has of them."""
    words = {path: dict.fromkeys(_texts(_command(walk.tools[path]))) for path in steps}
    return {
        path: tuple((word, _stamp(word)) for word in of_tool if _PROGRAM.fullmatch(word))
        for path, of_tool in words.items()
    }


def networked(walk: Walk, steps: Collection[str]) -> frozenset[str]:
    """The steps that may use the network, by NetworkAccess on whichever level."""
    return frozenset(path for path in steps if any(map(_is_network, _requirements(walk, path))))


def _is_network(requirement: Mapping[str, Any]) -> bool:
    return requirement.get("class") == "NetworkAccess" and bool(requirement.get("networkAccess"))


def _inherited(walk: Walk, path: str) -> list[str]:
    """The requirements and hints that hold for a tool, as far as its program can depend on them."""
    found = _requirements(walk, path)
    return [json.dumps(each, sort_keys=True, default=str) for each in found if each.get("class") in _RELEVANT]


def _requirements(walk: Walk, path: str) -> Iterator[Mapping[str, Any]]:
    """Those and the hints that hold for a tool, the outermost first."""
    for element in (*_around(walk, path), walk.tools[path]):
        yield from map(_saved, (*(element.requirements or ()), *(element.hints or ())))


def _command(tool: Any) -> list[Any]:
    """What is run; an ExpressionTool runs nothing."""
    return [getattr(tool, name, None) for name in ("baseCommand", "arguments")]


def _around(walk: Walk, path: str) -> Iterator[Any]:
    """The workflows and steps around a tool, the outermost first."""
    names = path.strip("/").split("/")
    for depth in range(len(names)):
        if (workflow := walk.workflows.get("/" + "/".join(names[:depth]))) is not None:
            yield workflow
            yield from (step for step in workflow.steps if name_of(step) == names[depth])


def _saved(requirement: Any) -> Mapping[str, Any]:
    saved = requirement.save(top=False) if hasattr(requirement, "save") else requirement
    return saved if isinstance(saved, Mapping) else {}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)


def _stamp(word: str) -> Stamp:
    """What changes when the file does that a word names, if it names one: a program, or a script for it."""
    path = file_of(word) if word.startswith("file:") else word if "/" in word else shutil.which(word)
    try:
        found = Path(path).stat() if path else None
    except (OSError, ValueError):
        return None
    return None if found is None else (found.st_size, found.st_mtime_ns)
