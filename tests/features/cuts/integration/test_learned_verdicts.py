"""Verdicts in `streamflow-io plan` and `learned`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, found, workflow
from lab.runs import Bench
from lab.splits import count, job, written
from streamflow_io.cli import main

RULE: Document = {"port": "chunks", "of": "reads", "records": "lines", "every": 14, "names": "chunk-%02d.txt"}
STEP = "/split"


@pytest.fixture(autouse=True)
def _data(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(bench.data))


def document(rule: Document = RULE) -> Document:
    run = {
        "class": "CommandLineTool",
        "baseCommand": ["split", "-a", "2", "--numeric-suffixes=1", "--additional-suffix=.txt"],
        "arguments": [{"valueFrom": "chunk-", "position": 5}],
        "hints": [{"class": "sfio:ReadSession", "rules": [rule]}],
        "inputs": {
            "reads": {"type": "File", "inputBinding": {"position": 3}},
            "each": {"type": "int", "inputBinding": {"prefix": "-l", "position": 1}},
        },
        "outputs": {"chunks": found("chunk-*.txt", "File[]")},
    }
    whole = workflow(
        {"reads": "File", "each": "int"},
        {
            "split": {"run": run, "in": {"reads": "reads", "each": "each"}},
            "count": {"run": count(), "in": {"chunk": "split/chunks"}, "scatter": "chunk"},
        },
        {"counted": "count/counted"},
    )
    del whole["steps"]["split"]["in"]["trace"]
    return whole


def ask(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    assert main([*map(str, arguments), "--json"]) == code
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result["ok"] is (code == 0)
    return result


def test_what_a_run_has_verified_is_listed_until_it_is_forgotten(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = job(tmp_path)
    path = bench.write(document(), values, io=True)
    bench.run(document(), values)
    assert len(written(bench)) == 3
    assert ask(capsys, "plan", path)["workflows"]["main"]["partitions"][0]["trial"] is None
    other = bench.write(document(), {**values, "each": 13}, io=True)
    (partition,) = ask(capsys, "plan", other)["workflows"]["main"]["partitions"]
    assert partition["trial"].startswith("not verified yet")
    (known,) = ask(capsys, "learned", "list")["splits"]
    assert (known["step"], known["verified"], known["parts"]) == (STEP, True, 3)
    assert known["rule"] == RULE
    assert ask(capsys, "learned", "show", known["key"][:7])["key"] == known["key"]
    for arguments, text in [(["list"], "verified: 3 parts"), (["show", known["key"]], "verified: true")]:
        assert main(["learned", *arguments]) == 0
        assert text in capsys.readouterr().out
    bench.run_both(document(), values)
    assert written(bench) == []
    (forgotten,) = ask(capsys, "learned", "forget", "--step", STEP)["forgotten"]
    assert forgotten == known
    bench.run_both(document(), values)
    assert len(written(bench)) == 3


@pytest.mark.long
def test_what_is_refuted(bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench.run_both(document(), job(tmp_path, each=13))
    (known,) = ask(capsys, "learned", "list")["splits"]
    assert known["difference"] == "chunk-01.txt: the split has written 143 bytes, the rule gives 158"
    assert main(["learned", "forget", "--all"]) == 0
    assert "/split, refuted: chunk-01.txt" in capsys.readouterr().out
