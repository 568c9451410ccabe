"""Decisions about what runs have left, and its removal."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import uuid
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from streamflow.core.exception import WorkflowExecutionException
from streamflow.core.workflow import Token

from lab.telemetry import write
from streamflow_io.commands.clean import _clear_deployment, run, why_all_stay
from streamflow_io.jobs.job_directories import JobDirectories
from streamflow_io.records.jobs import DirectoriesRecord, EndedRecord, SubmittedRecord
from streamflow_io.records.leftovers import Leftover, RunLeftovers, leftovers
from streamflow_io.records.records import ResultsRecord, RunRecord
from streamflow_io.storage.intermediates.clearing import _CLEAR, clear_here, read_cleared
from streamflow_io.storage.intermediates.directories import _LOOK, _REMOVE, _look_here, _read

CLEARING = "streamflow_io.storage.intermediates.clearing"
REMOVING = "streamflow_io.storage.intermediates.directories"

BEGIN = RunRecord(time=0.0, name="r", workflow="w.cwl", host=socket.gethostname(), pid=2**22 + 1)


WAYS = ["here", "sh", *(["busybox sh"] if shutil.which("busybox") is not None else [])]


def made(job: str, *paths: str) -> DirectoriesRecord:
    return DirectoriesRecord(0.0, job=job, step=job.rpartition("/")[0], location="here", paths=paths)


def ended(job: str) -> EndedRecord:
    return EndedRecord(0.0, job, job.rpartition("/")[0], "completed")


def path(number: int, more: str = "") -> str:
    return f"/work/{uuid.UUID(int=number)}{more}"


@pytest.mark.parametrize("result", ["out/file", "out/directory", "out/deep", "loop"])
def test_a_result_needs_all_links_on_its_way(tmp_path: Path, result: str) -> None:
    """A directory of links may lead to a file through the directories of several jobs."""
    names = [str(uuid.UUID(int=number)) for number in range(5)]
    first, second, third, unneeded, deep = (tmp_path / name for name in names)
    for place in (first, second, third, unneeded, deep, tmp_path / "out" / "directory"):
        place.mkdir(parents=True)
    (first / "x").write_text("data")
    (second / "x").symlink_to(first / "x")
    (third / "all").symlink_to(second)
    (deep / "links").symlink_to(third)
    (tmp_path / "out" / "file").symlink_to(third / "all" / "x")
    (tmp_path / "out" / "directory" / "x").symlink_to(f"../../{names[2]}/all/x")
    (tmp_path / "out" / "deep").symlink_to(deep)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    value = {"class": "Directory" if result == "out/directory" else "File", "path": str(tmp_path / result)}
    ports = {"o": SimpleNamespace(token_list=[Token(value)])}
    directories = JobDirectories(cast(Any, SimpleNamespace(get_output_ports=lambda: ports)), cast(Any, None), print)
    directories._names.update(names)
    needed = {"loop": set(), "out/deep": {*names} - {names[3]}}.get(result, {*names[:3]})
    assert {*directories.results().directories} == needed


def test_a_run_with_unreadable_records_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    file = tmp_path / "streamflow-io" / "runs" / "r" / "telemetry.jsonl"
    write(file, [BEGIN])
    with file.open("a") as records:
        records.write("broken\n")
    cleaned = run(Namespace(runs=[], older_than=None, dry_run=True))
    (part,) = cleaned.parts
    assert part.run == "r"
    assert part.told.startswith("kept: its records cannot be used: ")
    assert not cleaned.ok


def test_the_directories_of_a_run() -> None:
    found = leftovers(
        [
            BEGIN,
            made("/a/0", path(1), path(2, "-2")),
            ended("/a/0"),
            made("/a/0", path(3)),
            made("/b/0", path(4)),
            ended("/b/0"),
            SubmittedRecord(0.0, "/b/0", "/b"),
            made("/b/0", path(5)),
            ResultsRecord(0.0, (str(uuid.UUID(int=3)),)),
        ]
    )
    assert found is not None
    assert [left.path for left in found.removable] == [path(1), path(2, "-2")]
    assert [left.path for left in found.results] == [path(3)]
    assert [left.path for left in found.open] == [path(4), path(5)]
    assert found.knows_results
    assert leftovers([]) is None


@pytest.mark.parametrize(
    "wrong", ["/home/me", "/", "", f"{uuid.UUID(int=1)}", path(1, "/.."), path(1, "/x"), path(1, "/"), path(1, "\n")]
)
def test_other_directories_are_never_meant(wrong: str) -> None:
    assert leftovers([BEGIN, made("/a/0", wrong), ended("/a/0")]) == RunLeftovers(BEGIN)


def test_runs_whose_directories_all_stay() -> None:
    def why(state: str, *, silent: bool = False, knows_results: bool = True, **fields: object) -> str | None:
        run = RunRecord(time=0.0, name="r", workflow="w", **{"host": BEGIN.host, "pid": BEGIN.pid, **fields})
        return why_all_stay(state, RunLeftovers(run, knows_results=knows_results), silent)

    assert why("running") == "the run goes on"
    assert why("running", silent=True) == "the run goes on"
    assert why("ended", knows_results=False) == "the records of the run do not say which directories its results need"
    assert why("failed", knows_results=False) is None
    assert why("completed", knows_results=False) == why("ended", knows_results=False)
    assert why("completed") is why("ended") is why("failed") is why("cancelled") is why("killed") is None
    assert "other" in (why("killed", host="other") or "")
    assert "another machine" in (why("killed", host=None) or "")
    assert why("killed", host="other", silent=True) is None
    assert str(os.getpid()) in (why("killed", pid=os.getpid()) or "")


def tree(place: Path) -> tuple[Path, Path]:
    """A directory with links that lead out of it, and what they lead to."""
    job, outside = place / "it's a job", place / "outside"
    (job / "locked").mkdir(parents=True)
    outside.mkdir()
    (outside / "mine").write_text("x")
    (job / "big").write_bytes(b"x" * 100_000)
    (job / "locked" / "f").write_text("x")
    (job / "dir").symlink_to(outside)
    (job / "locked" / "file").symlink_to(outside / "mine")
    (job / "locked").chmod(0o500)
    (place / "link").symlink_to(outside)
    return job, outside


@pytest.mark.parametrize("way", WAYS)
def test_links_are_not_followed(tmp_path: Path, way: str) -> None:
    job, outside = tree(tmp_path)
    paths = [str(each) for each in (job, tmp_path / "link", tmp_path / "none")]

    def clear(*, removes: bool) -> list[tuple[str, str, bool]]:
        if way == "here":
            cleared = clear_here(paths, removes=removes)
        else:
            words = [*way.split(), "-c", _CLEAR % ("removed" if removes else "there"), "sh", *paths]
            cleared = [*read_cleared(subprocess.run(words, check=True, capture_output=True).stdout)]
        return [(each.path, each.state, each.bytes >= 100_000) for each in cleared]

    others = [(paths[1], "link", False), (paths[2], "missing", False)]
    assert clear(removes=False) == [(paths[0], "there", True), *others]
    assert (job / "locked" / "f").exists()
    assert clear(removes=True) == [(paths[0], "removed", True), *others]
    assert not job.exists()
    assert (tmp_path / "link").is_symlink()
    assert (outside / "mine").read_text() == "x"


@pytest.mark.parametrize("way", WAYS)
def test_the_last_job_in_memory_leaves_nothing(way: str) -> None:
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK):
        pytest.skip("there is no memory for files")
    of_run = place / f"streamflow-io-{uuid.uuid4().hex}"
    of_run.mkdir(mode=0o700)
    jobs = [of_run / str(uuid.uuid4()) for _ in range(2)]
    for job in jobs:
        job.mkdir()
        (job / "a").write_text("x")
    for job, is_last in zip(jobs, (False, True), strict=True):
        assert cleared(way, job) == "removed"
        assert of_run.exists() is not is_last


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("way", WAYS)
def test_directories_of_others_stay(tmp_path: Path, way: str) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 12345, 12345)
    theirs = str(tmp_path / "theirs")
    if way == "here":
        (cleared,) = clear_here([theirs], removes=True)
    else:
        said = subprocess.run([*way.split(), "-c", _CLEAR % "removed", "sh", theirs], check=True, capture_output=True)
        (cleared,) = read_cleared(said.stdout)
    assert cleared.state == "others"
    assert (tmp_path / "theirs").exists()


# The owner of the work directory and its mode, and whether its owner's group is one of the user's.
REPLACEABLE = [
    (0, 0o755, None),
    (0, 0o1777, None),
    (0, 0o777, "others"),
    (12345, 0o755, "others"),
    (12345, 0o1777, "others"),
    (0, 0o775, None),
]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
@pytest.mark.parametrize("way", [*WAYS, "look", "look elsewhere"])
@pytest.mark.parametrize("at", ["work", "above", "behind a link"])
@pytest.mark.parametrize(("owner", "mode", "state"), REPLACEABLE)
def test_a_directory_that_others_can_replace_stays(
    tmp_path: Path, way: str, at: str, owner: int, mode: int, state: str | None
) -> None:
    """Another user could put any directory of this user there, by renaming the other directory."""
    work = tmp_path / "above" / "work"
    job = work / str(uuid.UUID(int=7))
    job.mkdir(parents=True)
    tried = work.parent if at == "above" else work
    os.chown(tried, owner, -1)
    tried.chmod(mode)
    if at == "behind a link":
        (tmp_path / "link").symlink_to(work)
        job = tmp_path / "link" / job.name
    if way == "look":
        assert (str(job) in _look_here([str(job)])) is (state is None)
        return
    if way == "look elsewhere":
        said = subprocess.run(["sh", "-c", _LOOK, "sh", str(job)], check=True, capture_output=True)
        assert (str(job) in dict(_read(said.stdout, "host"))) is (state is None)
        return
    assert cleared(way, job) == (state or "removed")
    assert job.exists() is (state is not None)


def cleared(way: str, job: Path) -> str:
    if way == "here":
        return clear_here([str(job)], removes=True)[0].state
    said = subprocess.run([*way.split(), "-c", _CLEAR % "removed", "sh", str(job)], check=True, capture_output=True)
    return next(iter(read_cleared(said.stdout))).state


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount in a directory")
@pytest.mark.parametrize("way", [*WAYS, "intermediates", "intermediates elsewhere"])
def test_a_file_system_in_a_directory_is_not_emptied(tmp_path: Path, way: str) -> None:
    """A tool may have mounted a file system of another host in its directory, and have left it there."""
    data, job = tmp_path / "data", tmp_path / str(uuid.uuid4())
    (job / "mnt").mkdir(parents=True)
    data.mkdir()
    (data / "precious").write_text("x")
    arguments = f"[{str(job)!r}]"
    code = {
        "here": f"from {CLEARING} import clear_here; print(clear_here({arguments}, removes=True)[0].state)",
        "intermediates": f"from {REMOVING} import _look_here, remove_here; remove_here({arguments}, {{}}); "
        f"print('mounted' if not _look_here({arguments}) else 'seen')",
    }
    if way in code:
        command = shlex.join([sys.executable, "-c", code[way]])
    else:
        script = _CLEAR % "removed" if way in WAYS else _REMOVE
        shell = way if way in WAYS else "sh"
        command = f"{shell} -c {shlex.quote(script)} sh {job}"
        command += "" if way in WAYS else "; echo mounted"
    mounting = f"mount --bind {data} {job}/mnt && {command}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mounting], capture_output=True, text=True, check=True)
    assert "mounted" in done.stdout
    assert (data / "precious").read_text() == "x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_streamflow_file_of_another_user_is_not_read(tmp_path: Path) -> None:
    """The file may be another one than that of the run, and could name any host, and any file as a password."""
    file = tmp_path / "streamflow.yml"
    file.write_text("version: v1.0\ndeployments: {far: {type: ssh, config: {nodes: [far], username: me}}}\n")
    os.chown(file, 12345, -1)
    left = Leftover("far", "far", path(1))
    (part,) = _clear_deployment(file, "far", {"r": [left]}, True)
    assert part.told == f"kept: {file} cannot be trusted: {file} belongs to user 12345"


def test_a_part_of_an_answer_is_no_answer() -> None:
    whole = b"/w/a\0removed\0" + b"4\0end\0"
    assert [each.bytes for each in read_cleared(whole)] == [4096]
    for length in range(len(whole)):
        with pytest.raises(WorkflowExecutionException, match="is missing"):
            [*read_cleared(whole[:length])]
