"""The workloads `patterns` and `gate`: their programs, and what they ask of the node runtime."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import gate, patterns
from benchmarks.pattern_ways import (
    BYTE_STREAM,
    COMMIT,
    GATE,
    LISTING,
    Consumer,
    Output,
    Pattern,
    Way,
    run_pipe,
    run_runtime,
    run_sequence,
)
from benchmarks.processes import CommandError
from benchmarks.tools import MEBIBYTE, chunk
from benchmarks.workflows import TOOL

LARGE = patterns.large("many-to-1", 2, 1, mebibytes=2)
SMALL = patterns.small("1-to-many", 1, 2, files=3)
FAILING = Pattern("failing", (("false",),), (Output("data"),), (Consumer(("cat",), ("data",)),))


def call(*arguments: str | Path) -> bytes:
    return subprocess.run([*TOOL, *map(str, arguments)], capture_output=True, check=True).stdout


def test_a_file_is_written_in_pieces_that_differ(tmp_path: Path) -> None:
    call("write-file", "5", "2", "1000", tmp_path / "data")
    data = b"".join(index.to_bytes(8, "big") + chunk(0, 1000)[8:] for index in (5, 6))
    assert (tmp_path / "data").read_bytes() == data
    (tmp_path / "empty").touch()
    lines = call("sum-files", tmp_path / "data", tmp_path / "empty").decode().splitlines()
    assert lines == [f"2000 {hashlib.sha256(data).hexdigest()}", f"0 {hashlib.sha256().hexdigest()}"]


def test_small_files_are_summed_the_same_by_name_and_as_listed(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    call("write-files", "0", "3", "100", "0", first)
    call("write-files", "3", "3", "100", "0", second)
    assert sorted(path.name for path in second.iterdir()) == ["00000", "00001", "00002"]
    named, listed = call("sum-named", "3", first, second), call("sum-listed", first, second)
    assert named == listed
    assert sorted(line.split()[1].decode() for line in named.splitlines()) == sorted(
        hashlib.sha256(chunk(index, 100)).hexdigest() for index in range(6)
    )


def test_every_word_is_mapped_and_counted_once(tmp_path: Path) -> None:
    patterns.write_splits(tmp_path, [150, 250])
    splits = sorted(tmp_path.iterdir())
    counts = Counter(word for split in splits for word in split.read_text().split())
    assert counts.total() == 400
    for split in splits:
        call("map-words", split, *(tmp_path / f"{split.name}-{part}" for part in range(2)))
    reduced: Counter[str] = Counter()
    for part in range(2):
        for line in (
            call("reduce-words", *(tmp_path / f"{split.name}-{part}" for split in splits)).decode().splitlines()
        ):
            word, count = line.split()
            assert word not in reduced
            reduced[word] = int(count)
    assert reduced == counts


def test_inputs_are_in_the_order_of_the_producers() -> None:
    pattern = patterns.map_reduce(Path("/splits"))
    reducer = pattern.consumers[1]
    assert [(producer, output.name) for producer, output in pattern.inputs(reducer)] == [
        (0, "part.1"),
        (1, "part.1"),
        (2, "part.1"),
    ]


@pytest.mark.parametrize(
    ("pattern", "ways"),
    [
        (LARGE, (BYTE_STREAM, COMMIT, GATE)),
        (SMALL, (COMMIT, GATE, LISTING)),
    ],
    ids=lambda value: value.name if isinstance(value, Pattern) else "",
)
def test_all_ways_give_the_same(pattern: Pattern, ways: tuple[Way, ...], tmp_path: Path) -> None:
    (sequence := tmp_path / "sequence").mkdir()
    outputs = [run_sequence(pattern, sequence).outputs]
    for way in ways:
        (directory := tmp_path / way.name).mkdir()
        outputs.append(run_runtime(pattern, way, directory).outputs)
    if pattern is LARGE:
        (pipe := tmp_path / "pipe").mkdir()
        outputs.append(run_pipe(pattern, pipe).outputs)
    assert all(output == outputs[0] for output in outputs)


def test_outputs_of_other_bytes_are_different(tmp_path: Path) -> None:
    digests = set()
    for first in "01":
        producer = (*TOOL, "write-file", first, "1", str(MEBIBYTE))
        (directory := tmp_path / first).mkdir()
        digests.add(run_sequence(dataclasses.replace(LARGE, producers=(producer,)), directory).outputs[LARGE.name])
    assert len(digests) == 2


@pytest.mark.parametrize("way", [COMMIT, BYTE_STREAM], ids=lambda way: way.name)
def test_a_producer_that_fails_is_an_error(way: Way, tmp_path: Path) -> None:
    with pytest.raises(CommandError):
        run_runtime(FAILING, way, tmp_path)


def test_without_the_gate_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SFIO_NODE_WITHOUT_GATE", "1")
    for name in ("pattern", "gate"):
        (tmp_path / name).mkdir()
    with pytest.raises(CommandError, match="SFIO_NODE_WITHOUT_GATE"):
        run_runtime(SMALL, GATE, tmp_path / "pattern")
    variant = next(variant for variant in gate.GATE.prepare(tmp_path) if variant.name == gate.OUTSIDE)
    with pytest.raises(CommandError, match="SFIO_NODE_WITHOUT_GATE"):
        variant.run(tmp_path / "gate")


@pytest.mark.parametrize("name", gate.JOBS)
def test_every_job_of_gate_gives_its_measures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "CALLS", 100)
    monkeypatch.setattr(gate, "PROGRAMS", 40)
    variant = next(variant for variant in gate.GATE.prepare(tmp_path) if variant.name == name)
    further = variant.run(tmp_path).sample.further
    assert set(further) == {
        f"{prefix}{call}_us{suffix}"
        for call in ("open_stat", "exec")
        for prefix, suffix in (("native_", ""), ("", "_above_native"))
    }
    assert further["native_exec_us"] > 0


def test_time_calls_measures_both(tmp_path: Path) -> None:
    (tmp_path / "data").touch()
    lines = dict(line.split() for line in call("time-calls", "120", "40", tmp_path / "data").decode().splitlines())
    assert set(lines) == {"open_stat_us", "exec_us"}
    # The greater one is not asked for: other users of the cores decide it.
    assert all(float(microseconds) > 0 for microseconds in lines.values())


@pytest.mark.parametrize("make_job", [gate.all_open, gate.outside, gate.inside], ids=lambda make: make.__name__)
def test_the_gates_of_the_jobs(make_job: gate.MakeJob, tmp_path: Path) -> None:
    spec, path = make_job(tmp_path)
    (gated,) = spec.gates
    events = [json.loads(line) for line in Path(gated.events).read_text().splitlines()]
    names = [event["event"] for event in events]
    assert ("committed" in names) is (make_job is gate.all_open)
    assert ("entry" in names) is (make_job is gate.inside)
    assert ("exit" in names) is (make_job is gate.all_open)
    assert (Path(gated.target) in path.parents) is (make_job is gate.inside)
    assert not Path(gated.target).exists()


def test_without_gates_there_are_none(tmp_path: Path) -> None:
    spec, path = gate.no_gate(tmp_path)
    assert spec.gates == ()
    assert path.exists()
