"""Workflows that run on a deployment other than the driver's node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from lab import forked
from lab.cwl import Document
from lab.machines.allocation import held_allocation
from lab.machines.deployments import allocation_deployment, slurm_deployment, slurm_environment, ssh_deployment
from lab.machines.hosts import ADDRESSES
from lab.machines.laboratory import Laboratory
from lab.machines.slurm import LOGIN
from lab.runs import Bench, Run
from lab.templates import Template, contents, load


@dataclass
class Site(Bench):
    """A bench whose workflows run on a deployment.

    :ivar laboratory: where it is
    :ivar name: of the deployment
    :ivar deployment: its entry in the StreamFlow file
    :ivar shared: a directory that the driver and all its nodes have; for what the jobs note
    :ivar others: further deployments, that this one needs
    :ivar steps: those that run there
    :ivar elsewhere: of these, or further ones, those that run on one of the others
    :ivar service: of the deployment; none: its default
    :ivar ports: where further inputs are that are not on the driver's node, as bindings
    """

    laboratory: Laboratory = field(kw_only=True)
    name: str = field(kw_only=True)
    deployment: Document = field(kw_only=True)
    shared: Path = field(kw_only=True)
    others: Document = field(default_factory=dict, kw_only=True)
    steps: tuple[str, ...] = field(default=("/",), kw_only=True)
    elsewhere: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    service: str | None = field(default=None, kw_only=True)
    ports: tuple[Document, ...] = field(default=(), kw_only=True)

    @property
    def settings(self) -> Document:
        """The entries that the StreamFlow file of a workflow has more than a local one."""
        return {"deployments": {self.name: self.deployment, **self.others}}

    def bound(self, workflow: Mapping[str, Any]) -> Document:
        """A workflow of a StreamFlow file, with its steps on the deployment."""
        target = {"deployment": self.name} | ({} if self.service is None else {"service": self.service})
        others = {step: {"deployment": name} for step, name in self.elsewhere.items()}
        targets = {**dict.fromkeys(self.steps, target), **others}
        steps = [{"step": step, "target": target} for step, target in targets.items()]
        return {**workflow, "bindings": [*steps, *self.ports]}

    def write(
        self,
        document: Document,
        job: Mapping[str, Any],
        io: bool,
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Path:
        trace = self.shared / f"{self.directory.name}.{self.count}"
        path = super().write(document, {"trace": str(trace), **job}, io, config, **self.settings, **settings)
        (path.parent / "trace").symlink_to(trace)
        streamflow = json.loads(path.read_text())
        streamflow["workflows"]["main"] = self.bound(streamflow["workflows"]["main"])
        path.write_text(json.dumps(streamflow))
        return path

    def storage(self, write: float, **fields: Any) -> Document:
        """A storage that holds all directories of jobs."""
        return {"name": "disk", "deployment": self.name, "path": "/", "write": write, **fields}

    def records(self, event: str) -> list[Document]:
        """The records of an event in the telemetry of the last run."""
        return [record for record in self.telemetry() if record["event"] == event]

    @property
    def workdir(self) -> Path:
        """The work directory, as the driver sees it and as tests reach it."""
        root = f"/proc/{self.laboratory.pid}/root" if self.laboratory.mounts in self.namespaces else ""
        return Path(f"{root}{self.deployment['workdir']}")

    @property
    def is_slurm(self) -> bool:
        return self.deployment["type"] in ("slurm", "sfio.allocation")

    def control(self, *words: str) -> str:
        """Return what a command of Slurm prints."""
        return self.laboratory.run(*words, **self.environment)

    def queue(self) -> list[str]:
        """The jobs of a Slurm, the oldest first."""
        return sorted(self.control("squeue", "-h", "-o", "%i").split(), key=int)

    def cancel_jobs(self) -> list[str]:
        """End all jobs of a Slurm; return those that there were."""
        if jobs := self.queue():
            self.control("scancel", *jobs)
        return jobs

    def streamflow_io(self, *arguments: str) -> Any:
        """Return what a `streamflow-io` command prints for programs; the command must succeed."""
        words, namespaces = (*arguments, "--json"), self.namespaces
        finished = forked.run(
            "streamflow-io", *words, cwd=self.directory, environment=self._user, namespaces=namespaces
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return json.loads(finished.stdout)

    def run_template(self, template: Template, file: str, settings: str) -> tuple[dict[str, bytes], str]:
        """Run a StreamFlow file of a template on the deployment; return the results, and what was logged."""
        document = load(template.directory / file) | self.settings
        ((name, workflow),) = document["workflows"].items()
        workflow["config"]["settings"] = settings
        document["workflows"] = {name: self.bound(workflow)}
        with (template.directory / file).open("w") as stream:
            YAML().dump(document, stream)
        results = self.directory / f"{file}.results"
        environment = {"TMPDIR": str(self.directory), **self._user, **self.environment}
        words = ("streamflow", "run", "--outdir", results, file)
        finished = template.run(*words, environment=environment, namespaces=self.namespaces)
        assert finished.returncode == 0, finished.stderr
        return contents(results), finished.stderr + finished.stdout

    @property
    def _user(self) -> dict[str, str]:
        return {"XDG_DATA_HOME": str(self.data)}


def slurm_site(laboratory: Laboratory, directory: Path) -> Site:
    """Slurm, on a file system that it shares with the driver."""
    (directory / "work").mkdir()
    return Site(
        directory,
        environment=slurm_environment(laboratory),
        namespaces=(laboratory.network,),
        laboratory=laboratory,
        name="hpc",
        deployment=slurm_deployment(directory / "work"),
        shared=directory,
    )


@contextmanager
def allocation_site(
    laboratory: Laboratory, directory: Path, nodes: int = 2, options: Sequence[str] = ()
) -> Iterator[Site]:
    """An allocation of a Slurm, as its batch jobs find it.

    :param options: more words for `salloc`
    """
    site = slurm_site(laboratory, directory)
    with held_allocation(laboratory, nodes, "60", *options) as environment:
        yield replace(site, deployment=allocation_deployment(directory / "work"), environment=environment)


def on_volume(site: Site) -> Site:
    """The same Slurm with its work directory on the distributed file system: the driver and each node are clients."""
    workdir = str(site.laboratory.directory / "volume" / site.directory.name)
    site = replace(
        site, deployment={**site.deployment, "workdir": workdir}, namespaces=(*site.namespaces, site.laboratory.mounts)
    )
    site.workdir.mkdir()
    return site


def login_site(laboratory: Laboratory, directory: Path) -> Site:
    """The same Slurm from elsewhere: all that the driver does goes through SSH to the login node."""
    site = slurm_site(laboratory, directory)
    site.deployment["wraps"] = "login"
    site.others["login"] = ssh_deployment(laboratory, LOGIN)
    return replace(site, environment={})


def hosts_site(laboratory: Laboratory, directory: Path) -> Site:
    """Two SSH hosts with file systems of their own."""
    return Site(
        directory,
        namespaces=(laboratory.network,),
        laboratory=laboratory,
        name="hosts",
        deployment={**ssh_deployment(laboratory, *ADDRESSES), "workdir": "/scratch"},
        shared=laboratory.directory / "shared",
    )


def apart(hosts: Site) -> Site:
    """The first host for all steps but /b, and the second for that."""
    first, second = ({**ssh_deployment(hosts.laboratory, address), "workdir": "/scratch"} for address in ADDRESSES)
    return replace(hosts, deployment=first, others={"second": second}, elsewhere={"/b": "second"})


def at_once(run: Run, start: str = "start", end: str = "end") -> int:
    """The most jobs that ran at once, by the times that they noted; those that began with these words."""
    changes = [(time, 1) for time, what in run.trace if what.startswith(start)]
    changes += [(time, -1) for time, what in run.trace if what.startswith(end)]
    running = most = 0
    for _, change in sorted(changes):
        running += change
        most = max(most, running)
    return most
