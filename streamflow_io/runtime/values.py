"""The values of fields in messages that are more than a number or a text, and the base of all messages."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainValidator


def _as_string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it is no string")
    return value


#: A text as `os.fsdecode` gives it. Each byte that is not UTF-8 is a lone surrogate, which pydantic's strings refuse.
ByteString = Annotated[str, PlainValidator(_as_string)]
Path = ByteString

#: Bytes of a file, as offset and length; or bytes themselves, in base64.
Piece = tuple[int, int] | str

#: Where a command finds an input: `{"fifo": PATH}`, `{"stdin": True}` or `{"file": PATH}`.
Target = dict[str, Path | bool]


class Message(BaseModel):
    """The base of all messages, and of all objects in messages."""

    # Built at the first use: a run imports all messages, and needs some.
    model_config = ConfigDict(frozen=True, defer_build=True)


class DriverMessage(Message):
    """The base of messages that the driver writes. An unknown field is an error, here as in `sfio-node`."""

    model_config = ConfigDict(extra="forbid")


def readable(path: str) -> str:
    """A path for people, and for files in UTF-8: a byte that is not UTF-8 is `\\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
