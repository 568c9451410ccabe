"""Elements of the models of the vocabulary: their base, names, paths and sizes, and how a mistake is raised."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

_UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12}
# A reader has up to 2 MB that it has not acknowledged yet.
LEAST = 16 * 10**6
MOST = 10**15
PATTERN = r"^[1-9][0-9]{0,8}(?:MB|GB)$"
ALLOWED = "a whole number of MB or GB, from 16MB, as in `256MB`"
ALLOWED_LIMIT = "a whole number of MB, GB or TB, from 1MB, as in `500GB`"


def parse_size(value: object) -> int:
    """Read a `window`.

    :return: bytes
    :raises ValueError: with one sentence that says what is wrong
    """
    if not isinstance(value, str) or re.fullmatch(PATTERN, value) is None:
        raise ValueError(f"{value!r} is no size")
    size = int(value[:-2]) * _UNITS[value[-2:]]
    if size < LEAST:
        raise ValueError(f"a window of {value} is smaller than what readers have in their pipes")
    if size > MOST:
        raise ValueError(f"a window of {value} is larger than any file")
    return size


def parse_limit(value: object) -> int:
    """Read a size on disk or in memory.

    :return: bytes
    :raises ValueError: with one sentence that says what is wrong
    """
    if not isinstance(value, str) or re.fullmatch(r"[1-9][0-9]{0,8}(?:MB|GB|TB)", value) is None:
        raise ValueError(f"{value!r} is no size")
    return int(value[:-2]) * _UNITS[value[-2:]]


def as_written(size: int) -> str:
    """Return a size as a rule has it; `parse_size(as_written(n)) == n` for whole MB."""
    unit = "GB" if size % _UNITS["GB"] == 0 else "MB"
    return f"{size // _UNITS[unit]}{unit}"


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
