"""Writes a coordination configuration: in CAPIO-CL, and as a graph in the DOT language of Graphviz.

The language: https://capio.hpc4ai.it/capiocl/. `docs/coordination.md` says where its official parser is wrong, and what
this module does about that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec.structs import replace
from pydantic import JsonValue

from streamflow_io.graph.gangs import Gang
from streamflow_io.grouping import grouped
from streamflow_io.hints.commit import ON_TERMINATION
from streamflow_io.hints.globs import is_pattern

from .configuration import Configuration, CoordinatedFile, application_name

Version = Literal["1.0", "1.1"]


def write_capio_cl(configuration: Configuration, version: Version) -> dict[str, JsonValue]:
    """Write a configuration in CAPIO-CL.

    Every file has its rules written out, and every application has both of its streams. Files with the same rules are
    in one item of the application that writes them.

    :return: a JSON document that the official parser reads
    :raises ValueError: if the language cannot express it: `on_n_files` of a file, `on_file` without `file_deps`,
        `on_n_files` without `n_files`, rules for a file where there is no application
    """
    files = configuration.files
    rules = _rules_by_application(files, configuration.mentioned)
    document: dict[str, JsonValue] = {} if version == "1.0" else {"version": 1.1}
    document["name"] = configuration.name
    document["IO_Graph"] = [
        {
            "name": name,
            "input_stream": [file.path for file in files if name in file.consumers],
            "output_stream": [file.path for file in files if name in file.producers],
            "streaming": list(_streaming(rules.get(name, ()))),
        }
        for name in configuration.mentioned
    ]
    document["permanent"] = [file.path for file in files if file.permanent]
    document["exclude"] = [file.path for file in files if file.excluded]
    if homes := grouped((file for file in files if file.home_node is not None), lambda file: file.home_node):
        document["home_node_policies"] = {
            "manual": [{"name": [file.path for file in of], "app_node": name} for name, of in homes.items()]
        }
    return document


def _rules_by_application(
    files: Iterable[CoordinatedFile], applications: tuple[str, ...]
) -> Mapping[str, list[CoordinatedFile]]:
    """The files by the application that has their rules: the first that writes, or else the first that reads them."""
    rules: dict[str, list[CoordinatedFile]] = {}
    for file in files:
        if (reason := _unwritable(file)) is not None:
            raise ValueError(f"CAPIO-CL cannot say this of {file.path}: {reason}")
        owner = next(iter((*file.producers, *file.consumers, *applications)), None)
        if owner is not None:
            rules.setdefault(owner, []).append(file)
        elif file.rule != CoordinatedFile(file.path).rule:
            raise ValueError(f"CAPIO-CL cannot say this of {file.path}: rules, and no application")
    return rules


def _unwritable(file: CoordinatedFile) -> str | None:
    match file.committed.kind:
        case "on_n_files" if not file.is_directory:
            return "on_n_files of a path that is no directory"
        case "on_n_files" if file.n_files is None:
            return "on_n_files without n_files"
        case "on_file" if not file.file_deps:
            return "on_file without file_deps"
    return None


def _streaming(files: Iterable[CoordinatedFile]) -> Iterator[JsonValue]:
    alike = grouped(files, lambda file: file.rule)
    # Directories first: with each `n_files`, the official parser makes a directory of all files that it has seen
    # before.
    for same in sorted(alike.values(), key=lambda same: not same[0].is_directory):
        one = same[0]
        item: dict[str, JsonValue] = {
            "dirname" if one.is_directory else "name": [file.path for file in same],
            "committed": str(one.committed),
            "mode": one.mode,
        }
        if one.committed.kind == "on_file":
            item["file_deps"] = list(one.file_deps)
        if one.committed.kind == "on_n_files":
            item["n_files"] = one.n_files
        yield item


def resolved(configuration: Configuration) -> Configuration:
    """Commit each file that waits for a glob at termination: CAPIO compares names only, and would wait for ever."""
    files = (
        replace(file, committed=ON_TERMINATION, file_deps=()) if any(map(is_pattern, file.file_deps)) else file
        for file in configuration.files
    )
    return replace(configuration, files=tuple(files))


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
