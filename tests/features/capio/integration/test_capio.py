"""`runtime: capio`, with a stand-in for CAPIO (`stand_in/`), and with CAPIO itself where it is installed."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from lab.cwl import Document, found, streamable, streaming, tool, workflow
from lab.installed_capio import left_in_shared_memory, shared_memory_of, use_installed_capio
from lab.node import wait_for
from lab.processes import of_processes
from lab.runs import RETRY, Bench, Run, wait_for_note
from streamflow_io.commands.plan import plan_file
from tests.features.capio.stand_in.support import install

CAPIO = {"runtime": "capio"}
# No shells: CAPIO does not serve them. What `note` notes is as in those of `lab.cwl`.
PYTHON = """
import os, sys, time
def note(*words):
    with open(os.environ["TRACE"], "a") as trace:
        print(time.time(), *words, file=trace)
"""
LINES = """
note("start")
with open("out.txt", "w") as out:
    for i in range(1, 6):
        print("line", i, file=out, flush=True)
        time.sleep(0.1)
"""
END = 'note("end")\n'
READ = """
for line in open(os.environ["file"]):
    note(os.environ["name"], line.strip())
    print(line, end="")
note(os.environ["name"], "all")
"""
FILE = {"glob": "out.txt"}


def until_read_by(*names: str) -> str:
    """Wait in each attempt of a producer until its readers have had the first line of this attempt.

    With plain StreamFlow no producer waits: the readers come later.
    """
    return f"""
limit = time.time() + 40
while "SFIO_JOB" in os.environ and time.time() < limit:
    noted = open(os.environ["TRACE"]).read()
    if all(noted.count(" " + name + " line 1") >= noted.count(" start") for name in {list(names)!r}):
        break
    time.sleep(0.05)
"""


def lines(*names: str, script: str = LINES) -> str:
    """Write lines, and end when some have read the first: within the `with`, so before the file is closed."""
    waiting = until_read_by(*names).strip().replace("\n", "\n    ")
    return f"{script.rstrip()}\n    {waiting}\n{END}"


@pytest.fixture(autouse=True)
def capio_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in is what is installed."""
    home = install(tmp_path / "capio")
    monkeypatch.setenv("CAPIO_HOME", str(home))
    return home


def program(
    script: str, inputs: Document | None = None, outputs: Document | None = None, *hints: Document, **fields: Any
) -> Document:
    """A CommandLineTool that runs Python."""
    return {**tool("", inputs, outputs, [*hints], **fields), "baseCommand": [sys.executable, "-ISc", PYTHON + script]}


def producer(script: str) -> Document:
    return program(script, {}, {"out": streamable(outputBinding=FILE)})


def reader(name: str, script: str = READ) -> Document:
    kinds = {"file": streamable(), "name": {"type": "string", "default": name}}
    return program(script, kinds, {"out": "stdout"}, stdout=f"{name}.txt")


def pipeline(first: Document, *readers: Document) -> Document:
    """One producer, and those that read from it."""
    names = "bcd"[: len(readers)]
    bodies = {name: {"run": run, "in": {"file": "a/out"}} for name, run in zip(names, readers, strict=True)}
    outputs = {name: f"{name}/out" for name in ("a", *names)}
    return workflow({}, {"a": {"run": first, "in": {}}, **bodies}, outputs)


def assert_served(run: Run, *names: str) -> None:
    assert "CAPIO serves" in run.log, run.errors
    assert run.errors == ""
    for name in names:
        assert run.time(f"{name} line 1") < run.time("end"), run.trace
    assert left_in_shared_memory() == []


def test_a_file_is_read_while_it_is_written(bench: Bench) -> None:
    _, ours = bench.run_both(pipeline(producer(lines("b")), reader("b")), config=CAPIO)
    assert_served(ours, "b")
    assert ours.time("b all") > ours.time("end")
    (edge,) = [record for record in bench.telemetry() if record["event"] == "edge"]
    assert edge["capio"] == "served"
    (stream,) = [record for record in bench.telemetry() if record["event"] == "streamed"]
    assert (stream["input"], stream["outputs"], stream["source"]) == ("/b/file", ["/a/out"], "/a/0")
    assert (stream["bytes"], stream["capio"]) == (sum(len(f"line {i}\n") for i in range(1, 6)), True)
    # The driver looks for the first reading now and then: on a busy machine after the end of `a`.
    assert stream["first"] < stream["last"]
    assert ours.time("end") < stream["last"]


