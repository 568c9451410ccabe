"""The driver itself in a container, with the profile of its engine, and all steps beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.container_sites import DEBIAN
from lab.cwl import Document
from lab.forked import Driver
from lab.machines.deployments import docker_environment
from lab.machines.laboratory import REPOSITORY, Laboratory
from lab.runs import STREAMFLOW, Bench
from tests.e2e.test_containers import check_streamed, stream

USER = 1234
TMPDIR = "/scratch"
#: For `--read-only`; what is made in memory is as docker makes it by default: noexec.
IN_MEMORY = ("--read-only", "--tmpfs", f"{TMPDIR}:mode=1777")


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


@pytest.fixture
def bench(containers_laboratory: Laboratory, tmp_path: Path) -> Iterator[Enclosed]:
    bench = Enclosed(tmp_path, environment=docker_environment(containers_laboratory), laboratory=containers_laboratory)
    yield bench
    names = [bench.name(tmp_path / f"run{number + 1}" / "streamflow.yml") for number in range(bench.count)]
    subprocess.run(["docker", "rm", "-f", *names], env={**os.environ, **bench.environment}, capture_output=True)


def test_a_stream_where_little_is_allowed(bench: Enclosed) -> None:
    """With the results of plain StreamFlow outside."""
    plain = Bench(bench.directory / "plain").run(stream(), io=False)
    bench.options, bench.user = (*IN_MEMORY, "--cap-drop=ALL"), USER
    ours = bench.run(stream())
    assert ours.ok, ours.errors
    assert ours.results == plain.results
    assert bench.leftovers() == []
    assert [line for line in ours.log.splitlines() if "WARNING" in line] == []
    check_streamed(ours)
