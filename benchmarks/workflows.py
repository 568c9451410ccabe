"""CWL documents of the workloads, and runs of StreamFlow on them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from .model import Sample
from .processes import CommandError, Finished, run
from .workload import Outcome, Variant

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

_NAME = "benchmark"
_DATABASE = "streamflow.db"
_PLAIN_STREAMFLOW = Path(__file__).with_name("plain_streamflow.py")
TOOL = (sys.executable, "-S", "-E", str(Path(__file__).with_name("tools.py")))


def tool(
    command: Sequence[str],
    inputs: Mapping[str, JSON],
    outputs: Mapping[str, JSON],
    cores: float = 1,
    **fields: JSON,
) -> JSON:
    """A CommandLineTool."""
    return {
        "class": "CommandLineTool",
        "requirements": {"ResourceRequirement": {"coresMin": cores, "ramMin": 64}},
        "baseCommand": list(command),
        "inputs": inputs,
        "outputs": outputs,
        **fields,
    }


def workflow(inputs: Mapping[str, JSON], outputs: Mapping[str, JSON], steps: Mapping[str, JSON]) -> dict[str, JSON]:
    """A Workflow, also as a step of another one."""
    return {
        "class": "Workflow",
        "requirements": {"ScatterFeatureRequirement": {}, "SubworkflowFeatureRequirement": {}},
        "inputs": inputs,
        "outputs": outputs,
        "steps": steps,
    }


def write_workflow(
    path: Path, inputs: Mapping[str, JSON], outputs: Mapping[str, JSON], steps: Mapping[str, JSON]
) -> Path:
    """Write a Workflow. JSON is YAML, so that StreamFlow reads it."""
    header: dict[str, JSON] = {"cwlVersion": "v1.2", "$namespaces": {"sfio": "urn:streamflow-io:cwl#"}}
    path.write_text(json.dumps({**header, **workflow(inputs, outputs, steps)}, indent=2), encoding="utf-8")
    return path


@dataclass(frozen=True)
class StreamFlowRun:
    """`streamflow run` on a workflow, with database, output and work directories of its own.

    :ivar scheduler: the configuration of the scheduler `io-aware`; none: StreamFlow without the plugin
    :ivar deliveries: how each stream edge must be delivered, for :meth:`verify`
    :ivar settings: the job file
    :ivar digest: of the output directory; equal digests mean identical outputs
    :ivar workdir: where jobs have their directories; none: the directory for temporary files
    """

    workflow: Path
    scheduler: Mapping[str, JSON] | None = None
    deliveries: Sequence[str] = ()
    settings: Path | None = None
    digest: Callable[[Path], str] | None = None
    workdir: Path | None = None

    def run(self, directory: Path) -> Outcome:
        """Run it below an empty directory.

        :return: the window is from StreamFlow's database: the start of the first command to the end of the last one
        :raises CommandError: if it fails, or ran nothing
        """
        temporary, output = directory / "tmp", directory / "result"
        temporary.mkdir()
        program = Path(sys.executable).with_name("streamflow")
        launch = [str(program)] if self.scheduler is not None else [sys.executable, str(_PLAIN_STREAMFLOW)]
        command = [*launch, "run", str(self._write_file(directory)), "--outdir", str(output)]
        finished = run([command], directory, {"TMPDIR": str(temporary), "XDG_DATA_HOME": str(directory / "data")})
        return _outcome(finished, _window(directory / _DATABASE), (self.digest or tree_digest)(output))

    def verify(self, directory: Path) -> None:
        """Ask `streamflow-io plan` whether all is delivered as wanted: an edge that falls back would not be measured.

        :raises CommandError: if not
        """
        file = self._write_file(directory)
        run([[sys.executable, "-m", "streamflow_io.cli", "plan", "--json", str(file)]], directory)
        plan = json.loads((directory / "output.0").read_text(encoding="utf-8"))
        if plan["inactive"] is not None:
            raise CommandError(f"nothing streams: {plan['inactive']}")
        edges = plan["workflows"][_NAME]["edges"]
        deliveries = [edge["delivery"] for edge in edges]
        if deliveries != list(self.deliveries):
            raise CommandError(f"edges are delivered as {deliveries}, not {list(self.deliveries)}: {edges}")

    def _write_file(self, directory: Path) -> Path:
        config: dict[str, JSON] = {"file": str(self.workflow)}
        if self.settings is not None:
            config["settings"] = str(self.settings)
        document: dict[str, JSON] = {
            "version": "v1.0",
            "database": {"type": "default", "config": {"connection": str(directory / _DATABASE)}},
        }
        entry: dict[str, JSON] = {"type": "cwl", "config": config}
        if self.workdir is not None:
            document["deployments"] = {"here": {"type": "local", "config": {}, "workdir": str(self.workdir)}}
            entry["bindings"] = [{"step": "/", "target": {"deployment": "here"}}]
        document["workflows"] = {_NAME: entry}
        if self.scheduler is not None:
            document["scheduling"] = {"scheduler": {"type": "io-aware", "config": self.scheduler}}
        file = directory / "streamflow.yml"
        file.write_text(json.dumps(document), encoding="utf-8")
        return file


def streamflow(
    name: str,
    workflow: Path,
    scheduler: Mapping[str, JSON] | None = None,
    deliveries: Sequence[str] = (),
    settings: Path | None = None,
    digest: Callable[[Path], str] | None = None,
) -> Variant:
    """A variant that runs StreamFlow; see :class:`StreamFlowRun`."""
    way = StreamFlowRun(workflow, scheduler, deliveries, settings, digest)
    return Variant(name, way.run, verify=way.verify if scheduler is not None else None)


def run_bash(directory: Path, script: str, arguments: Sequence[str] = ()) -> Outcome:
    """Run a bash script that writes to the directory `result`. Its jobs start and end with it: the window is the wall.

    :raises CommandError: if it fails
    """
    output = directory / "result"
    output.mkdir()
    finished = run([["bash", "-euo", "pipefail", "-c", script, "bash", *arguments]], directory)
    return _outcome(finished, finished.seconds, tree_digest(output))


def _outcome(finished: Finished, window: float, digest: str) -> Outcome:
    sample = Sample(wall=finished.seconds, window=window, further={"cpu_s": finished.cpu_seconds})
    return Outcome(sample, {"result": digest})


def tree_digest(directory: Path) -> str:
    """The SHA-256 of names and contents of all files below a directory."""
    digest = hashlib.sha256()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(directory)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _window(database: Path) -> float:
    with closing(sqlite3.connect(database)) as connection:
        first, last = connection.execute("SELECT min(start_time), max(end_time) FROM execution").fetchone()
    if first is None or last is None:
        raise CommandError("StreamFlow ran no command")
    return float(last - first) / 1e9
