"""A proof from one job of a scatter makes the others stream, in the same run; until then all is as without."""

from __future__ import annotations

from typing import Any

import pytest

from lab.cwl import Document, found, tool, workflow
from lab.runs import Bench, Run
from streamflow_io.commands.plan import plan_file
from streamflow_io.records.learned.database import default_path
from streamflow_io.records.learned.proofs import known_proofs

AUTO = {"streaming": "auto"}
NO_CORE = [{"class": "ResourceRequirement", "coresMin": 0}]
LINES = 30_000
READ = 'read line; note read; echo "$line"; cat'


pytestmark = pytest.mark.usefixtures("own_data")


def until_rehearsed(bench: Bench) -> str:
    """Waits until the first job was rehearsed, if this is another one, and not a run of plain StreamFlow."""
    runs = bench.data / "streamflow-io" / "runs"
    rehearsed = f"[ $(cat {runs}/*/telemetry.jsonl | grep -c '\"rehearsed\"') -ge 1 ]"
    return f'[ -z "$SFIO_JOB" ] || [ $number = 1 ] || until {rehearsed}; do sleep 0.1; done\n'


def writer(bench: Bench, *, opens_before: bool = False, read: int = 0) -> Document:
    """A tool that writes the first part of its output, and the rest some time later; when the first job was rehearsed.

    :param read: the number of jobs that have begun to read before the rest is written, but for that of the first job
    """
    opens = "exec > out.txt\n"
    others = f'[ -z "$SFIO_JOB" ] || [ $number = 1 ] || [ $(grep -c read "$TRACE") -ge {read} ]'
    later = f"for i in $(seq 300); do {others} && break; sleep 0.1; done" if read else "sleep 1"
    begins = f"{opens if opens_before else ''}{until_rehearsed(bench)}{opens}seq {LINES}"
    script = f"{begins}; {later}; echo $number; note end $number"
    return tool(script, {"number": "int"}, {"out": found("out.txt")}, requirements=NO_CORE)


def reader(script: str = READ) -> Document:
    return tool(f"{{ {script}; }} < $file > read", {"file": "File"}, {"out": found("read")})


def scatters(first: Document, second: Document, **more: Any) -> Document:
    steps = {
        "a": {"run": first, "in": {"number": "numbers"}, "scatter": "number"},
        "b": {
            "run": second,
            "in": {"file": "a/out", **more},
            "scatter": ["file", *more],
            "scatterMethod": "dotproduct",
        },
    }
    return workflow({"numbers": "int[]"}, steps, {"b": "b/out"})


def run_both(bench: Bench, document: Document, count: int = 4, **config: Any) -> Run:
    job = {"numbers": [*range(1, count + 1)]}
    paths = [bench.write_plain(document, job), bench.write(document, job, io=True, config={**AUTO, **config})]
    plain, ours = bench.run_all(paths)
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
    assert " WARNING " not in ours.log
    return ours


def streamed(run: Run, count: int) -> int:
    """How many jobs but the first have begun to read before any of those that write for them has ended."""
    ended = min(run.time(f"end {number}") for number in range(2, count + 1))
    return sum(read < ended for read in sorted(run.times("read"))[1:])


def proven() -> dict[str, tuple[str | None, int]]:
    return {proof.step: (proof.way, proof.runs) for proof in known_proofs(default_path()) if proof.key.kind == "reads"}


@pytest.mark.parametrize("opens_before", [pytest.param(False, marks=pytest.mark.long), True])
def test_the_others_of_a_scatter_stream_in_the_same_run(bench: Bench, opens_before: bool) -> None:
    """Other jobs stream, too, if their file was opened before the proof."""
    ours = run_both(bench, scatters(writer(bench, opens_before=opens_before, read=4), reader()))
    assert proven() == {"/b": ("net", 3)}
    assert streamed(ours, 4) == 3
    assert ours.log.count("/b reads /a/out while it is written") == 1


def test_jobs_with_other_options_hold_nothing_before_their_files_are_complete(bench: Bench) -> None:
    second = reader()
    second["inputs"]["label"] = "int"
    document = scatters(writer(bench), second, label="numbers")
    ours = run_both(bench, document)
    assert streamed(ours, 4) == 0
    # The jobs that `when` lets run are submitted only then.
    at = {(record["event"], record["job"]): record["time"] for record in bench.telemetry() if "job" in record}
    for number in range(4):
        assert at["submitted", f"/b/0.{number}"] >= at["ended", f"/a/0.{number}"]


def test_what_is_planned_says_nothing_of_it(bench: Bench) -> None:
    path = bench.write(scatters(writer(bench), reader()), {"numbers": [1]}, io=True, config=AUTO)
    plan = plan_file(path).plans["main"]
    assert plan.graph.later is not None
    assert plan.graph.later.awaited == {"/a/out": (("/b", "file"),)}
    assert not any(edge.delivery.joins for edge in plan.graph.delivered)
    assert plan.graph.gangs == ()
