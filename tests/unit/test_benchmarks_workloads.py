"""The workloads and the programs that they run."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import session_alone, slow_disks, workflows
from benchmarks.processes import CommandError
from benchmarks.tools import MEBIBYTE
from benchmarks.workflows import StreamFlowRun, run_bash, tree_digest
from lab import memory_limit
from streamflow_io.runtime.embedded import find_sfio_node


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


@pytest.mark.parametrize("scheduler", [pytest.param(None, marks=pytest.mark.long), {}], ids=["plain", "sfio.io-aware"])
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
