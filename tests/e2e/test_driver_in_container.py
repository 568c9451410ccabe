"""The driver itself in a container, with the profile of its engine, and all steps beside it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.container_sites import DEBIAN
from lab.cwl import Document, streamable, tool
from lab.forked import Driver
from lab.gates import BY_LIST, BY_NAME, FILES, assert_early, lister, pair, producer, reader
from lab.machines.deployments import docker_environment
from lab.machines.laboratory import REPOSITORY, Laboratory
from lab.node import wait_for
from lab.runs import STREAMFLOW, Bench, Run, wait_for_note
from tests.e2e.test_containers import LONG, SCAN, WRITE, check_streamed, gate, stream, stream_reader

USER = 1234
TMPDIR = "/scratch"
#: For `--read-only`; what is made in memory is as docker makes it by default: noexec.
IN_MEMORY = ("--read-only", "--tmpfs", f"{TMPDIR}:mode=1777")
SECONDS = 20.0
#: Of directories that the next start removes.
AGE = 2 * 3600.0
REOPENED = "was opened again"


@dataclass
class Enclosed(Bench):
    """A bench whose drivers are process 1 of containers. All is bound there under its own name, programs read-only.

    :ivar laboratory: whose docker it is
    :ivar options: of `docker run`
    :ivar user: of the driver
    """

    laboratory: Laboratory = field(kw_only=True)
    options: Sequence[str] = field(default=(), kw_only=True)
    user: int = field(default=0, kw_only=True)

    def write(
        self,
        document: Document,
        job: Mapping[str, Any],
        io: bool,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        path = super().write(document, job, io, config, **settings)
        self.data.mkdir(exist_ok=True)
        for directory, _, files in os.walk(self.directory):
            for name in (directory, *(os.path.join(directory, file) for file in files)):
                os.chown(name, self.user, self.user)
        return path

    def start(self, path: Path, **environment: str) -> Driver:
        place = path.parent
        temporary = TMPDIR if any(TMPDIR in option for option in self.options) else str(place / "tmp")
        variables = {"TMPDIR": temporary, "XDG_DATA_HOME": str(self.data), "HOME": "/tmp", "PATH": os.environ["PATH"]}
        programs = dict.fromkeys(("/usr", sys.base_prefix, str(REPOSITORY), sys.prefix))
        words = [
            *("docker", "run", "--rm", f"--name={self.name(path)}", f"--user={self.user}", f"--workdir={place}"),
            *self.options,
            *(f"--volume={name}:{name}:ro" for name in programs),
            f"--volume={self.directory}:{self.directory}",
            *(f"--env={name}={value}" for name, value in (variables | environment).items()),
            *(DEBIAN, str(STREAMFLOW), *self._arguments(path)),
        ]
        return subprocess.Popen(
            words,
            stdout=(place / "stdout").open("w"),
            stderr=(place / "stderr").open("w"),
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
            start_new_session=True,
        )

    def name(self, path: Path) -> str:
        """The name of the container of a run; each process that runs tests has a name of its own."""
        return f"{self.directory.parent.name}-{self.directory.name}-{path.parent.name}"

    def docker(self, *words: str) -> None:
        subprocess.run(
            ["docker", *words], env={**os.environ, **self.environment}, check=True, capture_output=True, timeout=60
        )

    def interrupt(self, document: Document, moment: str, number: str) -> Path:
        """Send a signal to the driver of a run when something has been noted, and wait for its end."""
        path = self.write(document, {}, io=True)
        driver = self.start(path)
        wait_for_note(path, f" {moment}\n")
        self.docker("kill", f"--signal={number}", self.name(path))
        assert not self.finish(driver, path).ok
        return path


@pytest.fixture
def bench(containers_laboratory: Laboratory, tmp_path: Path) -> Iterator[Enclosed]:
    bench = Enclosed(tmp_path, environment=docker_environment(containers_laboratory), laboratory=containers_laboratory)
    yield bench
    names = [bench.name(tmp_path / f"run{number + 1}" / "streamflow.yml") for number in range(bench.count)]
    subprocess.run(["docker", "rm", "-f", *names], env={**os.environ, **bench.environment}, capture_output=True)


def commit() -> Document:
    return pair(producer("echo one > out.txt; meet done", "on_close", start="commit"), reader())


def by_name() -> Document:
    return pair(producer(f"meet read; {FILES}; meet got 3", "on_n_files", "Directory", nFiles=3), lister(BY_NAME))


def by_list() -> Document:
    return pair(producer(f"meet read; {FILES}; meet listed", "on_n_files", "Directory", nFiles=3), lister(BY_LIST))


def listing() -> Document:
    """A program that lists waits for all of it, where the entries of a listing cannot be held one by one."""
    first = producer(f"meet read; {FILES}", "on_close", "Directory", mode="no_update")
    return pair(first, lister(f"note read; python3 -c {shlex.quote(SCAN)}", streamable("Directory")))


#: What has happened before the end of the producer.
EARLY = {stream: "first", commit: "done", gate: "done", by_name: "got 3", by_list: "listed", listing: "read"}
#: Of `docker run`, and the user.
WAYS: dict[str, tuple[Sequence[str], int]] = {
    "root": ((), 0),
    "user": ((), USER),
    "read-only": (IN_MEMORY, 0),
    "no capabilities": (("--cap-drop=ALL", "--security-opt=no-new-privileges"), 0),
    "all of it": ((*IN_MEMORY, "--cap-drop=ALL"), USER),
}


def check_early(ours: Run, document: Callable[[], Document]) -> None:
    assert_early(ours, EARLY[document])
    assert [line for line in ours.log.splitlines() if "WARNING" in line] == []
    if document is stream:
        check_streamed(ours)


def test_a_stream_where_little_is_allowed(bench: Enclosed) -> None:
    """With the results of plain StreamFlow outside: :func:`test_results_are_the_same` has both in containers."""
    plain = Bench(bench.directory / "plain").run(stream(), io=False)
    bench.options, bench.user = WAYS["all of it"]
    ours = bench.run(stream())
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
    check_early(ours, stream)


@LONG
@pytest.mark.parametrize("document", EARLY)
@pytest.mark.parametrize("way", WAYS)
def test_results_are_the_same(bench: Enclosed, document: Callable[[], Document], way: str) -> None:
    bench.options, bench.user = WAYS[way]
    _, ours = bench.run_both(document())
    check_early(ours, document)


@LONG
@pytest.mark.parametrize("way", ["root", "all of it"])
@pytest.mark.parametrize(
    "script",
    [
        "paste $file $file",
        # Two `cat` that copy to one file directly can overwrite each other, with any workflow manager.
        "cat $file | cat & cat $file | cat; wait",
        "python3 -c \"import os; f = os.environ['file']; a, b = open(f), open(f); print(a.read() + b.read())\"",
        "python3 -c \"import os; f = os.environ['file']; print(open(f).read() + open(f).read())\"",
    ],
    ids=["paste", "two programs", "two open in a row", "one after the other"],
)
def test_a_second_opening_is_told(bench: Enclosed, script: str, way: str) -> None:
    """The profile of docker refuses `kcmp`, which would tell. Never is data wrong: the job reads the file then."""
    second = tool(script, {"file": streamable()}, {"out": "stdout"}, stdout="read.txt")
    document = pair(producer("seq 1 1000 > out.txt", "on_close", mode="no_update"), second)
    plain = Bench(bench.directory / "plain").run(document, io=False)
    bench.options, bench.user = WAYS[way]
    for _ in range(5):
        run = bench.run(document)
        assert run.ok, run.errors
        assert run.results == plain.results
        assert REOPENED in run.log
        assert "Traceback" not in run.log
        # Otherwise later runs would not stream.
        (bench.data / "streamflow-io" / "learned.db").unlink()
    assert bench.leftovers() == []


@LONG
@pytest.mark.parametrize("way", ["root", "user"])
def test_what_a_killed_driver_leaves_the_next_one_removes(bench: Enclosed, way: str) -> None:
    """All processes are killed at once, so that none can clean up."""
    bench.options, bench.user = WAYS[way]
    document = pair(producer(WRITE.replace("exec 3>&-", "sleep 600"), "on_close", mode="no_update"), stream_reader())
    path = bench.interrupt(document, "first", "KILL")
    temporary = path.parent / "tmp"
    left = [Path(name) for name in bench.leftovers()]
    assert len([name for name in left if name.parent == temporary]) == 1, left
    (run,) = temporary.glob("streamflow-io-*")
    os.utime(run, (time.time() - AGE,) * 2)
    following = bench.write(stream(), {}, io=True)
    driver = bench.start(following, TMPDIR=str(temporary))
    assert bench.finish(driver, following).ok
    assert bench.leftovers() == []


@LONG
def test_an_interrupted_driver_leaves_nothing(bench: Enclosed) -> None:
    document = pair(producer(WRITE.replace("exec 3>&-", "sleep 600"), "on_close", mode="no_update"), stream_reader())
    bench.interrupt(document, "first", "INT")
    wait_for(lambda: bench.leftovers() == [], "the end of all", SECONDS)
