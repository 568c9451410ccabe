"""The oldest version of CWL that has all that a document uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

#: The fields, and the classes of requirements, that are new in a version, of those that documents here use.
_NEW: Final = {
    "v1.2": frozenset({"when", "pickValue", "cwltool:Loop"}),
    "v1.1": frozenset({"pattern", "ToolTimeLimit", "NetworkAccess", "stream in a record"}),
}


def oldest_version(document: Any) -> str:
    """Return the version, from `v1.0` to `v1.2`."""
    words = set(_words(document))
    return next((version for version, new in _NEW.items() if not new.isdisjoint(words)), "v1.0")


def _words(part: Any) -> Iterator[str]:
    """The fields and classes of a part of a document."""
    if isinstance(part, list):
        for element in part:
            yield from _words(element)
    elif isinstance(part, dict):
        yield from part
        yield str(part.get("class"))
        if any("streamable" in field for field in part.get("fields", ())):
            yield "stream in a record"
        for value in part.values():
            yield from _words(value)
