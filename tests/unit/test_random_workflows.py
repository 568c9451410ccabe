"""The generator of random workflows makes what it says, and what shows nothing is told from what does."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from lab.runs import Run
from tests.random_workflows.blueprint import Blueprint, without_unused
from tests.random_workflows.document import document
from tests.random_workflows.generate import generate
from tests.random_workflows.programs import EXTRAS, READERS, TRICKLED, WRITERS
from tests.random_workflows.trial import judge
from tests.random_workflows.versions import oldest_version


@cache
def blueprints() -> list[Blueprint]:
    return [generate(5, number) for number in range(400)]


def test_all_that_there_is_occurs() -> None:
    steps = [step for blueprint in blueprints() for step in blueprint.steps]
    assert {step.reader for step in steps} == READERS.keys()
    assert {output.writer for step in steps for output in step.outputs} == WRITERS.keys() - {TRICKLED}
    assert {extra for step in steps for extra in step.extras} == EXTRAS.keys()
    assert {step.wrap for step in steps} == {"", "workflow", "inside", "loop", "expression"}
    assert {step.method for step in steps} == {"", "flat_crossproduct", "nested_crossproduct"}
    assert {step.when for step in steps} == {None, True, False}
    links = [link for step in steps for _, link in step.links] + [link for b in blueprints() for link in b.results]
    assert {link.merge for link in links} == {"", "merge_nested", "merge_flattened"}
    assert {link.pick for link in links} == {"", "first_non_null", "all_non_null"}
    rules = {(output.writer, output.hint) for step in steps for output in step.outputs}
    for name, writer in WRITERS.items():
        assert {dict(hint).get("committed") for writer, hint in rules if writer == name} - {None} == {
            rule["committed"] for rule in writer.rules
        }
    hints = [dict(step.bandwidth) for step in steps if step.io_task]
    limits = {("storageBW" in hint, "within" in hint, "limited" in hint) for hint in hints}
    assert limits == {(False, False, False), (True, False, False), (True, True, False), (True, False, True)}
    lengths = Counter(len(blueprint.given["numbers"].value) for blueprint in blueprints())
    assert lengths[0] > 50
    dead = [step for b in blueprints() for step in set(b.steps) - set(without_unused(b).steps)]
    assert {"slow" in step.extras for step in dead} == {True, False}


def test_a_document_may_be_of_the_oldest_version_that_has_what_it_uses() -> None:
    versions = Counter(document(blueprint).get("cwlVersion") for blueprint in blueprints())
    assert versions.keys() == {None, "v1.0", "v1.1", "v1.2"}
    assert oldest_version({"steps": {"a": {"when": "$(true)"}}}) == "v1.2"
    assert oldest_version({"requirements": [{"class": "ToolTimeLimit", "timelimit": 3}]}) == "v1.1"
    record = {"type": "record", "fields": [{"name": "a", "type": "File"}]}
    assert oldest_version({"inputs": {"i": {"type": record}}}) == "v1.0"
    record["fields"] = [{"name": "a", "type": "File", "streamable": True}]
    assert oldest_version({"inputs": {"i": {"type": record}}}) == "v1.1"


def test_what_has_failed_before_occurs_often() -> None:
    """Dead branches that take long, wrong declarations of files that stream, and `tar` of a directory at the gate."""
    found: Counter[str] = Counter()
    for blueprint in blueprints():
        outputs = {step.source_of(output.port): output for step in blueprint.steps for output in step.outputs}
        found["dead"] += any("slow" in step.extras for step in {*blueprint.steps} - {*without_unused(blueprint).steps})
        for key, is_meant in (
            ("wrong", lambda step, read: step.streamable and READERS[step.reader].wrong and read.streamable),
            ("tar", lambda step, read: step.reader == "archive" and ("start", "producer") in read.hint),
        ):
            read = [
                (step, outputs[source])
                for step in blueprint.steps
                for source in dict(step.links)["i"].sources
                if source in outputs
            ]
            found[key] += any(is_meant(*each) for each in read)
    assert min(found[key] for key in ("dead", "wrong", "tar")) >= len(blueprints()) // 10, found


SAME = Run(0, "", {"r0": 1}, {"a": b"1"}, [])
OTHER = Run(0, "", {"r0": 1}, {"a": b"2"}, [])
FAILED = Run(1, "2026-01-01 10:00:00.000 ERROR    FAILED Job /a/0 with error:\n\tno space\n", None, {}, [])


@pytest.mark.parametrize(
    ("plain", "ours", "left", "again", "outcome"),
    [
        (SAME, SAME, [], None, "same"),
        (SAME, OTHER, [], SAME, "differs"),
        (SAME, replace(SAME, outputs={}), [], SAME, "differs"),
        (SAME, FAILED, [], SAME, "fails"),
        (SAME, None, [], SAME, "hangs"),
        (SAME, SAME, ["process 7"], SAME, "leaves"),
        (FAILED, SAME, [], FAILED, "succeeds"),
        (FAILED, SAME, [], SAME, "unstable"),
        (FAILED, FAILED, [], FAILED, "both fail"),
        (FAILED, None, [], FAILED, "both fail"),
        (None, None, [], None, "both fail"),
        (SAME, OTHER, [], OTHER, "unstable"),
        (SAME, FAILED, [], None, "unstable"),
    ],
)
def test_what_is_a_difference(
    plain: Run | None, ours: Run | None, left: list[str], again: Run | None, outcome: str
) -> None:
    trial = judge(plain, ours, left, lambda: again)
    assert trial.outcome == outcome
    assert trial.is_harmless == (outcome in ("same", "both fail", "unstable"))
