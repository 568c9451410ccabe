"""A run that fails says why, also when the tool says nothing or the disk is full."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.disks import disk_of_a_test, fill
from lab.runs import RETRY, Bench, wait_for_note
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.protocol import JobSpec
from tests.campaign.verdict import clear_error
from tests.integration.test_faults import LINES, pipeline


@pytest.mark.parametrize(
    ("death", "words"),
    [
        ("exit 3", "exit code 3"),
        ("kill -9 $$", "ended by signal 9, Killed"),
        ("echo 'no luck' >&2; exit 4", "no luck"),
    ],
)
def test_a_death(bench: Bench, death: str, words: str) -> None:
    run = bench.run(pipeline(f"{LINES}; {death}"))
    assert not run.ok
    assert f"FAILED Job /a/0 with error: {words}" == clear_error(run.log)


def test_one_failure_is_told_once_with_all_that_follows_from_it(bench: Bench) -> None:
    """With readers that run, steps behind them, and elements that are on their way."""
    begun = '[ $(grep -c "read s.txt" "$TRACE") -ge 3 ] && [ $(grep -c "read [xy].l" "$TRACE") -ge 2 ]'
    until = f"for i in $(seq 300); do {begun} && break; sleep 0.1; done"
    made = tool(
        f"echo x > x.l; echo y > y.l; {LINES}; {until}; exit 3",
        {},
        {"s": streamable("stdout"), "l": found("*.l", "File[]")},
        [streaming({"port": "l", "committed": "on_close"})],
        stdout="s.txt",
    )

    def read(kind: Any, script: str = "cat $file") -> Document:
        script = f'note read $(basename "$file"); {script}'
        return tool(script, {"file": kind}, {"out": "stdout"}, stdout="$(inputs.file.basename).read")

    steps: dict[str, Document] = {"a": {"run": made, "in": {}}}
    for name in "123":
        steps[f"r{name}"] = {"run": read(streamable()), "in": {"file": "a/s"}}
        steps[f"q{name}"] = {"run": read("File"), "in": {"file": f"r{name}/out"}}
    steps["e"] = {"run": read("File", "sleep 0.5; cat $file"), "in": {"file": "a/l"}, "scatter": "file"}
    run = bench.run(workflow({}, steps, {name: f"{name}/out" for name in steps if name != "a"}))
    assert not run.ok
    errors = [line.partition(" ERROR ")[2].strip() for line in run.log.splitlines() if " ERROR " in line]
    first, last = errors
    assert first == "FAILED Job /a/0 with error:"
    assert (
        last == "FAILED Workflow execution: job /a/0 of step /a has failed (exit code 3); not run: steps /q1, /q2, /q3"
    )
    assert "/r1" not in run.log.partition(last)[2]
    assert " WARNING " not in run.log
    assert "NoneType" not in run.log
    assert "CancelledError" not in run.log


def test_a_killed_exec(bench: Bench) -> None:
    path = bench.write(pipeline(f"{LINES}; exec sleep 600"), {}, True)
    process = bench.start(path)
    wait_for_note(path, " read\n")
    (pid,) = [int(line.split()[1].rstrip(":")) for line in bench.leftovers() if "-a-0 --" in line]
    os.kill(pid, signal.SIGKILL)
    run = bench.finish(process, path)
    assert not run.ok
    assert clear_error(run.log) == "FAILED Job /a/0 with error: sfio-node exec, which ran the command, was killed"


async def test_a_runtime_that_is_gone_is_not_a_job_that_never_started(tmp_path: Path) -> None:
    """When `serve` is killed, the last job removes the run directory, maybe before the driver knows."""
    runtime = await EmbeddedRuntime.start(tmp_path)
    (serve,) = (child for child in psutil.Process().children() if "serve" in child.cmdline())
    try:
        job = await runtime.create_job("/a/0")
        assert not await job.has_started()
        serve.suspend()  # Else it may tell that the job is lost.
        Path(job.events_path).touch()
        assert await job.has_started()
        shutil.rmtree(runtime.directory)
        for refused in (job.has_started(), job.wrap(JobSpec(name="/a/0")), runtime.create_job("/a/1")):
            with pytest.raises(NodeRuntimeError, match="sfio-node serve has ended"):
                await refused
    finally:
        serve.kill()
        await runtime.close()


async def test_a_new_job_is_but_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job waits for it, so nothing is started or tried for it, and it knows that the runtime is gone."""
    runtime = await EmbeddedRuntime.start(tmp_path)
    try:
        monkeypatch.setenv("SFIO_NODE", str(tmp_path / "nowhere"))
        await runtime.create_job("/a/0")
        runtime.lose("it is gone")
        with pytest.raises(NodeRuntimeError, match="it is gone"):
            await runtime.create_job("/a/1")
    finally:
        await runtime.close()


