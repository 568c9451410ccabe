"""Steps in containers of their own, as by a DockerRequirement; and jobs in one container.

The engine is a laboratory: a real dockerd in namespaces of this machine. Tools of the chain and of the fan-out pace
themselves, as if each container had a core of its own; those of the busy chain use all cores all the time, so that
there is nothing to win by overlap. Those of the variant-calling template do what they do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from lab.machines.laboratory import containers_obstacle

from . import containers_rate
from .chain import FILE, STDOUT, STEPS, Chain, check_streamed
from .containers_site import PROGRAM, in_containers, one_container_site, site, variant_calling_site
from .model import Comparison
from .overhead import commit_hints, tiny_jobs
from .processes import CommandError
from .templates import VARIANT_CALLING_DELIVERIES, prepare_variant_calling, variants_digest
from .tools import ALL_CORES, MEBIBYTE, WAIT
from .workflows import JSON, RESULT, Site, StreamFlowRun, tool, tree_digest, write_workflow
from .workload import Outcome, Variant, Workload

PACED = Chain(100, MEBIBYTE, f"{WAIT}0.1", PROGRAM)
BUSY = Chain(40, MEBIBYTE, f"{ALL_CORES}0.1", PROGRAM)
WIDTH = 50
# Of the template, those that read from one another.
STAGES = ("/align", "/fixmate", "/sort", "/markdup", "/mpileup", "/call", "/filter")
_CHAIN, _FANOUT, _BUSY, _TINY, _TEMPLATE = "chain", "fan-out", "busy chain", "tiny jobs", "variant calling"
_FIFO, _VOLUME, _LINK, _JOB = "FIFO in one container", "stream on a volume", "stream by a bridge", "tiny job"


@dataclass(frozen=True)
class _Pair:
    """A workflow in containers, with plain StreamFlow and with ours.

    :ivar name: by which its variants and its output begin
    :ivar deliveries: how its edges must be delivered
    :ivar annotations: its hints, if they are not in it
    :ivar settings: its job file, if it has one
    :ivar digest: of its output directory
    :ivar steps: if anything streams: each of them reads from the one before
    """

    name: str
    workflow: Path
    deliveries: Sequence[str]
    annotations: Path | None = None
    site: Callable[[Path], AbstractContextManager[Site]] = field(default=site)
    settings: Path | None = None
    digest: Callable[[Path], str] = tree_digest
    steps: Sequence[str] = STEPS

    def variants(self, obstacle: str | None) -> tuple[Variant, Variant]:
        return (
            Variant(f"{self.name}, plain", lambda run: self._run(run, None), skipped=obstacle),
            Variant(f"{self.name}, streaming", lambda run: self._run(run, self._config), self._verify, obstacle),
        )

    @property
    def _config(self) -> dict[str, JSON]:
        return {} if self.annotations is None else {"annotations": str(self.annotations)}

    def _run(self, directory: Path, scheduler: dict[str, JSON] | None) -> Outcome:
        with self.site(directory) as place:
            outcome = self._streamflow(scheduler, place).run(directory)
        if scheduler is not None and "stream" in self.deliveries:
            check_streamed(directory, self.steps)
        return dataclasses.replace(outcome, outputs={self.name: outcome.outputs[RESULT]})

    def _verify(self, directory: Path) -> None:
        with self.site(directory) as place:
            self._streamflow(self._config, place).verify(directory)

    def _streamflow(self, scheduler: dict[str, JSON] | None, place: Site) -> StreamFlowRun:
        return StreamFlowRun(self.workflow, scheduler, self.deliveries, self.settings, self.digest, place)


def fanout(path: Path, chain: Chain) -> Path:
    """Write a workflow with the first step of a chain, and two that read what it writes."""

    def reader(name: str) -> JSON:
        run = tool(chain.sum, {"data": FILE}, {"sum": "stdout"}, stdin="$(inputs.data.path)", stdout=f"{name}.txt")
        return {"run": run, "in": {"data": "a/data"}, "out": ["sum"]}

    source = tool(chain.source, {}, {"data": STDOUT}, stdout="data")
    return write_workflow(
        path,
        inputs={},
        outputs={name: {"type": "File", "outputSource": f"{name}/sum"} for name in "bc"},
        steps={"a": {"run": source, "in": {}, "out": ["data"]}, "b": reader("b"), "c": reader("c")},
    )


def _prepare(directory: Path) -> Sequence[Variant]:
    obstacle = containers_obstacle()
    streams = ["stream", "stream"]
    pairs = (
        _Pair(_CHAIN, in_containers(PACED.write(directory / "chain.cwl")), streams),
        _Pair(_FANOUT, in_containers(fanout(directory / "fanout.cwl", PACED)), streams),
        _Pair(_BUSY, in_containers(BUSY.write(directory / "busy.cwl")), streams),
        _Pair(
            _TINY,
            tiny_jobs(directory / "tiny.cwl", WIDTH),
            ["commit"],
            commit_hints(directory / "commit.yml"),
            one_container_site,
        ),
    )
    return (
        *(variant for pair in pairs for variant in pair.variants(obstacle)),
        *_variant_calling(directory, obstacle),
        Variant(_FIFO, containers_rate.fifo, skipped=obstacle),
        Variant(_VOLUME, containers_rate.volume, skipped=obstacle),
        Variant(_LINK, containers_rate.link, skipped=obstacle),
        Variant(_JOB, containers_rate.tiny, skipped=obstacle),
    )


def _variant_calling(directory: Path, obstacle: str | None) -> Sequence[Variant]:
    """The template in the images that its tools name, made of packages that are installed here."""
    workflow, settings = Path(), Path()
    if obstacle is None:
        try:
            workflow, settings = prepare_variant_calling(directory)
        except CommandError as error:
            obstacle = str(error)
    return _Pair(
        _TEMPLATE,
        workflow,
        VARIANT_CALLING_DELIVERIES,
        site=variant_calling_site,
        settings=settings,
        digest=variants_digest,
        steps=STAGES,
    ).variants(obstacle)


def _goal(name: str, at_most: float) -> Comparison:
    return Comparison(
        name=f"{name}: streaming / plain", variant=f"{name}, streaming", baseline=f"{name}, plain", at_most=at_most
    )


CONTAINERS = Workload(
    "containers",
    "steps in containers of a dockerd: a chain, a fan-out, tools that leave no core idle, tiny jobs. As root",
    _prepare,
    (
        _goal(_CHAIN, 0.50),
        _goal(_FANOUT, 0.62),
        _goal(_BUSY, 1.03),
        _goal(_TINY, 1.05),
        _goal(_TEMPLATE, 0.999),
        Comparison(
            name=f"2 GiB: rate of a {_VOLUME} / {_FIFO}",
            measure=containers_rate.RATE,
            variant=_VOLUME,
            baseline=_FIFO,
        ),
        Comparison(name=f"2 GiB: {_LINK}, GiB/s", measure=containers_rate.RATE, variant=_LINK, at_least=0.4),
        Comparison(name=f"{_JOB}: CPU of `sfio-node exec`, ms", measure=containers_rate.CPU, variant=_JOB, at_most=5.0),
    ),
)
