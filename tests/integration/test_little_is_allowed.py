"""`streaming: auto` where a kernel, or an engine of containers, refuses what it would like to have."""

from __future__ import annotations

from typing import Any

from lab.cwl import Document, workflow
from lab.runs import Bench
from streamflow_io.records.learned.proofs import Way, known_proofs
from tests.integration.test_learned_streams import AUTO, Proving, producer, reader

NO_GATE = {"SFIO_NODE_WITHOUT_GATE": "1"}
READERS = ("b", "c")


def readers(*scripts: str) -> Document:
    steps: dict[str, Document] = {"a": {"run": producer(), "in": {}}}
    for name, script in zip(READERS, scripts or ["note read; cat $file"] * 2, strict=True):
        read: dict[str, Any] = reader(script)
        steps[name] = {"run": {**read, "stdout": f"{name}.txt"}, "in": {"file": "a/out"}}
    return workflow({}, steps, {name: f"{name}/out" for name in READERS})


def test_nothing_is_proven_where_calls_are_not_told(bench: Bench) -> None:
    path = bench.write(readers(), {}, io=True, config={**AUTO, "rehearse": "wait"})
    ours = bench.finish(bench.start(path, **NO_GATE), path)
    assert ours.ok, ours.errors
    assert known_proofs(Proving(bench).store) == ()
    assert " WARNING " not in ours.log
    assert ours.log.count("no gate") == 1
    assert [record["known"] for record in bench.telemetry() if record["event"] == "rehearsed"] == [False]
    assert bench.leftovers() == []


def test_what_is_proven_reads_whole_files_there(bench: Bench) -> None:
    proving = Proving(bench)
    plain = bench.run(readers(), io=False)
    path = bench.write(readers(), {}, io=True, config=AUTO)
    ways: dict[tuple[str, str], Way] = {(f"/{name}", "file"): "net" for name in READERS}
    proving.prove(path, ways)
    ours = bench.finish(bench.start(path, **NO_GATE), path)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert min(ours.times("read")) > ours.time("end")
    [warning] = [line for line in ours.log.splitlines() if " WARNING " in line]
    assert "no gate (SFIO_NODE_WITHOUT_GATE is set): the command starts when all that it reads is committed" in warning
    assert bench.leftovers() == []
