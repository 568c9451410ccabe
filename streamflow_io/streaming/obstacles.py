"""What makes a whole file necessary before a step starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableSequence
from typing import Any

from streamflow.core.processor import TokenProcessor
from streamflow.core.workflow import Step, Workflow
from streamflow.cwl.processor import CWLCommandOutputProcessor, CWLTokenProcessor
from streamflow.cwl.utils import LoadListing

_SAFE_FIELDS = {"path", "basename", "nameroot", "nameext", "location", "dirname"}
_SELF = re.compile(r"""\bself\b\s*(?:\.\s*(\w+)|\[\s*["']([^"']+)["']\s*\])?""")
_USES = re.compile(
    r"""\binputs\s*(?:\.\s*(\w+)|\[\s*["']([^"']+)["']\s*\])?\s*(?:\.\s*(\w+)|\[\s*["']([^"']+)["']\s*\])?"""
)


def processor_obstacle(transformer: TokenProcessor, shown: str) -> str | None:
    """Why an input that a processor handles needs the whole file, if so.

    :param shown: the input, for people
    """
    for processor in with_inner(transformer):
        if isinstance(processor, CWLTokenProcessor):
            if processor.load_contents:
                return f"{shown} has loadContents"
            if processor.secondary_files:
                return f"{shown} has secondaryFiles"
            if "Directory" in _types(processor) and listed(processor):
                return f"{shown} is listed (loadListing; with CWL v1.0 always)"
    return None


def listed(processor: CWLTokenProcessor | CWLCommandOutputProcessor) -> bool:
    """Whether a Directory has its `listing` when the step starts."""
    return processor.load_listing not in (None, LoadListing.no_listing)


def _types(processor: CWLTokenProcessor) -> list[str]:
    types = processor.token_type
    return [types] if isinstance(types, str) else [kind for kind in types or () if isinstance(kind, str)]


def with_inner(value: Any) -> Iterator[Any]:
    """A processor and those in it."""
    yield value
    for inner in (getattr(value, "processor", None), *getattr(value, "processors", ())):
        if inner is not None and not isinstance(inner, str):
            yield from with_inner(inner)


def expressions(value: Any, seen: set[int] | None = None) -> Iterator[str]:
    """All CWL expressions in an object of StreamFlow or cwl_utils, but for those of the JavaScript library."""
    seen = set() if seen is None else seen
    if isinstance(value, str):
        if "$(" in value or "${" in value:
            yield value
        return
    if id(value) in seen or isinstance(value, Workflow | Step):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        parts: list[Any] = [part for key, part in value.items() if key not in ("expression_lib", "step", "workflow")]
    elif isinstance(value, MutableSequence | tuple):
        parts = list(value)
    elif callable(save := getattr(value, "save", None)) and hasattr(value, "loadingOptions"):
        parts = [save()]
    elif hasattr(value, "__dict__"):
        parts = [vars(value)]
    else:
        parts = []
    for part in parts:
        yield from expressions(part, seen)


def whole_file_use(expression: str, name: str) -> str | None:
    """The part of an expression that needs more of an input than where it is and what its name is."""
    for match in _USES.finditer(expression):
        used = match[1] or match[2]
        if used is None or (used == name and (match[3] or match[4]) not in _SAFE_FIELDS):
            return match[0].strip()
    return None


def whole_self_use(expression: str) -> bool:
    """Whether an expression needs more of its own input than where it is and what its name is."""
    return any((match[1] or match[2]) not in _SAFE_FIELDS for match in _SELF.finditer(expression))
