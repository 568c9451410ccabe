"""Read CAPIO-CL, the coordination language of CAPIO."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import AfterValidator, Field, JsonValue, PlainValidator, StrictInt, model_validator
from typing_extensions import Self

from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile
from streamflow_io.hints import commit
from streamflow_io.hints.commit import ON_TERMINATION
from streamflow_io.hints.errors import HintError, HintErrors, Loc, Source, field_name
from streamflow_io.hints.fields import Model, Text, mistake
from streamflow_io.hints.models import CommitRuleText, FiringRule
from streamflow_io.hints.parsing import parse_model

FILE_RULES = "on_termination, on_close, on_close:N with 1 <= N < 10^9, on_file"
_VERSION = "1.1; or no version for CAPIO-CL 1.0"


def _version(value: object) -> float:
    if isinstance(value, bool) or value != 1.1:
        raise mistake(f"{value!r} is no version that can be read", _VERSION)
    return 1.1


def _not_empty(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        raise mistake("an empty list", "at least one name")
    return names


Names = tuple[Text, ...]
SomeNames = Annotated[Names, AfterValidator(_not_empty)]


class StreamingItem(Model):
    """The rules of some files, or of some directories."""

    name: SomeNames | None = Field(None, description="a list of files or groups")
    dirname: SomeNames | None = Field(None, description="a list of directories or groups")
    committed: CommitRuleText = Field(ON_TERMINATION, description=commit.ALLOWED)
    mode: FiringRule = Field("no_update", description="update, no_update")
    file_deps: Names = Field((), description="with on_file: a list of files")
    n_files: StrictInt | None = Field(None, description="with on_n_files: a whole number from 1")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.name is None) == (self.dirname is None):
            raise mistake("both or neither of name and dirname", "exactly one of them: a list of names")
        if self.name is not None and self.committed.kind == "on_n_files":
            raise mistake("committed: on_n_files with name", f"{FILE_RULES}; on_n_files with dirname only")
        if self.committed.kind == "on_file" and not self.file_deps:
            raise mistake("committed: on_file needs file_deps", "file_deps: a list of files")
        if self.committed.kind == "on_n_files" and (self.n_files is None or not 1 <= self.n_files <= commit.MOST):
            raise mistake("committed: on_n_files needs n_files", "n_files: a whole number from 1, below 10^9")
        return self

    @property
    def paths(self) -> Names:
        """The paths of the rule, or names of groups."""
        return self.name or self.dirname or ()


class CapioApplication(Model):
    """A step: what it reads, what it writes, and by which rules."""

    name: Text = Field(description="the name of the application")
    input_stream: Names = Field(description="a list of files, directories or groups")
    output_stream: Names = Field(description="a list of files, directories or groups")
    streaming: tuple[StreamingItem, ...] = Field((), description="a list of rules")


class Alias(Model):
    """A group of files."""

    group_name: Text = Field(description="the name of the group")
    files: Names = Field(description="a list of files and directories")


class ManualHomeNode(Model):
    """Files that are kept on the node of an application."""

    name: Names = Field(description="a list of files or groups")
    app_node: Text = Field(description="the name of an application")


class HomeNodePolicies(Model):
    """The home nodes of files."""

    create: Names = Field((), description="a list of files or groups")
    hashing: Names = Field((), description="a list of files or groups")
    manual: tuple[ManualHomeNode, ...] = Field((), description="a list of {name: [...], app_node: ...}")


class Storage(Model):
    """The files that are kept in memory, and those in the file system."""

    memory: Names = Field((), description="a list of files or groups")
    fs: Names = Field((), description="a list of files or groups")


class Document(Model):
    """A CAPIO-CL document.

    :ivar version: None: 1.0
    :ivar configuration: the file with the settings of a CAPIO server; it says nothing about files
    """

    version: Annotated[float, PlainValidator(_version)] | None = Field(None, description=_VERSION)
    configuration: Text | None = Field(None, description="the path of a TOML file")
    name: Text = Field(description="the name of the workflow")
    aliases: tuple[Alias, ...] = Field((), description="a list of {group_name: ..., files: [...]}")
    io_graph: tuple[CapioApplication, ...] = Field(alias="IO_Graph", description="a list of applications")
    permanent: Names = Field((), description="a list of files or groups")
    exclude: Names = Field((), description="a list of files or groups")
    home_node_policies: HomeNodePolicies = Field(
        HomeNodePolicies(), description="{create: [...], hashing: [...], manual: [...]}"
    )
    storage: Storage = Field(Storage(), description="{memory: [...], fs: [...]}")


def read_capio_cl(document: JsonValue, file: str, lines: Mapping[Loc, int] | None = None) -> Configuration:
    """Read CAPIO-CL 1.0 or 1.1.

    What is left out is filled in as CAPIO does it: a rule without `committed` is `on_termination`, one without `mode`
    is `no_update`, a file without a rule is `on_termination` and `update`. Groups become their files. Paths lose `./`
    before and `/` after them.

    :param lines: its lines, from 1, by the way to a value
    :raises HintErrors: with all mistakes in it; also if it says two things of one file
    """
    source = Source(file, lambda: lines or {})
    if not isinstance(document, dict):
        raise HintErrors.one(file, "CAPIO-CL", "no JSON object", "name, IO_Graph, ...", line=source.line())
    model, errors = parse_model(Document, document, "", source)
    if model is None:
        raise HintErrors(errors)
    reader = _Reader(model, source)
    configuration = reader.read()
    if reader.errors:
        raise HintErrors(reader.errors)
    return configuration


class _Reader(Struct):
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
            for number, item in enumerate(app.streaming):
                self._read_rule(item, ("IO_Graph", index, "streaming", number))
        for path in self._paths(document.permanent):
            self._add(path, permanent=True)
        for path in self._paths(document.exclude):
            self._add(path, excluded=True)
        self._read_home_nodes()
        applications = tuple(dict.fromkeys(app.name for app in document.io_graph))
        files = tuple(self._files[path] for path in sorted(self._files))
        return Configuration(document.name, applications, files, tuple(self._left_out()))

    def _file(self, path: str) -> CoordinatedFile:
        return self._files.get(path) or CoordinatedFile(path)

    def _add(self, path: str, **changes: object) -> None:
        self._files[path] = replace(self._file(path), **changes)

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
            if path in self._ruled and self._files[path].rule != before.rule:
                self._error(f"a second, other rule for {path!r}", "one rule for each file", *loc, key)
            self._ruled.add(path)

    def _read_home_nodes(self) -> None:
        for index, manual in enumerate(self.document.home_node_policies.manual):
            for path in self._paths(manual.name):
                if self._file(path).home_node not in (None, manual.app_node):
                    message = f"a second home node for {path!r}"
                    self._error(message, "one for each file", "home_node_policies", "manual", index)
                self._add(path, home_node=manual.app_node)

    def _left_out(self) -> Iterator[str]:
        storage, policies = self.document.storage, self.document.home_node_policies
        if storage.memory or storage.fs:
            yield "storage"
        if policies.hashing:
            yield "home_node_policies.hashing"


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return names if name in names else (*names, name)
