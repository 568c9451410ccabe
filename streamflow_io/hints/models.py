"""The vocabulary that a user writes: the hint classes and the annotations file, as models.

The schemas in `cwl-extensions/` are generated from these models, descriptions included. Field names are those of the
files (`storageBW`, `fileDeps`), also when a model is made in Python.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeInt,
    PlainSerializer,
    StrictBool,
    StrictInt,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.config import JsonDict

from streamflow_io.hints import bandwidth, commit

from . import fields
from .bandwidth import StorageBW, parse_storage_bw
from .commit import MOST, CommitRule, parse_commit_rule
from .fields import Digest, Model, PortName, StepPath, Text, mistake, parsed_by
from .sessions import SessionRule

NAMESPACE = "urn:streamflow-io:cwl#"
PREFIX = "sfio"

FiringRule = Literal["update", "no_update"]
Start = Literal["commit", "producer"]
Way = Literal["read", "write"]
WAYS: tuple[Way, ...] = ("read", "write")
Direction = Literal["read", "write", "both"]


def _goes_with(field: str, kind: str) -> JsonDict:
    """Return a JSON Schema by which a field is needed with one commit rule, and not allowed with others."""
    committed: JsonDict = {"properties": {"committed": {"const": kind}}, "required": ["committed"]}
    return {"if": committed, "then": {"required": [field]}, "else": {"properties": {field: False}}}


_StorageBW = Annotated[
    StorageBW,
    parsed_by(parse_storage_bw, bandwidth.ALLOWED),
    PlainSerializer(bandwidth.as_written),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": bandwidth.PATTERN},
            ]
        }
    ),
]
_Within = Annotated[
    float,
    parsed_by(bandwidth.parse_within, bandwidth.WITHIN_ALLOWED),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0}),
]
_Window = Annotated[
    int,
    parsed_by(fields.parse_size, fields.ALLOWED),
    PlainSerializer(fields.as_written),
    WithJsonSchema({"type": "string", "pattern": fields.PATTERN}),
]
CommitRuleText = Annotated[
    CommitRule,
    parsed_by(parse_commit_rule, commit.ALLOWED),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": commit.PATTERN}),
]


class IOTask(Model):
    """The step only moves data: it needs no core and overlaps with compute."""

    class_: Literal["sfio:IOTask"] = Field("sfio:IOTask", alias="class", description="sfio:IOTask")


class StorageBandwidth(Model):
    """The bandwidth that every job of the step needs from a storage."""

    class_: Literal["sfio:StorageBandwidth"] = Field(
        "sfio:StorageBandwidth", alias="class", description="sfio:StorageBandwidth"
    )
    storage_bw: _StorageBW = Field(alias="storageBW", description=f"{bandwidth.ALLOWED}; 1 MB is 10^6 bytes")
    storage: Text | None = Field(
        None,
        description="a storage of the StreamFlow file (default: the one with the job's output directory)",
    )
    direction: Direction = Field("write", description="read, write (default) or both")
    within: _Within | None = Field(
        None, description="with `storageBW: required`: seconds until a job needs the data (default: learned)"
    )
    limited: StrictBool | None = Field(
        None,
        description="true: an I/O task is paused when it moves data faster than its storageBW (default: true "
        "with `required`, else false)",
    )

    @field_validator("within", mode="after")
    @classmethod
    def _within_what_is_required(cls, within: float | None, info: ValidationInfo) -> float | None:
        storage_bw = info.data.get("storage_bw")
        if within is not None and isinstance(storage_bw, bandwidth.StaticConstraint | bandwidth.AutoConstraint):
            raise mistake(f"within with `storageBW: {storage_bw}`", bandwidth.WITHIN_ALLOWED)
        return within

    @field_validator("limited", mode="after")
    @classmethod
    def _limited_to_what_is_known(cls, limited: bool | None, info: ValidationInfo) -> bool | None:
        if limited and isinstance(info.data.get("storage_bw"), bandwidth.AutoConstraint):
            raise mistake(
                "the limit would change the learned value", "`limited: true` with a number, or `required`, in storageBW"
            )
        return limited

    @property
    def is_limited(self) -> bool:
        """Whether jobs are paused when they move data faster than the storageBW."""
        return isinstance(self.storage_bw, bandwidth.RequiredConstraint) if self.limited is None else self.limited


class StreamingRule(Model):
    """When an output of the step is complete, and when its bytes may be read.

    :ivar start: default: `commit` with `update`, `producer` with `no_update`
    :ivar permanent: None: workflow outputs are kept, others are not
    """

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [_goes_with("fileDeps", "on_file"), _goes_with("nFiles", "on_n_files")],
        }
    )

    port: PortName = Field(description="an output of the step, of type File, File[], Directory or stdout")
    files: tuple[Text, ...] = Field(
        (), min_length=1, description="globs: the rule holds only for these entries of a Directory or File[]"
    )
    committed: CommitRuleText = Field(
        CommitRule(), description=f"when a file is complete: {commit.ALLOWED} (default: on_termination)"
    )
    file_deps: tuple[Text, ...] = Field(
        (),
        alias="fileDeps",
        validate_default=True,
        description="with on_file: outputs of the step, or globs; the file is committed when all of these are",
    )
    n_files: StrictInt | None = Field(
        None,
        alias="nFiles",
        validate_default=True,
        description="with on_n_files: a whole number from 1; the Directory or File[] is complete with this many "
        "committed entries",
        json_schema_extra={"minimum": 1, "maximum": MOST},
    )
    mode: FiringRule = Field(
        "update",
        description="update (default): data can be read after their commit; no_update: data can be read during "
        "the write",
    )
    start: Start = Field(
        default_factory=lambda data: "producer" if data.get("mode") == "no_update" else "commit",
        description="when consumers start: commit (default with update) or producer (default with no_update)",
    )
    permanent: StrictBool | None = Field(
        None,
        description="true or false: the files are kept after the run (default: true for workflow outputs, else false). "
        "A run removes files only with `intermediates: remove` or `window`",
    )
    window: _Window | None = Field(
        None,
        description="with mode no_update: the bytes that all readers have read are removed while the job runs. The "
        f"job is paused when a reader is this far behind: {fields.ALLOWED} (default: no window, or 256MB with "
        "`intermediates: window`)",
    )
    home_node: StepPath | None = Field(
        None, alias="homeNode", description="for CAPIO: the path of the step whose node holds the data"
    )

    @field_validator("file_deps", mode="after")
    @classmethod
    def _deps_with_on_file(cls, deps: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        rule = info.data.get("committed")
        if isinstance(rule, CommitRule):
            if rule.kind == "on_file" and not deps:
                raise mistake("committed: on_file needs fileDeps", "a list of outputs of the step, or of globs")
            if rule.kind != "on_file" and deps:
                raise mistake(f"fileDeps with committed: {rule}", "fileDeps with committed: on_file only")
        return deps

    @field_validator("window", mode="after")
    @classmethod
    def _window_of_a_stream(cls, window: int | None, info: ValidationInfo) -> int | None:
        given = (info.data.get("mode"), info.data.get("start"), str(info.data.get("committed")))
        if window is not None and given != ("no_update", "producer", "on_termination"):
            raise mistake(
                "window without a byte stream to the end of the job",
                "window with mode: no_update, start: producer and committed: on_termination only",
            )
        if window is not None and info.data.get("permanent"):
            raise mistake("window with permanent: true", "one of both: a file with a window is not kept")
        return window

    @field_validator("n_files", mode="after")
    @classmethod
    def _number_with_on_n_files(cls, number: int | None, info: ValidationInfo) -> int | None:
        rule = info.data.get("committed")
        if number is not None and not 1 <= number <= MOST:
            raise mistake(f"nFiles is {number}", "a whole number from 1, below 10^9")
        if isinstance(rule, CommitRule):
            if rule.kind == "on_n_files" and number is None:
                raise mistake("committed: on_n_files needs nFiles", "a whole number from 1")
            if rule.kind != "on_n_files" and number is not None:
                raise mistake(f"nFiles with committed: {rule}", "nFiles with committed: on_n_files only")
        return number


class Streaming(Model):
    """Rules for outputs of the step: when they are complete, and when they may be read."""

    class_: Literal["sfio:Streaming"] = Field("sfio:Streaming", alias="class", description="sfio:Streaming")
    rules: tuple[StreamingRule, ...] = Field(min_length=1, description="a list of rules, each with at least a port")


class ReadSession(Model):
    """A file that is read once for many jobs: parts of it are the elements of an output, or jobs select their own."""

    class_: Literal["sfio:ReadSession"] = Field("sfio:ReadSession", alias="class", description="sfio:ReadSession")
    rules: tuple[SessionRule, ...] = Field(min_length=1, description="a list of rules, each with at least an `of`")


Hint = IOTask | StorageBandwidth | Streaming | ReadSession
HINT_CLASSES: dict[str, type[Hint]] = {cls.__name__: cls for cls in (IOTask, StorageBandwidth, Streaming, ReadSession)}


class ProvenBeside(Model):
    """Another input that was a stream, too, when an input was tried."""

    port: str = Field(description="the other input of the tool")
    read: Literal["net", "pipe"] = Field(description="how the tool read the other input")
    sizes: tuple[NonNegativeInt, ...] = Field(description="the bytes of each file of the input")
    other_sizes: tuple[NonNegativeInt, ...] = Field(description="the bytes of each file of the other input")


class ProvenInput(Model):
    """An input that was proven to stream, of a tool with some options. Made by `streamflow-io learned export`."""

    input: StepPath = Field(description="an input, as /step/port")
    read: Literal["net", "pipe"] = Field(
        description="net: the tool reads the stream as a file, and calls that need more wait for the complete "
        "file; pipe: as a pipe"
    )
    first: int | None = Field(
        None, gt=0, description="the number of first bytes of a file that were tried; none: the whole file was tried"
    )
    extents: tuple[tuple[NonNegativeInt, NonNegativeInt], ...] = Field(
        min_length=1,
        description="for each file: the bytes that were read as a stream, and the size of the file. The proof "
        "holds for files of that size at most; a proof with 64 MiB holds for all files",
    )
    beside: tuple[ProvenBeside, ...] = Field(
        (),
        description="the other inputs of the tool that were streams, too, when the input was tried: inputs that were "
        "not tried together with files of such sizes are not streams at once",
    )
    tool: Digest = Field(description="the digest of the tool")
    options: Digest = Field(description="the digest of the values of the tool's inputs")


class AnnotationsFile(Model):
    """Hints by step path, for CWL that you cannot change, with priority over the hints in the CWL."""

    steps: dict[StepPath, tuple[Annotated[Hint, Field(discriminator="class_")], ...]] = Field(
        default_factory=dict, description="hints by StreamFlow step path, as in /chromosome/individuals"
    )
    streamable: tuple[StepPath, ...] = Field(
        (), description="inputs and outputs, as /step/port: tools read or write them once, front to back"
    )
    proven: tuple[ProvenInput, ...] = Field(
        (),
        description="inputs that other runs have proven to stream, for `streaming: auto`; `streamflow-io learned "
        "export` writes them",
    )
