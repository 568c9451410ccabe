"""CAPIO-CL, the coordination language of CAPIO, in and out. Pure.

The language: https://capio.hpc4ai.it/capiocl/. Where its official parser is wrong, and what is done about it here, says
`docs/coordination.md`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from pydantic import JsonValue

from streamflow_io.hints.errors import HintError, HintErrors, Loc, Source, field_name
from streamflow_io.hints.parsing import parse_model

from .configuration import Configuration, CoordinatedFile, HomeNode

if TYPE_CHECKING:
    from .documents import Document, StreamingItem

Version = Literal["1.0", "1.1"]
_RULE_FIELDS = ("is_directory", "committed", "mode", "file_deps", "n_files")


def write_capio_cl(configuration: Configuration, version: Version) -> dict[str, JsonValue]:
    """Write a configuration in CAPIO-CL.

    Every file has its rules written out, every application both of its streams. Files with the same rules stand in one
    item of the application that writes them.

    :return: a JSON document that :func:`read_capio_cl` and the official parser read
    :raises ValueError: if the language cannot say it: `on_n_files` of a file, `on_file` without `file_deps`,
        `on_n_files` without `n_files`, rules for a file where there is no application
    """
    files = configuration.files
    applications = dict.fromkeys(configuration.applications)
    for file in files:
        applications |= dict.fromkeys((*file.producers, *file.consumers))
    rules = _rules_by_application(files, tuple(applications))
    document: dict[str, JsonValue] = {} if version == "1.0" else {"version": 1.1}
    document["name"] = configuration.name
    document["IO_Graph"] = [
        {
            "name": name,
            "input_stream": [file.path for file in files if name in file.consumers],
            "output_stream": [file.path for file in files if name in file.producers],
            "streaming": list(_streaming(rules.get(name, ()))),
        }
        for name in applications
    ]
    document["permanent"] = [file.path for file in files if file.permanent]
    document["exclude"] = [file.path for file in files if file.excluded]
    if policies := _home_node_policies(files):
        document["home_node_policies"] = policies
    if any(file.in_memory is not None for file in files):
        document["storage"] = {
            "memory": [file.path for file in files if file.in_memory is True],
            "fs": [file.path for file in files if file.in_memory is False],
        }
    return document


def _rules_by_application(
    files: Iterable[CoordinatedFile], applications: tuple[str, ...]
) -> Mapping[str, list[CoordinatedFile]]:
    """The files whose rules stand with an application: the first that writes it, or else reads it."""
    rules: dict[str, list[CoordinatedFile]] = {}
    for file in files:
        if (reason := _unwritable(file)) is not None:
            raise ValueError(f"CAPIO-CL cannot say this of {file.path}: {reason}")
        owner = next(iter((*file.producers, *file.consumers, *applications)), None)
        if owner is not None:
            rules.setdefault(owner, []).append(file)
        elif _rule(file) != _rule(CoordinatedFile(file.path)):
            raise ValueError(f"CAPIO-CL cannot say this of {file.path}: rules, and no application")
    return rules


def _unwritable(file: CoordinatedFile) -> str | None:
    match file.committed.kind:
        case "on_n_files" if not file.is_directory:
            return "on_n_files of what is no directory"
        case "on_n_files" if file.n_files is None:
            return "on_n_files without n_files"
        case "on_file" if not file.file_deps:
            return "on_file without file_deps"
    return None


def _rule(file: CoordinatedFile) -> tuple[object, ...]:
    return tuple(getattr(file, name) for name in _RULE_FIELDS)


def _streaming(files: Iterable[CoordinatedFile]) -> Iterator[JsonValue]:
    alike: dict[tuple[object, ...], list[CoordinatedFile]] = {}
    for file in files:
        alike.setdefault(_rule(file), []).append(file)
    # Directories first: with each `n_files` the official parser makes a directory of all that it has seen before.
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


def _home_node_policies(files: Iterable[CoordinatedFile]) -> dict[str, JsonValue]:
    policies: dict[str, list[JsonValue]] = {}
    manual: dict[str, list[JsonValue]] = {}
    for file in files:
        if file.home_node is None:
            continue
        if file.home_node.policy == "manual":
            manual.setdefault(file.home_node.application or "", []).append(file.path)
        else:
            policies.setdefault(file.home_node.policy, []).append(file.path)
    if manual:
        policies["manual"] = [{"name": paths, "app_node": name} for name, paths in manual.items()]
    return dict(policies)


def read_capio_cl(document: JsonValue, file: str, lines: Mapping[Loc, int] | None = None) -> Configuration:
    """Read CAPIO-CL 1.0 or 1.1, or the JSON of the CAPIO paper.

    What is left out is filled in as CAPIO does it: a rule without `committed` is `on_termination`, one without `mode`
    is `no_update` (in the JSON of the paper: `update`), a file without a rule is `on_termination` and `update`.
    Groups become their files. Paths lose `./` before and `/` after them.

    :param document: as parsed from JSON
    :param file: its name, for mistakes
    :param lines: its lines, from 1, by the way to a value
    :raises HintErrors: with all mistakes in it; also if it says two things of one file
    """
    # Imported here: each run writes, and few people read.
    from .documents import Document
    from .paper import from_paper, is_of_the_paper

    source = Source(file, lines or {})
    if not isinstance(document, dict):
        raise HintErrors([HintError(file, source.line(), "CAPIO-CL", "no JSON object", "name, IO_Graph, ...")])
    of_the_paper = is_of_the_paper(document)
    model, errors = parse_model(Document, from_paper(document) if of_the_paper else document, "", source)
    if model is None:
        raise HintErrors(errors)
    reader = _Reader(model, source)
    configuration = reader.read()
    if reader.errors:
        raise HintErrors(reader.errors)
    return configuration


@dataclass
class _Reader:
    document: Document
    source: Source
    errors: list[HintError] = field(default_factory=list)
    _files: dict[str, CoordinatedFile] = field(default_factory=dict)
    _ruled: set[str] = field(default_factory=set)

    def read(self) -> Configuration:
        document = self.document
        self._check_groups()
        for index, app in enumerate(document.io_graph):
            for path in self._paths(app.input_stream):
                self._add(path, consumers=_with(self._file(path).consumers, app.name))
            for path in self._paths(app.output_stream):
                self._add(path, producers=_with(self._file(path).producers, app.name))
            for place, item in enumerate(app.streaming):
                self._read_rule(item, ("IO_Graph", index, "streaming", place))
        for path in self._paths(document.permanent):
            self._add(path, permanent=True)
        for path in self._paths(document.exclude):
            self._add(path, excluded=True)
        self._read_storage()
        self._read_home_nodes()
        applications = tuple(dict.fromkeys(app.name for app in document.io_graph))
        return Configuration(document.name, applications, tuple(self._files[path] for path in sorted(self._files)))

    def _file(self, path: str) -> CoordinatedFile:
        return self._files.get(path) or CoordinatedFile(path)

    def _add(self, path: str, **changes: object) -> None:
        self._files[path] = replace(self._file(path), **changes)  # type: ignore[arg-type]

    def _paths(self, names: Iterable[str]) -> Iterator[str]:
        """The paths that some names stand for, groups as their files, each once."""
        groups = {alias.group_name: alias.files for alias in self.document.aliases}
        paths = (path for name in names for path in groups.get(name, (name,)))
        yield from dict.fromkeys(posixpath.normpath(path) for path in paths)

    def _error(self, message: str, allowed: str, *loc: str | int) -> None:
        self.errors.append(HintError(self.source.file, self.source.line(*loc), field_name("", loc), message, allowed))

    def _check_groups(self) -> None:
        seen = set()
        for index, alias in enumerate(self.document.aliases):
            if alias.group_name in seen:
                loc = ("aliases", index, "group_name")
                self._error(f"a second group {alias.group_name!r}", "one group of a name", *loc)
            seen.add(alias.group_name)

    def _read_rule(self, item: StreamingItem, loc: Loc) -> None:
        key = "name" if item.dirname is None else "dirname"
        on_file = item.committed.kind == "on_file"
        on_n_files = item.committed.kind == "on_n_files"
        for path in self._paths(item.paths):
            before = self._file(path)
            self._add(
                path,
                is_directory=item.dirname is not None,
                committed=item.committed,
                mode=item.mode,
                file_deps=tuple(self._paths(item.file_deps)) if on_file else (),
                n_files=item.n_files if on_n_files else None,
            )
            if path in self._ruled and _rule(self._files[path]) != _rule(before):
                self._error(f"a second, other rule for {path!r}", "one rule for each file", *loc, key)
            self._ruled.add(path)

    def _read_storage(self) -> None:
        for key, in_memory in (("memory", True), ("fs", False)):
            for path in self._paths(self.document.storage.memory if in_memory else self.document.storage.fs):
                if self._file(path).in_memory not in (None, in_memory):
                    self._error(f"{path!r} is in memory and in fs", "one of them for each file", "storage", key)
                self._add(path, in_memory=in_memory)

    def _read_home_nodes(self) -> None:
        policies = self.document.home_node_policies
        for path in self._paths(policies.create):
            self._set_home_node(path, HomeNode("create"), "create")
        for path in self._paths(policies.hashing):
            self._set_home_node(path, HomeNode("hashing"), "hashing")
        for index, manual in enumerate(policies.manual):
            for path in self._paths(manual.name):
                self._set_home_node(path, HomeNode("manual", manual.app_node), "manual", index)

    def _set_home_node(self, path: str, home_node: HomeNode, *loc: str | int) -> None:
        if self._file(path).home_node not in (None, home_node):
            allowed = "one policy for each file"
            self._error(f"a second home-node policy for {path!r}", allowed, "home_node_policies", *loc)
        self._add(path, home_node=home_node)


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)
