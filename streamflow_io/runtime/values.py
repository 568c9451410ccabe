"""The values of fields in messages that are more than a number or a text, and the base of all messages."""

from __future__ import annotations

from msgspec import Struct

#: A text as `os.fsdecode` gives it. Each byte that is not UTF-8 is a lone surrogate.
ByteString = str
Path = ByteString

#: Bytes of a file, as offset and length.
Extent = tuple[int, int]

#: Bytes of a file; or bytes themselves, in base64.
Piece = Extent | str

#: Where a command finds an input: `{"fifo": PATH}`, `{"stdin": True}` or `{"file": PATH}`.
Target = dict[str, Path | bool]


class Message(Struct, frozen=True, omit_defaults=True):
    """The base of all messages, and of all objects in messages."""


class DriverMessage(Message, frozen=True, forbid_unknown_fields=True):
    """The base of messages that the driver writes. An unknown field is an error, here as in `sfio-node`."""


def readable(path: str) -> str:
    """A path for people, and for files in UTF-8: a byte that is not UTF-8 is `\\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