async def test_a_job_without_a_directory_is_told_and_forgotten(tmp_path: Path) -> None:
    """A full disk is another such case."""
    runtime = await EmbeddedRuntime.start(tmp_path)
    try:
        Path(runtime.directory, "jobs", "000001-a-0").mkdir()
        with pytest.raises(NodeRuntimeError, match=r"the directory of a job cannot be made: .*File exists"):
            await runtime.create_job("/a/0")
        job = await runtime.create_job("/a/0")
        assert [*runtime._jobs] == [job.identifier]
    finally:
        await runtime.close()


async def test_a_full_disk_for_temporary_files_is_named(tmp_path: Path) -> None:
    """Jobs have their work directories elsewhere."""
    with disk_of_a_test(tmp_path, 2**20):
        runtime = await EmbeddedRuntime.start(tmp_path)
        try:
            job = await runtime.create_job("/a/0")
            fill(tmp_path / "full")
            to_do = r"Remove files from its file system, or set another `TMPDIR`"
            with pytest.raises(
                NodeRuntimeError, match=f"^job.json cannot be written: No space left on device: {tmp_path}/.*. {to_do}$"
            ):
                await job.wrap(JobSpec(name="/a/0"))
        finally:
            await runtime.close()


async def test_a_job_is_asked_for_once(tmp_path: Path) -> None:
    """StreamFlow may run the command of one job twice at once: the second time it is not measured."""
    runtime = await EmbeddedRuntime.start(tmp_path)
    try:
        job = await runtime.create_job("/a/0")
        await job.wrap(JobSpec(name="/a/0"))
        with pytest.raises(NodeRuntimeError, match=r"job\.json cannot be written: .*File exists"):
            await job.wrap(JobSpec(name="/a/0"))
    finally:
        await runtime.close()


async def test_a_job_that_never_came_to_run_is_not_waited_for(tmp_path: Path) -> None:
    """The wrapper may have been killed before it did anything; or it is late, and then it runs no command any more."""
    runtime = await EmbeddedRuntime.start(tmp_path)
    try:
        job = await runtime.create_job("/a/0")
        words = await job.wrap(JobSpec(name="/a/0"))
        begun = time.monotonic()
        await job.cancel()
        assert time.monotonic() - begun < 5
        late = await asyncio.create_subprocess_exec(*words, "touch", str(tmp_path / "ran"))
        assert await late.wait() == 75
        ended = await asyncio.wait_for(job.exit, 30)
        assert (ended.reason, ended.success) == ("cancelled", False)
        assert not (tmp_path / "ran").exists()
    finally:
        await runtime.close()


async def test_a_job_is_ended_also_when_its_cancel_file_cannot_be_written(tmp_path: Path) -> None:
    """A full disk is such a case."""
    runtime = await EmbeddedRuntime.start(tmp_path)
    try:
        job = await runtime.create_job("/a/0")
        command = await job.wrap(JobSpec(name="/a/0"))
        process = await asyncio.create_subprocess_exec(*command, "sleep", "60")
        async for _ in job.events():
            break
        Path(job.directory, "cancel").symlink_to(tmp_path / "nowhere" / "cancel")
        await job.cancel()
        assert job.exit.done()
        assert job.exit.result().reason == "cancelled"
        assert await process.wait() == -signal.SIGTERM
    finally:
        await runtime.close()


def test_a_reader_that_fails_is_told_which_of_its_inputs_was_a_byte_stream(bench: Bench) -> None:
    document = pipeline(LINES)
    read = "import sys; open(sys.argv[1], 'rb').seek(0, 2)"
    document["steps"]["b"]["run"]["baseCommand"] = ["python3", "-c", read]
    document["steps"]["b"]["run"]["inputs"]["file"]["inputBinding"] = {}
    run = bench.run(document, config={"declarations": "strict"})
    assert not run.ok
    failed = run.log[run.log.index("FAILED Job /b/0 with error:") :]
    assert "(exit code 1)\n\t(input `file` was a byte stream, read once and front to back: if the command" in failed
    assert failed.count("was a byte stream") <= 2  # the error, and the summary


