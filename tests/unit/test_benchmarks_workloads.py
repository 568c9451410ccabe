"""The workloads and the programs that they run."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import (
    cluster,
    driver_events,
    feeder,
    flat_disk,
    ledger,
    limiter,
    ordinary,
    read_sessions_hosts,
    read_sessions_templates,
    session_alone,
    slow_disks,
    stream_link,
    templates,
    workflows,
)
from benchmarks.__main__ import WORKLOADS
from benchmarks.features import workloads_of_features
from benchmarks.processes import CommandError
from benchmarks.tools import MEBIBYTE, chunk, use_cpu
from benchmarks.workflows import TOOL, StreamFlowRun, run_bash, tree_digest
from benchmarks.workload import Workload
from lab import memory_limit
from streamflow_io.runtime.embedded import find_sfio_node

SMALL_CASES = (feeder.Case(1, 2, MEBIBYTE), feeder.Case(3, 1, 1024, consumers=2))


def call(*arguments: str, data: bytes = b"", directory: Path | None = None) -> bytes:
    return subprocess.run([*TOOL, *arguments], input=data, cwd=directory, capture_output=True, check=True).stdout


def test_chain_tools_hand_on_every_byte() -> None:
    source = call("chain-source", "3", "1000", "0")
    assert source == b"".join(chunk(index, 1000) for index in range(3))
    sums = [hashlib.sha256(source[begin : begin + 700]).hexdigest() for begin in range(0, 3000, 700)]
    assert call("sum-blocks", "700", "0", data=source).decode().split() == sums
    transformed = call("chain-transform", "700", "0", data=source)
    assert transformed == bytes(value ^ 0x5A for value in source)
    size, digest = call("chain-sum", "900", "0", data=transformed).split()
    assert int(size) == 3000
    assert digest.decode() == hashlib.sha256(transformed).hexdigest()


def test_fanout_tools(tmp_path: Path) -> None:
    start = time.monotonic()
    call("fanout-source", "3", "100", "0.05", directory=tmp_path)
    assert time.monotonic() - start >= 0.15
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000.part", "001.part", "002.part"]
    line = call("fanout-sum", str(tmp_path / "001.part"), "0").decode()
    assert line == f"001.part {hashlib.sha256(chunk(1, 100)).hexdigest()}\n"


def test_an_unknown_tool_fails() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        call("chain-source", "3")


def test_chunks_differ_and_have_their_size() -> None:
    chunks = [chunk(index, 100_001) for index in range(4)]
    assert {len(data) for data in chunks} == {100_001}
    assert len(set(chunks)) == 4


def test_work_is_cpu_time() -> None:
    start = time.process_time()
    use_cpu(0.05)
    assert 0.05 <= time.process_time() - start < 0.2


@pytest.mark.long
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
def test_comparisons_name_variants(workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "_write_files", lambda directory, case: [])
    monkeypatch.setattr(limiter, "write_source", lambda source, mebibytes: None)
    for module in (cluster, read_sessions_hosts, stream_link):
        monkeypatch.setattr(module, "obstacle", lambda: "not tried")
    monkeypatch.setattr(slow_disks, "obstacle", lambda: "not tried")
    for module in (templates, read_sessions_templates):
        monkeypatch.setattr(module, "run", lambda commands, directory: None)  # It generates the input.
    monkeypatch.setattr(ordinary, "_data", lambda directory, pairs: {})
    names = [variant.name for variant in workload.prepare(tmp_path)]
    assert len(set(names)) == len(names)
    for comparison in workload.comparisons:
        for named in (comparison.variant, comparison.baseline or ()):
            assert set([named] if isinstance(named, str) else named) <= set(names)


def test_goals_are_those_to_reach() -> None:
    of_features = [*workloads_of_features()]
    goals = {
        workload.name: [c.at_most or c.at_least for c in workload.comparisons if c.is_goal]
        for workload in WORKLOADS.values()
        if workload not in of_features
    }
    assert goals == {
        "chain": [0.70, 1.10],
        "capio-chain": [],
        "fanout": [0.65, 0.65],
        "auto": [1.03, 1.05] * 2,
        "auto-long": [1.03, 1.05] * 2,
        "watching": [1.01, 0.01, 2.0, *([1.1, 0.9] * 3)],
        "overhead": [1.03, 1.15, 3.0, 5.0, 1.02, 0.1],
        "auto-at-scale": [1.1, 1.02] * 5,
        "many-jobs": [1.03, 1.05, 1.03, 1.10, 1.15] + [5.0] * 5,
        "ordinary": [1.02] * 21,
        "busy-cores": [1.02] * 3,
        "feeder": [0.95] * 5,
        "limiter": [1.0, 15.0, 3.0, 1.0] * 4 + [5.0, 1.5] * 18 + [0.7],
        "patterns": [1.05, 0.90],
        "gate": [0.5, 12.0, 12.0],
        "io-tasks": [1.0, 1.10, 1.03, 1, 0.75],
        "checkpoints": [1.02] * 4 + [0.35] + [0.70] * 3 + [0.02, 5.0] * 3,
        "neighbour": [1.02, 0.95, 1.02, 0.80, 0.65, 1.00],
        "deadlines": [0.25] * 2 + [0.03] * 2 + [0.5] * 2,
        "deadlines-random": [0.25] * 2 + [0.03] * 2 + [0.5] * 2,
        "ledger": [10.0, 2.0, None, 80.0],
        "shared-runs": [0.70, 1.10, 1.05],
        "shared-bursts": [0.80, 0.97, 0.75, 0.80, 1.05, 1.05],
        "shared-alone": [1.02],
        "stream-link": [1.02, 1.5],
        "1000genome": [0.999],
        "1000genome-directories": [0.999],
        "variant-calling": [0.70],
        "cluster": [1.15, 0.75, 20.0, 20.0],
        "containers": [0.50, 0.62, 1.03, 1.05, 0.999, 60, 1.0, 0.8, 0.4, 5.0],
        "read-sessions": [
            *[1.0, 1.10, 1.10, 1.0, 3.0, 1.10, 1.10],
            *[0.8] * 2,
            *[1.05, 1.05, 16, 0.1, 16, 0.1],
            *[0.65, 1.0, 1.02, 0.01] * 2,
            *[0.65, 1.0, 1.05, 0.01],
        ],
        "read-sessions-hosts": [0.50, 1.02, 2.02, 2.05, 0.1],
        "read-sessions-templates": [0.60] * 3 + [1.02] * 3,
    }


@pytest.mark.long
def test_runs_that_are_killed_stay_within_the_bandwidth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "SECONDS", 6.0)
    monkeypatch.setattr(ledger, "KILLS", 8)
    (variant,) = ledger.LEDGER.prepare(tmp_path)
    found = variant.run(tmp_path).sample.further
    assert found["above_bandwidth"] == 0
    assert found["grants_per_s"] > 10


@pytest.mark.parametrize("tool", limiter.TOOLS)
def test_what_is_held_to_a_rate_copies_every_byte(tool: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    limiter.write_source(source, 4)
    (directory := tmp_path / "run").mkdir()
    outcome = limiter.paused(limiter.Case(tool, 200), source, 4).run(directory)
    assert outcome.outputs == {"copy": hashlib.sha256(source.read_bytes()).hexdigest()}
    assert 0 < outcome.sample.further["mb_per_s"] < 2000


def test_how_far_windows_are_off() -> None:
    assert limiter.most_off(10, [1, 1_000_000, 1_100_000, 950_000, 1]) == pytest.approx(10)
    assert limiter.most_off(10, [1, 1]) == 0


def test_how_evenly_seconds_were_written() -> None:
    even, bursts = [2.0] * 40, [0.0] * 10 + ([20.0] * 5 + [0.0] * 15) * 2
    assert flat_disk.deviation_of_seconds(even) == 0
    assert flat_disk.deviation_of_seconds(bursts) > 30
    assert flat_disk.deviation_of_seconds([1.0]) == 0


def test_the_driver_needs_little_for_an_event() -> None:
    assert 0 < driver_events.milliseconds_per_event() < 5


def test_feeder_verification_compares_every_byte(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_bytes(b"abc")
    for content, code in ((b"abc", 0), (b"abd", 1), (b"ab", 1)):
        (tmp_path / "into").mkdir(exist_ok=True)
        (tmp_path / "into" / "data").write_bytes(content)
        command = feeder.bash_readers(feeder.COMPARE, [file], tmp_path / "into")
        assert subprocess.run(command, capture_output=True, check=False).returncode == code


def test_readers_are_counted_that_speak_at_the_same_time() -> None:
    first, second = "1048576 bytes (1.0 MB, 1.0 MiB) copied, 0.001 s, 1.3 GB/s", "999 bytes copied, 0.001 s, 1.0 MB/s"
    assert feeder.count_bytes(f"1+0 records in\n1+0 records out\n{first}{second}\n\n") == 1_049_575


@pytest.mark.parametrize("case", SMALL_CASES, ids=lambda case: case.name)
def test_pipes_deliver_all_bytes(case: feeder.Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeder, "CASES", (case,))
    (inputs := tmp_path / "input").mkdir()
    (directory := tmp_path / "run").mkdir()
    pipe, _ = feeder.FEEDER.prepare(inputs)
    outcome = pipe.run(directory)
    total = case.files * case.mebibytes * MEBIBYTE * case.consumers
    assert list(outcome.outputs.values()) == [str(total)]
    assert outcome.sample.further["mb_per_s"] == pytest.approx(total / outcome.sample.wall / 1e6)


def test_a_session_brings_what_consumers_read(tmp_path: Path) -> None:
    file = slow_disks.write_lines(tmp_path / "lines", 40 * MEBIBYTE)
    with file.open("rb") as opened:
        slow_disks.forget(opened.fileno())
    consumers = session_alone.Consumers(5)
    alone = session_alone.read_alone(file, consumers)
    with file.open("rb") as opened:
        slow_disks.forget(opened.fileno())
    ahead = session_alone.read_ahead(file, consumers, session_alone.Session(100, window=20), tmp_path)
    assert ahead.outputs == alone.outputs
    assert ahead.sample.further.keys() == {session_alone.RATE, session_alone.MEMORY, session_alone.CPU}
    assert 1 < ahead.sample.further[session_alone.MEMORY] < 16


def test_memory_is_limited_while_it_lasts() -> None:
    if (obstacle := memory_limit.obstacle()) is not None:
        pytest.skip(obstacle)
    mine = Path("/proc/self/cgroup")
    before = mine.read_text()
    with memory_limit.limited_memory(64 * MEBIBYTE) as limited:
        allocate = [*limited.prefix, sys.executable, "-S", "-E", "-c", f"print(len(b'x' * {128 * MEBIBYTE}))"]
        assert subprocess.run(allocate, capture_output=True, check=False).returncode == -signal.SIGKILL
    with memory_limit.limited_memory(1024 * MEBIBYTE) as limited, limited.joined():
        assert before != mine.read_text()
        said = json.loads(subprocess.run([find_sfio_node(), "memory"], capture_output=True, check=True).stdout)
        assert said["limit"] == 1024 * MEBIBYTE
    assert before == mine.read_text()


def test_tree_digest_sees_names_and_contents(tmp_path: Path) -> None:
    digests = set()
    for name, content in (("a", "x"), ("b", "x"), ("a", "y")):
        (directory := tmp_path / f"{name}{content}").mkdir()
        (directory / name).write_text(content)
        digests.add(tree_digest(directory))
    assert len(digests) == 3


def test_bash_fails_if_any_command_of_a_pipe_fails(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="exit code 1"):
        run_bash(tmp_path, "false | cat > result/out")


def write_workflow(directory: Path, command: str) -> Path:
    step = workflows.tool([command], {}, {})
    return workflows.write_workflow(directory / "workflow.cwl", {}, {}, {"a": {"run": step, "in": {}, "out": []}})


@pytest.mark.parametrize("scheduler", [pytest.param(None, marks=pytest.mark.long), {}], ids=["plain", "io-aware"])
def test_streamflow_runs_in_its_own_directories(scheduler: dict[str, workflows.JSON] | None, tmp_path: Path) -> None:
    workflow = write_workflow(tmp_path, "true")
    (directory := tmp_path / "run").mkdir()
    sample = StreamFlowRun(workflow, scheduler).run(directory).sample
    assert 0 < sample.window < sample.wall
    assert sample.further["cpu_s"] > 0
    assert (directory / "streamflow.db").exists()
    log = (directory / "errors.0").read_text()
    assert ("registered plugin" in log) is (scheduler is not None)


def test_a_failed_workflow_is_an_error(tmp_path: Path) -> None:
    workflow = write_workflow(tmp_path, "false")
    (directory := tmp_path / "run").mkdir()
    with pytest.raises(CommandError, match="exit code 1"):
        StreamFlowRun(workflow).run(directory)


@pytest.mark.long
def test_a_delivery_that_is_not_as_wanted_is_an_error(tmp_path: Path) -> None:
    workflow = write_workflow(tmp_path, "true")
    (directory := tmp_path / "run").mkdir()
    StreamFlowRun(workflow, {}, []).verify(directory)
    with pytest.raises(CommandError, match="stream"):
        StreamFlowRun(workflow, {}, ["stream"]).verify(directory)
