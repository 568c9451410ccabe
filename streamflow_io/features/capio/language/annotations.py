"""The hints made from a coordination configuration, as an annotations file. Pure."""

from __future__ import annotations

from streamflow_io.hints.annotations_text import Commented, annotations_text
from streamflow_io.hints.models import StreamingRule

from .to_hints import Annotation

_MOST_PATHS = 3


def annotation_text(annotation: Annotation, origin: str, notes: tuple[str, ...] = ()) -> str:
    """Write hints as an annotations file, with the paths that they come from.

    :param origin: the name of the file that they were made from
    :param notes: more to say at the beginning
    :return: YAML; without its comments, it is :attr:`Annotation.file`
    """
    start = [f"Hints from {origin}.", *notes]
    if annotation.unexpressed:
        start += ["Not expressed:", *(f"- {each.subject}: {each.reason}" for each in annotation.unexpressed)]
    return annotations_text(
        start,
        {
            step: [Commented((f"from {_first(each.origins)}",), _fields(each.rule)) for each in rules]
            for step, rules in annotation.rules.items()
        },
        {
            port: (f"reads {_first(paths)} as it is written: the tool must read it front to back, once",)
            for port, paths in annotation.streamable.items()
        },
    )


def _fields(rule: StreamingRule) -> dict[str, str]:
    """A rule with its commit and firing rule, also where they are the default, and what else was given."""
    written = rule.model_dump(by_alias=True, mode="json", exclude_defaults=True, exclude={"start"})
    if rule.start != ("producer" if rule.mode == "no_update" else "commit"):
        written["start"] = rule.start
    return {"port": rule.port, "committed": str(rule.committed), "mode": rule.mode, **written}


def _first(paths: tuple[str, ...]) -> str:
    """Some paths: those of the instances of one step differ only in their numbers."""
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    return ", ".join(paths[:_MOST_PATHS]) + more
