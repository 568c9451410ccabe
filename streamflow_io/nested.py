"""Search nested data, such as YAML and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def parts(document: object) -> Iterator[object]:
    """All values in a document: itself, and what its mappings and lists hold; of these each once, despite aliases."""
    ahead, seen = [document], set[int]()
    while ahead:
        part = ahead.pop()
        if isinstance(part, Mapping | list):
            if id(part) in seen:  # the text may be a stranger's, and have many aliases
                continue
            seen.add(id(part))
            ahead += part.values() if isinstance(part, Mapping) else part
        yield part
