"""`intermediates: remove`: results as with plain StreamFlow, and nothing else left in the work directory."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any, Final

import pytest

from lab import forked
from lab.cwl import Document, found, side_by_side, streamable, streaming, tool, workflow
from lab.runs import Bench, Run
from streamflow_io.commands.plan import plan_file
from streamflow_io.engine.intermediates import outcomes

REMOVE: Final[Document] = {"config": {"intermediates": "remove"}}
#: Waits, in a run that removes files, until no job directory has the file any more.
GONE: Final = (
    'gone() { run=$(dirname "$TRACE"); test -e "$run/removes" || return 0; '
    'there() { test -e "$1" -o -L "$1"; }; '
    'while for left in "$run"/tmp/streamflow/*/$1; do there "$left" && break; done; do sleep 0.05; done; }; '
)


def make(name: str, script: str = "", **fields: Any) -> Document:
    """A step that makes `name.txt`, and a file that is no output."""
    run = tool(f"echo scratch > {name}.tmp; {script or f'echo {name}'}", {}, {"o": "stdout"}, stdout=f"{name}.txt")
    return {"run": run, "in": {}, **fields}


def copy(name: str, source: str, script: str = "", kind: Any = "File", **fields: Any) -> Document:
    run = tool(f"{script}cat $i; echo {name}", {"i": kind}, {"o": "stdout"}, stdout=f"{name}.txt")
    return {"run": run, "in": {"i": source}, **fields}


def expression(text: str, inputs: Document, outputs: Document) -> Document:
    return {"class": "ExpressionTool", "expression": text, "inputs": inputs, "outputs": outputs}


def as_step(run: Document, **sources: Any) -> Document:
    """A step without the input `trace`."""
    return {"run": {**run, "inputs": {**run["inputs"], "trace": "string"}}, "in": sources}


def joined(name: str, source: str, script: str = "", **fields: Any) -> Document:
    run = tool(f"{script}cat", {"i": "File[]"}, {"o": "stdout"}, stdout=f"{name}.txt")
    run["baseCommand"] = ["sh", "-c", f'{GONE}{script}cat "$@"', "sh"]
    run["arguments"] = ["$(inputs.i)"]
    return {"run": run, "in": {"i": source}, **fields}


def chain() -> Document:
    steps = {"a": make("a"), "b": copy("b", "a/o"), "c": copy("c", "b/o", f"{GONE}gone a.txt; gone b.tmp; ")}
    return workflow({}, steps, {"c": "c/o"})


def numbered(name: str) -> Document:
    run = tool("echo $n", {"n": "int"}, {"o": "stdout"}, stdout=f"{name}.txt")
    return {"run": run, "in": {"n": "n"}}


def one_by_one() -> Document:
    """The file of the first job goes while the last job that reads such a file still runs."""
    write = tool("echo $n", {"n": "int"}, {"o": "stdout"}, stdout="$(inputs.n).a")
    script = f"{GONE}test $n != 3 || gone 1.a; cat $i"
    read = tool(script, {"i": "File", "n": "int"}, {"o": "stdout"}, stdout="$(inputs.n).b")
    first = {"run": write, "in": {"n": "numbers"}, "scatter": "n"}
    second = {"run": read, "in": {"i": "a/o", "n": "numbers"}, "scatter": ["i", "n"], "scatterMethod": "dotproduct"}
    return workflow({"numbers": "int[]"}, {"a": first, "b": second, "m": joined("m", "b/o")}, {"m": "m/o"})


def selected() -> Document:
    """The outputs of jobs that read a part of a file each go while a later job runs, and so does the file."""
    rule = {"of": "of", "part": "n", "parts": 3, "records": "bytes"}
    hints: list[Document] = [{"class": "sfio:ReadSession", "rules": [rule]}]
    read = tool("cat $of; echo $n", {"of": "File", "n": "int"}, {"o": "stdout"}, hints, stdout="$(inputs.n).r")
    steps = {
        "a": make("a"),
        "b": {"run": read, "in": {"of": "a/o", "n": "numbers"}, "scatter": "n"},
        "m": joined("m", "b/o"),
        "c": copy("c", "m/o", f"{GONE}gone 1.r; gone a.txt; "),
    }
    return workflow({"numbers": "int[]"}, steps, {"c": "c/o"})


def crossed() -> Document:
    run = tool("cat $i $j", {"i": "File", "j": "File"}, {"o": "stdout"}, stdout="b.txt")
    first = {**numbered("a"), "in": {"n": "numbers"}, "scatter": "n"}
    second = {**first, "run": numbered("c")["run"]}
    step = {"run": run, "in": {"i": "a/o", "j": "c/o"}, "scatter": ["i", "j"], "scatterMethod": "flat_crossproduct"}
    steps = {"a": first, "c": second, "b": step, "m": joined("m", "b/o", "gone a.txt; ")}
    return workflow({"numbers": "int[]"}, steps, {"m": "m/o"})


def passed_through() -> Document:
    run = expression("$({o: inputs.i})", {"i": "File"}, {"o": "File"})
    steps = {"a": make("a"), "e": as_step(run, i="a/o"), "b": copy("b", "a/o")}
    return workflow({}, steps, {"e": "e/o", "b": "b/o"})


def twice() -> Document:
    """A list has a file twice, and a scatter reads it in two jobs, one after the other."""
    run = expression("$({o: [inputs.i, inputs.i]})", {"i": "File"}, {"o": "File[]"})
    steps = {
        "a": make("a"),
        "e": as_step(run, i="a/o"),
        "b": copy("b", "e/o", scatter="i", hints=[{"class": "ResourceRequirement", "coresMin": 2}]),
        "m": joined("m", "b/o", "gone a.txt; "),
    }
    return workflow({}, steps, {"m": "m/o"})


def shared() -> Document:
    """A list has a file that is two outputs of a job. The last job of the scatter gets it when others have read it."""
    first = tool("echo a > a.txt", {}, {"o": found("a.txt"), "p": found("*.txt")})
    script = 'case $i in */a.txt) touch "$TMPDIR/b.tmp";; */d.txt) gone b.tmp;; esac; '
    second = copy("b", "", GONE + script, scatter="i")
    second["run"]["requirements"].append({"class": "ResourceRequirement", "coresMin": len(os.sched_getaffinity(0))})
    second["in"]["i"] = {"source": ["a/o", "d/o", "c/o", "a/p"], "linkMerge": "merge_flattened"}
    steps = {"a": {"run": first, "in": {}}, "c": make("c"), "d": make("d"), "b": second, "m": joined("m", "b/o")}
    return workflow({}, steps, {"m": "m/o"})


def linked() -> Document:
    run = tool("ln -s $i b.txt; ln $(readlink -f $i) h.txt", {"i": "File"}, {"o": found("b.txt"), "h": found("h.txt")})
    step = {"run": run, "in": {"i": "a/o"}}
    return workflow({}, {"a": make("a"), "b": step, "c": copy("c", "b/h")}, {"b": "b/o", "c": "c/o"})


def linked_late() -> Document:
    """The file behind a link is read when its own readers have ended."""
    link = {"run": tool("ln -s $i b.txt", {"i": "File"}, {"o": found("b.txt")}), "in": {"i": "a/o"}}
    steps = {"a": make("a"), "b": link, "c": copy("c", "x/o"), "x": make("x", "sleep 1")}
    run = tool("cat $i $j", {"i": "File", "j": "File"}, {"o": "stdout"}, stdout="d.txt")
    steps["d"] = {"run": run, "in": {"i": "b/o", "j": "c/o"}}
    steps["e"] = copy("e", "d/o", f"{GONE}gone a.txt; ")
    return workflow({}, steps, {"e": "e/o"})


def directory() -> Document:
    run = tool("mkdir -p d/s; echo x > d/s/x; echo y > d/y; echo z > z", {}, {"d": found("d", "Directory")})
    pick = expression(
        "$({o: inputs.d.listing.filter(function(f) {return f.basename == 'y'})[0]})",
        {"d": {"type": "Directory", "loadListing": "shallow_listing"}},
        {"o": "File"},
    )
    return workflow({}, {"a": {"run": run, "in": {}}, "e": as_step(pick, d="a/d")}, {"e": "e/o"})


def contents() -> Document:
    run = expression("$({o: inputs.i.contents})", {"i": {"type": "File", "loadContents": True}}, {"o": "string"})
    say = {"run": tool('echo "$s"', {"s": "string"}, {"o": "stdout"}, stdout="s.txt"), "in": {"s": "e/o"}}
    return workflow({}, {"a": make("a"), "e": as_step(run, i="a/o"), "s": say}, {"s": "s/o"})


def secondary() -> Document:
    files = {"secondaryFiles": [{"pattern": ".idx"}]}
    run = tool("echo a > a.bam; echo i > a.bam.idx; echo z > z", {}, {"o": found("a.bam", **files)})
    use = tool("cat $i $i.idx", {"i": {"type": "File", **files}}, {"o": "stdout"}, stdout="b.txt")
    steps = {
        "a": {"run": run, "in": {}},
        "b": {"run": use, "in": {"i": "a/o"}},
        "c": copy("c", "b/o", f"{GONE}gone a.bam; "),
    }
    return workflow({}, steps, {"c": "c/o"})


def looped() -> Document:
    run = tool("cat $i; echo $round", {"i": "File", "round": "int"}, {"o": "stdout"}, stdout="l.txt")
    requirement = {
        "class": "cwltool:Loop",
        "loopWhen": "$(inputs.round < 3)",
        "loop": {"round": {"valueFrom": "$(inputs.round + 1)"}, "i": "o"},
        "outputMethod": "last",
    }
    step = {"run": run, "in": {"i": "a/o", "round": {"default": 0}}, "requirements": [requirement]}
    return workflow({}, {"a": make("a"), "l": step, "c": copy("c", "l/o")}, {"c": "c/o"})


def by_path() -> Document:
    """Only the path of the file reaches its reader, as a text."""
    step = {"run": tool("cat $p", {"p": "string"}, {"o": "stdout"}, stdout="b.txt"), "in": {}}
    step["in"]["p"] = {"source": "a/o", "valueFrom": "$(self.path)"}
    return workflow({}, {"a": make("a"), "b": step, "c": copy("c", "b/o", f"{GONE}gone a.txt; ")}, {"c": "c/o"})


def permanent() -> Document:
    first = make("a")
    first["run"]["hints"] = [streaming({"port": "o", "permanent": True})]
    return workflow({}, {"a": first, "b": copy("b", "a/o"), "c": copy("c", "b/o")}, {"c": "c/o"})


def streamed() -> Document:
    """The declared stream is compared with the file after its job, for longer than files wait for their removal."""
    first = tool("for i in 1 2 3; do echo $i; sleep 0.1; done", {}, {"o": streamable("stdout")}, stdout="a.txt")
    second = tool("sleep 0.7; cat $i", {"i": streamable()}, {"o": "stdout"}, stdout="b.txt")
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"i": "a/o"}}}
    return workflow({}, {**steps, "c": copy("c", "b/o", f"{GONE}gone a.txt; ")}, {"c": "c/o"})


def committed() -> Document:
    """The elements of a list are read as soon as each is closed."""
    script = "for i in 1 2 3; do echo $i > $i.part; sleep 0.2; done"
    run = tool(script, {}, {"o": found("*.part", "File[]")}, [streaming({"port": "o", "committed": "on_close"})])
    steps = {"a": {"run": run, "in": {}}, "b": copy("b", "a/o", scatter="i"), "m": joined("m", "b/o", "gone 1.part; ")}
    return workflow({}, steps, {"m": "m/o"})


NUMBERS: Final = {"numbers": [1, 2, 3]}


def left(run: Path) -> list[str]:
    """All that a run has left of its jobs, relative to their directories; a directory without files with a slash."""
    found = []
    for directory in (run / "tmp" / "streamflow").glob("*"):
        inner = [*directory.rglob("*")]
        found += [str(path.relative_to(directory)) for path in inner if path.is_symlink() or path.is_file()]
        found += [
            f"{path.relative_to(directory)}/" for path in [directory, *inner] if path.is_dir() and not [*path.iterdir()]
        ]
    return sorted(found)


def run_both(bench: Bench, document: Document, inputs: Document, **settings: Any) -> Run:
    """Run a workflow with plain StreamFlow, and with files removed; the results must be the same."""
    paths = [bench.write_plain(document, inputs), bench.write(document, inputs, io=True, **REMOVE, **settings)]
    (paths[1].parent / "removes").touch()
    plain, ours = bench.run_all(paths)
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert "SFIO-B008" not in ours.log
    assert bench.leftovers() == []
    return ours


@pytest.mark.parametrize("settings", [{}, {"failureManager": {"type": "default", "config": {"max_retries": 1}}}])
def test_a_failed_run_keeps_what_is_there(bench: Bench, settings: Document) -> None:
    """Also what no job needs: the job fails when the file before its input is gone."""
    steps = {"a": make("a"), "b": copy("b", "a/o"), "c": copy("c", "b/o", f"{GONE}gone a.txt; ")}
    steps["d"] = copy("d", "c/o", "echo x > d.x; exit 1; ")
    path = bench.write(workflow({}, steps, {"d": "d/o"}), {}, io=True, **REMOVE, **settings)
    (path.parent / "removes").touch()
    run = bench.finish(bench.start(path), path)
    assert not run.ok
    assert {"c.txt", "d.x"} <= {posixpath.basename(name) for name in left(path.parent)}


@pytest.mark.parametrize("manager", ["default", "rollback"])
def test_a_retry_makes_again_what_is_gone(bench: Bench, manager: str) -> None:
    """The job loses its input. What its producer had read is gone, so all three jobs run again."""
    lose = 'test -e "$TRACE.once" || { touch "$TRACE.once"; gone a.txt; rm -f "$(readlink -f $i)"; exit 1; }; '
    steps = {name: {**step} for name, step in {"a": make("a", "note a; echo a"), "b": copy("b", "a/o")}.items()}
    steps["c"] = copy("c", "b/o", f"{GONE}{lose}")
    steps["d"] = copy("d", "c/o")
    settings = {"failureManager": {"type": manager, "config": {"max_retries": 5, "retry_delay": 0}}}
    path = bench.write(workflow({}, steps, {"d": "d/o"}), {}, io=True, **REMOVE, **settings)
    (path.parent / "removes").touch()
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert run.files == {"d.txt": b"a\nb\nc\nd\n"}
    assert len(run.times("a")) == 2
    assert left(path.parent) == ["d.txt"]


def test_a_gang_that_is_tried_again(bench: Bench) -> None:
    """Each attempt has directories of its own, and only the last outputs are read."""
    script = 'note try; echo x > "$TMPDIR/x"; for i in 1 2 3; do echo $i; sleep 0.1; done; '
    script += '[ $(grep -c " try$" "$TRACE") -gt 1 ] || exit 3'
    first = tool(script, {}, {"o": streamable("stdout")}, stdout="a.txt")
    second = tool("cat $i", {"i": streamable()}, {"o": "stdout"}, stdout="b.txt")
    steps = {"a": {"run": first, "in": {}}, "b": {"run": second, "in": {"i": "a/o"}}}
    steps |= {"c": copy("c", "b/o", f"{GONE}gone a.txt; "), "d": copy("d", "a/o")}
    settings = {"failureManager": {"type": "default", "config": {"max_retries": 3, "retry_delay": 0}}}
    path = bench.write(workflow({}, steps, {"c": "c/o", "d": "d/o"}), {}, io=True, **REMOVE, **settings)
    (path.parent / "removes").touch()
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    assert run.files == {"c.txt": b"1\n2\n3\nc\n", "d.txt": b"1\n2\n3\nd\n"}
    assert left(path.parent) == ["c.txt", "d.txt"]


def test_rehearsals_have_their_files(bench: Bench) -> None:
    """Files stay until the jobs that read them were tried once more, also where a core is free only at the end."""
    config = {**REMOVE["config"], "streaming": "auto", "rehearse": "wait"}
    for _ in range(2):
        path = bench.write(chain(), {}, io=True, config=config)
        run = bench.finish(bench.start(path), path)
        assert run.ok, run.errors
        assert left(path.parent) == ["c.txt"]
    proven = [record for record in bench.telemetry() if record["event"] == "edge"]
    assert {record["delivery"] for record in proven} == {"stream"}


def test_only_the_smallest_rehearsal_that_waits_for_a_core_keeps_its_files(bench: Bench) -> None:
    """The last job has all cores until the larger file is gone."""
    cores = [{"class": "ResourceRequirement", "coresMin": len(os.sched_getaffinity(0))}]
    steps = {
        "a": make("a", "seq 1 400000"),
        "b": copy("b", "a/o"),
        "c": make("c", "seq 1 40000"),
        "d": copy("d", "c/o"),
        "e": {
            "run": tool(
                f'{GONE}gone a.txt; ls "$run"/tmp/streamflow/*/c.txt > kept; test -s kept; cat $i $j',
                {"i": "File", "j": "File"},
                {"o": "stdout"},
                stdout="e.txt",
            ),
            "in": {"i": "b/o", "j": "d/o"},
        },
    }
    for name in steps:
        steps[name]["run"]["requirements"] = [*steps[name]["run"].get("requirements", []), *cores]
    path = bench.write(workflow({}, steps, {"e": "e/o"}), {}, io=True, config={**REMOVE["config"], "streaming": "auto"})
    (path.parent / "removes").touch()
    run = bench.finish(bench.start(path), path, 60)
    assert run.ok, run.errors
    assert left(path.parent) == ["e.txt"]
    told = "Whether /b/i may be read while it is written is not known yet: its files had to go before a core was free"
    assert run.log.count(told) == 1
    assert bench.leftovers() == []


def test_the_plan_says_which_files_an_expression_may_pass_on(bench: Bench) -> None:
    passing = as_step(expression("$({o: inputs.i})", {"i": "File"}, {"o": "File"}), i="a/o")
    document = workflow({}, {"a": make("a"), "b": passing}, {"b": "b/o"})
    plan = plan_file(bench.write(document, {}, io=True, **REMOVE)).plans["main"]
    assert [(each.port, each.why) for each in outcomes(plan)] == [
        ("o", "after its jobs of /b, or later: /b may pass it on")
    ]


@pytest.mark.parametrize("intermediates", ["remove", "window"])
def test_what_users_are_told(bench: Bench, intermediates: str) -> None:
    """The workflow has no hints, and no text that could be one."""
    first = tool("head -c 3000000 /dev/zero", {}, {"o": "stdout"}, stdout="a.txt")
    steps = {
        "a": {"run": first, "in": {}},
        "b": copy("b", "a/o", f"{GONE}"),
        "c": copy("c", "b/o", f"{GONE}gone a.txt; "),
    }
    document = {"$namespaces": {}, **workflow({}, steps, {"c": "c/o"})}
    path = bench.write(document, {}, io=True, config={"intermediates": intermediates})
    (path.parent / "removes").touch()
    planned = forked.run("streamflow-io", "plan", path)
    assert planned.returncode == 0, planned.stderr
    plan = planned.stdout
    assert all(each in plan for each in ("/a/o", "removed", "after its jobs of /b"))
    assert all(each in plan for each in ("/c/o", "kept", "a result of the workflow"))
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    (line,) = [line for line in run.log.splitlines() if "Intermediate files:" in line]
    assert "6.0 MB removed; the directories of jobs held at most 6.0 MB, and hold 3.0 MB now" in line
    assert "Disk of the driver's node: at most 6.0 MB at a time; written: 9.0 MB\n" in run.log
    assert "With `intermediates: keep`, both would have been 9.0 MB" in run.log
    held = [record["held"] for record in bench.telemetry() if record["event"] == "removed"]
    assert max(held) >= 6_000_000 > held[-1] >= 3_000_000
    planned = forked.run("streamflow-io", "plan", path, environment={"XDG_DATA_HOME": str(bench.data)})
    assert planned.returncode == 0, planned.stderr
    foretold = "as in the last run: at most 6.0 MB at a time; written: 9.0 MB"
    assert foretold in " ".join(planned.stdout.split())


def test_files_of_jobs_that_run_count_for_the_peak(bench: Bench) -> None:
    """Also a temporary file, which is gone when its job ends."""
    until = 'until test -e "$TRACE.{}"; do sleep 0.05; done; '.format
    write = 'head -c 6000000 /dev/zero > "$TMPDIR/t"; touch "$TRACE.written"; '
    temporary = f'{write}{until("begun")}gone y.txt; rm "$TMPDIR/t"; echo x'
    awaited = f'touch "$TRACE.begun"; {until("written")}head -c 3000000 /dev/zero'
    steps = {"x": make("x", f"{GONE}{temporary}"), "y": make("y", awaited), "z": copy("z", "y/o")}
    for step in steps.values():
        step["run"]["requirements"].append({"class": "ResourceRequirement", "coresMin": 0.1})
    path = bench.write(workflow({}, steps, {"x": "x/o", "z": "z/o"}), {}, io=True, **REMOVE)
    (path.parent / "removes").touch()
    run = bench.finish(bench.start(path), path)
    assert run.ok, run.errors
    (record,) = [record for record in bench.telemetry() if record["event"] == "disk"]
    assert 12_000_000 <= record["peak"] < 12_100_000
    assert 6_000_000 <= record["written"] < 6_100_000


def prefixed(name: str, part: Document) -> Document:
    """A part of a workflow whose jobs wait for files with the names that :func:`lab.cwl.side_by_side` gives them."""
    printed = {step["run"]["stdout"] for step in part["steps"].values() if "stdout" in step["run"]}
    endings = {text.rpartition(".")[2] for text in printed}
    for step in part["steps"].values():
        command = step["run"]["baseCommand"]
        ours = "|".join(map(re.escape, endings))
        command[2] = re.sub(rf"gone (\w+\.({ours});)", rf"gone {name}-\1", command[2])
    part["inputs"] |= {each: {"type": "int[]", "default": NUMBERS[each]} for each in NUMBERS if each in part["inputs"]}
    return part


def test_what_is_left_of_several_workflows_in_one(bench: Bench) -> None:
    cases = {
        one_by_one: ["m.txt"],
        selected: ["c.txt"],
        crossed: ["m.txt"],
        linked_late: ["e.txt"],
        secondary: ["c.txt"],
        looped: ["c.txt"],
        by_path: ["c.txt"],
        permanent: ["a.txt", "c.txt"],
        streamed: ["c.txt"],
        committed: ["m.txt"],
    }
    run_both(bench, side_by_side(**{case.__name__: prefixed(case.__name__, case()) for case in cases}), {})
    assert left(bench.directory / "run2") == sorted(
        f"{case.__name__}-{name}" for case, names in cases.items() for name in names
    )


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (passed_through, ["a.txt", "b.txt"]),
        (twice, ["m.txt"]),
        (shared, ["m.txt"]),
        (linked, ["a.txt", "b.txt", "c.txt", "*/a.txt"]),
        (directory, ["d/y"]),
        (contents, ["s.txt"]),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_what_is_left(bench: Bench, document: Any, expected: list[str]) -> None:
    run_both(bench, document(), {})
    # The names of some directories are random.
    names = [name.split("/", 1) for name in left(bench.directory / "run2")]
    assert sorted("/".join(["*" if len(part) == 36 else part for part in parts]) for parts in names) == sorted(expected)
