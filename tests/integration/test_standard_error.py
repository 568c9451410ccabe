"""Standard error is apart from standard output, as CWL says, and is kept in the record of the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab import forked
from lab.cwl import Document, streamable, tool, workflow
from lab.node import wait_for
from lab.runs import Bench, wait_for_note

IO_TASK = {"class": "sfio:IOTask"}
TALK = "echo progress >&2; echo data"


def logs(bench: Bench, *words: str) -> Any:
    """Return what `streamflow-io logs` prints of the last run."""
    return json.loads(_logs(bench, *words, "--json").stdout)


def shown(bench: Bench, *words: str) -> str:
    done = _logs(bench, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _logs(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    return forked.run("streamflow-io", "logs", "last", *words, environment={"XDG_DATA_HOME": str(bench.data)})


def talkers(hints: list[Document]) -> Document:
    """Tools that say something on both streams, by what they name."""
    out, err = {"out": "stdout"}, {"err": "stderr"}
    tools = {
        "stdout": tool(TALK, {}, out, hints, stdout="a.txt"),
        "both": tool(TALK, {}, {**out, **err}, hints, stdout="b.txt", stderr="b.err"),
        "unnamed": tool(TALK, {}, {**out, **err}, hints),
        "stderr": tool(TALK, {}, err, hints, stderr="c.err"),
        "neither": tool(f"{TALK}; echo made > made.txt", {}, {"all": _all_files()}, hints),
        "glob": tool(TALK, {}, {"all": _all_files()}, hints, stdout="d.txt"),
        "code": tool(f"{TALK}; exit 3", {}, out, hints, stdout="e.txt", successCodes=[3]),
        "contents": tool(TALK, {}, {"text": _contents()}, hints, stdout="f.txt"),
    }
    steps = {name: {"run": made, "in": {}} for name, made in tools.items()}
    document = workflow({}, steps, {})
    for name, made in tools.items():
        for port, kind in made["outputs"].items():
            kind = kind if isinstance(kind, dict) else "File"
            type_ = kind["type"] if isinstance(kind, dict) else kind
            document["outputs"][f"{name}_{port}"] = {"type": type_, "outputSource": f"{name}/{port}"}
    return document


def _all_files() -> Document:
    return {"type": "File[]", "outputBinding": {"glob": "*"}}


def _contents() -> Document:
    return {
        "type": "string",
        "outputBinding": {"glob": "f.txt", "loadContents": True, "outputEval": "$(self[0].contents)"},
    }


@pytest.mark.parametrize("hints", [[], pytest.param([IO_TASK], marks=pytest.mark.long)], ids=["plain", "measured"])
def test_both_streams_are_apart_whatever_a_tool_names(bench: Bench, hints: list[Document]) -> None:
    run = bench.run(talkers(hints))
    assert run.ok, run.errors
    content = {name: value for name, value in run.files.items() if name.endswith((".txt", ".err"))}
    named = {"a.txt": b"data\n", "b.txt": b"data\n", "b.err": b"progress\n", "c.err": b"progress\n"}
    assert content == {**named, "made.txt": b"made\n", "d.txt": b"data\n", "e.txt": b"data\n"}
    assert run.outputs["contents_text"] == "data\n"
    assert [file["basename"] for file in run.outputs["glob_all"]] == ["d.txt"]
    assert [file["basename"] for file in run.outputs["neither_all"]] == ["made.txt"]
    unnamed = {
        run.outputs[f"unnamed_{port}"]["basename"]: text for port, text in (("out", b"data\n"), ("err", b"progress\n"))
    }
    assert {name: run.files[name] for name in unnamed} == unnamed
    said = {job["tag"] + job["step"]: job["attempts"][0]["bytes"] for job in logs(bench)["jobs"]}
    # Where a tool names neither, both go to the log.
    assert said.pop("0/neither") == len("progress\ndata")
    assert set(said.values()) == {len("progress\n")}
    assert len(said) == 7
    # Nothing of ours is left beside the directories of the jobs.
    assert [str(path) for path in bench.directory.rglob("*streamflow-io-stderr")] == []


# A shell starts so what a script leaves in the background.
IN_BACKGROUND = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")


@pytest.mark.parametrize(
    ("number", "prefix"), [(signal.SIGINT, ()), (signal.SIGTERM, ()), (signal.SIGTERM, IN_BACKGROUND)]
)
def test_a_run_that_is_asked_to_end_leaves_no_file_of_ours(bench: Bench, number: int, prefix: tuple[str, ...]) -> None:
    """Queue managers send SIGTERM at the end of a batch job."""
    bench.prefix = prefix
    talker = tool(f"{TALK}; note talked; sleep 600", {}, {"out": "stdout"}, [IO_TASK], stdout="a.txt")
    path = bench.write(workflow({}, {"a": {"run": talker, "in": {}}}, {"out": "a/out"}), {}, io=True)
    driver = bench.start(path)
    wait_for_note(path, " talked")
    os.kill(driver.pid, number)
    driver.wait(60)
    assert [str(path) for path in bench.directory.rglob("*streamflow-io-stderr")] == []
    log = (path.parent / "stderr").read_text()
    assert ("StreamFlow has got SIGTERM" in log) is (number == signal.SIGTERM)
    # StreamFlow would show the stack of each job. The last stack is Python's.
    assert " ERROR " not in log


def test_a_stream_carries_no_messages(bench: Bench) -> None:
    talk = tool("for i in $(seq 5); do echo progress >&2; echo $i; done", {}, {"out": streamable("stdout")}, stdout="a")
    count = tool("wc -l < $file", {"file": streamable()}, {"out": "stdout"}, stdout="count.txt")
    steps: dict[str, Document] = {"a": {"run": talk, "in": {}}, "b": {"run": count, "in": {"file": "a/out"}}}
    run = bench.run(workflow({}, steps, {"out": "b/out"}))
    assert run.ok, run.errors
    assert run.files["count.txt"].strip() == b"5"
    (job,) = logs(bench, "/a")["jobs"]
    assert job["attempts"][0]["text"] == "progress\n" * 5
    assert job["written"] == [{"source": "/a/0", "outputs": ["/a/out"], "job": "/b/0", "input": "/b/file", "bytes": 10}]


def test_a_failed_run_shows_the_standard_error_of_the_job_that_failed_first(bench: Bench) -> None:
    """In a scatter without hints. What a tool says is binary, long, and would turn a terminal blue."""
    script = (
        'test $n -eq 2 || { sleep 30; exit 0; }; printf "\\033[44m\\377" >&2; seq 100000 >&2; '
        'printf "the end\\033[2J\\n" >&2; exit 7'
    )
    steps: dict[str, Document] = {
        "a": {"run": tool(script, {"n": "int"}, {"out": "stdout"}, stdout="out.txt"), "in": {"n": "n"}, "scatter": "n"},
        "b": {"run": tool("cat", {"files": "File[]"}, {"out": "stdout"}, stdout="b.txt"), "in": {"files": "a/out"}},
    }
    run = bench.run(workflow({"n": "int[]"}, steps, {"out": "b/out"}), {"n": [2, 3]})
    assert not run.ok
    _, _, end = run.log.partition("FAILED Workflow execution: ")
    lines = end.splitlines()
    assert lines[0] == "job /a/0.0 of step /a has failed (exit code 7); not run: step /b"
    assert lines[1:3] == ["The last lines of its standard error:", "\t99982"]
    assert lines[21] == "\tthe end"
    assert lines[22].startswith("More: streamflow-io logs ")
    assert lines[22].endswith(" /a 0.0")
    assert "\x1b" not in run.log
    (job,) = logs(bench, "/a", "0.0")["jobs"]
    (attempt,) = job["attempts"]
    assert attempt["code"] == 7
    assert attempt["bytes"] > 500_000
    begin, last = attempt["text"]
    assert begin.startswith("\x1b[44m\N{REPLACEMENT CHARACTER}1\n2\n")
    assert last.endswith("the end\x1b[2J\n")
    text = shown(bench, "/a/0.0")
    assert "bytes are left out ..." in text
    assert "\x1b[2J" not in text


def test_a_run_that_fails_before_any_job_says_why_and_is_listed(bench: Bench) -> None:
    step = {
        "run": tool("true", {"n": "int"}, {"out": "stdout"}),
        "in": {"n": {"source": "n", "valueFrom": "$(self.a.b)"}},
    }
    document = workflow({"n": "int"}, {"a": step}, {"out": "a/out"})
    document["requirements"] = {"StepInputExpressionRequirement": {}, "InlineJavascriptRequirement": {}}
    run = bench.run(document, {"n": 2})
    assert not run.ok
    _, _, end = run.log.partition("FAILED Workflow execution: ")
    assert end.splitlines()[0].endswith("(reading 'b'); not run: step /a")
    assert logs(bench)["jobs"] == []
    listed = forked.run("streamflow-io", "runs", "--json", environment={"XDG_DATA_HOME": str(bench.data)})
    assert [each["state"] for each in json.loads(listed.stdout)["runs"]] == ["failed"]


def test_a_failed_tool_without_files_for_its_streams(bench: Bench) -> None:
    """The exit code is named, and nothing that it says reaches the terminal as a command."""
    script = 'printf "out\\033[2J\\n"; printf "err\\033]0;title\\007\\n" >&2; exit 6'
    run = bench.run(workflow({}, {"a": {"run": tool(script, {}, {}), "in": {}}}, {}), {})
    assert not run.ok
    _, _, end = run.log.partition("FAILED Workflow execution: ")
    lines = end.splitlines()
    assert lines[:4] == [
        "job /a/0 of step /a has failed (exit code 6)",
        "The last lines of its output:",
        "\tout",
        "\terr",
    ]
    assert "\x1b" not in run.log


def test_what_a_killed_job_has_said_is_kept(bench: Bench) -> None:
    script = "echo 'about to die' >&2; echo $$ > $TRACE.part; mv $TRACE.part $TRACE.pid; sleep 600"
    path = bench.write(
        workflow({}, {"a": {"run": tool(script, {}, {"out": "stdout"}), "in": {}}}, {"out": "a/out"}), {}, True
    )
    process = bench.start(path)
    pid = path.parent / "trace.pid"
    wait_for(pid.exists, "the process", 60)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    run = bench.finish(process, path)
    assert "\tabout to die" in run.log.partition("FAILED Workflow execution: ")[2].splitlines()
    (job,) = logs(bench, "/a")["jobs"]
    assert job["attempts"][0]["text"].startswith("about to die\n")


def test_a_mistake_in_the_name_of_a_step_is_answered_with_those_there_are(bench: Bench) -> None:
    steps: dict[str, Document] = {"align": {"run": tool("true", {}, {}), "in": {}}}
    assert bench.run(workflow({}, steps, {})).ok
    for words in (["/algn"], ["/align", "1"], ["/align", "0", "0"]):
        answer = logs(bench, *words)
        assert not answer["ok"], answer
    assert logs(bench, "/algn")["errors"][0]["allowed"] == "/align"
    assert "/align 0" in shown(bench)


def test_who_writes_on_after_its_job_writes_into_the_stream(bench: Bench, tmp_path: Path) -> None:
    """Plain StreamFlow takes the file as it is when the command has ended."""
    marker = tmp_path / "plain-has-ended"

    def document(until: str) -> Document:
        writes = f"( until {until}; do sleep 0.02; done; seq 2001 4000 ) & seq 2000"
        made = tool(writes, {}, {"out": streamable("stdout")}, stdout="a.txt")
        count = tool("wc -l < $file", {"file": streamable()}, {"out": "stdout"}, stdout="count.txt")
        steps: dict[str, Document] = {"a": {"run": made, "in": {}}, "b": {"run": count, "in": {"file": "a/out"}}}
        return workflow({}, steps, {"out": "b/out"})

    plain = bench.run(document(f"[ -e {marker} ]"), io=False)
    marker.touch()
    ours = bench.run(document("! kill -0 $$ 2> /dev/null"))
    assert plain.files["count.txt"].strip() == b"2000"
    assert ours.files["count.txt"].strip() == b"4000"
