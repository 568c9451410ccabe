"""Tells a tool from others, which may do something else with what they read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from streamflow_io.files import file_of
from streamflow_io.graph.candidates import Stamp
from streamflow_io.hints.cwl import Walk, name_of, tool_digest
from streamflow_io.jobs.programs import stamps_here
from streamflow_io.nested import parts

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

# A word that may be a program or an absolute path; not an option, an expression or a URI.
_PROGRAM = re.compile(r"/[^\s$]+|[\w+.][\w+.-]*")
# What stands between the words of a command line for the shell, of a script, and of an expression.
_BETWEEN = re.compile(r"""[\s'"`;|&<>()\[\]{}=,:!#\\]+""")
_REFERENCE = re.compile(r"\$\((?:inputs|self|runtime)\b[^\s()]*\)")
# Names and descriptions, which say nothing about files that a tool uses.
_NO_FILES = {"$namespaces", "$schemas", "doc", "hints", "id", "label", "name", "requirements"}


class ToolContent(Struct, frozen=True):
    """The content of a tool, as far as known before it runs.

    :ivar digest: a hex digest of the command line, the image, and inherited requirements and hints; also of the files
        that these name on this node, such as the program
    :ivar programs: the words in the command line that may name programs and scripts, and the absolute paths in the
        rest of the tool; with their stamps on this node
    """

    digest: str
    programs: tuple[tuple[str, Stamp], ...]


class _Named(Struct, frozen=True):
    """The files that a tool names.

    :ivar words: the words that may name programs, scripts or other files of the tool
    :ivar inherited: the requirements and hints that its program can depend on
    """

    words: tuple[str, ...]
    inherited: list[Mapping[str, Any]]


def tool_contents(walk: Walk, steps: Collection[str], given: Sequence[Any] = ()) -> dict[str, ToolContent]:
    """The content of the tool of each step.

    :param walk: from before StreamFlow changes the document
    :param given: the requirements in the input object, which hold for all tools
    """
    named = {path: _named(walk, path, given) for path in steps}
    here = stamps_here([word for each in named.values() for word in each.words])
    return {
        path: ToolContent(
            _digest(walk.tools[path], each.inherited, {word: stamp for word in each.words if (stamp := here[word])}),
            tuple((word, here[word]) for word in each.words if _PROGRAM.fullmatch(word)),
        )
        for path, each in named.items()
    }


def _named(walk: Walk, path: str, given: Sequence[Any]) -> _Named:
    tool = _saved(walk.tools[path])
    inherited = [each for each in _requirements(walk, path, given) if each.get("class") in _RELEVANT]
    bindings = [part.get("inputBinding") for part in parts(tool.get("inputs")) if isinstance(part, Mapping)]
    line = [tool.get("baseCommand"), tool.get("arguments"), *bindings]
    commands = (word for text in _texts(line) for word in _words(text) if _PROGRAM.fullmatch(word) or word[:1] == "/")
    paths = (word for text in _texts([tool, inherited]) for word in _words(text) if word[:1] == "/")
    words = dict.fromkeys((*commands, *paths))
    names, places = [word for word in words if "/" not in word], [*_program_directories(inherited)]
    of_tool = (f"{place}/{name}" for place in places for name in names)
    return _Named(tuple(dict.fromkeys((*words, *of_tool))), inherited)


def _program_directories(requirements: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the directories where a tool looks for programs, if its requirements set PATH."""
    for requirement in requirements:
        variables = requirement.get("envDef") if requirement.get("class") == "EnvVarRequirement" else None
        if isinstance(variables, Mapping):
            values = [variables.get("PATH")]
        else:
            entries = [entry for entry in variables or () if isinstance(entry, Mapping)]
            values = [entry.get("envValue") for entry in entries if entry.get("envName") == "PATH"]
        for value in values:
            text = value.get("envValue") if isinstance(value, Mapping) else value
            places = text.split(":") if isinstance(text, str) else []
            yield from (place for place in places if place[:1] == "/" and "$" not in place)


def _digest(tool: Any, inherited: Sequence[Mapping[str, Any]], stamps: Mapping[str, Stamp]) -> str:
    texts = [json.dumps(each, sort_keys=True, default=str) for each in inherited]
    content = [tool_digest(tool), texts, stamps]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def networked(walk: Walk, steps: Collection[str], given: Sequence[Any] = ()) -> frozenset[str]:
    """The steps that may use the network, by NetworkAccess at any level.

    :param given: the requirements in the input object
    """
    return frozenset(path for path in steps if any(map(_is_network, _requirements(walk, path, given))))


def directories(walk: Walk, steps: Collection[str]) -> dict[str, str]:
    """An input of each step that is always a Directory, or a list of them; steps without such an input are missing."""
    inputs = ((path, each) for path in steps for each in reversed(walk.tools[path].inputs))
    return {path: name_of(each) for path, each in inputs if _is_directory(each.type_)}


def _is_directory(type_: Any) -> bool:
    while not isinstance(type_, str) and hasattr(type_, "items"):
        type_ = type_.items
    return isinstance(type_, str) and type_ == "Directory"


def _is_network(requirement: Mapping[str, Any]) -> bool:
    return requirement.get("class") == "NetworkAccess" and bool(requirement.get("networkAccess"))


def _requirements(walk: Walk, path: str, given: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the requirements and hints that hold for a tool, the outermost first."""
    yield from map(_saved, given)
    for element in (*_around(walk, path), walk.tools[path]):
        yield from map(_saved, (*(element.requirements or ()), *(element.hints or ())))


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
        yield from _texts([inner for key, inner in value.items() if key not in _NO_FILES])
    elif isinstance(value, Sequence):
        for inner in value:
            yield from _texts(inner)


def _words(text: str) -> Iterator[str]:
    """Yield a text and the words in it, or the path in a URI of a file."""
    if text.startswith("file:"):
        if "#" not in text:  # with it, a name in a CWL document
            yield file_of(text)
        return
    yield text
    yield from _BETWEEN.split(_REFERENCE.sub("$", text))
