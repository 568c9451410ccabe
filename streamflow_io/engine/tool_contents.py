"""Tells a tool from others, which may do something else with what they read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from streamflow_io.files import file_of
from streamflow_io.graph.candidates import Stamp
from streamflow_io.hints.cwl import Walk, name_of, tool_digest
from streamflow_io.jobs.programs import stamps_here

# The requirements that a program can depend on, at whichever level they stand.
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

# A word that may be a program or an absolute path; not an option, an expression, a URI or a part of a script.
_PROGRAM = re.compile(r"/[^\s$]+|[\w+.][\w+.-]*")


class ToolContent(Struct, frozen=True):
    """The content of a tool, as far as known before it runs.

    :ivar digest: a hex digest of the command line, the image, and inherited requirements and hints; also of the files
        that these name on this node, such as the program
    :ivar programs: the words in the command line that may name programs and scripts, with their stamps on this node
    """

    digest: str
    programs: tuple[tuple[str, Stamp], ...]


def tool_contents(walk: Walk, steps: Collection[str]) -> dict[str, ToolContent]:
    """The content of the tool of each step.

    :param walk: from before StreamFlow changes the document
    """
    commands = {path: list(dict.fromkeys(_texts(_command(walk.tools[path])))) for path in steps}
    inherited = {path: _inherited(walk, path) for path in steps}
    words = {path: [word for word in _texts([commands[path], inherited[path]]) if word] for path in steps}
    paths = {word: _path(word) for of_tool in words.values() for word in of_tool}
    here = stamps_here([path for path in paths.values() if path])
    stamps = {word: stamp for word, path in paths.items() if (stamp := here.get(path)) is not None}
    return {
        path: ToolContent(
            _digest(walk.tools[path], inherited[path], {word: stamps[word] for word in words[path] if word in stamps}),
            tuple((word, stamps.get(word)) for word in commands[path] if _PROGRAM.fullmatch(word)),
        )
        for path in steps
    }


def _digest(tool: Any, inherited: list[str], stamps: Mapping[str, Stamp]) -> str:
    content = [tool_digest(tool), inherited, stamps]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def networked(walk: Walk, steps: Collection[str]) -> frozenset[str]:
    """The steps that may use the network, by NetworkAccess at any level."""
    return frozenset(path for path in steps if any(map(_is_network, _requirements(walk, path))))


def _is_network(requirement: Mapping[str, Any]) -> bool:
    return requirement.get("class") == "NetworkAccess" and bool(requirement.get("networkAccess"))


def _inherited(walk: Walk, path: str) -> list[str]:
    """The requirements and hints of a tool that its program can depend on, as JSON."""
    found = _requirements(walk, path)
    return [json.dumps(each, sort_keys=True, default=str) for each in found if each.get("class") in _RELEVANT]


def _requirements(walk: Walk, path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the requirements and hints that hold for a tool, the outermost first."""
    for element in (*_around(walk, path), walk.tools[path]):
        yield from map(_saved, (*(element.requirements or ()), *(element.hints or ())))


def _command(tool: Any) -> list[Any]:
    """The command of a tool; an ExpressionTool has none."""
    return [getattr(tool, name, None) for name in ("baseCommand", "arguments")]


def _around(walk: Walk, path: str) -> Iterator[Any]:
    """Yield the workflows and steps around a tool, the outermost first."""
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


def _path(word: str) -> str:
    """The file that a word names, if it names one: a program, or a script for one."""
    return file_of(word) if word.startswith("file:") else word
