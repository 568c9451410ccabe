"""What StreamFlow does with a run afterwards works on ours, too."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

from tests import forked
from tests.cwl import Bench, Document, found, streamable, streaming, tool, workflow


def everything() -> Document:
    """A workflow that has a step of each of our classes."""
    rule = streaming({"port": "list", "committed": "on_close"})
    made = tool(
        "for i in 2 1; do echo $i > $i.txt; done; echo log",
        {},
        {"list": found("*.txt", "File[]"), "log": streamable("stdout")},
        [rule],
        stdout="made.log",
    )
    used = tool("cat $file", {"file": "File"}, {"out": "stdout"}, stdout="$(inputs.file.nameroot).used")
    read = tool("cat $file", {"file": streamable()}, {"out": "stdout"}, stdout="read.log")
    says = tool(
        """echo '{"path": "1.part", "extents": [[0, 1]]}' >> $SFIO_PARTS""",
        {"log": "File"},
        {"parts": found("*.part", "File[]")},
        [{"class": "sfio:ReadSession", "rules": [{"port": "parts", "of": "log"}]}],
    )
    steps = {
        "f": {"run": says, "in": {"log": "given"}},
        "g": {"run": used, "in": {"file": "f/parts"}, "scatter": "file"},
        "d": {"run": says, "in": {"log": "c/out"}},
        "e": {"run": used, "in": {"file": "d/parts"}, "scatter": "file"},
        "a": {"run": made, "in": {}},
        "b": {"run": used, "in": {"file": "a/list"}, "scatter": "file"},
        "c": {"run": read, "in": {"file": "a/log"}},
    }
    return workflow({"given": "File"}, steps, {"b": "b/out", "c": "c/out", "e": "e/out", "g": "g/out"})


def streamflow(path: Path, *arguments: str) -> str:
    finished = forked.run("streamflow", *arguments, cwd=path.parent, environment={"XDG_DATA_HOME": str(path.parent)})
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_prov(bench: Bench) -> None:
    (given := bench.directory / "given").write_bytes(b"as it is")
    path = bench.write(everything(), {"given": {"class": "File", "path": str(given)}}, io=True)
    streamflow(path, "run", str(path), "--name", "ours", "--outdir", str(path.parent / "out"))
    telemetry = path.parent / "streamflow-io/runs/ours/telemetry.jsonl"
    added = ("--add-file", f"src={telemetry},dst=/telemetry.jsonl,encodingFormat=application/jsonl")
    streamflow(path, "prov", "ours", "--file", str(path), "--outdir", str(path.parent), "--name", "crate.zip", *added)
    with zipfile.ZipFile(path.parent / "crate.zip") as crate:
        graph = json.loads(crate.read("ro-crate-metadata.json"))["@graph"]
        assert crate.read("telemetry.jsonl") == telemetry.read_bytes()
    (recorded,) = (entity for entity in graph if entity.get("@id") == "telemetry.jsonl")
    assert recorded["encodingFormat"] == "application/jsonl"
    actions = [entity for entity in graph if entity.get("@type") == "CreateAction"]
    assert len(actions) >= 9
    # It came without its checksum, which the crate has.
    files = [entity for entity in graph if entity["@type"] == "File" and entity.get("alternateName") == "given"]
    assert [entity["sha1"] for entity in files] == [hashlib.sha1(b"as it is").hexdigest()]
    # A part is no file of the crate, which could not have it: its name and its size are told.
    values = [entity.get("value", "") for entity in graph if entity["@type"] == "PropertyValue"]
    parts = [value for value in values if "'basename': '1.part'" in value]
    assert parts
    assert all("'size': 1" in part for part in parts)
