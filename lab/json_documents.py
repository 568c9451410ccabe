"""JSON is read as ruamel.yaml reads YAML, with the lines of its values, in a fraction of the time.

Workflows of tests are JSON, and each run reads its own several times. For the types of the steps, cwl-utils copies each
step with its loading options, which stay as they are.
"""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any

import yaml
from cwl_utils.parser import cwl_v1_2
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from yaml.nodes import MappingNode, Node, SequenceNode

#: The method of ruamel.yaml.
read_slowly = YAML.load


class _OtherError(Exception):
    """Is left to ruamel.yaml."""


def prepare() -> None:
    """Have all documents in this process, and in those that are forked of it, read so."""
    YAML.load = load  # type: ignore[method-assign]
    cwl_v1_2.LoadingOptions.__deepcopy__ = same  # type: ignore[attr-defined]


def same(options: object, _: object) -> object:
    """Return loading options, in place of a copy."""
    return options


def load(self: YAML, stream: Any) -> Any:
    """Read YAML or JSON, in place of the method of ruamel.yaml."""
    text = stream if isinstance(stream, str) else stream.read() if isinstance(stream, io.TextIOWrapper) else ""
    if text.startswith("{") and "\t" not in text:
        with contextlib.suppress(ValueError, RecursionError, yaml.YAMLError, _OtherError):
            value = json.loads(text, parse_float=_refuse, parse_constant=_refuse, object_pairs_hook=_different)
            return _located(value, yaml.compose(text, yaml.CSafeLoader)) if "rt" in self.typ else value
    if isinstance(stream, io.TextIOWrapper):
        stream.seek(0)
    return read_slowly(self, stream)


def _refuse(_text: str) -> Any:
    """Refuse a number that ruamel.yaml remembers as it was written."""
    raise _OtherError


def _different(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse names that are there twice, which ruamel.yaml refuses."""
    if len(found := dict(pairs)) < len(pairs):
        raise _OtherError
    return found


def _located(value: Any, node: Node | None) -> Any:
    """Return a value of JSON with the lines and columns of its parts."""
    located: Any
    if isinstance(node, MappingNode):
        located = CommentedMap()
        for (name, part), (key, content) in zip(value.items(), node.value, strict=True):
            located[name] = _located(part, content)
            located._yaml_set_kv_line_col(name, [*_place(key), *_place(content)])
    elif isinstance(node, SequenceNode):
        located = CommentedSeq()
        for number, (part, content) in enumerate(zip(value, node.value, strict=True)):
            located.append(_located(part, content))
            located._yaml_set_idx_line_col(number, _place(content))
    else:
        return value
    located._yaml_set_line_col(*_place(node))
    return located


def _place(node: Any) -> list[int]:
    """Return the line and the column, from 0."""
    return [node.start_mark.line, node.start_mark.column]