def test_a_rule_that_waits_for_what_never_comes_is_told_at_the_end(bench: Bench) -> None:
    script = "echo 1 > a.txt; echo 2 > b.txt; exec 3>> a.txt; exec 3>&-"
    rules = [{"port": "a", "committed": "on_close:3"}, {"port": "b", "committed": "on_file", "fileDeps": ["done.*"]}]
    made = tool(script, {}, {"a": found("a.txt"), "b": found("b.txt")}, [streaming(*rules)])
    read = tool("cat $a $b", {"a": "File", "b": "File"}, {"out": "stdout"}, stdout="read.txt")
    steps = {"a": {"run": made, "in": {}}, "b": {"run": read, "in": {"a": "a/a", "b": "a/b"}}}
    _, ours = bench.run_both(workflow({}, steps, {"out": "b/out"}))
    for told in (
        "output a: on_close:3 never came, a.txt was closed 2 times: committed only now",
        "output b: on_file waited for done.* to the end: committed only now",
    ):
        assert ours.log.count(told) == 1
    assert "Not delivered as asked: /a/a and 1 other; /a/a: on_close:3 never came" in ours.log


def test_a_database_that_another_run_holds_is_told_in_one_line(bench: Bench) -> None:
    file = bench.directory / "shared.db"
    database = {"type": "default", "config": {"connection": str(file), "timeout": 1}}
    made = tool("echo 1", {}, {"out": "stdout"}, stdout="a.txt")
    document = workflow({}, {"a": {"run": made, "in": {}}}, {"out": "a/out"})
    assert bench.run(document, database=database).ok
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        run = bench.run(document, database=database)
    assert not run.ok
    (line,) = [line for line in run.log.splitlines() if " ERROR " in line]
    assert f"The database {file} is locked by another program, as by a run of plain StreamFlow, which" in line
    assert "Traceback" not in run.log


@pytest.mark.parametrize("settings", [{}, RETRY], ids=["once", "tried again"])
def test_a_job_that_finds_its_disk_full_is_told_why(bench: Bench, settings: Document) -> None:
    """The standard error of the job is on the same disk, and stays empty."""
    disk = bench.directory / "disk"
    made = tool("head -c 9000000 /dev/zero", {}, {"out": "stdout"}, stdout="a.txt")
    document = workflow({}, {"a": {"run": made, "in": {}}}, {"out": "a/out"})
    path = bench.write(document, {}, io=True, **settings)
    with disk_of_a_test(disk, 2**22):
        run = bench.finish(bench.start(path, TMPDIR=str(disk)), path)
    assert not run.ok
    assert f"\nIts file system is full: 0 B are left for {disk}/streamflow/" in run.log
    assert " on the driver's node. Remove files, as with `streamflow-io clean`, or set another `workdir`\n" in run.log


def test_results_that_their_disk_is_too_small_for(bench: Bench) -> None:
    made = tool("head -c 9000000 /dev/zero", {}, {"out": "stdout"}, stdout="a.txt")
    path = bench.write(workflow({}, {"a": {"run": made, "in": {}}}, {"out": "a/out"}), {}, io=True)
    disk = path.parent / "out"
    with disk_of_a_test(disk, 2**22):
        run = bench.finish(bench.start(path), path)
    assert not run.ok
    assert (
        f"FAILED Workflow execution: No space left on device: StreamFlow cannot write {disk}/a.txt. Remove files "
        "from its file system, as with `streamflow-io clean`, or set another `--outdir` or `workdir`\n"
    ) in run.log


def test_a_database_on_a_full_disk_is_told_in_one_line(bench: Bench) -> None:
    """The run also ends: an opened database has a thread."""
    disk = bench.directory / "disk"
    file = disk / "a.db"
    made = tool("echo 1", {}, {"out": "stdout"}, stdout="a.txt")
    with disk_of_a_test(disk, 2**16):
        fill(disk / "filler")
        run = bench.run(
            workflow({}, {"a": {"run": made, "in": {}}}, {"out": "a/out"}),
            database={"type": "default", "config": {"connection": str(file)}},
        )
    assert not run.ok
    (line,) = [line for line in run.log.splitlines() if " ERROR " in line]
    assert f"StreamFlow's database {file} cannot be used: database or disk is full. Mend this, or add " in line
    assert "Traceback" not in run.log
