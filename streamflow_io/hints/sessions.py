"""Rules of read sessions: which output holds parts of an input, and where the parts begin.

A rule with `port` alone leaves the cuts to the program of the step, which reports them. A rule with `records` declares
the cuts. Without `port`, the jobs of the step read parts of the file themselves, or all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, StrictInt, Tag, WithJsonSchema, model_validator
from pydantic.config import JsonDict, JsonValue
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from .commit import MOST
from .fields import InputName, Model, PortName, Text, mistake

Positive = Annotated[StrictInt, Field(ge=1, le=MOST)]
Form = Literal["said", "declared", "selected"]

_CUTS = ("parts", "every", "chunk")
_NAMED = ("csv", "fasta", "fastq", "lines", "sam", "vcf")
_RECORDS = f"bytes, {', '.join(_NAMED)}; bgzf: before one of these except bytes; or header and record"
_SEVERAL_LINES = frozenset({"fastq"})
_ONE_NUMBER = re.compile(r"[^%/]*%(?:0?[1-9][0-9]?)?d[^%/]*")
_PATTERN_OF_NAMES = r"^[^%/]*%(0?[1-9][0-9]?)?d[^%/]*$"


class _OneField(Model):
    model_config = ConfigDict(json_schema_extra={"minProperties": 1, "maxProperties": 1})

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        names = list(type(self).model_fields)
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            raise mistake(f"{' and '.join(given) or 'none'} of {', '.join(names)}", f"one of {', '.join(names)}")
        return self


class RecordHeader(_OneField):
    """The end of a file's header, which each part has: one of the fields."""

    prefix: Text | None = Field(None, description="the header is all lines at the beginning that start with this text")
    lines: Positive | None = Field(None, description="the header is this many lines")
    bytes: Positive | None = Field(None, description="the header is this many bytes")


class RecordEnd(_OneField):
    """The end of a record, where the next begins: one of the fields."""

    lines: Positive | None = Field(None, description="each record is this many lines")
    begin: Text | None = Field(None, description="a record begins at each line that begins with this text")
    bytes: Positive | None = Field(None, description="each record is this many bytes")


class RecordFormat(Model):
    """The content of a file: perhaps a header, and records."""

    header: RecordHeader | None = Field(
        None, description="one of prefix, lines, bytes: the header, with which each part begins"
    )
    record: RecordEnd = Field(description="one of lines, begin, bytes: the end of a record")


def _record_name(name: str) -> str:
    plain = name.removeprefix("bgzf:")
    if plain not in _NAMED and name != "bytes":
        raise mistake(f"unknown records {name!r}", _RECORDS)
    return name


RecordName = Annotated[
    str,
    AfterValidator(_record_name),
    WithJsonSchema({"type": "string", "pattern": f"^(bytes|(bgzf:)?({'|'.join(_NAMED)}))$"}),
]
Records = Annotated[
    Annotated[RecordName, Tag("name")] | Annotated[RecordFormat, Tag("format")],
    Discriminator(lambda value: "format" if isinstance(value, dict | RecordFormat) else "name"),
]


Parts = Annotated[
    Annotated[Positive, Tag("number")] | Annotated[InputName, Tag("name")],
    Discriminator(lambda value: "name" if isinstance(value, str) else "number"),
]


def _one_number(names: str) -> str:
    if _ONE_NUMBER.fullmatch(names) is None:
        raise mistake(f"{names!r} has not one %d", "a name with one %d, as in chunk-%04d.fq")
    return names


Names = Annotated[str, AfterValidator(_one_number), WithJsonSchema({"type": "string", "pattern": _PATTERN_OF_NAMES})]


def _if(port: bool, records: bool, then: JsonDict) -> JsonDict:
    """Return a JSON Schema for rules with or without `port` and `records`."""
    wanted: list[JsonValue] = [_has("port") if port else {"not": _has("port")}]
    wanted.append(_has("records") if records else {"not": _has("records")})
    return {"if": {"allOf": wanted}, "then": then}


def _has(*names: str) -> JsonDict:
    return {"required": list(names)}


def _without(*names: str) -> JsonDict:
    return {"properties": dict.fromkeys(names, False)}


