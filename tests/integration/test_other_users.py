"""Another user of the same machine: files of this user are neither run nor believed."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from lab.cwl import streamable, tool, workflow
from lab.node import node_binary
from lab.runs import Bench, wait_for_note
from streamflow_io.files import stranger
from streamflow_io.records.learned.database import LearnedDatabase, LearnedStoreError
from streamflow_io.records.records import EndRecord
from streamflow_io.records.writer import TelemetryWriter

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be a second user")


def as_stranger(*command: str | Path) -> None:
    """Does something as the other user."""
    subprocess.run(command, user=STRANGER, group=STRANGER, extra_groups=[], check=True, timeout=60)


@pytest.fixture
def place(public: Path) -> Path:
    """A directory for all, as /tmp."""
    public.chmod(0o1777)
    return public


@needs_root
def test_who_is_a_stranger(place: Path) -> None:
    assert stranger(place) is None
    theirs = place / "theirs"
    as_stranger("mkdir", theirs)
    assert stranger(theirs) == f"{theirs} belongs to user {STRANGER}"
    (theirs / "ours").mkdir()
    assert stranger(theirs / "ours") == f"{theirs} belongs to user {STRANGER}"
    (ours := place / "ours").mkdir()
    as_stranger("ln", "-s", ours, place / "link")
    assert stranger(ours) is None
    assert stranger(place / "link") == f"{place / 'link'} belongs to user {STRANGER}"
    for mode, safe in ((0o700, True), (0o757, False), (0o1757, True)):
        ours.chmod(mode)
        assert (stranger(ours) is None) == safe
    (file := place / "file").touch()
    for mode, safe in ((0o644, True), (0o666, False), (0o1666, False)):
        file.chmod(mode)
        assert stranger(file) == (None if safe else f"others may write to {file}")
    os.chown(ours, -1, STRANGER)
    ours.chmod(0o775)
    assert stranger(ours) == f"others may write to {ours}, which is not sticky"
    # The user lets the group in; the group could not let itself in.
    assert stranger(ours, trusts_groups=True) is None
    ours.chmod(0o777)
    assert stranger(ours, trusts_groups=True) == f"others may write to {ours}, which is not sticky"


@needs_root
@pytest.mark.parametrize(("groups", "safe"), [([4321], True), ([], False)])
def test_a_directory_of_a_project(place: Path, monkeypatch: pytest.MonkeyPatch, groups: list[int], safe: bool) -> None:
    """The directory belongs to root; the members of its group may write to it, and to the directories below."""
    project = place / "project"
    project.mkdir()
    os.chown(project, 0, 4321)
    project.chmod(0o2775)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "getgroups", lambda: groups)
    assert (stranger(project, trusts_groups=True) is None) is safe
    assert stranger(project) == f"others may write to {project}, which is not sticky"


@needs_root
@pytest.mark.parametrize("who", ["a stranger", "all"])
def test_where_temporary_files_are_not_safe_it_is_plain_streamflow(bench: Bench, place: Path, who: str) -> None:
    temporary = place / "tmp"
    as_stranger("mkdir", temporary)
    if who == "all":
        os.chown(temporary, 0, 0)
    temporary.chmod(0o777)
    producer = tool("echo 1", {}, {"out": streamable("stdout")}, stdout="out.txt")
    consumer = tool("cat $file", {"file": streamable()}, {"read": "stdout"}, stdout="read.txt")
    steps = {"a": {"run": producer, "in": {}}, "b": {"run": consumer, "in": {"file": "a/out"}}}
    document = workflow({}, steps, {"read": "b/read"})
    plain = bench.run(document, io=False)
    path = bench.write(document, {}, io=True)
    run = bench.finish(bench.start(path, TMPDIR=str(temporary)), path)
    assert run.ok, run.errors
    assert run.results == plain.results
    assert run.log.count("Nothing streams in this run, everything is as with plain StreamFlow") == 1
    assert f"the directory for temporary files, {temporary}, is not safe: " in run.log
    assert not [name for name in os.listdir(temporary) if name.startswith("streamflow-io-")]


@needs_root
def test_serve_makes_no_run_directory_where_others_can_replace_it(place: Path) -> None:
    binary = node_binary()
    assert binary is not None
    theirs = place / "theirs"
    as_stranger("mkdir", theirs)
    command: list[str | Path] = [binary, "serve", "--directory", theirs / "run"]
    result = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=40, check=False)
    assert result.returncode == 1
    assert f"another user could replace it: {theirs} belongs to user {STRANGER}" in result.stderr
    assert os.listdir(theirs) == []


@needs_root
def test_what_another_user_says_was_learned_is_not_believed(place: Path) -> None:
    for path in (place / "theirs" / "learned.db", place / "learned.db"):
        as_stranger("mkdir", "-p", path.parent)
        as_stranger("touch", path)
        with pytest.raises(
            LearnedStoreError, match=f"another user could have written it: .* belongs to user {STRANGER}"
        ):
            LearnedDatabase(path).forget([])
        assert path.stat().st_size == 0


@needs_root
def test_telemetry_is_not_written_where_others_can_change_it(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    as_stranger("mkdir", place / "runs")
    with TelemetryWriter(lambda: place / "runs" / "telemetry.jsonl") as writer:
        writer.write(EndRecord(time=1.0))
    assert os.listdir(place / "runs") == []


#: Puts a file of its own in the place of the first FIFO that it finds below its working directory.
ATTACK = """
until fifo=$(find . -type p 2> /dev/null | head -n 1) && [ -n "$fifo" ]; do sleep 0.01; done
job=${fifo#./}; mv "${job%%/*}" moved && mkdir -p "${fifo%/*}" && echo theirs > "$fifo"
"""


@needs_root
def test_a_stranger_who_owns_the_work_directory_is_not_read(bench: Bench, place: Path) -> None:
    """The other user has made it for all before the first run, and looks for streams in it."""
    temporary = place / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    as_stranger("mkdir", "-m", "777", temporary / "streamflow")
    producer = tool("echo ours; sleep 1", {}, {"out": streamable("stdout")}, stdout="out.txt")
    waits = "i=0; while [ -p $file ] && [ $((i+=1)) -lt 30 ]; do sleep 0.1; done; cat $file"
    consumer = tool(waits, {"file": streamable()}, {"read": "stdout"}, stdout="read.txt")
    steps = {"a": {"run": producer, "in": {}}, "b": {"run": consumer, "in": {"file": "a/out"}}}
    path = bench.write(workflow({}, steps, {"read": "b/read"}), {}, io=True)
    theirs = temporary / "streamflow"
    command = ["sh", "-c", ATTACK]
    with subprocess.Popen(
        command, cwd=theirs, user=STRANGER, group=STRANGER, extra_groups=[], start_new_session=True
    ) as attack:
        run = bench.finish(bench.start(path, TMPDIR=str(temporary)), path)
        os.killpg(attack.pid, signal.SIGKILL)  # its `sleep`, too
    assert run.ok, run.errors
    assert run.files["read.txt"] == b"ours\n"
    assert f": the work directory {theirs} is not safe: {theirs} belongs to user {STRANGER}: set another" in run.log
    assert run.log.count("Nothing streams") == 1
    assert bench.leftovers() == []


@pytest.mark.parametrize("config", [{}, {"declarations": "strict"}])
def test_a_job_that_has_read_something_else_than_its_stream_fails(bench: Bench, config: dict[str, str]) -> None:
    """Whoever has put it there, and however it was declared: it is not tried with the file."""
    waits = 'until [ -e "$TRACE.go" ]; do sleep 0.02; done'
    producer = tool(f"echo ours; {waits}", {}, {"out": streamable("stdout")}, stdout="out.txt")
    consumer = tool(f"note began; {waits}; cat $file", {"file": streamable()}, {"read": "stdout"}, stdout="read.txt")
    steps = {"a": {"run": producer, "in": {}}, "b": {"run": consumer, "in": {"file": "a/out"}}}
    path = bench.write(workflow({}, steps, {"read": "b/read"}), {}, io=True, config=config)
    process = bench.start(path)
    wait_for_note(path, " began\n")
    (fifo,) = (file for file in path.parent.glob("tmp/streamflow/*/*/out.txt") if file.is_fifo())
    fifo.parent.rename(moved := fifo.parent.with_name("moved"))
    fifo.parent.mkdir()
    fifo.write_text("theirs\n")
    path.with_name("trace.go").touch()
    run = bench.finish(process, path)
    assert not run.ok
    assert run.files == {}
    assert f"no program has opened the stream {fifo}, and something else is in its place [SFIO-S027]" in run.log
    assert run.times("began") == run.times("began")[:1]
    (moved / fifo.name).unlink()  # No other process knows where it is.
    assert bench.leftovers() == []
