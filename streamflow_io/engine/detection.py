"""Finds out from its text whether a CWL document may have hints: a run without hints needs nothing else of the plugin.

To import the models of hints alone takes longer than to translate a small workflow. So this module imports next to
nothing of this package. `streamable` counts as a hint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urldefrag

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from schema_salad.exceptions import ValidationException
from schema_salad.fetcher import Fetcher

from streamflow_io.nested import parts

# cwl_utils has a class per CWL version and no common base: its objects are read by attribute.
CWLObject = Any
# A part of each hint, and of each likely mistake in one; directives that include other files; escaped letters.
_TRACES = re.compile(
    r"sfio|streamflow-io|IOTask|StorageBandwidth|Streaming|ReadSession|streamable|\$import|\$mixin|\\[xuU]"
)
_JOINED = re.compile(r"\\\r?\n[ \t]*")


def can_have_hints(document: CWLObject) -> bool:
    """Whether a process, or anything that it runs, may have a hint of the plugin or a `streamable` parameter.

    Reads the files that `run` names.

    :param document: as loaded by `cwl_utils.parser`
    :return: false only if there is certainly no hint; true if a file cannot be read
    """
    fetcher = document.loadingOptions.fetcher
    file = str(document.loadingOptions.fileuri or "")
    try:
        if _has_traces(fetcher, file):
            return True
        ahead = [fetcher.urljoin(file, run) for run in _runs_of(document)]
        seen: set[str] = set()
        while ahead:
            file = urldefrag(ahead.pop())[0]
            if file in seen:
                continue
            seen.add(file)
            if _has_traces(fetcher, file):
                return True
            ahead += [fetcher.urljoin(file, run) for run in _runs_in(fetcher.fetch_text(file))]
    except (ValidationException, YAMLError, OSError, ValueError, RecursionError):
        return True
    return False


def _has_traces(fetcher: Fetcher, file: str) -> bool:
    # A file from another machine is not fetched twice.
    return not file.startswith("file:") or _TRACES.search(_JOINED.sub("", fetcher.fetch_text(file))) is not None


def _runs_of(process: CWLObject) -> Iterator[str]:
    """Yield the processes in other files that the steps of a process run."""
    for step in getattr(process, "steps", ()):
        if isinstance(step.run, str):
            yield step.run
        else:
            yield from _runs_of(step.run)


def _runs_in(text: str) -> Iterator[str]:
    """Yield the same for all processes in a file; perhaps more.

    :raises YAMLError: if the text is neither YAML nor JSON
    """
    if "run" not in text:
        return
    try:
        document = json.loads(text)  # packed workflows are large, and YAML is slow
    except ValueError:
        document = YAML(typ="safe").load(text)
    for node in parts(document):
        if isinstance(node, dict) and isinstance(run := node.get("run"), str):
            yield run
