"""CWL documents of the workloads, and runs of StreamFlow on them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from lab.cwl import NO_CONTAINERS, streamflow_file, versioned

from .model import Sample
from .processes import CommandError, Finished, run
from .workload import Outcome, Variant

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"

RESULT = "result"  # the name of the output of a run
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
        "requirements": {
            "MultipleInputFeatureRequirement": {},
            "ScatterFeatureRequirement": {},
            "SubworkflowFeatureRequirement": {},
        },
        "inputs": inputs,
        "outputs": outputs,
        "steps": steps,
    }


def write_workflow(
    path: Path, inputs: Mapping[str, JSON], outputs: Mapping[str, JSON], steps: Mapping[str, JSON]
) -> Path:
    """Write a Workflow. JSON is YAML, so that StreamFlow reads it."""
    path.write_text(json.dumps(versioned(workflow(inputs, outputs, steps)), indent=2), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Site:
    """Where the jobs of a workflow run, if not on the driver's node with directories in that for temporary files.

    :ivar deployments: those of the StreamFlow file
    :ivar bindings: the deployment of each step; `/` are all steps
    :ivar prefix: what is put before the command `streamflow`
    :ivar environment: more of its environment
    :ivar containers: whether steps that ask for one have it
    :ivar inputs: the deployment, and the directory there, of inputs that are not on the driver's node
    """

    deployments: Mapping[str, JSON]
    bindings: Mapping[str, str]
    prefix: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    containers: bool = True
    inputs: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def entries(self) -> list[JSON]:
        """The bindings, as they are in a StreamFlow file."""
        steps: list[JSON] = [
            {"step": step, "target": {"deployment": deployment}} for step, deployment in self.bindings.items()
        ]
        ports: list[JSON] = [
            {"port": f"/{name}", "target": {"deployment": deployment, "workdir": directory}}
            for name, (deployment, directory) in self.inputs.items()
        ]
        return [*steps, *ports]


@dataclass(frozen=True)
class StreamFlowRun:
    """`streamflow run` on a workflow, with database, output and work directories of its own.

    :ivar scheduler: the configuration of the scheduler `sfio.io-aware`; none: StreamFlow without the plugin
    :ivar deliveries: how each stream edge must be delivered, for :meth:`verify`
    :ivar settings: the job file
    :ivar digest: of the output directory; equal digests mean identical outputs
    :ivar site: where it runs; none: here, without containers
    :ivar program: a script that does what `streamflow` does, with the plugin
    :ivar time_limit: seconds; none: that of :func:`~.processes.run`
    """

    workflow: Path
    scheduler: Mapping[str, JSON] | None = None
    deliveries: Sequence[str] = ()
    settings: Path | None = None
    digest: Callable[[Path], str] | None = None
    site: Site | None = None
    program: Path | None = None
    time_limit: float | None = None

    def command(self, directory: Path) -> list[str]:
        """Return the command that runs it; the result is put into `result` in the directory."""
        launch = [str(Path(sys.executable).with_name("streamflow"))]
        if self.program is not None or self.scheduler is None:
            launch = [sys.executable, str(self.program or _PLAIN_STREAMFLOW)]
        prefix = self.site.prefix if self.site is not None else ()
        return [*prefix, *launch, "run", str(self._write_file(directory)), "--outdir", str(directory / RESULT)]

    def run(self, directory: Path) -> Outcome:
        """Run it below an empty directory.

        :return: the window is from StreamFlow's database: the start of the first command to the end of the last one
        :raises CommandError: if it fails, or ran nothing
        """
        temporary, output = directory / "tmp", directory / RESULT
        temporary.mkdir()
        environment = self.site.environment if self.site is not None else {}
        places = {"TMPDIR": str(temporary), "XDG_DATA_HOME": str(directory / "data")}
        finished = run([self.command(directory)], directory, {**places, **environment}, self.time_limit)
        jobs = job_times(directory)
        window = max(job.end for job in jobs) - min(job.start for job in jobs)
        return _outcome(finished, window, (self.digest or tree_digest)(output))

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
            reasons = [f"{edge['output']} -> {edge['input']}: {edge['fallback']}" for edge in edges if edge["fallback"]]
            raise CommandError(
                "\n".join([f"edges are delivered as {deliveries}, not {list(self.deliveries)}", *reasons])
            )

    def _write_file(self, directory: Path) -> Path:
        is_contained = self.site is not None and self.site.containers
        document = streamflow_file(
            self.workflow,
            self.settings,
            name=_NAME,
            io=self.scheduler,
            connection=directory / _DATABASE,
            workflow={} if is_contained else NO_CONTAINERS,
        )
        if self.site is not None:
            document["deployments"] = self.site.deployments
            document["workflows"][_NAME]["bindings"] = self.site.entries
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
    first = finished.first
    further = {"cpu_s": finished.cpu_seconds, "driver_cpu_s": first.cpu_seconds, "peak_kb": first.peak_kb}
    sample = Sample(wall=finished.seconds, window=window, further=further)
    return Outcome(sample, {RESULT: digest})


def tree_digest(directory: Path) -> str:
    """The SHA-256 of names and contents of all files below a directory."""
    digest = hashlib.sha256()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(directory)}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@dataclass(frozen=True)
class JobTimes:
    """When the command of a job ran, as seen by StreamFlow; seconds since the epoch."""

    step: str
    start: float
    end: float


def job_times(directory: Path) -> list[JobTimes]:
    """The jobs of a :meth:`StreamFlowRun.run` below a directory, in the order of their starts.

    :raises CommandError: if there are none
    """
    query = (
        "SELECT step.name, execution.start_time / 1e9, execution.end_time / 1e9 "
        "FROM execution JOIN step ON execution.step = step.id ORDER BY execution.start_time"
    )
    with closing(sqlite3.connect(directory / _DATABASE)) as connection:
        jobs = [JobTimes(*row) for row in connection.execute(query)]
    if not jobs:
        raise CommandError("StreamFlow ran no command")
    return jobs
