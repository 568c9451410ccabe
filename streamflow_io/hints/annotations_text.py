"""An annotations file as text, with comments that say where each hint comes from. Pure."""

from __future__ import annotations

import io
import re

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from streamflow_io.capio_cl.merging import AnnotatedRule
from streamflow_io.capio_cl.to_hints import Annotation

from .models import StreamingRule

_PLAIN = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_./-]*")
_MOST_PATHS = 3
_FRONT_TO_BACK = "the tool must read it front to back, once"


def annotations_text(annotation: Annotation, origin: str, notes: tuple[str, ...] = ()) -> str:
    """Write the hints as an annotations file.

    :param origin: the name of the file that they were made from
    :param notes: more to say at the beginning
    :return: YAML; without its comments, it is :attr:`Annotation.file`
    """
    root = CommentedMap()
    lines = [f"Hints from {origin}.", *notes]
    if annotation.unexpressed:
        lines += ["Not expressed:", *(f"- {each.subject}: {each.reason}" for each in annotation.unexpressed)]
    root.yaml_set_start_comment("\n".join(map(_printable, lines)))
    root["steps"] = CommentedMap((_scalar(step), _hints(rules)) for step, rules in annotation.rules.items())
    if annotation.streamable:
        ports = CommentedSeq(map(_scalar, annotation.streamable))
        for index, paths in enumerate(annotation.streamable.values()):
            before = _printable(f"reads {_first(paths)} as it is written: {_FRONT_TO_BACK}")
            ports.yaml_set_comment_before_after_key(index, before=before, indent=2)
        root["streamable"] = ports
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width = 4096
    stream = io.StringIO()
    yaml.dump(root, stream)
    return stream.getvalue()


def _hints(rules: tuple[AnnotatedRule, ...]) -> CommentedSeq:
    listed = CommentedSeq(_rule(each.rule) for each in rules)
    for index, each in enumerate(rules):
        before = _printable(f"from {_first(each.origins)}")
        listed.yaml_set_comment_before_after_key(index, before=before, indent=8)
    return CommentedSeq([CommentedMap([("class", "sfio:Streaming"), ("rules", listed)])])


def _rule(rule: StreamingRule) -> CommentedMap:
    """A rule with its commit and firing rule, also where they are the default, and what else was given."""
    written = rule.model_dump(by_alias=True, mode="json", exclude_defaults=True, exclude={"start"})
    if rule.start != ("producer" if rule.mode == "no_update" else "commit"):
        written["start"] = rule.start
    written = {"port": rule.port, "committed": str(rule.committed), "mode": rule.mode, **written}
    for key, value in written.items():
        if isinstance(value, list):
            written[key] = CommentedSeq(map(_scalar, value))
            written[key].fa.set_flow_style()
    return CommentedMap(written)


def _scalar(text: str) -> str:
    # In other styles ruamel.yaml writes some texts that it does not read again, as `?.txt` in a list.
    return text if _PLAIN.fullmatch(text) else DoubleQuotedScalarString(text)


def _first(paths: tuple[str, ...]) -> str:
    """Some paths: those of the instances of one step differ only in their numbers."""
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    return ", ".join(paths[:_MOST_PATHS]) + more


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
