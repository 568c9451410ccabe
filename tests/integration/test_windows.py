"""Windows: what all readers have read of a file is removed while it is written; results as with plain StreamFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.runs import Bench, Run

WINDOW: Final[Document] = {"config": {"intermediates": "window"}}
MB: Final = 1 << 20


def numbers(size: int) -> str:
    """A script that prints different lines."""
    return f"seq 1 99999999 | head -c {size}"


def writer(script: str, hints: list[Document] | None = None, **outputs: Any) -> Document:
    return {"run": tool(script, {}, outputs or {"o": streamable("stdout")}, hints, stdout="a.txt"), "in": {}}


def reader(script: str, source: str, name: str) -> Document:
    run = tool(script, {"i": streamable()}, {"o": streamable("stdout")}, stdout=f"{name}.txt")
    return {"run": run, "in": {"i": source}}


def chain(size: int, **readers: str) -> Document:
    steps = {
        "a": writer(numbers(size)),
        "b": reader("tr 0-4 5-9 < $i", "a/o", "b"),
        "c": reader("sha1sum < $i", "b/o", "c"),
    }
    return workflow({}, steps, {"o": "c/o"})


def both(bench: Bench, document: Document, **settings: Any) -> tuple[Run, Path]:
    """Run a workflow with plain StreamFlow and with windows; the results must be the same.

    :return: our run, and its directory
    """
    settings = {**WINDOW, **settings}
    paths = [bench.write_plain(document, {}), bench.write(document, {}, io=True, **settings)]
    plain, ours = bench.run_all(paths, seconds=120)
    assert plain.ok, plain.errors
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
    return ours, paths[1].parent


def test_a_chain(bench: Bench) -> None:
    ours, _ = both(bench, chain(60 * MB))
    assert "SFIO-N00" not in ours.log


def test_a_slow_reader_pauses_its_producer(bench: Bench) -> None:
    """The file never takes much more than the window."""
    watch = 'while test -e "$TRACE.on"; do du -k --block-size=1 a.txt; sleep 0.02; done 2>/dev/null > "$TRACE.sizes" & '
    script = f'touch "$TRACE.on"; {watch}{numbers(90 * MB)}; rm "$TRACE.on"'
    rule = streaming({"port": "o", "mode": "no_update", "window": "16MB"})
    slow = "{ for i in 1 2 3 4 5 6 7 8 9; do head -c 10485760; sleep 0.1; done; cat; } < $i | sha1sum"
    steps = {"a": writer(script, [rule], o="stdout"), "b": reader(slow, "a/o", "b")}
    ours, place = both(bench, workflow({}, steps, {"o": "b/o"}), config={})
    assert "SFIO-N00" not in ours.log
    sizes = [int(line.split()[0]) for line in (place / "trace.sizes").read_text().splitlines()]
    assert max(sizes) < 45 * MB
    (usage,) = [line["usage"] for line in bench.telemetry() if line["event"] == "ended" and line["step"] == "/a"]
    assert usage["pauses"] > 0


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("; printf x | dd of=a.txt conv=notrunc 2>/dev/null", "it was written again where it was read"),
        ("; ln a.txt b.txt", "it has another name, too"),
        ("; mv a.txt b.txt; : > a.txt", "it was moved or removed"),
        ("; head -c 9 a.txt > b.txt", "another program has read it"),
        ("; : > a.txt", "it was cut"),
    ],
)
def test_a_tool_that_does_more_than_write(bench: Bench, script: str, why: str) -> None:
    """Nothing that was made from a wrong stream is a result."""
    rest = f"until test $(stat -c %b a.txt) -lt {64 << 10}; do sleep 0.01; done{script}"
    steps = {
        "a": {"run": tool(f"{numbers(40 * MB)} > a.txt; {rest}", {}, {"o": found("a.txt", streamable=True)}), "in": {}},
        "b": reader("sha1sum < $i", "a/o", "b"),
    }
    run = bench.run(workflow({}, steps, {"o": "b/o"}), **WINDOW)
    assert not run.ok
    assert f"a.txt cannot have a window, and is lost: {why} [SFIO-N005]" in run.log
    assert run.files == {}
    assert bench.leftovers() == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exec 5<>a.txt", "the job has it open for reading"),
        ("ln a.txt b.txt", "it has another name, too"),
    ],
)
def test_what_is_seen_early_keeps_the_file(bench: Bench, script: str, why: str) -> None:
    steps = {
        "a": {
            "run": tool(f": > a.txt; {script}; {numbers(40 * MB)} > a.txt", {}, {"o": found("a.txt", streamable=True)}),
            "in": {},
        },
        "b": reader("sha1sum < $i", "a/o", "b"),
    }
    ours, _ = both(bench, workflow({}, steps, {"o": "b/o"}))
    assert f"is kept whole, without a window: {why} [SFIO-N004]" in ours.log


def test_a_reader_that_has_enough(bench: Bench) -> None:
    steps = {"a": writer(numbers(60 * MB)), "b": reader("head -c 20000001 $i | sha1sum", "a/o", "b")}
    both(bench, workflow({}, steps, {"o": "b/o"}))


def test_two_readers(bench: Bench) -> None:
    """The slower one counts."""
    slow = "{ for i in 1 2 3; do head -c 9485760; sleep 0.1; done; cat; } < $i | md5sum"
    readers = {"b": reader("sha1sum < $i", "a/o", "b"), "c": reader(slow, "a/o", "c")}
    both(bench, workflow({}, {"a": writer(numbers(40 * MB)), **readers}, {"b": "b/o", "c": "c/o"}))


@pytest.mark.parametrize("size", [0, 1, MB - 1, MB, MB + 1, 5 * MB])
def test_sizes(bench: Bench, size: int) -> None:
    both(bench, chain(size))


def test_a_scatter(bench: Bench) -> None:
    first = tool(numbers(3 * MB) + "; echo $n", {"n": "int"}, {"o": streamable("stdout")}, stdout="a.txt")
    steps = {
        "a": {"run": first, "in": {"n": "numbers"}, "scatter": "n"},
        "b": {**reader("sha1sum < $i", "a/o", "b"), "scatter": "i"},
    }
    document = workflow({"numbers": "int[]"}, steps, {"o": "b/o"})
    paths = [
        bench.write_plain(document, {"numbers": [1, 2, 3]}),
        bench.write(document, {"numbers": [1, 2, 3]}, io=True, **WINDOW),
    ]
    plain, ours = bench.run_all(paths)
    assert ours.ok, ours.errors
    assert ours.results == plain.results


def test_a_reader_that_needs_the_file(bench: Bench) -> None:
    """Its program asks for more than bytes by the path of its input, before it reads."""
    steps = {"a": writer(numbers(40 * MB)), "b": reader("test -s $i && sha1sum < $i", "a/o", "b")}
    ours, _ = both(bench, workflow({}, steps, {"o": "b/o"}))
    assert "SFIO-S024" in ours.log
