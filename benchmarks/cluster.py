"""A chain over two SSH hosts, and on Slurm; and what the wrapper adds to a job there.

The clusters are laboratories: namespaces of this machine, whose cores they share. Hosts and nodes of a real cluster
have cores of their own; so that a step takes as long as it would there, it does not compute but waits, for each chunk.
"""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from lab.machines.laboratory import obstacle, slurm_obstacle

from . import cluster_wrapper
from .chain import Chain
from .cluster_sites import (
    ONE,
    OTHER,
    SCRATCH,
    hosts,
    hosts_site,
    measured,
    on_host,
    program_on_host,
    slurm_site,
)
from .model import Comparison, Sample
from .processes import CommandError, run
from .tools import MEBIBYTE, WAIT
from .workflows import JSON, RESULT, Site, StreamFlowRun, job_times, tree_digest
from .workload import Outcome, Variant, Workload

# A step takes a little less than the link needs for its 1.3 GB, so that one that begins late catches up.
HOSTS_CHAIN = Chain(160, 8 * MEBIBYTE, f"{WAIT}0.05", program_on_host("tools.py"))
SLURM_CHAIN = Chain(64, 4 * MEBIBYTE, f"{WAIT}0.1")
STEPS = ("/a", "/b", "/c")
_TOOL = program_on_host("cluster_tools.py")
_HOSTS, _SLURM = "hosts", "Slurm"
_ALONE = f"{_HOSTS}, alone"


@dataclass(frozen=True)
class _Cluster:
    """A cluster that runs a chain.

    :ivar name: by which its variants and its output begin
    :ivar site: starts it, for a run in a directory
    :ivar obstacle: why it cannot be started on this machine
    """

    name: str
    workflow: Path
    site: Callable[[Path], AbstractContextManager[Site]]
    obstacle: str | None

    def variants(self) -> tuple[Variant, Variant]:
        return (
            Variant(f"{self.name}, plain", self._run_plain, skipped=self.obstacle),
            Variant(f"{self.name}, streaming", self._run_streaming, self._verify, self.obstacle),
        )

    def _run_plain(self, directory: Path) -> Outcome:
        return self._run(directory, None)

    def _run_streaming(self, directory: Path) -> Outcome:
        outcome = self._run(directory, {})
        check_streamed(directory)
        return outcome

    def _run(self, directory: Path, scheduler: Mapping[str, JSON] | None) -> Outcome:
        with self.site(directory) as site:
            outcome = StreamFlowRun(self.workflow, scheduler, site=site).run(directory)
        return dataclasses.replace(outcome, outputs={self.name: outcome.outputs[RESULT]})

    def _verify(self, directory: Path) -> None:
        with self.site(directory) as site:
            StreamFlowRun(self.workflow, {}, ["stream", "stream"], site=site).verify(directory)


def check_streamed(directory: Path, steps: Sequence[str] = STEPS) -> None:
    """A planned stream may still fall back while it runs: then a step begins after the step from which it reads.

    :param steps: each of them reads from the one before
    :raises CommandError: if so, with the warnings of the run
    """
    jobs = {job.step: job for job in job_times(directory)}
    for producer, consumer in itertools.pairwise(steps):
        late = jobs[consumer].start - jobs[producer].end
        if late >= 0:
            log = (directory / "errors.0").read_text(encoding="utf-8", errors="replace")
            warnings = "\n".join(dict.fromkeys(line for line in log.splitlines() if "WARNING" in line))
            raise CommandError(
                f"nothing streamed from {producer} to {consumer}, which started {late:.1f} s after its end:\n{warnings}"
            )


def _run_alone(directory: Path) -> Outcome:
    """On hosts, without StreamFlow: steps and copies, one after the other.

    :return: the window is the longest of them: what is left where all overlap without cost
    """
    chain = HOSTS_CHAIN
    a, b, c = (f"{SCRATCH}/{step}" for step in "abc")
    start = time.monotonic()
    with hosts() as laboratory:

        def step(address: str, source: str, target: str, command: Sequence[str]) -> float:
            words = [*_TOOL, "timed", source, target, *command]
            return measured(directory, on_host(laboratory, address, words))

        def copy(address: str, other: str, path: str) -> float:
            receiver, sender = [*_TOOL, "receive-file", path], [*_TOOL, "send-file", other, path]
            return measured(directory, on_host(laboratory, address, sender), on_host(laboratory, other, receiver))

        first = step(ONE, "/dev/null", a, chain.source)
        there = copy(ONE, OTHER, a)
        second = step(OTHER, a, b, chain.transform)
        back = copy(OTHER, ONE, b)
        third = step(ONE, b, c, chain.sum)
        (output := directory / "result").mkdir()
        run([on_host(laboratory, ONE, ["cat", c])], directory)
        (directory / "output.0").rename(output / "sum.txt")
    further = {"step_s": max(first, second, third), "transfer_s": max(there, back)}
    sample = Sample(wall=time.monotonic() - start, window=max(further.values()), further=further)
    return Outcome(sample, {_HOSTS: tree_digest(output)})


def _prepare(directory: Path) -> Sequence[Variant]:
    no_hosts = obstacle()
    no_slurm = no_hosts or slurm_obstacle()
    on_hosts = _Cluster(_HOSTS, HOSTS_CHAIN.write(directory / "hosts.cwl"), hosts_site, no_hosts)
    on_slurm = _Cluster(_SLURM, SLURM_CHAIN.write(directory / "slurm.cwl"), slurm_site, no_slurm)
    return (
        Variant(_ALONE, _run_alone, skipped=no_hosts),
        *on_hosts.variants(),
        *on_slurm.variants(),
        Variant(f"{_HOSTS}, wrapper", cluster_wrapper.on_a_host, skipped=no_hosts),
        Variant(f"{_SLURM}, wrapper", cluster_wrapper.on_slurm, skipped=no_slurm),
    )


def _window(variant: str, at_most: float | None = None) -> Comparison:
    return Comparison(
        name=f"{_HOSTS}: execution window, {variant} / max(step, transfer)",
        measure="window",
        variant=f"{_HOSTS}, {variant}",
        baseline=_ALONE,
        at_most=at_most,
    )


def _wrapper(cluster: str) -> Comparison:
    return Comparison(
        name=f"{cluster}: wrapper, ms per job",
        measure=cluster_wrapper.MEASURE,
        variant=f"{cluster}, wrapper",
        at_most=20.0,
    )


def _streaming(cluster: str, at_most: float | None = None, measure: str = "wall") -> Comparison:
    what = {"wall": "", "cpu_s": "CPU time of the driver, "}[measure]
    return Comparison(
        name=f"{cluster}: {what}streaming / plain",
        measure=measure,
        variant=f"{cluster}, streaming",
        baseline=f"{cluster}, plain",
        at_most=at_most,
    )


CLUSTER = Workload(
    "cluster",
    "a chain over two SSH hosts with links of 1 Gbit/s, and on Slurm; the wrapper there. As root",
    _prepare,
    (
        _window("streaming", at_most=1.15),
        _window("plain"),
        *(
            Comparison(name=f"{_HOSTS}: {what}, s", measure=f"{what}_s", variant=_ALONE)
            for what in ("step", "transfer")
        ),
        _streaming(_HOSTS),
        _streaming(_HOSTS, measure="cpu_s"),
        _streaming(_SLURM, at_most=0.75),
        _wrapper(_HOSTS),
        _wrapper(_SLURM),
    ),
)
