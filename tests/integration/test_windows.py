"""Windows: what all readers have read of a file is removed while it is written; results as with plain StreamFlow."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from lab.cwl import Document, found, side_by_side, streamable, streaming, tool, workflow
from lab.node import wait_for
from lab.runs import RETRY, Bench, Run
from streamflow_io.cli import main
from streamflow_io.commands.plan import plan_file
from streamflow_io.commands.plan_proofs import declared, prospects
from streamflow_io.records.history import read_history
from streamflow_io.records.learned.proofs import Way
from streamflow_io.records.reader import read_records
from streamflow_io.report.analysis.verdict import verdict
from streamflow_io.wording import size_text
from tests.integration.test_learned_streams import AUTO, Proving, proving
from tests.integration.test_learned_streams import chain as learned_chain
from tests.integration.test_learned_streams import reader as learned_reader

__all__ = ["proving"]

WINDOW: Final[Document] = {"config": {"intermediates": "window"}}
MB: Final = 1 << 20
#: The bytes of a block: a quarter of those of other runs. A window of 16 MB has 16 blocks all the same.
BLOCK: Final = 1 << 18
BLOCKS: Final = {"SFIO_NODE_BLOCK": str(BLOCK)}


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.environment = BLOCKS
    return bench


# A reader begins, and a writer waits for that. The reader of the plain run begins later.
BEGIN = 'head -c 500000; touch "$TRACE.began"'
BEGUN = 'for t in $(seq 300); do test -z "$SFIO_JOB" -o -e "$TRACE.began" && break; sleep 0.1; done'


def numbers(size: int) -> str:
    """A script that prints different lines."""
    return f"seq 1 99999999 | head -c {size}"


def until_gone(size: int, file: str, tries: int = 300) -> str:
    """A script that waits until a part of its file is not on disk any more: once, and with windows."""
    gone = f'test $(stat -c %b {file}) -lt {size * 3 // 2048} && note "gone {file}"'
    need_not = f'test -z "$SFIO_JOB" || grep -q " gone {file}$" "$TRACE" || {{ {gone}; }}'
    return f"for t in $(seq {tries}); do {need_not} && break; sleep 0.1; done"


def awaited(size: int, file: str = "a.txt", tries: int = 300) -> str:
    """A script that prints lines, and waits until a part of them is not on disk any more."""
    return f"{numbers(size)}; {until_gone(size, file, tries)}"


def writer(script: str, hints: list[Document] | None = None, **outputs: Any) -> Document:
    return {"run": tool(script, {}, outputs or {"o": streamable("stdout")}, hints, stdout="a.txt"), "in": {}}


def reader(script: str, source: str, name: str) -> Document:
    run = tool(script, {"i": streamable()}, {"o": streamable("stdout")}, stdout=f"{name}.txt")
    return {"run": run, "in": {"i": source}}


def chain(write: str, copy: str = "tr 0-4 5-9 < $i") -> Document:
    steps = {"a": writer(write), "b": reader(copy, "a/o", "b"), "c": reader("sha1sum < $i", "b/o", "c")}
    return workflow({}, steps, {"o": "c/o"})


def both(
    bench: Bench, document: Document, meanwhile: Callable[[Path], None] = lambda _: None, **settings: Any
) -> tuple[Run, Path]:
    """Run a workflow with plain StreamFlow and with windows; the results must be the same.

    :param meanwhile: called while our run goes on, with its StreamFlow file
    :return: our run, and its directory
    """
    settings = {**WINDOW, **settings}
    paths = [bench.write_plain(document, {}), bench.write(document, {}, io=True, **settings)]
    plain, ours = bench.run_all(paths, 120, lambda: meanwhile(paths[1]))
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
    return ours, paths[1].parent


def test_a_chain(bench: Bench) -> None:
    # No job ends before its reader has begun.
    copy = f"tr 0-4 5-9 < $i; {until_gone(60 * BLOCK, 'b.txt')}"
    ours, _ = both(bench, chain(awaited(60 * BLOCK), copy))
    assert "SFIO-N00" not in ours.log
    discarded = {line["output"]: line for line in bench.telemetry() if line["event"] == "discarded"}
    assert {name: line["size"] for name, line in discarded.items()} == {"/a/o": 60 * BLOCK, "/b/o": 60 * BLOCK}
    assert all(0 < line["bytes"] <= line["size"] for line in discarded.values())
    gone = sum(line["bytes"] for line in discarded.values())
    (telemetry,) = bench.data.glob("**/telemetry.jsonl")
    assert f"windows: {size_text(gone)} of {size_text(120 * BLOCK)} removed behind" in verdict(
        read_history("run", read_records(telemetry))
    )


def test_a_slow_reader_pauses_its_producer(bench: Bench) -> None:
    """The file never takes much more than the window.

    What a writer adds until its pause is no part of a block: blocks have their size of other runs.
    """
    bench.environment = {}
    watch = 'while test -e "$TRACE.on"; do du -k --block-size=1 a.txt; sleep 0.02; done 2>/dev/null > "$TRACE.sizes" & '
    script = f'touch "$TRACE.on"; {watch}{numbers(4 * MB)}; {BEGUN}; {numbers(86 * MB)}; rm "$TRACE.on"'
    rule = streaming({"port": "o", "mode": "no_update", "window": "16MB"})
    # Whoever watches the file is paused, too. After 5 s without a byte read the window would be lifted.
    watched = 'seen=$(wc -l < "$TRACE.sizes"); sleep 0.5; test "$seen" = "$(wc -l < "$TRACE.sizes")"'
    read = "test $((t % 4)) != 0 || head -c 9999"
    wait = f'for t in $(seq 40); do test -z "$SFIO_JOB" && break; {watched} && break; {read}; done'
    slow = f"{BEGIN}; {wait}; for i in 1 2 3 4 5 6 7 8 9; do head -c 10485760; sleep 0.1; done; cat"
    steps = {"a": writer(script, [rule], o="stdout"), "b": reader(f"{{ {slow}; }} < $i | sha1sum", "a/o", "b")}
    ours, place = both(bench, workflow({}, steps, {"o": "b/o"}), config={})
    assert "SFIO-N00" not in ours.log
    sizes = [int(line.split()[0]) for line in (place / "trace.sizes").read_text().splitlines()]
    assert max(sizes) < 45 * MB
    (usage,) = [line["usage"] for line in bench.telemetry() if line["event"] == "ended" and line["step"] == "/a"]
    assert usage["pauses"] > 0


def exec_writer(script: str) -> Document:
    """A step whose shell writes the file, which has this name in each part of a workflow."""
    run = tool(f"exec > a.txt; {script}", {}, {"o": found("a.txt", streamable=True)})
    return {"run": run, "in": {}}


def read_by(write: Document, read: str, **more: Document) -> Document:
    steps = {"a": write, "b": sink(read, "a/o"), **more}
    return workflow({}, steps, {name: f"{name}/o" for name in steps if name != "a"})


def sink(script: str, source: str) -> Document:
    run = tool(script, {"i": streamable()}, {"o": "stdout"}, stdout="read.txt")
    return {"run": run, "in": {"i": source}}


MORE_THAN_WRITE: Final = {
    "again": ("; printf x | dd of=a.txt conv=notrunc 2>/dev/null", "it was written again where it was read"),
    "link": ("; ln a.txt b.txt", "it has another name, too"),
    "move": ("; mv a.txt b.txt; : > a.txt", "it was moved or removed"),
    "read": ("; head -c 9 a.txt > b.txt", "another program has read it"),
    "cut": ("; : > a.txt", "it was cut"),
}
SEEN_EARLY: Final = {
    "open": ("exec 5<>a.txt", "the job has it open for reading"),
    "linked": ("ln a.txt b.txt", "it has another name, too"),
}


def test_a_tool_that_does_more_than_write(bench: Bench) -> None:
    """The jobs run again with whole files."""
    parts = {
        name: read_by(exec_writer(f"{awaited(40 * BLOCK)}{script}"), "sha1sum < $i")
        for name, (script, _) in MORE_THAN_WRITE.items()
    }
    ours, _ = both(bench, side_by_side(**parts))
    for name, (_, why) in MORE_THAN_WRITE.items():
        # A reader may see first that its file was cut or moved.
        is_seen_by_readers = name in ("cut", "move")
        assert f"a.txt cannot have a window, and is lost: {why} [SFIO-N005]" in ours.log or is_seen_by_readers
        assert f"Job /{name}/a/0 starts again, and keeps its files whole: " in ours.log


def test_what_is_seen_early_keeps_the_file(bench: Bench) -> None:
    parts = {}
    told = 'for t in $(seq 600); do test -z "$SFIO_JOB" -o -e "${TRACE%-of.*}.told" && break; sleep 0.1; done'
    more = f"{numbers(4 * BLOCK)}; {BEGUN}; {numbers(60 * BLOCK)}; {told}"
    for name, (script, _) in SEEN_EARLY.items():
        parts[name] = read_by(exec_writer(f"{script}; {more}"), f"{{ {BEGIN}; cat; }} < $i | sha1sum")
    run = tool(f"ln -s real.txt a.txt; exec > a.txt; {more}", {}, {"o": found("a.txt", streamable=True)})
    parts["symlink"] = read_by({"run": run, "in": {}}, f"{{ {BEGIN}; cat; }} < $i | sha1sum")
    reasons = (*(why for _, why in SEEN_EARLY.values()), "it is a symbolic link")
    messages = [f"is kept whole, without a window: {why} [SFIO-N004]" for why in reasons]

    def tell(path: Path) -> None:
        """Let the jobs end when each message is there: a file whose job ends before is kept without a message."""
        log = path.with_name("stderr")
        wait_for(lambda: all(message in log.read_text() for message in messages), f"{messages} in {log}", 60)
        path.with_name("trace.told").touch()

    both(bench, side_by_side(**parts), tell)


#: A script that waits until bytes of its writer's file are discarded, in the part of the workflow.
WAIT_UNTIL_GONE: Final = (
    'for t in $(seq 300); do { test -z "$SFIO_JOB" || grep -q " gone a.txt$" "$TRACE"; } && break; sleep 0.1; done'
)


def test_what_readers_do(bench: Bench) -> None:
    """Each part of the workflow has another reader."""
    slow = "{ for i in 1 2 3; do head -c 2371440; sleep 0.1; done; cat; } < $i | md5sum"
    linking = tool("head -c 7500000 $i > half; sleep 0.5; ln -s $i b.txt", {"i": streamable()}, {"o": found("b.txt")})
    last = tool("sha1sum < $i", {"i": "File"}, {"o": "stdout"}, stdout="last.txt")
    link = {
        "a": exec_writer(awaited(40 * BLOCK)),
        "b": {"run": linking, "in": {"i": "a/o"}},
        "c": {"run": last, "in": {"i": "b/o"}},
    }
    parts = {
        "enough": read_by(exec_writer(numbers(60 * BLOCK)), "head -c 5000001 $i | sha1sum"),
        # The slower one counts.
        "two": read_by(exec_writer(numbers(40 * BLOCK)), "sha1sum < $i", c=sink(slow, "a/o")),
        # The program asks for more than bytes by the path of its input, before it reads.
        "asks": read_by(
            exec_writer(f"{numbers(4 * BLOCK)}; {BEGUN}; {numbers(36 * BLOCK)}"),
            'touch "$TRACE.began"; test -s $i && sha1sum < $i',
        ),
        # The program has read what is gone, and then asks for more than bytes.
        "gone": read_by(
            exec_writer(awaited(40 * BLOCK)),
            f"head -c 7500000 $i > half; {WAIT_UNTIL_GONE}; test -s $i && sha1sum < $i",
        ),
        # The declaration of the input is wrong.
        "twice": read_by(exec_writer(awaited(40 * BLOCK)), "sha1sum < $i; md5sum < $i"),
        "link": workflow({}, link, {"o": "c/o"}),
    }
    parts["two"]["steps"]["c"]["run"]["stdout"] = "other.txt"
    ours, _ = both(bench, side_by_side(**parts))
    assert "SFIO-S024" in ours.log
    assert "SFIO-S022" in ours.log
    for name in ("gone", "twice"):
        whole = f"/{name}/a/0 starts again, and keeps its files whole: a reader needs the whole file [SFIO-S030]"
        assert whole in ours.log, name


def test_sizes_of_a_scatter(bench: Bench) -> None:
    first = tool('seq 1 99999999 | head -c "$n"', {"n": "int"}, {"o": streamable("stdout")}, stdout="a.txt")
    steps: dict[str, Document] = {
        "a": {"run": first, "in": {"n": {"default": [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK]}}, "scatter": "n"},
        "b": {**reader("tr 0-4 5-9 < $i", "a/o", "b"), "scatter": "i"},
        "c": {**reader("sha1sum < $i", "b/o", "c"), "scatter": "i"},
    }
    both(bench, workflow({}, steps, {"o": "c/o"}))


#: A script that waits until bytes of its input are discarded, or this cannot be any more.
ONCE: Final = 'test -e "$TRACE.once" || { touch "$TRACE.once"; head -c 7500000 $i > half; sleep 1; exit 3; }; '


def test_a_reader_that_is_tried_again(bench: Bench) -> None:
    """The jobs whose windows it has read run again, too."""
    copy = f"cat $i; {until_gone(40 * BLOCK, 'b.txt')}"
    steps = {"a": writer(f"note a; {awaited(40 * BLOCK)}"), "b": reader(copy, "a/o", "b")}
    steps["c"] = reader(ONCE + "sha1sum < $i", "b/o", "c")
    document = workflow({}, steps, {"o": "c/o"})
    plain = bench.write_plain(document, {})
    (plain.parent / "trace.once").touch()
    path = bench.write(document, {}, io=True, **WINDOW, **RETRY)
    expected, ours = bench.run_all([plain, path], seconds=120)
    assert ours.ok, ours.errors
    assert ours.results == expected.results
    assert len(ours.times("a")) == 2
    assert "Job /b/0 starts again, and keeps its files whole" in ours.log
    assert bench.leftovers() == []


def test_two_streams_of_one_job(bench: Bench) -> None:
    """A pause of the job would be for ever: its reader takes one file first, and then the other one."""
    rules = [{"port": port, "mode": "no_update", "window": "16MB"} for port in ("o", "p")]
    script = f"{numbers(BLOCK)} > one; for t in $(seq 40); do cat one >> x; cat one >> y; done"
    write = tool(script, {}, {"o": found("x", streamable=True), "p": found("y", streamable=True)}, [streaming(*rules)])
    read = tool("cat $j $i | sha1sum", {"i": streamable(), "j": streamable()}, {"o": "stdout"}, stdout="b.txt")
    steps = {"a": {"run": write, "in": {}}, "b": {"run": read, "in": {"i": "a/o", "j": "a/p"}}}
    ours, _ = both(bench, workflow({}, steps, {"o": "b/o"}), config={})
    assert "/a/o has no window, and is kept whole: /b also reads /a/p while that is written [SFIO-S029]" in ours.log


def test_a_reader_that_takes_nothing_for_a_while(bench: Bench) -> None:
    """The window is lifted, with a message, and the run goes on."""
    rule = streaming({"port": "o", "mode": "no_update", "window": "16MB"})
    slow = f'{BEGIN}; until test -e "$TRACE.done"; do sleep 0.1; done; cat'
    script = f'{numbers(4 * BLOCK)}; {BEGUN}; {numbers(40 * BLOCK)}; touch "$TRACE.done"'
    steps = {"a": writer(script, [rule], o="stdout"), "b": reader(f"{{ {slow}; }} < $i | sha1sum", "a/o", "b")}
    ours, _ = both(bench, workflow({}, steps, {"o": "b/o"}), config={})
    assert "its reader has taken nothing for 5 s" in ours.log


@pytest.mark.parametrize("victim", ["driver", "exec", "producer", "serve"])
def test_a_kill_while_the_producer_is_paused(bench: Bench, victim: str) -> None:
    """Nothing is left, and nothing stays stopped."""
    rule = streaming({"port": "o", "mode": "no_update", "window": "16MB"})
    slow = "{ while head -c 262144 | grep -c . ; do sleep 0.3; done; } < $i"
    steps = {"a": writer("exec seq 1 99999999", [rule], o="stdout"), "b": reader(slow, "a/o", "b")}
    path = bench.write(workflow({}, steps, {"o": "b/o"}), {}, io=True)
    process = bench.start(path)
    stopped: list[int] = []

    def is_paused() -> bool:
        stopped[:] = [pid for pid, command in _ours(bench) if command.startswith("seq") and _state(pid) == "T"]
        return bool(stopped)

    wait_for(is_paused, "a pause", 60)
    exec_ = _parent(stopped[0])
    if victim == "driver":
        os.kill(process.pid, signal.SIGKILL)
    else:
        pids = {
            "exec": exec_,
            "producer": stopped[0],
            "serve": next(p for p, c in _ours(bench) if "sfio-node serve" in c),
        }
        os.kill(pids[victim], signal.SIGKILL)
    with contextlib.suppress(AssertionError):
        assert not bench.finish(process, path).ok
    wait_for(lambda: not [line for line in bench.leftovers() if line.startswith("process")], "the end of all processes")


@pytest.mark.parametrize(
    ("way", "script", "has_window"),
    [
        ("pipe", "sha1sum < $file", True),
        ("net", "sha1sum < $file", False),
        ("pipe", "sha1sum < $file; md5sum < $file", True),
    ],
)
def test_what_is_proven_without_a_hint(proving: Proving, way: Way, script: str, has_window: bool) -> None:
    """A file under the net is kept: its reader may go back. A wrong proof makes the producer run again."""
    wait = awaited(40 * BLOCK, "out.txt", 300 if has_window else 20)
    write = tool(f"exec > out.txt; note a; {wait}", {}, {"out": found("out.txt")})
    document = learned_chain(write, learned_reader(script))
    _, ours = proving.run_both(document, way, config={**AUTO, **WINDOW["config"]})
    assert (ours.times("gone out.txt") != []) == has_window, ours.errors


def test_the_plan_says_that_nothing_is_compared(bench: Bench) -> None:
    """A job that reads or writes a window runs only once."""
    path = bench.write(chain("seq 9"), {}, io=True, **WINDOW)
    plan = plan_file(path).plans["main"]
    said = {edge.route.output.name: declared(plan, edge) for edge in plan.graph.edges}
    assert said == {name: f"not compared: {name} has a window" for name in ("/a/o", "/b/o")}
    # The first reader has no window to read, and writes one.
    first = tool("seq 9 > out.txt", {}, {"out": found("out.txt")})
    copy = tool("cat $file > out.txt", {"file": "File"}, {"out": found("out.txt", streamable=True)})
    steps = {
        "a": {"run": first, "in": {}},
        "b": {"run": copy, "in": {"file": "a/out"}},
        "c": {
            "run": tool("cat $file > read.txt", {"file": streamable()}, {"o": found("read.txt")}),
            "in": {"file": "b/out"},
        },
    }
    path = bench.write(workflow({}, steps, {"o": "c/o"}), {}, io=True, config={**AUTO, **WINDOW["config"]})
    reasons = {one.input: one.reason for one in prospects(plan_file(path).plans["main"])}
    assert reasons["/b/file"] is not None
    assert (
        "its job reads or writes /b/out, which has a window: run once with `intermediates: remove`"
        in reasons["/b/file"]
    )


def test_the_plan_says_that_a_job_may_write_more_before_its_reader_begins(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cores of the job may be needed by what the reader waits for."""
    read = tool("cat $w $i", {"i": streamable(), "w": "File"}, {"o": streamable("stdout")}, stdout="b.txt")
    steps = {
        "a": writer("seq 9"),
        "w": {"run": tool("seq 9", {}, {"o": "stdout"}, stdout="w.txt"), "in": {}},
        "b": {"run": read, "in": {"i": "a/o", "w": "w/o"}},
        "c": reader("sha1sum < $i", "b/o", "c"),
    }
    path = bench.write(workflow({}, steps, {"o": "c/o"}), {}, io=True, **WINDOW)
    late = {each.step: each.late for each in plan_file(path).plans["main"].intermediates.windows}
    assert late == {"/a": "/b also gets /w/o", "/b": None}
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["plan", str(path)]) == 0
    assert "more is kept until its readers have begun: /b also gets /w/o" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("way", "excerpt", "why"),
    [("net", None, "under the net"), ("pipe", 10**6, "with the first 1.0 MB"), ("pipe", None, None)],
)
def test_the_plan_says_which_proofs_leave_no_window(
    proving: Proving, monkeypatch: pytest.MonkeyPatch, way: Way, excerpt: int | None, why: str | None
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(proving.bench.data))
    write = tool("seq 9 > out.txt", {}, {"out": found("out.txt")})
    document = learned_chain(write, learned_reader("sha1sum < $file"))
    path = proving.bench.write(document, {}, io=True, config={**AUTO, **WINDOW["config"]})
    proving.prove(path, {("/b", "file"): way}, excerpt)
    [window] = plan_file(path).plans["main"].intermediates.windows
    assert window.why == (why and f"/b/file may need the whole file: it is proven {why}")


def _ours(bench: Bench) -> list[tuple[int, str]]:
    return list(bench._processes())


def _state(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
