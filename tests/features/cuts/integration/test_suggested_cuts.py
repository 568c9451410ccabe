"""Declared cuts that `streamflow-io suggest` proposes."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

from lab.cwl import Document, found, workflow
from lab.runs import Bench
from lab.splits import count, job, written
from tests.integration.test_suggest import OBSERVE, suggest


def test_a_split_that_is_proposed_is_verified_and_then_writes_nothing(bench: Bench, tmp_path: Path) -> None:
    # Without the input `trace`, which is another one in each run: a split is trusted for the values of its inputs.
    split: Document = {
        "class": "CommandLineTool",
        "baseCommand": ["sh", "-c", "sleep 0.6; split -l 14 -a 2 -d --additional-suffix=.txt $0 chunk-"],
        "inputs": {"reads": {"type": "File", "inputBinding": {"position": 1}}},
        "outputs": {"chunks": found("chunk-*.txt", "File[]")},
    }
    steps = {
        "split": {"run": split, "in": {"reads": "reads"}},
        "count": {"run": count(), "in": {"chunk": "split/chunks"}, "scatter": "chunk"},
    }
    document = workflow({"reads": "File"}, steps, {"counted": "count/counted"})
    del document["steps"]["split"]["in"]["trace"]
    values = {"reads": job(tmp_path)["reads"]}
    plain, _ = bench.run_both(document, values, config=OBSERVE)
    annotations = bench.directory / "annotations.yml"
    result = suggest(bench, "--json", "--output", str(annotations))
    rule = {"port": "chunks", "of": "reads", "records": "lines", "every": 14, "names": "chunk-%02d.txt", "first": 0}
    hints = [{"class": "sfio:ReadSession", "rules": [rule]}]
    assert result["annotations"] == {"steps": {"/split": hints}}, result
    assert YAML(typ="safe", pure=True).load(annotations)["steps"] == {"/split": hints}
    first = bench.run(document, values, config={"annotations": str(annotations)})
    assert "The rule of `sfio:ReadSession` for /split/chunks is verified: 3 parts" in first.log, first.errors
    second = bench.run(document, values, config={"annotations": str(annotations)})
    assert first.results == second.results == plain.results, second.errors
    assert written(bench) == []
    assert bench.leftovers() == []
