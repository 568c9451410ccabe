"""The vocabulary that a user writes: the hint classes and the annotations file, as models. Pure.

The schemas in `cwl-extensions/` are generated from these models, descriptions included.
Field names are those of the files (`storageBW`, `fileDeps`), also when a model is made in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictBool,
    StrictInt,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from . import bandwidth, commit
from .bandwidth import StorageBW, parse_storage_bw
from .commit import MOST, CommitRule, parse_commit_rule

NAMESPACE = "urn:streamflow-io:cwl#"
PREFIX = "sfio"

FiringRule = Literal["update", "no_update"]
Start = Literal["commit", "producer"]
Direction = Literal["read", "write", "both"]
T = TypeVar("T")


def mistake(message: str, allowed: str) -> PydanticCustomError:
    """What a validator of these models raises: one sentence, and what is allowed instead."""
    return PydanticCustomError("sfio", "{message}", {"message": message, "allowed": allowed})


def _validator(parse: Callable[[object], T], allowed: str) -> PlainValidator:
    def validate(value: object) -> T:
        try:
            return parse(value)
        except ValueError as error:
            raise mistake(str(error), allowed) from None

    return PlainValidator(validate)


def _one_name(text: str) -> str:
    if not text or any(char in text for char in "/#*?[") or text != text.strip():
        raise mistake(f"{text!r} is no name of a port", "the name of one output, as in `port: alignments`")
    return text


def _step_path(text: str) -> str:
    if not text.startswith("/") or (text != "/" and (text.endswith("/") or "//" in text)):
        raise mistake(f"{text!r} is no step path", "a StreamFlow step path, as in /chromosome/individuals")
    return text


def _text(text: str) -> str:
    if not text.strip():
        raise mistake("an empty text", "a text that is not empty")
    return text


def _goes_with(field: str, kind: str) -> JsonDict:
    """In JSON Schema: a field is needed with one commit rule, and not allowed with others."""
    committed: JsonDict = {"properties": {"committed": {"const": kind}}, "required": ["committed"]}
    return {"if": committed, "then": {"required": [field]}, "else": {"properties": {field: False}}}


Text = Annotated[str, AfterValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
PortName = Annotated[str, AfterValidator(_one_name), WithJsonSchema({"type": "string", "pattern": r"^[^/#*?\[]+$"})]
StepPath = Annotated[str, AfterValidator(_step_path), WithJsonSchema({"type": "string", "pattern": "^/"})]
_StorageBW = Annotated[
    StorageBW,
    _validator(parse_storage_bw, bandwidth.ALLOWED),
    PlainSerializer(lambda bw: bw.value if isinstance(bw, bandwidth.StaticConstraint) else str(bw)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": bandwidth.PATTERN},
            ]
        }
    ),
]
CommitRuleText = Annotated[
    CommitRule,
    _validator(parse_commit_rule, commit.ALLOWED),
    PlainSerializer(str),
    WithJsonSchema({"type": "string", "pattern": commit.PATTERN}),
]


class Model(BaseModel):
    """A model of the vocabulary: immutable, and with no field but its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class IOTask(Model):
    """The step only moves data: it takes no core and overlaps with compute."""

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


class StreamingRule(Model):
    """When an output of the step is complete, and when its bytes may be read.

    :ivar start: filled in when not given: `commit` with `update`, `producer` with `no_update`
    :ivar permanent: None when not given: workflow outputs are kept, others are not
    """

    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [_goes_with("fileDeps", "on_file"), _goes_with("nFiles", "on_n_files")],
        }
    )

    port: PortName = Field(description="an output of the step, of type File, File[], Directory or stdout")
    files: tuple[Text, ...] = Field(
        (), min_length=1, description="globs: the rule holds for these entries of a Directory or File[] only"
    )
    committed: CommitRuleText = Field(
        CommitRule(), description=f"when a file is complete: {commit.ALLOWED} (default: on_termination)"
    )
    file_deps: tuple[Text, ...] = Field(
        (),
        alias="fileDeps",
        validate_default=True,
        description="with on_file: outputs of the step, or globs; when all are committed, this one is",
    )
    n_files: StrictInt | None = Field(
        None,
        alias="nFiles",
        validate_default=True,
        description="with on_n_files: a whole number from 1, of committed entries of a Directory or File[]",
        json_schema_extra={"minimum": 1, "maximum": MOST},
    )
    mode: FiringRule = Field(
        "update", description="update (default): readable once committed; no_update: readable as written"
    )
    start: Start = Field(
        default_factory=lambda data: "producer" if data.get("mode") == "no_update" else "commit",
        description="when consumers start: commit (default with update) or producer (default with no_update)",
    )
    permanent: StrictBool | None = Field(
        None, description="true or false: kept after the run (default: workflow outputs yes, others no)"
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


Hint = IOTask | StorageBandwidth | Streaming
HINT_CLASSES: dict[str, type[Hint]] = {cls.__name__: cls for cls in (IOTask, StorageBandwidth, Streaming)}


class AnnotationsFile(Model):
    """Hints for CWL that belongs to somebody else, by step path; they win over the hints in the CWL."""

    steps: dict[StepPath, tuple[Annotated[Hint, Field(discriminator="class_")], ...]] = Field(
        default_factory=dict, description="hints by StreamFlow step path, as in /chromosome/individuals"
    )
    streamable: tuple[StepPath, ...] = Field(
        (), description="inputs and outputs, as /step/port, that are read or written front to back"
    )