DOES = "CAPIO cannot do what its program does:"


def test_a_producer_that_does_what_capio_cannot_starts_again_without(bench: Bench) -> None:
    """Other things that CAPIO cannot do are in `test_guard.py`."""
    script = 'for i in range(5):\n    with open("out.txt", "a") as out: print("line", i, file=out)\n'
    _, ours = bench.run_both(pipeline(producer(script), reader("b")), config=CAPIO)
    why = f"{DOES} it opens a-1/out.txt a second time"
    assert f"CAPIO is not used any more for the jobs of /a, they run without it: {why}" in ours.log
    (lost,) = [record for record in bench.telemetry() if record["event"] == "fallback" and record["step"] == "/a"]
    assert (lost["without"], lost["reason"]) == ("CAPIO", why)


@pytest.mark.long
def test_other_bytes_are_seen_before_anything_made_of_them_is_delivered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIO_STAND_IN", "spoils=b")
    _, ours = bench.run_both(pipeline(producer(lines()), reader("b")), config=CAPIO)
    assert "CAPIO is not used any more for the jobs of /b, they run without it: a program has read other" in ours.log


def test_the_plan_says_what_capio_serves(bench: Bench) -> None:
    path = bench.write(pipeline(producer(lines()), reader("b")), {}, True, CAPIO)
    (mapping,) = plan_file(path).forecasts["capio"].values()
    assert [edge.name for edge in mapping.served] == ["/a/out -> /b/file"]
    rule = streaming({"port": "out", "committed": "on_close:2", "mode": "no_update"})
    counted = program(LINES, {}, {"out": found("out.txt")}, rule)
    path = bench.write(pipeline(counted, reader("b")), {}, True, CAPIO)
    (mapping,) = plan_file(path).forecasts["capio"].values()
    assert mapping.served == ()
    assert "CAPIO counts the closes of readers, too" in next(iter(mapping.refused.values()))


def standard_input(name: str) -> Document:
    """A reader that has the file as its standard input."""
    script = READ.replace('open(os.environ["file"])', "sys.stdin").replace('os.environ["name"]', repr(name))
    return program(script, {"file": streamable()}, {"out": "stdout"}, stdin="$(inputs.file.path)", stdout=f"{name}.txt")


def feeder(bench: Bench) -> int:
    """The process that hands a file on to a standard input."""
    for pid, (command,) in of_processes("cmdline"):
        # The shell around it has its words, too.
        is_feeder = command.startswith(os.fsencode(sys.executable)) and b"client.py\0feed" in command
        if is_feeder and str(bench.directory).encode() in command:
            return pid
    raise AssertionError("there is no feeder")


def test_a_killed_feeder_is_no_end_of_file(bench: Bench) -> None:
    # The feeder lives as long as its producer.
    end = 'while "SFIO_JOB" in os.environ and not os.path.exists(os.environ["TRACE"] + ".killed"): time.sleep(0.01)\n'
    document = pipeline(producer(lines("b") + end), standard_input("b"))
    plain = bench.run(document, io=False)
    path = bench.write(document, {}, True, CAPIO)
    process = bench.start(path)
    wait_for_note(path, "b line 1")
    os.kill(feeder(bench), signal.SIGKILL)
    path.with_name("trace.killed").touch()
    ours = bench.finish(process, path)
    assert ours.ok, ours.errors
    # What the shell says of the killed process is not among what the job has printed.
    assert ours.results == plain.results
    assert len(ours.times("b line 1")) == 2
    assert len(ours.times("b all")) == 1
    assert bench.leftovers() == left_in_shared_memory() == []


def test_a_failed_producer_is_no_end_of_file_and_is_retried_with_its_readers(bench: Bench) -> None:
    """The first attempt is killed, which could have been CAPIO's fault and costs no retry; the second fails."""
    failing = f"""note("try"){lines("b")}
tries = open(os.environ["TRACE"]).read().count(" try\\n")
if tries == 1:
    os.kill(os.getpid(), 9)
if tries == 2:
    sys.exit(3)
"""
    plain = bench.run(pipeline(producer(lines("b")), reader("b")), io=False)
    ours = bench.run(pipeline(producer(failing), reader("b")), config=CAPIO, **RETRY)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert len(ours.times("try")) == len(ours.times("b line 1")) == 3
    assert len(ours.times("b all")) == 1
    assert left_in_shared_memory() == []


