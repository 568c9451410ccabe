"""A job that cannot read its producer's stream waits for the file; the others of its step do not, and all is right."""

from __future__ import annotations

from lab.cwl import streamable, tool, workflow
from lab.runs import Bench

# Outputs of plain StreamFlow, and of the unreachable producer, are not read before the end.
UNTIL_READ = """i=0
until [ -z "$SFIO_JOB" ] || [ $n = 1 ] || [ $i = 300 ] || grep -q "read $n" "$TRACE"
do i=$((i + 1)); sleep 0.1; done;"""


def test_one_job_of_several_does_not_reach_its_producer(bench: Bench) -> None:
    made = tool(
        "for i in 1 2 3; do echo $n $i; sleep 0.5; done > $n.txt; " + UNTIL_READ + " note end $n",
        {"n": "int"},
        {"out": streamable(outputBinding={"glob": "*.txt"})},
        requirements=[{"class": "ResourceRequirement", "coresMin": 0}],
    )
    read = tool(
        'note read $n; cat $file; echo "with $n"',
        {"file": streamable(), "n": "int"},
        {"out": "stdout"},
        stdout="$(inputs.file.nameroot).used",
    )
    steps = {
        "a": {"run": made, "in": {"n": "numbers"}, "scatter": "n"},
        "b": {"run": read, "in": {"file": "a/out", "n": "numbers"}, "scatter": ["file", "n"]},
    }
    steps["b"]["scatterMethod"] = "dotproduct"
    document, job = workflow({"numbers": "int[]"}, steps, {"out": "b/out"}), {"numbers": [1, 2, 3]}
    plain = bench.run(document, job, io=False)
    bench.program = "streamflow unreachable"
    ours = bench.run(document, job)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
    assert [len(ours.times(f"read {n}")) for n in (1, 2, 3)] == [1, 1, 1]
    assert ours.time("read 2") < ours.time("end 2")
    assert ours.time("read 1") > ours.time("end 1")