_OF_CUTS = ("names", "first", "count")
_NOT_BGZF: JsonDict = {"properties": {"records": {"not": {"type": "string", "pattern": "^bgzf:"}}}}
_SCHEMA: JsonDict = {
    "allOf": [
        _if(True, False, _without(*_CUTS, *_OF_CUTS, "part")),
        _if(True, True, {**_has("names"), **_without("part"), "oneOf": [_has(name) for name in _CUTS]}),
        _if(True, True, _NOT_BGZF),
        _if(False, True, {**_has("part"), **_without("every", "chunk", *_OF_CUTS)}),
        _if(False, False, {**_without("every", "chunk", *_OF_CUTS), "dependentRequired": {"parts": ["part"]}}),
    ]
}


class SessionRule(Model):
    """A file that many jobs read.

    :ivar parts: how many; or the name of the input that says the number
    """

    model_config = ConfigDict(json_schema_extra=_SCHEMA)

    port: PortName | None = Field(None, description="an output of type File[]: the elements are parts of `of`")
    of: InputName = Field(description="an input of type File")
    part: InputName | None = Field(
        None, description="without port: the input with the part that a job reads, as KofN, or as a number with parts"
    )
    records: Records | None = Field(None, description=f"the format of the records: {_RECORDS}")
    parts: Parts | None = Field(
        None,
        description="the number of parts, with equal bytes: a whole number from 1, or the name of an input of type int",
    )
    every: Positive | None = Field(None, description="the number of records in each part: a whole number from 1")
    chunk: Positive | None = Field(
        None, description="the most MiB of whole records in each part: a whole number from 1"
    )
    names: Names | None = Field(None, description="the name of a part, with one %d for its number")
    first: Annotated[StrictInt, Field(ge=0, le=MOST)] | None = Field(
        None, description="the number of the first part: a whole number from 0 (default: 1)"
    )
    count: PortName | None = Field(None, description="an output of type int: the number of records")

    @property
    def form(self) -> Form:
        """How the cuts are known: the program says them, the rule declares them, or each job selects its own part."""
        if self.port is None:
            return "selected"
        return "said" if self.records is None else "declared"

    @model_validator(mode="after")
    def _goes_together(self) -> SessionRule:
        for wrong in self._mistakes():
            raise wrong
        return self

    def _mistakes(self) -> Iterator[PydanticCustomError]:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        cuts = [name for name in _CUTS if name in given]
        if self.form == "selected":
            if alone := next((name for name in ("every", "chunk", *_OF_CUTS) if name in given), None):
                yield mistake(f"{alone} without port", "of, part, records and parts, if the jobs select their own part")
            if self.part is None and (alone := next((n for n in ("records", "parts") if n in given), None)):
                yield mistake(f"{alone} without port and part", "port, an output; or part, the input that says which")
        elif self.part is not None:
            yield mistake("part with port", "port, if the step splits; part, if its jobs select their own part")
        elif self.form == "said":
            if alone := next((name for name in (*_CUTS, *_OF_CUTS) if name in given), None):
                yield mistake(f"{alone} without records", "records; or the program of the step says where it cuts")
        elif self._is_bgzf:
            why = "each program compresses the ends of a part in its own way: nothing could be compared"
            yield mistake(f"records: {self.records} with port: {why}", "no records, and workflows/tools/partition.cwl")
        elif len(cuts) != 1:
            yield mistake(f"records with {' and '.join(cuts) or 'no cut'}", "one of parts, every, chunk")
        elif self.names is None:
            yield mistake("records with port need names", "a name with one %d, as in chunk-%04d.fq")
        if self.every is not None and self.records == "bytes":
            yield mistake("every with records: bytes", "parts or chunk: bytes are no records")
        if (self.parts is not None or self.part is not None) and self._has_several_lines:
            allowed = "every or chunk" if self.part is None else "records of one line, or with begin or bytes"
            why = "a place in the middle does not tell where a record begins"
            yield mistake(f"parts of equal bytes with records of several lines: {why}", allowed)

    @property
    def _is_bgzf(self) -> bool:
        return isinstance(self.records, str) and self.records.startswith("bgzf:")

    @property
    def _has_several_lines(self) -> bool:
        if isinstance(self.records, RecordFormat):
            return (self.records.record.lines or 1) > 1
        return (self.records or "").removeprefix("bgzf:") in _SEVERAL_LINES