@pytest.mark.long
def test_when_the_server_dies_all_goes_on_without_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    deadly = bench.directory / "deadly"
    monkeypatch.setenv("CAPIO_STAND_IN", f"dies={deadly}")
    killing = (
        LINES
        + f"""
    {until_read_by("b").strip().replace(chr(10), chr(10) + "    ")}
    open({str(deadly)!r}, "w")
    time.sleep(1)
note("end")
"""
    )
    plain = bench.run(pipeline(producer(killing), reader("b")), io=False)
    deadly.unlink()
    ours = bench.run(pipeline(producer(killing), reader("b")), config=CAPIO)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert ours.log.count("CAPIO is not used any more in this run") == 1
    assert "capio_server has ended by SIGABRT: " in ours.log
    assert "std::runtime_error" in ours.log
    assert len(ours.times("start")) == 2
    assert bench.leftovers() == left_in_shared_memory() == []


# For the driver alone: to import all this takes a second.
IMPATIENT = """
import sys

if sys.orig_argv[1:2] and sys.orig_argv[1].endswith("/streamflow"):
    from streamflow_io.features.capio.runtime import job

    job._IDLE_SECONDS, job._LOOK_SECONDS = 2.0, 0.2
"""


@pytest.mark.long
def test_a_program_that_hangs_is_ended_and_starts_again_without_capio(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPIO_STAND_IN", "hangs=a")
    plain = bench.run(pipeline(producer(lines()), reader("b")), io=False)
    (bench.directory / "sitecustomize.py").write_text(IMPATIENT)
    bench.environment = {"PYTHONPATH": str(bench.directory)}
    ours = bench.run(pipeline(producer(lines()), reader("b")), config=CAPIO)
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert ours.log.count("CAPIO is not used any more") == 1
    assert "a job of /a has used no processor for 2 s, as if its program hung under CAPIO" in ours.errors
    assert len(ours.times("start")) == 2
    assert len(ours.times("b all")) == 1
    assert bench.leftovers() == left_in_shared_memory() == []


def test_nothing_is_left_of_a_killed_driver(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPIO_STAND_IN", "deaf untidy")
    path = bench.write(pipeline(producer(lines("b") + "time.sleep(60)"), reader("b")), {}, True, CAPIO)
    process = bench.start(path)
    wait_for_note(path, "b line 5", seconds=40)
    assert shared_memory_of(process.pid) != []
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: bench.leftovers() == shared_memory_of(process.pid) == [], "the end of all")


def test_where_capio_is_missing_one_warning_says_so(bench: Bench, capio_home: Path) -> None:
    (capio_home / "lib" / "libcapio_posix.so").unlink()
    _, ours = bench.run_both(pipeline(producer(lines("b")), reader("b")), config=CAPIO)
    assert ours.log.count("`runtime: capio`: the embedded node runtime is used for all") == 1
    assert f"libcapio_posix.so is in none of {capio_home / 'lib'}," in ours.log
    assert ours.time("b line 1") < ours.time("end")


def test_an_edge_that_capio_cannot_serve_is_served_all_the_same(bench: Bench) -> None:
    rule = streaming({"port": "out", "committed": "on_close", "start": "producer"})
    first = program(LINES + END, {}, {"out": found("out.txt")}, rule)
    _, ours = bench.run_both(pipeline(first, reader("b")), config=CAPIO)
    assert "/a/out -> /b/file is served by the embedded node runtime: CAPIO tells the size" in ours.log
    (edge,) = [record for record in bench.telemetry() if record["event"] == "edge"]
    assert edge["capio"].startswith("CAPIO tells the size of a file")


# Enough bytes that CAPIO's library, which gathers writes, passes them on.
BIG = LINES.replace("flush=True)", "flush=True)\n        out.write(('x' * 99 + '\\n') * 10_000)")
BIG_READ = READ.replace("    note", "    if line[0] == 'l': note")


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> None:
    """CAPIO itself, as it is installed."""
    use_installed_capio(monkeypatch)


def run_until_served(bench: Bench, document: Document, *names: str) -> None:
    """Run a workflow until CAPIO has served it to the end.

    Of 19 runs with several jobs 3 hung or crashed in CAPIO 1.0.0 itself: then the run goes on without it. In each of
    them the results are those of plain StreamFlow.
    """
    for _ in range(4):
        _, ours = bench.run_both(document, config=CAPIO)
        assert left_in_shared_memory() == []
        if "CAPIO is not used any more" not in ours.log:
            break
    assert_served(ours, *names)


@pytest.mark.usefixtures("real")
@pytest.mark.timeout(240)
def test_the_real_capio(bench: Bench) -> None:
    """`b` reads the file, `c` has it as its standard input, `d` reads what `b` writes into CAPIO itself."""
    through = program(
        "\nout = open('through.txt', 'w')" + BIG_READ.replace("print(line", "print(line, file=out"),
        {"file": streamable(), "name": {"type": "string", "default": "b"}},
        {"out": streamable(outputBinding={"glob": "through.txt"})},
    )
    script = "text = sys.stdin.read(); print(len(text), text[-500:])"
    piped = program(script, {"file": streamable()}, {"out": "stdout"}, stdin="$(inputs.file.path)", stdout="c.txt")
    steps = {
        "a": {"run": producer(lines("b", script=BIG)), "in": {}},
        "b": {"run": through, "in": {"file": "a/out"}},
        "c": {"run": piped, "in": {"file": "a/out"}},
        "d": {"run": reader("d", BIG_READ), "in": {"file": "b/out"}},
    }
    document = workflow({}, steps, {name: f"{name}/out" for name in steps})
    run_until_served(bench, document, "b")


@pytest.mark.usefixtures("real")
def test_a_reader_that_hangs_under_the_real_capio(bench: Bench) -> None:
    """`sort` hangs without the guard. Another program starts `sort`, so that CAPIO serves it at all."""
    script = "sys.stdout.flush(); os.execvp('sort', ['sort', os.environ['file']])"
    _, ours = bench.run_both(pipeline(producer(lines(script=BIG)), reader("b", script)), config=CAPIO)
    assert "CAPIO serves" in ours.log, ours.errors
    warnings = [line for line in ours.log.splitlines() if "CAPIO is not used any more in this run" in line]
    for line in warnings:
        seen = datetime.fromisoformat(line.partition(" WARNING")[0].strip()).timestamp()
        assert seen - ours.time("end") < 20
    assert left_in_shared_memory() == []


@pytest.mark.usefixtures("real")
def test_a_failed_producer_under_the_real_capio(bench: Bench) -> None:
    run = bench.run(pipeline(producer(lines("b", script=BIG) + "sys.exit(3)"), reader("b", BIG_READ)), config=CAPIO)
    assert not run.ok
    assert run.files == {}
    assert run.times("b line 1") != []
    assert run.times("b all") == []
    assert bench.leftovers() == left_in_shared_memory() == []


@pytest.mark.usefixtures("real")
def test_an_empty_file_under_the_real_capio(bench: Bench) -> None:
    run_until_served(bench, pipeline(producer("open('out.txt', 'w')"), reader("b")))


@pytest.mark.usefixtures("real")
def test_a_reader_that_does_not_load_libraries_starts_again_without_the_real_capio(bench: Bench) -> None:
    """The reader finds no file."""
    script = "os.execve('/bin/cat', ['cat', os.environ['file']], {})"
    _, ours = bench.run_both(pipeline(producer(lines(script=BIG)), reader("b", script)), config=CAPIO)
    assert "CAPIO is not used any more for the jobs of /b, they run without it: " in ours.log
    assert left_in_shared_memory() == []


@pytest.mark.usefixtures("real")
def test_nothing_is_left_of_a_killed_driver_under_the_real_capio(bench: Bench) -> None:
    document = pipeline(producer(lines("b", script=BIG) + "time.sleep(60)"), reader("b", BIG_READ))
    path = bench.write(document, {}, True, CAPIO)
    process = bench.start(path)
    wait_for_note(path, "b line 1", seconds=30)
    (server,) = servers_of(path.parent)
    # CAPIO-CL would listen to the network for commits of others.
    assert not [fd for fd in os.listdir(f"/proc/{server}/fd") if "socket:" in os.readlink(f"/proc/{server}/fd/{fd}")]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: bench.leftovers() == shared_memory_of(process.pid) == [], "the end of all", 30)


def servers_of(place: Path) -> list[int]:
    """CAPIO's servers with a configuration below a directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().split(b"\0")
            if command[0].endswith(b"/capio_server") and str(place).encode() in command[-2]:
                found.append(int(entry.name))
    return found
