"""Run copies of the templates in `workflows/`, as a user does."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ruamel.yaml import YAML

from lab import forked

WORKFLOWS = Path(__file__).resolve().parents[1] / "workflows"
BIN = Path(sys.executable).parent


def run(*command: object, cwd: Path, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; `python3` is the one of the tests, and its output is captured."""
    path = f"{BIN}:{os.environ['PATH']}"
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**os.environ, "PATH": path, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def load(path: Path) -> Any:
    """Read a YAML document."""
    return YAML(typ="safe", pure=True).load(path)


def import_script(path: Path) -> ModuleType:
    """Import a script by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def images(name: str) -> dict[str, str]:
    """The images of the tools of a template, by the name of the tool; all are hints."""
    tools = sorted((WORKFLOWS / name / "tools").glob("*.cwl"))
    return {tool.stem: _hints(tool)["DockerRequirement"]["dockerPull"] for tool in tools}


def _hints(tool: Path) -> dict[str, Any]:
    """The hints of a tool, by class; CWL has two ways to write them."""
    hints = load(tool)["hints"]
    return hints if isinstance(hints, dict) else {hint["class"]: hint for hint in hints}


def contents(directory: Path) -> dict[str, bytes]:
    """The files of a directory, by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@dataclass(frozen=True)
class Template:
    """A copy of a template, with a place beside it for what its runs leave."""

    directory: Path

    @classmethod
    def copy(cls, name: str, place: Path) -> Template:
        """Copy a template below an empty directory."""
        ignored = shutil.ignore_patterns("generated", "run", "__pycache__", ".*")
        shutil.copytree(WORKFLOWS / name, place / name, ignore=ignored)
        (place / "tmp").mkdir()
        return cls(place / name)

    def script(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a Python script of the template."""
        return run("python3", *arguments, cwd=self.directory)

    def streamflow(self, file: str, settings: str | None = None) -> Path:
        """Run one of its StreamFlow files, with another job file if one is given; return the directory of results."""
        if settings is not None:
            self.choose(file, settings)
        return self._results(file, "streamflow", "run", "--outdir", file)

    def choose(self, file: str, settings: str) -> None:
        """Write another job file into one of its StreamFlow files."""
        document = load(self.directory / file)
        (workflow,) = document["workflows"].values()
        workflow["config"]["settings"] = settings
        with (self.directory / file).open("w") as stream:
            YAML().dump(document, stream)

    def cwltool(self, *arguments: object) -> Path:
        """Run it with cwltool, without containers; return the directory of results."""
        return self._results("cwltool", "cwltool", "--quiet", "--outdir", "--no-container", *arguments)

    def jobs(self, database: str) -> dict[str, int]:
        """How many jobs each step had, by step path, in all StreamFlow runs with that database."""
        query = "SELECT step.name, count(*) FROM execution JOIN step ON execution.step = step.id GROUP BY step.name"
        with closing(sqlite3.connect(self.directory / "run" / database)) as connection:
            return dict(connection.execute(query))

    def _results(self, name: str, program: str, word: str, option: str, *arguments: object) -> Path:
        place = self.directory.parent
        results = place / f"{name}.results"
        environment = {"TMPDIR": str(place / "tmp"), "XDG_DATA_HOME": str(place / "data")}
        finished = self.run(program, word, option, results, *arguments, environment=environment)
        assert finished.returncode == 0, finished.stderr
        return results

    def run(
        self, program: str, *arguments: object, environment: Mapping[str, str], namespaces: tuple[Path, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the programs of :mod:`lab.forked` in its directory."""
        variables = {"PATH": f"{BIN}:{os.environ['PATH']}", **environment}
        return forked.run(program, *arguments, cwd=self.directory, environment=variables, namespaces=namespaces)


def check_template_with_checkpoints(source: Path, storage_bw: str, required: str) -> None:
    """The hints and the StreamFlow files of a template that exists plain, with `storage_bw`, and with `required`.

    :param required: the path of the step whose bandwidth is `required`
    """
    plain, io_aware, with_required = (
        source / name for name in ("streamflow.yml", "streamflow-io.yml", "streamflow-io-required.yml")
    )
    check_checkpoint_hints(source / "tools/checkpoint.cwl", io_aware, storage_bw)
    check_files_differ_by_scheduler(plain, io_aware)
    check_files_differ_by_scheduler(plain, with_required)
    check_required_bandwidth(with_required, required)


def check_checkpoint_hints(tool: Path, streamflow_file: Path, storage_bw: str, *further: str) -> None:
    """A checkpoint is an I/O task with that bandwidth, and on a storage of the StreamFlow file that is wide enough.

    :param further: classes of other hints that it has
    """
    hints = _hints(tool)
    assert set(hints) == {"sfio:IOTask", "sfio:StorageBandwidth", *further}
    bandwidth = hints["sfio:StorageBandwidth"]
    assert bandwidth["storageBW"] == storage_bw
    assert bandwidth["direction"] == "write"
    scheduler = load(streamflow_file)["scheduling"]["scheduler"]
    assert scheduler["type"] == "sfio.io-aware"
    (storage,) = scheduler["config"]["storages"]
    assert storage["name"] == bandwidth["storage"]
    assert Path(storage["path"]).is_dir()
    assert storage["write"] >= 64


def check_required_bandwidth(streamflow_file: Path, step: str) -> None:
    """The annotations file of a StreamFlow file has `storageBW: required` for a step, on the storage of the file."""
    config = load(streamflow_file)["scheduling"]["scheduler"]["config"]
    annotations = load(streamflow_file.parent / config["annotations"])
    (storage,) = config["storages"]
    hint = {"class": "sfio:StorageBandwidth", "storageBW": "required", "storage": storage["name"]}
    assert annotations == {"steps": {step: [hint]}}


def check_files_differ_by_scheduler(plain: Path, io_aware: Path) -> None:
    """Two StreamFlow files run the same, but for scheduler and database."""
    documents = [load(plain), load(io_aware)]
    assert documents[1].pop("scheduling")["scheduler"]["type"] == "sfio.io-aware"
    for document in documents:
        document.pop("database")
    assert documents[0] == documents[1]
