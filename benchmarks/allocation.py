"""Short jobs, a chain and a template on the nodes of one allocation of Slurm, and with a batch job for each job.

The nodes are a laboratory on this machine, and share its cores. Each run of short jobs comes after one with fewer
jobs: the difference is what a job costs, without what a run needs once.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lab.machines.allocation import held_allocation
from lab.machines.deployments import allocation_deployment, slurm_deployment, slurm_environment
from lab.machines.laboratory import Laboratory, LaboratoryError, obstacle, slurm_obstacle, start_slurm

from .auto import strip_hints
from .chain import STEPS, Chain, check_streamed
from .model import Comparison
from .processes import CommandError
from .shared_bytes import SHARED_BYTES, shared_bytes
from .spread_session import SPREAD_SESSIONS, spread_sessions
from .templates import GENOMES, prepare_genotypes
from .tools import MEBIBYTE, WAIT
from .workflows import JSON, Site, StreamFlowRun, tool, write_workflow
from .workload import Outcome, Variant, Workload

# Work is waiting: nodes of a real cluster have cores of their own.
_CHAIN_OF_STEPS = Chain(64, 4 * MEBIBYTE, f"{WAIT}0.1")
# Long, because each step starts a moment after the one before. Each has a node of its own.
_WAIT_SECONDS = 0.1
_LONG_CHAIN = Chain(192, 4 * MEBIBYTE, f"{WAIT}{_WAIT_SECONDS}", cores=2)
_LONG, _OF_STEP = "chain over three nodes", "of_step"
_FEW, _MANY = 16, 96
_MEASURE = "ms_per_job"
_JOBS, _CHAIN = "jobs", "chain"
_SLURM, _ALLOCATION, _LOCAL = "one by one on Slurm", "allocation", "this machine"
_GENOMES, _AUTO = "1000genome", "auto in an allocation"
_GENOMES_STREAM = ("/chromosome/individuals", "/chromosome/individuals_merge")

_SiteOf = Callable[[Path], AbstractContextManager[Site | None]]


@dataclass(frozen=True)
class _Pairs:
    """Runs of few jobs and of many.

    :ivar scheduler: none: StreamFlow without the plugin
    """

    workflows: tuple[Path, Path]
    site: _SiteOf
    scheduler: Mapping[str, JSON] | None

    def run(self, directory: Path) -> Outcome:
        """:return: the time of a job is that of the difference of both runs"""
        outcomes = []
        with self.site(directory) as site:
            for number, workflow in enumerate(self.workflows):
                (into := directory / str(number)).mkdir()
                outcomes.append(StreamFlowRun(workflow, self.scheduler, site=site, time_limit=600.0).run(into))
        few, many = outcomes
        cost = 1e3 * (many.sample.wall - few.sample.wall) / (_MANY - _FEW)
        sample = many.sample.model_copy(update={"further": {**many.sample.further, _MEASURE: cost}})
        return Outcome(sample, {f"{_JOBS}, {name}": digest for name, digest in many.outputs.items()})


def _short_jobs(path: Path, number: int) -> Path:
    """Write a workflow of jobs that take 10 ms."""
    return write_workflow(
        path,
        inputs={"numbers": {"type": "int[]", "default": list(range(number))}},
        outputs={"lines": {"type": "File[]", "outputSource": "each/line"}},
        steps={
            "each": {
                "run": tool(
                    ["sh", "-c", 'sleep 0.01; echo "$0"'],
                    {"number": {"type": "int", "inputBinding": {}}},
                    {"line": "stdout"},
                    stdout="$(inputs.number).txt",
                ),
                "scatter": "number",
                "in": {"number": "numbers"},
                "out": ["line"],
            }
        },
    )


def _run_at(site: _SiteOf, name: str, way: StreamFlowRun, streams: Sequence[str], directory: Path) -> Outcome:
    """Run a workflow at a site.

    :param streams: steps; each reads from the one before while the one before runs
    """
    with site(directory) as found:
        outcome = dataclasses.replace(way, site=found).run(directory)
    check_streamed(directory, streams)
    return dataclasses.replace(outcome, outputs={f"{name}, {what}": digest for what, digest in outcome.outputs.items()})


@contextmanager
def _slurm() -> Iterator[Laboratory]:
    """A Slurm for one run.

    :raises CommandError: if it cannot be started
    """
    try:
        with start_slurm() as laboratory:
            yield laboratory
    except (LaboratoryError, subprocess.SubprocessError) as error:
        raise CommandError(str(error)) from None


@contextmanager
def _slurm_site(directory: Path) -> Iterator[Site]:
    """All steps on Slurm, whose nodes share the directory with the driver.

    :raises CommandError: if it cannot be started
    """
    with _slurm() as laboratory:
        (workdir := directory / "work").mkdir()
        deployment = slurm_deployment(workdir)
        environment = slurm_environment(laboratory)
        yield Site({"slurm": deployment}, {"/": "slurm"}, laboratory.prefix, environment, containers=False)


@contextmanager
def _allocation_site(directory: Path, nodes: int = 2, is_apart: bool = False) -> Iterator[Site]:
    """All steps on nodes of an allocation of a Slurm. The nodes share the directory with the driver.

    :param is_apart: whether each node has a work directory of its own, in memory
    :raises CommandError: if it cannot be started
    """
    (workdir := directory / "work").mkdir()
    with _slurm() as laboratory, held_allocation(laboratory, nodes, "60") as environment:
        deployment = allocation_deployment(laboratory.directory / "local" if is_apart else workdir)
        yield Site({"nodes": deployment}, {"/": "nodes"}, laboratory.prefix, environment, containers=False)


def _nowhere_else(_: Path) -> AbstractContextManager[None]:
    return nullcontext()


def _prepare(directory: Path) -> Sequence[Variant]:
    skipped = obstacle() or slurm_obstacle()
    few, many = (_short_jobs(directory / f"{number}.cwl", number) for number in (_FEW, _MANY))
    chain = _CHAIN_OF_STEPS.write(directory / "chain.cwl")
    sites: dict[str, tuple[_SiteOf, Mapping[str, JSON] | None]] = {
        _LOCAL: (_nowhere_else, None),
        _SLURM: (_slurm_site, None),
        _ALLOCATION: (_allocation_site, {}),
    }
    jobs = [
        Variant(
            f"{_JOBS}, {name}",
            _Pairs((few, many), site, scheduler).run,
            skipped=None if name == _LOCAL else skipped,
        )
        for name, (site, scheduler) in sites.items()
    ]
    chains = [
        Variant(
            f"{_CHAIN}, {name}",
            partial(_run_at, sites[name][0], _CHAIN, StreamFlowRun(chain, sites[name][1]), streams),
            skipped=skipped,
        )
        for name, streams in ((_SLURM, ()), (_ALLOCATION, STEPS))
    ]
    chains += [_auto(chain, directory, skipped), _long_chain(directory, skipped)]
    of_files = [shared_bytes(directory, skipped), *spread_sessions(directory, skipped)]
    return [*jobs, *chains, *_genomes(directory, skipped), *of_files]


def _genomes(directory: Path, skipped: str | None) -> list[Variant]:
    """The template, plain on Slurm, and annotated."""
    settings = None if skipped else prepare_genotypes(directory, "short", "--records", "20000")
    ways: dict[str, tuple[_SiteOf, Mapping[str, JSON] | None, Sequence[str]]] = {
        _SLURM: (_slurm_site, None, ()),
        _ALLOCATION: (_allocation_site, {}, _GENOMES_STREAM),
    }
    return [
        Variant(
            f"{_GENOMES}, {name}",
            partial(
                _run_at, site, _GENOMES, StreamFlowRun(GENOMES / "main.cwl", scheduler, settings=settings), streams
            ),
            skipped=skipped,
        )
        for name, (site, scheduler, streams) in ways.items()
    ]


def _long_chain(directory: Path, skipped: str | None) -> Variant:
    """A chain with a node for each step, whose time is that of a step at best: a link takes a third of this time.

    The files are in memory, because the nodes share the disk of this machine.
    """
    way = StreamFlowRun(_LONG_CHAIN.write(directory / "long.cwl"), {"oversubscribe": "never"})

    def run(directory: Path) -> Outcome:
        outcome = _run_at(partial(_allocation_site, nodes=len(STEPS), is_apart=True), _LONG, way, STEPS, directory)
        (file,) = (directory / "data" / "streamflow-io" / "runs").glob("*/telemetry.jsonl")
        records = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        nodes = {record["location"] for record in records if record["event"] == "command"}
        if len(nodes) != len(STEPS):
            raise CommandError(f"the steps have run on {', '.join(sorted(nodes))}")
        of_step = outcome.sample.window / (_LONG_CHAIN.chunks * _WAIT_SECONDS)
        sample = outcome.sample.model_copy(update={"further": {**outcome.sample.further, _OF_STEP: of_step}})
        return dataclasses.replace(outcome, sample=sample)

    return Variant(_LONG, run, skipped=skipped)


def _auto(chain: Path, directory: Path, skipped: str | None) -> Variant:
    """The chain without hints. Before all runs, an allocation of one node has proven what streams."""
    document = json.loads(chain.read_text(encoding="utf-8"))
    strip_hints(document)
    (workflow := directory / "auto.cwl").write_text(json.dumps(document), encoding="utf-8")
    config = {"streaming": "auto", "learned": str(directory / "learned.db")}

    def learn(directory: Path) -> None:
        way = StreamFlowRun(workflow, {**config, "rehearse": "wait"})
        _run_at(partial(_allocation_site, nodes=1), _CHAIN, way, (), directory)

    # All steps run on one node of two cores, because a standard input streams there only.
    run = partial(_run_at, _allocation_site, _CHAIN, StreamFlowRun(workflow, config), STEPS)
    return Variant(f"{_CHAIN}, {_AUTO}", run, learn, skipped)


def _per_job(baseline: str, at_most: float) -> Comparison:
    return Comparison(
        name=f"time per job, {_ALLOCATION} / {baseline}",
        measure=_MEASURE,
        variant=f"{_JOBS}, {_ALLOCATION}",
        baseline=f"{_JOBS}, {baseline}",
        at_most=at_most,
    )


ALLOCATION = Workload(
    "allocation",
    "short jobs, a chain and 1000genome on 20,000 variants in one allocation, and one by one on Slurm. As root",
    _prepare,
    (
        _per_job(_SLURM, at_most=0.05),
        _per_job(_LOCAL, at_most=1.2),
        *(
            Comparison(name=f"ms per job, {name}", measure=_MEASURE, variant=f"{_JOBS}, {name}")
            for name in (_LOCAL, _SLURM, _ALLOCATION)
        ),
        Comparison(
            name=f"{_CHAIN}: streaming in an {_ALLOCATION} / plain, {_SLURM}",
            variant=f"{_CHAIN}, {_ALLOCATION}",
            baseline=f"{_CHAIN}, {_SLURM}",
            at_most=0.5,
        ),
        Comparison(name=f"{_LONG}: execution window / a step", measure=_OF_STEP, variant=_LONG, at_most=1.05),
        Comparison(
            name=f"{_CHAIN}: {_AUTO}, proven on one node / annotated",
            variant=f"{_CHAIN}, {_AUTO}",
            baseline=f"{_CHAIN}, {_ALLOCATION}",
            at_most=1.05,
        ),
        Comparison(
            name=f"{_GENOMES}: streaming in an {_ALLOCATION} / plain, {_SLURM}",
            variant=f"{_GENOMES}, {_ALLOCATION}",
            baseline=f"{_GENOMES}, {_SLURM}",
            at_most=0.33,
        ),
        *SHARED_BYTES,
        *SPREAD_SESSIONS,
    ),
)
