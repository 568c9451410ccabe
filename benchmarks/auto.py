"""The templates without a hint, with `streaming: auto`: what three runs take, beside plain and annotated ones.

The first run learns: the store of earlier runs is removed before it. Where no core is idle that takes several runs: so
another first run waits at its end for what is left to learn. Tools are the same in all.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from .model import Comparison
from .templates import annotated_templates
from .workflows import RESULT, StreamFlowRun
from .workload import Outcome, Variant, Workload

RUNS = 3
_OURS = ("sfio:", "urn:streamflow-io:")


def without_hints(template: Path, directory: Path) -> Path:
    """Copy the CWL of a template, without `streamable` and our hints; return where."""
    copy = directory / template.name
    shutil.copytree(template, copy, ignore=shutil.ignore_patterns("generated", "run", "data", "out"))
    yaml = YAML()
    for path in copy.rglob("*.cwl"):
        document = yaml.load(path)
        strip_hints(document)
        yaml.dump(document, path)
    return copy


def strip_hints(node: Any) -> None:
    """Remove `streamable` and our hints from a document of CWL."""
    if isinstance(node, dict):
        node.pop("streamable", None)
        if isinstance(hints := node.get("hints"), list):
            node["hints"] = [hint for hint in hints if not str(hint.get("class")).startswith(_OURS)]
        for value in node.values():
            strip_hints(value)
    elif isinstance(node, list):
        for element in node:
            strip_hints(element)


def _variants(name: str, annotated: StreamFlowRun, directory: Path) -> list[Variant]:
    template = annotated.workflow.parent
    copy = without_hints(template, directory) / annotated.workflow.name
    store = directory / f"{name}.db"
    auto = {"streaming": "auto", "learned": str(store)}
    plain = StreamFlowRun(copy, None, (), annotated.settings, annotated.digest)
    learning = StreamFlowRun(copy, auto, (), annotated.settings, annotated.digest)

    waiting = replace(learning, scheduler={**auto, "rehearse": "wait"})

    def variant(what: str, way: StreamFlowRun, forgets: bool = False) -> Variant:
        def run(directory: Path) -> Outcome:
            if forgets:
                store.unlink(missing_ok=True)
            outcome = way.run(directory)
            return replace(outcome, outputs={name: outcome.outputs[RESULT]})

        return Variant(f"{name}: {what}", run, verify=way.verify if way is annotated else None)

    return [
        variant("plain", plain),
        *(variant(f"run {number}", learning, forgets=number == 1) for number in range(1, RUNS + 1)),
        variant("run that waits", waiting, forgets=True),
        variant("run after it", learning),
        variant("annotated", annotated),
    ]


def _prepare(directory: Path) -> Sequence[Variant]:
    templates = annotated_templates(directory).items()
    return [variant for name, annotated in templates for variant in _variants(name, annotated, directory)]


def _comparisons(name: str) -> list[Comparison]:
    def compare(variant: str, baseline: str, at_most: float | None = None) -> Comparison:
        return Comparison(
            name=f"{name}: {variant} / {baseline}",
            variant=f"{name}: {variant}",
            baseline=f"{name}: {baseline}",
            at_most=at_most,
        )

    last = f"run {RUNS}"
    return [
        compare("run 1", "plain", 1.03),
        compare(last, "annotated", 1.05),
        compare("run after it", "annotated"),
        compare(last, "plain"),
        compare("run that waits", "plain"),
        compare("run after it", "plain"),
        compare("annotated", "plain"),
    ]


AUTO = Workload(
    "auto",
    "the templates 1000genome and variant-calling without a hint, three runs with `streaming: auto`",
    _prepare,
    (*_comparisons("1000genome"), *_comparisons("variant-calling")),
)
