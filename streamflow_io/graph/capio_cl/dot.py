"""Write a coordination configuration as a graph in the DOT language of Graphviz."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from streamflow_io.graph.gangs import Gang

from .applications import application_name
from .configuration import Configuration, CoordinatedFile

_INSTANCE = re.compile(r"-\d+(\.\d+)*\Z")
_COLOURS = {"update": "black", "no_update": "forestgreen"}


def write_dot(configuration: Configuration, gangs: Iterable[Gang] = ()) -> str:
    """Draw applications as boxes, their files as notes with the rules, and gangs as frames.

    :param gangs: steps that run at the same time
    :return: a `digraph`; green arrows lead to applications that read a file while it is written
    """
    return "\n".join(_lines(configuration, tuple(gangs))) + "\n"


def _lines(configuration: Configuration, gangs: tuple[Gang, ...]) -> Iterator[str]:
    yield f"digraph {_quoted(configuration.name)} {{"
    yield "  rankdir=LR;"
    yield '  node [fontname="sans-serif", fontsize=10];'
    free = dict.fromkeys(configuration.applications)
    for number, gang in enumerate(gangs, 1):
        names = set(map(application_name, gang.steps))
        members = [application for application in free if names & {application, _INSTANCE.sub("", application)}]
        yield f"  subgraph cluster_{number} {{"
        yield f'    label="gang {number}"; style=dashed;'
        yield from (f"    {_application(member)}" for member in members)
        yield "  }"
        for member in members:
            del free[member]
    yield from (f"  {_application(application)}" for application in free)
    for file in configuration.files:
        yield from _file(file)
    yield "}"


def _application(name: str) -> str:
    return f"{_quoted(_id('application', name))} [shape=box, label={_quoted(name)}];"


def _file(file: CoordinatedFile) -> Iterator[str]:
    node = _quoted(_id("file", file.path))
    shape = "folder" if file.is_directory else "note"
    label = "\n".join([file.path, *_rules(file)])
    yield f"  {node} [shape={shape}, label={_quoted(label)}];"
    yield from (f"  {_quoted(_id('application', name))} -> {node};" for name in file.producers)
    for name in file.consumers:
        yield f"  {node} -> {_quoted(_id('application', name))} [color={_COLOURS[file.mode]}];"


def _rules(file: CoordinatedFile) -> Iterator[str]:
    committed = str(file.committed)
    if file.n_files is not None:
        committed += f", {file.n_files} files"
    yield f"{committed}, {file.mode}"
    if file.file_deps:
        yield f"after {', '.join(file.file_deps)}"
    marks = [name for name, holds in (("permanent", file.permanent), ("excluded", file.excluded)) if holds]
    if marks:
        yield ", ".join(marks)


def _id(kind: str, name: str) -> str:
    # A file may have the name of an application.
    return f"{kind}:{name}"


def _quoted(text: str) -> str:
    # Control characters of names would reach the terminal.
    shown = "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)
    escaped = shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
