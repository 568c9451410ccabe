"""The hints that hold for the steps of a CWL document and of the files that it names.

    resolved = resolve(read_steps(cwl_utils.parser.load_document_by_uri("workflow.cwl")), "annotations.yml")
    resolved["/align"].streaming["alignments"][0].value.mode

A module of its own: it needs cwl_utils, which takes long to import, and most commands do not.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from .cwl import Walk, tool_digest
from .errors import HintError, HintErrors
from .inheritance import Annotations, StepAnnotations
from .rules import resolve_steps
from .yaml_files import read_annotations


def resolve(found: Walk, annotations: str | os.PathLike[str] | None = None) -> dict[str, StepAnnotations]:
    """Return the hints that hold for each step of a CWL document, after inheritance.

    :param found: the steps of the document, and of the files that `run` names
    :param annotations: the path of the annotations file
    :return: the annotations of all tools by StreamFlow step path, `/` if the document is a single tool; those of a step
        without hints are false
    :raises HintErrors: with all mistakes in the hints of the document and of the annotations file
    """
    errors: list[HintError] = []
    annotated = Annotations()
    if annotations is not None:
        try:
            annotated = read_annotations(annotations)
        except HintErrors as mistakes:
            errors += mistakes.errors
    resolved, mistakes_in_steps = resolve_steps(found.steps, found.workflows, annotated)
    errors += [*found.errors, *mistakes_in_steps]
    if errors:
        raise HintErrors(errors)
    return resolved


def tool_digests(found: Walk, steps: Collection[str]) -> dict[str, str]:
    """Return the digests of the tools of some steps, by step path. Equal tools have equal digests, in any workflow."""
    return {path: tool_digest(found.tools[path]) for path in steps}
