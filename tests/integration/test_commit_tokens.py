"""Downstream steps start at commit, while the producer still runs; results are those of plain StreamFlow."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lab.cwl import Document, found, side_by_side, streamable, streaming, tool, workflow
from lab.gates import ATTEMPT, MEET
from lab.runs import RETRY, Bench, Run

#: Until a consumer of ours has begun.
READ = "meet read"
WRITE_EARLY = f"{MEET}note start; echo data > out.txt; {READ}; sleep 1; note end"


def consumer(kind: str = "File") -> Document:
    script = {"File": "note read; cat $file", "Directory": "note read; cd $file; cat *"}[kind]
    return tool(script, {"file": kind}, {"out": "stdout"}, stdout="read.txt")


def two_steps(producer: Document, reader: Document | None = None) -> Document:
    steps = {"a": {"run": producer, "in": {}}, "b": {"run": reader or consumer(), "in": {"file": "a/out"}}}
    return workflow({}, steps, {"out": "b/out", "made": "a/out"})


def assert_early(run: Run) -> None:
    assert run.time("read") < run.time("end"), run.trace


def assert_late(run: Run) -> None:
    assert run.time("read") > run.time("end"), run.trace


def test_a_file_is_delivered_at_commit(bench: Bench) -> None:
    plain, ours = bench.run_both(two_steps(producer_early()))
    assert_late(plain)
    assert_early(ours)
    [committed] = [one for one in bench.telemetry() if one["event"] == "committed"]
    assert [committed[name] for name in ("output", "path", "files")] == ["/a/out", "out.txt", 1]
    assert committed["bytes"] == len(ours.files["out.txt"])
    assert 1 < committed["ended"] - committed["first"] < 60
    [said] = re.findall(r"out.txt of /a was committed ([0-9.]+) s before its job had ended", ours.log)
    assert float(said) == pytest.approx(committed["ended"] - committed["first"], abs=0.1)


def scattered(producer: Document) -> Document:
    element = tool(
        "note read $(basename $file); cat $file",
        {"file": "File"},
        {"out": "stdout"},
        stdout="$(inputs.file.nameroot).read",
    )
    gather = tool("", {"files": {"type": "File[]", "inputBinding": {}}}, {"out": "stdout"}, stdout="all.txt")
    gather["baseCommand"] = ["cat"]
    steps = {
        "a": {"run": producer, "in": {}},
        "b": {"run": element, "in": {"file": "a/out"}, "scatter": "file"},
        "c": {"run": gather, "in": {"files": "b/out"}},
    }
    return workflow({}, steps, {"list": "b/out", "all": "c/out", "made": "a/out"})


EARLY = [streaming({"port": "out", "committed": "on_close"})]


def scatter_to_scatter() -> Document:
    made = tool(
        f"{MEET}note make $n; echo $n > $n.txt; [ $n != 3 ] || {{ meet use 3; meet use 0; }}; note made $n",
        {"n": "int"},
        {"out": found("*.txt")},
        EARLY,
    )
    used = tool(
        "note use $(cat $file); cat $file", {"file": "File"}, {"out": "stdout"}, stdout="$(inputs.file.nameroot).used"
    )
    steps = {
        "a": {"run": made, "in": {"n": {"default": [3, 0]}}, "scatter": "n"},
        "b": {"run": used, "in": {"file": "a/out"}, "scatter": "file"},
    }
    return workflow({}, steps, {"out": "b/out"})


def list_reader() -> Document:
    reader = tool("", {"file": {"type": "File[]", "inputBinding": {}}}, {"out": "stdout"}, stdout="read.txt")
    reader["baseCommand"] = ["sh", "-c", 'echo "$(date +%s.%N) read" >> "$TRACE"; cat "$@"', "sh"]
    return reader


def gathered() -> Document:
    """One reader of a list that several jobs make."""
    made = tool(
        f"{MEET}echo $n > $n.txt; if [ $n = 2 ]; then {READ}; fi; note made $n",
        {"n": "int"},
        {"out": found("*.txt")},
        EARLY,
    )
    steps = {
        "a": {"run": made, "in": {"n": {"default": [2, 0, 1]}}, "scatter": "n"},
        "b": {"run": list_reader(), "in": {"file": "a/out"}},
    }
    return workflow({}, steps, {"out": "b/out"})


def made_by(script: str, out: Any, *rules: Document, **fields: Any) -> Document:
    streams = streaming(*({"port": "out", **rule} for rule in rules))
    return tool(f"{MEET}{script}; note end", {}, {"out": out}, [streams], **fields)


def test_every_rule_in_one_workflow(bench: Bench) -> None:
    """Each part has another rule, output or consumer."""
    closed, numbered = {"committed": "on_close"}, {"committed": "on_n_files", "nFiles": 3}
    some = [{"files": ["*.early"], **closed}, {"files": ["*.late"]}]
    directory, late_first = found("d", "Directory"), found(["*.late", "*.early"], "File[]")
    files = found("*.txt", "File[]")
    computed = {"type": "File", "outputBinding": {"glob": "out.txt", "outputEval": "$(self[0])"}}
    dependent = {"committed": "on_file", "fileDeps": ["done*"]}
    parts = {
        "file": two_steps(made_by(f"echo a > out.txt; touch done; {READ}", found("out.txt"), dependent)),
        "twice": two_steps(
            made_by(f"echo a > out.txt; echo b >> out.txt; {READ}", found("out.txt"), {"committed": "on_close:2"})
        ),
        "renamed": two_steps(made_by(f"echo a > temporary; mv temporary out.txt; {READ}", found("out.txt"), closed)),
        "termination": two_steps(made_by("echo data > out.txt; sleep 0.5", found("out.txt"), {})),
        "standard": two_steps(made_by(f"echo data; exec > /dev/null 2>&1; {READ}", "stdout", closed, stdout="out.txt")),
        "directory": two_steps(
            made_by(f"mkdir d; for i in 1 2 3; do echo $i > d/$i; done; {READ}", directory, numbered),
            consumer("Directory"),
        ),
        "list": two_steps(
            made_by(f"for i in 2 1 3; do echo $i > $i.txt; done; {READ}", files, numbered), list_reader()
        ),
        "fewer": two_steps(
            made_by("mkdir d; echo 1 > d/1; echo 2 > d/2; sleep 0.5", directory, numbered), consumer("Directory")
        ),
        "computed": two_steps(made_by("echo data > out.txt; sleep 0.5", computed, closed)),
        "elements": scattered(made_by("for i in 3 1 2; do echo $i > $i.txt; meet read $i.txt; done", files, closed)),
        "some": scattered(made_by("echo 1 > 1.early; echo 2 > 2.late; meet read 1.early", late_first, *some)),
        "scatter": scatter_to_scatter(),
        "gathered": gathered(),
    }
    plain, ours = bench.run_both(side_by_side(**parts))
    for name in ("file", "twice", "renamed", "standard", "directory", "list"):
        assert_early(ours.part(name))
    for name in ("termination", "fewer", "computed"):
        assert_late(ours.part(name))
    assert "output out: on_n_files promised 3 files, found 2 at the end: committed only now" in ours.log
    why = "/computed/a/out is computed by outputEval"
    assert f"/computed/a/out -> /computed/b/file is delivered at termination: {why}" in ours.log
    assert plain.part("elements").time("read 3.txt") > plain.part("elements").time("end")
    times = [ours.part("elements").time(what) for what in ("read 3.txt", "read 1.txt", "read 2.txt", "end")]
    assert times == sorted(times)
    early = ours.part("some")
    assert early.time("read 1.early") < early.time("end") < early.time("read 2.late")
    assert plain.part("scatter").time("use 0") > plain.part("scatter").time("made 3")
    for what in ("use 0", "use 3"):
        assert ours.part("scatter").time(what) < ours.part("scatter").time("made 3")
    assert ours.part("gathered").time("read") < ours.part("gathered").time("made 2")


def producer_early() -> Document:
    return tool(WRITE_EARLY, {}, {"out": found("out.txt")}, EARLY)


def inner() -> Document:
    return workflow({"file": "File"}, {"b": {"run": consumer(), "in": {"file": "file"}}}, {"out": "b/out"})


@pytest.mark.parametrize(
    "second",
    [
        pytest.param({"run": inner(), "in": {"file": "a/out"}}, marks=pytest.mark.long),
        {"run": inner(), "in": {"file": "a/out"}, "when": "$(inputs.file.basename == 'out.txt')"},
        pytest.param({"run": consumer(), "in": {"file": "a/out"}, "when": "$(true)"}, marks=pytest.mark.long),
        pytest.param(
            {"run": consumer(), "in": {"file": {"source": "a/out", "valueFrom": "$(self)"}}}, marks=pytest.mark.long
        ),
        *(
            pytest.param({"run": consumer(), "in": {"file": file}}, marks=pytest.mark.long)
            for file in (
                {"source": ["a/out"], "linkMerge": "merge_flattened", "valueFrom": "$(self[0])"},
                {"source": "a/out", "default": {"class": "File", "path": "job.json"}},
            )
        ),
    ],
    ids=["subworkflow", "subworkflow-when", "when", "valueFrom", "linkMerge", "default"],
)
def test_a_commit_reaches_the_consumer_through(bench: Bench, second: Document) -> None:
    steps = {"a": {"run": producer_early(), "in": {}}, "b": second}
    _, ours = bench.run_both(workflow({}, steps, {"out": "b/out"}))
    assert_early(ours)


def test_a_file_that_changes_after_its_commit_fails_the_run(bench: Bench) -> None:
    producer = tool(f"{MEET}echo a > out.txt; {READ}; echo b >> out.txt", {}, {"out": found("out.txt")}, EARLY)
    run = bench.run(two_steps(producer))
    assert not run.ok
    assert "out.txt of the output `out` was committed by `on_close`, but was written again afterwards" in run.log
    assert run.files == {}, "what was made from a wrong commit is among the results"


def test_a_directory_that_changes_after_its_commit_fails_the_run(bench: Bench) -> None:
    script = f"{MEET}mkdir d; for i in 1 2 3; do echo $i > d/$i; done; {READ}; echo more > d/4"
    rule = {"port": "out", "committed": "on_n_files", "nFiles": 3}
    producer = tool(script, {}, {"out": found("d", "Directory")}, [streaming(rule)])
    run = bench.run(two_steps(producer, consumer("Directory")))
    assert not run.ok
    assert "was committed by `on_n_files`, but was changed afterwards: 4" in run.log
    assert run.files == {}, "what was made from a wrong commit is among the results"


def test_more_files_that_come_when_a_list_has_been_handed_on_fail_the_run(bench: Bench) -> None:
    script = f"{MEET}for i in 1 2 3; do echo $i > $i.txt; done; {READ}; echo 4 > 4.txt"
    rule = {"port": "out", "committed": "on_n_files", "nFiles": 3}
    producer = tool(script, {}, {"out": found("*.txt", "File[]")}, [streaming(rule)])
    reader = tool("note read", {"file": {"type": "File[]"}}, {})
    steps = {"a": {"run": producer, "in": {}}, "b": {"run": reader, "in": {"file": "a/out"}}}
    run = bench.run(workflow({}, steps, {"made": "a/out"}))
    assert not run.ok
    assert "by `on_n_files` with 3 files, which other jobs have, but it has 1 more at the end: 4.txt" in run.log


@pytest.mark.long
def test_so_many_files_are_at_least_so_many(bench: Bench) -> None:
    """The files are of a list and of a Directory, links among them, and of a list into a scatter also when more come
    late.
    """
    rule = streaming({"port": "out", "committed": "on_n_files", "nFiles": 2})
    elements = scattered(tool("touch 1.txt 2.txt; sleep 1; touch 3.txt", {}, {"out": found("*.txt", "File[]")}, [rule]))
    listed = tool("touch 1.txt; ln -s 1.txt 2.txt; touch 3.txt", {}, {"out": found("*.txt", "File[]")}, [rule])
    reader = tool("", {"file": {"type": "File[]", "inputBinding": {}}}, {"out": "stdout"}, stdout="list.txt")
    reader["baseCommand"] = ["basename", "-a"]
    directory = tool("mkdir d; cd d; echo 1 > 1; ln -s 1 2; echo 3 > 3", {}, {"out": found("d", "Directory")}, [rule])
    lister = tool("cat $dir/*", {"dir": "Directory"}, {"out": "stdout"}, stdout="directory.txt")
    steps = {
        **elements["steps"],
        "list": {"run": listed, "in": {}},
        "read_list": {"run": reader, "in": {"file": "list/out"}},
        "directory": {"run": directory, "in": {}},
        "read_directory": {"run": lister, "in": {"dir": "directory/out"}},
    }
    names = {name: f"{name}/out" for name in ("b", "c", "read_list", "read_directory")}
    plain, _ = bench.run_both(workflow({}, {name: dict(step) for name, step in steps.items()}, names))
    assert plain.files["directory.txt"] == b"1\n1\n3\n"


def streamed(script: str, rule: str = "on_close") -> Document:
    """a streams to b, and goes on after its file is committed."""
    rules = [streaming({"port": "out", "committed": rule, "mode": "no_update"})]
    made = tool(script, {}, {"out": streamable("File", outputBinding={"glob": "out.txt"})}, rules)
    read = tool("note read; cat $file; note had", {"file": streamable()}, {"out": "stdout"}, stdout="read.txt")
    steps = {"a": {"run": made, "in": {}}, "b": {"run": read, "in": {"file": "a/out"}}}
    return workflow({}, steps, {"out": "b/out", "made": "a/out"})


@pytest.mark.parametrize(
    ("act", "told"),
    [
        ("echo b >> out.txt", "was written again afterwards"),
        pytest.param("printf b 1<> out.txt", "was written again afterwards", marks=pytest.mark.long),
    ],
    ids=["append", "in place"],
)
def test_a_streamed_file_that_changes_after_its_commit_fails_the_run(bench: Bench, act: str, told: str) -> None:
    run = bench.run(streamed(f"{MEET}echo a > out.txt; meet had; {act}; sleep 0.3"))
    assert not run.ok
    assert f"out.txt of the output `out` was committed by `on_close`, but {told}" in run.log
    assert bench.leftovers() == []


def test_a_streamed_file_that_a_retry_writes_otherwise_fails_the_run(bench: Bench) -> None:
    script = f"{MEET}{ATTEMPT}echo $attempt > out.txt; meet had; [ $attempt -ge 2 ] || exit 3"
    run = bench.run(streamed(script), **RETRY)
    assert not run.ok
    assert "out.txt of the output `out` was committed by `on_close`, but was written again afterwards" in run.log


LARGE = f"{MEET}head -c 10000000 /dev/zero > out.txt; meet had; "
BYTE = "printf x | dd of=out.txt bs=1 seek=%d conv=notrunc 2>/dev/null"


@pytest.mark.parametrize(
    ("script", "how"),
    [
        (
            f"{MEET}exec 3> out.txt; echo header >&3; meet had; printf H 1<> out.txt; exec 3>&-",
            "was written again between byte 0",
        ),
        pytest.param(LARGE + BYTE % 7_000_001, "was written again between byte 62", marks=pytest.mark.long),
        pytest.param(
            LARGE + "echo new > new; mv new out.txt",
            "was replaced after 10000000 bytes of it had been streamed",
            marks=pytest.mark.long,
        ),
        pytest.param(
            LARGE + "truncate --size=5000000 out.txt",
            "was cut after 10000000 bytes of it had been streamed",
            marks=pytest.mark.long,
        ),
    ],
    ids=["header", "byte", "replaced", "cut"],
)
def test_what_was_changed_after_it_was_streamed_is_read_again(bench: Bench, script: str, how: str) -> None:
    """In each case the reader has got something else than plain StreamFlow's."""
    document = streamed(f"{script}; sleep 0.5", "on_termination")
    size = 10_000_000 if LARGE in script else len("header\n")
    command = document["steps"]["b"]["run"]["baseCommand"]
    read = f"{{ head -c {size}; note had; cat; }} < $file | tee copy | sha1sum"
    command[2] = command[2].replace("cat $file; note had", read)
    _, ours = bench.run_both(document)
    assert (
        "Job /b/0 starts again when its input is final: job /a/0 has not written its output front to back" in ours.log
    )
    assert f"/out.txt {how}" in ours.log
    assert len(ours.times("read")) == 2
    assert "Not delivered as asked: /a/out: the reader has started again" in ours.log


@pytest.mark.parametrize(
    ("act", "warning"),
    [
        ("echo a > out.txt", "and written again with the same content"),
        pytest.param(": >> out.txt", "and closed again afterwards", marks=pytest.mark.long),
    ],
)
def test_a_file_that_is_written_again_as_it_was_is_worth_a_warning(bench: Bench, act: str, warning: str) -> None:
    producer = tool(f"{MEET}echo a > out.txt; {READ}; {act}; sleep 0.2", {}, {"out": found("out.txt")}, EARLY)
    _, ours = bench.run_both(two_steps(producer))
    assert f"out.txt of the output `out` was committed by `on_close`, {warning}" in ours.log
