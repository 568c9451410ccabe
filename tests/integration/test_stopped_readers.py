"""A reader that has enough before the end of its stream: what it has read is compared with the final file, too."""

from __future__ import annotations

from typing import Any

from lab.cwl import Document, found, side_by_side, streamable, streaming, tool, workflow
from lab.runs import Bench


def again(part: str = "") -> str:
    """Return the message that the reader of a part of the workflow starts again."""
    return (
        f"Job {part}/b/0 starts again when its input is final: job {part}/a/0 has not written its output front to back"
    )


def until_read(times: int = 1) -> str:
    """Shell that waits until readers have noted `had` this many times; with plain StreamFlow no reader runs yet."""
    had = f'[ $(grep -c " had$" "$TRACE") -ge {times} ]'
    waits = f"tries=0; until {had} || [ $((tries += 1)) -gt 600 ]; do sleep 0.05; done"
    return f"if grep -q sfio-node /proc/$PPID/comm; then {waits}; fi"


def header(times: int = 1) -> str:
    """Shell that changes the first byte of its output when readers have had the first line this many times."""
    first = "exec 3> out.txt; echo header >&3; seq 1 9 >&3"
    return f"{first}; {until_read(times)}; printf H 1<> out.txt; exec 3>&-; sleep 0.2"


HEADER = header()


def producer(script: str, committed: str = "on_termination") -> Document:
    rule = {"port": "out", "committed": committed, "mode": "no_update"}
    return tool(script, {}, {"out": streamable(outputBinding={"glob": "out.txt"})}, [streaming(rule)])


def head(script: str = "head -n 1 $file > head.txt; note had", *rules: Document) -> Document:
    return tool(
        f"note read; {script}", {"file": streamable()}, {"out": found("head.txt")}, [streaming(*rules)] if rules else []
    )


def copy(kind: Any, name: str) -> Document:
    return tool("cat $file", {"file": kind}, {"out": "stdout"}, stdout=f"{name}.txt")


def chain(made: Document, read: Document, kind: Any = "File") -> Document:
    """a makes what b reads, and c copies what b makes."""
    steps = {
        "a": {"run": made, "in": {}},
        "b": {"run": read, "in": {"file": "a/out"}},
        "c": {"run": copy(kind, "c"), "in": {"file": "b/out"}},
    }
    return workflow({}, steps, {name: f"{name}/out" for name in "abc"})


def test_what_is_changed_after_a_reader_had_enough_is_read_again(bench: Bench) -> None:
    """Each part changes its file in another way; no reader of the second step gets what was made of it."""
    unchanged = "exec 3> out.txt; echo 1 >&3; sleep 0.4; seq 2 300000 >&3; exec 3>&-; sleep 0.3"
    early, streams = ({"port": "out", "committed": "on_close", "mode": mode} for mode in ("update", "no_update"))
    slow = "head -n 1 $file > head.txt; note had; sleep 1"
    changed = {
        "header": chain(producer(HEADER), head()),
        "replaced": chain(producer(f"seq 1 9 > out.txt; {until_read()}; echo 2 > new; mv new out.txt"), head()),
        "cut": chain(producer(f"echo 1 > out.txt; {until_read()}; : > out.txt"), head()),
        "commit": chain(producer(HEADER), head(slow, early)),
        "stream": chain(producer(HEADER), head(slow, streams), streamable()),
    }
    unchanged_parts = {
        committed: chain(producer(unchanged, committed), head()) for committed in ("on_termination", "on_close")
    }
    plain, ours = bench.run_both(side_by_side(**changed, **unchanged_parts))
    for name in changed:
        assert again(f"/{name}") in ours.log
        assert [len(run.part(name).times("read")) for run in (plain, ours)] == [1, 2]
    for name in unchanged_parts:
        assert f"Job /{name}/b/0 starts again" not in ours.log
        assert len(ours.part(name).times("read")) == 1


def test_what_others_have_already_fails_the_run(bench: Bench) -> None:
    """The other reader holds its input open to the end, with more behind than a pipe holds."""
    script = "exec 3< $file; head -n 1 <&3 > head.txt; note had; sleep 2"
    run = bench.run(
        chain(
            producer(HEADER.replace("seq 1 9", "seq 1 400000")), head(script, {"port": "out", "committed": "on_close"})
        )
    )
    assert not run.ok
    assert "Job /b/0: head.txt of the output `out` was committed by `on_close`, but was written again" in run.log
    assert bench.leftovers() == []


def test_several_readers_of_a_scatter(bench: Bench) -> None:
    """Readers of one file start again, readers of another do not."""
    script = f"if [ $n = 1 ]; then {header(2)}; else echo header > out.txt; sleep 0.5; fi".replace("out.txt", "$n.txt")
    made = tool(script, {"n": "int"}, {"out": streamable(outputBinding={"glob": "$(inputs.n).txt"})})
    steps: dict[str, Document] = {"a": {"run": made, "in": {"n": "numbers"}, "scatter": "n"}}
    for name in "bd":
        stdout = f"$(inputs.file.nameroot).{name}"
        read = tool(
            "head -n 1 $file; case $file in */1.txt) note had;; esac",
            {"file": streamable()},
            {"out": "stdout"},
            stdout=stdout,
        )
        steps[name] = {"run": read, "in": {"file": "a/out"}, "scatter": "file"}
    document = workflow({"numbers": "int[]"}, steps, {name: f"{name}/out" for name in "abd"})
    _, ours = bench.run_both(document, {"numbers": [1, 2]})
    for job in ("/b/0.0", "/d/0.0"):
        assert f"Job {job} starts again when its input is final" in ours.log
    for job in ("/b/0.1", "/d/0.1"):
        assert f"Job {job} starts again" not in ours.log


def test_a_retry_of_the_producer(bench: Bench) -> None:
    """The reads of the first attempt are of no concern; the reads of the second are compared."""
    first = f"echo old > out.txt; {until_read()}; exit 3"
    script = f'note try; if [ $(grep -c " try$" "$TRACE") = 1 ]; then {first}; fi; {header(2)}'
    retry = {"failureManager": {"type": "default", "config": {"max_retries": 2, "retry_delay": 0}}}
    ours = bench.run(chain(producer(script), head()), **retry)
    assert ours.ok, ours.errors
    assert again() in ours.log
    assert ours.files["c.txt"] == b"Header\n"
    assert bench.leftovers() == []
