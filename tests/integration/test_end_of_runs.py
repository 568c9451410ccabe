"""The log at the end of a run."""

from __future__ import annotations

import json
import re

from lab.cwl import Document, found, streamable, streaming, tool, versioned, workflow
from lab.gates import MEET
from lab.runs import Bench

TOOK = r"This run has taken ([0-9.]+) s, for [23] jobs"
OTHERWISE = r"the run would have taken about ([0-9.]+) s, [0-9.]+ s more"


def chain(more: str = "") -> Document:
    """`/b` gets what `/a` commits before it ends, and `/c` what `/b` has written."""
    rule = streaming({"port": "out", "committed": "on_close"})
    written = found("out.txt")
    slow = tool("sleep 4; cat $file > out.txt", {"file": "File"}, {"out": written})
    steps: dict[str, Document] = {
        "a": {"run": tool(f"seq 8 > out.txt; sleep 4{more}", {}, {"out": written}, [rule]), "in": {}},
        "b": {"run": slow, "in": {"file": "a/out"}},
        "c": {"run": tool("cat $file", {"file": "File"}, {"out": "stdout"}, stdout="c.txt"), "in": {"file": "b/out"}},
    }
    return workflow({}, steps, {"c": "c/out"})


WITHOUT_HINTS = workflow({}, {"a": {"run": tool("echo", {}, {}), "in": {}}}, {})


def test_what_a_run_saved_is_what_the_same_run_takes_without_hints_more(bench: Bench) -> None:
    paths = [
        bench.write(chain(), {}, True),
        bench.write(chain(), {}, True, {"runtime": "off"}),
        bench.write(chain("; exit 1"), {}, True),
        bench.write(WITHOUT_HINTS, {}, True),
        bench.write(WITHOUT_HINTS, {}, True, {"runtime": "off"}),
    ]
    streams, off, failed, plain, baseline = bench.run_all(paths)
    took, otherwise = (float(re.findall(words, streams.log)[0]) for words in (TOOK, OTHERWISE))
    took_off = float(re.findall(TOOK, off.log)[0])
    assert took < took_off
    assert abs(otherwise - took_off) < 0.6 * (took_off - took), (took, otherwise, took_off)
    [early] = re.findall(r"1 file was committed ([0-9.]+) s", streams.log)
    assert 3.5 < float(early) < took
    assert "Nothing was delivered later than asked" in streams.log
    assert "Not delivered as asked: /a/out: `runtime: off`" in off.log
    assert "This run has failed after" in failed.log
    assert not re.findall(OTHERWISE, off.log + failed.log)
    assert "this run" not in plain.log.lower()
    # A user that asks for a run without the plugin wants to compare with it.
    assert "Telemetry of this run is in" in baseline.log


def test_who_asks_for_the_size_of_a_stream_is_among_what_was_not_delivered_as_asked(bench: Bench) -> None:
    made = tool("seq 8 > out.txt; sleep 1; seq 8 >> out.txt", {}, {"out": {**found("out.txt"), "streamable": True}})
    sized = tool(
        "stat -c %s $file; cat $file", {"file": {"type": "File", "streamable": True}}, {"out": "stdout"}, stdout="b.txt"
    )
    steps: dict[str, Document] = {"a": {"run": made, "in": {}}, "b": {"run": sized, "in": {"file": "a/out"}}}
    _, ours = bench.run_both(workflow({}, steps, {"out": "b/out"}))
    assert "Not delivered as asked: /a/out: the command asks by path for more than its bytes" in ours.log
    assert "Nothing was delivered later than asked" not in ours.log


def test_a_reader_that_sleeps_between_lines_does_not_wait_for_them(bench: Bench) -> None:
    """Mostly it has taken all that there is, for its producer is the slower one. Without streams it sleeps as long."""
    sleeps = "note reads; while read -r line; do sleep 0.2; done < $file"
    writes = f"{MEET}meet reads; for i in $(seq 10); do echo $i; sleep 0.3; done"
    write = tool(writes, {}, {"out": {"type": "stdout", "streamable": True}})
    steps: dict[str, Document] = {
        "a": {"run": write, "in": {}},
        "b": {"run": tool(sleeps, {"file": streamable()}, {"out": "stdout"}, stdout="b.txt"), "in": {"file": "a/out"}},
    }
    run = bench.run(workflow({}, steps, {"b": "b/out"}))
    assert run.ok, run.errors
    took, otherwise = (float(re.findall(words, run.log)[0]) for words in (TOOK, OTHERWISE))
    # The reader sleeps for 2 s, and waits for 1 s. Each look at its processes has shown the wait.
    assert otherwise - took > 1, run.log
    (streamed,) = [record for record in bench.telemetry() if record["event"] == "streamed"]
    assert streamed["waited"] < 0.75 * (streamed["last"] - streamed["first"]), streamed


def test_a_run_has_ended_when_the_next_workflow_of_its_file_begins(bench: Bench) -> None:
    """The second workflow fails, and its steps have the names of those of the first."""
    runs = bench.data / "streamflow-io" / "runs"

    def chain_of(script: str) -> Document:
        read, out = {"file": streamable()}, {"out": "stdout"}
        steps: dict[str, Document] = {
            "a": {"run": tool(script, {}, {"out": streamable(**found("out.txt"))}), "in": {}},
            "b": {"run": tool("cat $file", read, out, stdout="b"), "in": {"file": "a/out"}},
            "c": {"run": tool("cat $file", {"file": "File"}, out, stdout="c"), "in": {"file": "b/out"}},
        }
        return workflow({}, steps, {"c": "c/out"})

    path = bench.write(chain_of("seq 8 > out.txt"), {}, True)
    fails = f"grep -hE '^.{{10}}(results|end)' {runs}/*/telemetry.jsonl >&2; exit 3"
    (path.parent / "other.cwl").write_text(json.dumps(versioned(chain_of(fails))))
    file = json.loads(path.read_text())
    main = file["workflows"]["main"]
    file["workflows"]["other"] = {**main, "config": {**main["config"], "file": "other.cwl"}}
    path.write_text(json.dumps(file))
    run = bench.finish(bench.start(path), path)
    assert not run.ok
    seen, last = re.findall(r" ERROR +(FAILED .*(?:\n\t.*)*)", run.log)
    assert re.search(r'{"event":"results".*\n.*{"event":"end".*"status":"completed"}', seen), seen
    assert "job /a/0 of step /a has failed (exit code 3); not run: steps /b, /c" in last


def test_a_run_tells_which_declarations_have_no_other_end(bench: Bench) -> None:
    made = tool("seq 8", {}, {"out": {"type": "stdout", "streamable": True}}, stdout="out.txt")
    read = tool("cat $file", {"file": "File"}, {"out": "stdout"}, stdout="b.txt")
    steps: dict[str, Document] = {"a": {"run": made, "in": {}}, "b": {"run": read, "in": {"file": "a/out"}}}
    one = workflow({}, steps, {"b": "b/out"})
    two = workflow({}, {**steps, "c": {"run": read, "in": {"file": "a/out"}}}, {"b": "b/out", "c": "c/out"})
    paths = [bench.write(one, {}, True), bench.write(two, {}, True), bench.write(one, {}, True, {"runtime": "off"})]
    single, several, off = (run.log for run in bench.run_all(paths))
    assert "/a/out is `streamable`, and /b/file is not: nothing streams from /a/out to /b/file [SFIO-S023]" in single
    assert "2 edges are `streamable` at one end only: `streamflow-io plan` has them [SFIO-S023]" in several
    assert "SFIO-S023" not in off
