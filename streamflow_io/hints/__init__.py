"""The hints that a user writes: models, parsing, inheritance, checks.

    resolved = resolve(cwl_utils.parser.load_document_by_uri("workflow.cwl"), "annotations.yml")
    resolved["/align"].streaming["alignments"][0].value.mode

`resolve` and the `read_...` functions read files; everything else is pure. All mistakes of a document are
raised together, as :class:`HintErrors`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from .bandwidth import AutoConstraint, Bounds, StaticConstraint, StorageBW, parse_storage_bw
from .commit import CommitKind, CommitRule, parse_commit_rule
from .config import SchedulerConfig, StorageConfig
from .errors import HintError, HintErrors, Level, Located, Source
from .files import parse_scheduler_config, read_annotations, read_scheduler_config
from .globs import matches
from .inheritance import Annotations, StepAnnotations
from .models import (
    NAMESPACE,
    AnnotationsFile,
    Direction,
    FiringRule,
    Hint,
    IOTask,
    Start,
    StorageBandwidth,
    Streaming,
    StreamingRule,
)
from .rules import check_storages, resolve_steps

__all__ = [
    "NAMESPACE",
    "Annotations",
    "AnnotationsFile",
    "AutoConstraint",
    "Bounds",
    "CommitKind",
    "CommitRule",
    "Direction",
    "FiringRule",
    "Hint",
    "HintError",
    "HintErrors",
    "IOTask",
    "Level",
    "Located",
    "SchedulerConfig",
    "Source",
    "Start",
    "StaticConstraint",
    "StepAnnotations",
    "StorageBW",
    "StorageBandwidth",
    "StorageConfig",
    "Streaming",
    "StreamingRule",
    "check_storages",
    "matches",
    "parse_commit_rule",
    "parse_scheduler_config",
    "parse_storage_bw",
    "read_annotations",
    "read_scheduler_config",
    "resolve",
    "tool_digests",
]


def resolve(
    document: Any, annotations: str | os.PathLike[str] | Annotations | None = None
) -> dict[str, StepAnnotations]:
    """The hints that hold for each step of a CWL document, after inheritance.

    :param document: a process as loaded by `cwl_utils.parser`, v1.0 to v1.2; it is not changed. The files
        that `run` names are read.
    :param annotations: the annotations file, or its path
    :return: the annotations of all tools by StreamFlow step path, `/` if the document is a single tool;
        those of a step without hints are false
    :raises HintErrors: with all mistakes in the hints of the document and of the annotations file
    :raises schema_salad.exceptions.ValidationException: if a file that `run` names is no valid CWL
    :raises OSError: if it cannot be read
    """
    # Here, because the rest of the package needs no cwl_utils, which takes long to import.
    from .cwl import read_steps

    errors: list[HintError] = []
    if annotations is None:
        annotations = Annotations()
    elif not isinstance(annotations, Annotations):
        try:
            annotations = read_annotations(annotations)
        except HintErrors as mistakes:
            errors += mistakes.errors
            annotations = Annotations()
    found = read_steps(document)
    resolved, mistakes_in_steps = resolve_steps(found.steps, found.workflows, annotations)
    errors += [*found.errors, *mistakes_in_steps]
    if errors:
        raise HintErrors(errors)
    return resolved


def tool_digests(document: Any, steps: Collection[str]) -> dict[str, str]:
    """What tells the tools of some steps from others, by step path: equal tools have equal digests, in any workflow.

    :param document: as for :func:`resolve`
    """
    if not steps:
        return {}
    from .cwl import read_steps, tool_digest

    tools = read_steps(document).tools
    return {path: tool_digest(tools[path]) for path in steps}
