"""Models of CAPIO-CL documents, versions 1.0 and 1.1.

Source: the JSON schemas of CAPIO-CL 1.4. Here names are not empty and numbers are from 1, too.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PlainValidator, StrictInt, model_validator
from typing_extensions import Self

from streamflow_io.hints import commit
from streamflow_io.hints.commit import ON_TERMINATION
from streamflow_io.hints.fields import Model, Text, mistake
from streamflow_io.hints.models import CommitRuleText, FiringRule

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
