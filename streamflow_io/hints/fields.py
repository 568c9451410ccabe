"""Elements of the models of the vocabulary: their base, names, paths, and how a mistake is raised."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

T = TypeVar("T")
_DIGEST = re.compile("^[0-9a-f]{64}$")


def mistake(message: str, allowed: str) -> PydanticCustomError:
    """Return the error that a validator of these models raises: one sentence, and what is allowed instead."""
    return PydanticCustomError("sfio", "{message}", {"message": message, "allowed": allowed})


def parsed_by(parse: Callable[[object], T], allowed: str) -> PlainValidator:
    def validate(value: object) -> T:
        try:
            return parse(value)
        except ValueError as error:
            raise mistake(str(error), allowed) from None

    return PlainValidator(validate)


def _one_name(allowed: str) -> AfterValidator:
    def validate(text: str) -> str:
        if not text or any(char in text for char in "/#*?[") or text != text.strip():
            raise mistake(f"{text!r} is no name of a port", allowed)
        return text

    return AfterValidator(validate)


def _step_path(text: str) -> str:
    if not text.startswith("/") or (text != "/" and (text.endswith("/") or "//" in text)):
        raise mistake(f"{text!r} is no step path", "a StreamFlow step path, as in /chromosome/individuals")
    return text


def _text(text: str) -> str:
    if not text.strip():
        raise mistake("an empty text", "a text that is not empty")
    return text


def _digest(text: str) -> str:
    if not _DIGEST.fullmatch(text):
        raise mistake(f"{text!r} is no digest", "64 hex digits, as `streamflow-io learned export` has written them")
    return text


Text = Annotated[str, AfterValidator(_text), WithJsonSchema({"type": "string", "minLength": 1})]
_NAME = WithJsonSchema({"type": "string", "pattern": r"^[^/#*?\[]+$"})
PortName = Annotated[str, _one_name("the name of one output, as in `port: alignments`"), _NAME]
InputName = Annotated[str, _one_name("the name of one input, as in `of: reads`"), _NAME]
Digest = Annotated[str, AfterValidator(_digest), WithJsonSchema({"type": "string", "pattern": _DIGEST.pattern})]
StepPath = Annotated[str, AfterValidator(_step_path), WithJsonSchema({"type": "string", "pattern": "^/"})]


class Model(BaseModel):
    """A model of the vocabulary: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
