"""Decides what will be done with a workflow before it runs. Changes and starts nothing."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.deployment import Target
from streamflow.core.exception import WorkflowDefinitionException
from streamflow.core.workflow import Workflow
from streamflow.workflow.step import ScheduleStep

from streamflow_io.adapters.deployment_sites import Sites, deployment_kind, deployment_name, room_here
from streamflow_io.graph.candidates import Proved, Wiring, with_refuted
from streamflow_io.graph.capio_cl.configuration import KnownJobs
from streamflow_io.graph.edges import name_edges
from streamflow_io.graph.gangs import Gang, find_gangs, never_start, not_together
from streamflow_io.graph.io_graph import IOGraph, StreamEdge
from streamflow_io.graph.partitions import Partition, early_inputs, plan_partitions
from streamflow_io.graph.possible import PossibleRoute, possible_routes
from streamflow_io.graph.sites import LOCAL, SiteKind
from streamflow_io.hints.config import SchedulerConfig, StorageConfig
from streamflow_io.hints.cwl import Walk, read_steps
from streamflow_io.hints.errors import HintError, HintErrors
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.hints.resolution import resolve, tool_digests
from streamflow_io.hints.rules import above_storage, check_storages
from streamflow_io.hints.yaml_files import check_annotations_file, check_annotations_names, of_several_workflows
from streamflow_io.installed_features import runtimes, subclass_of
from streamflow_io.messages import Code, coded
from streamflow_io.records.learned.database import learned_path
from streamflow_io.records.learned.proofs import Proof
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.storage.admission.demand import StepStorage, StepStorages
from streamflow_io.storage.storages import Storages

from .cuts import PlannedCuts, steps_with_cuts
from .inspect import io_graph, standard_outputs
from .known_tokens import KnownTokens, known_jobs
from .plan import BandwidthPlan, GraphPlan, IntermediatesPlan, PartsPlan, Plan, ProofsPlan, Service, WorkflowSource
from .proving import (
    KnownTools,
    Proving,
    find_candidates,
    known_to,
    refuted_inputs,
    repeated_steps,
    steps_kept_out,
    with_declared,
)
from .scheduler import IOAwareScheduler
from .tool_contents import directories, networked, tool_contents


class InvalidHintsException(WorkflowDefinitionException):  # type: ignore[misc]
    """Hints have mistakes; the message names each."""

    def __init__(self, mistakes: HintErrors) -> None:
        super().__init__(str(mistakes))
        self.mistakes = mistakes


def steps_of(document: Any) -> Walk:
    """Read the steps of a document, before StreamFlow changes the document.

    :param document: as loaded by `cwl_utils.parser`
    :raises InvalidHintsException: if hints stand elsewhere than under `hints`
    """
    try:
        return read_steps(document)
    except HintErrors as error:
        # Not `from error`: StreamFlow prints the causes of an exception, too.
        raise InvalidHintsException(error) from None


def make_plan(
    walk: Walk,
    name: str,
    scheduler: IOAwareScheduler,
    translate: Callable[[], Workflow],
    *,
    given: Sequence[Any] = (),
    in_detail: bool = False,
) -> Plan:
    """Plan the run of a workflow.

    :param walk: the steps of the document
    :param name: of the workflow in the StreamFlow file
    :param scheduler: its config, and the StreamFlow file
    :param translate: translates the document
    :param given: the requirements in the input object
    :param in_detail: whether to plan more than a run needs. Globs that are expressions are evaluated; for JavaScript a
        process is started. Without hints, the plan also has what could be delivered early
    :raises InvalidHintsException: if a hint is wrong, or a storage too slow for it
    """
    config = scheduler.config
    # Before StreamFlow changes the document, whose elements the steps have.
    hints = _read_hints(walk, name, scheduler, given)
    workflow, tokens = translate(), KnownTokens()
    sites = _sites(scheduler)
    annotations, is_auto = hints.annotations, hints.is_auto
    shows_possible = config.observe or (in_detail and (is_auto or not hints.are_given))
    graph = io_graph(workflow, annotations, sites.site_of, all_obstacles=shows_possible or is_auto)
    storages = _storages(workflow, annotations, config, sites) if config.storages or hints.are_given else None
    path = learned_path(config, Path(scheduler.context.config["path"]))
    tools = replace(hints.tools, kept_out=steps_kept_out(workflow, annotations))
    proofs, inconclusive = known_to(path, annotations) if is_auto or hints.declaring else ((), ())
    proving, proved = _prove(graph, hints, tools, proofs, config)
    graph = proved.graph
    cuts = subclass_of(PlannedCuts).of(annotations, workflow, tokens, tools, path)
    edges, partitions = _edges(proved, hints, config, cuts)
    candidates = proving.candidates
    if hints.declaring:
        candidates = with_declared(candidates, proved.hinted, edges, tools)
    delivered = (*edges, *name_edges(graph.names, edges))
    gangs, impossible = _gangs(graph, edges, annotations, config)
    need_files = proving.need_files if hints.is_auto else {}
    intermediates = _intermediates(workflow, hints, graph, edges, partitions, gangs, candidates, need_files, scheduler)
    in_memory = intermediates.memory is not None and bool(intermediates.memory.steps)
    streams = any(not edge.is_plain for edge in delivered) or bool(candidates)
    wanted = config.runtime != "off" and (streams or in_memory)
    unavailable = unavailable_here() if wanted else None
    served = [each for each in partitions if each.is_read_ahead or (wanted and unavailable is None)]
    comes_early = hints.are_given and config.runtime == "embedded"
    early = early_inputs(graph.inputs, served, cuts.with_checksum(graph.inputs)) if comes_early else ()
    return Plan(
        workflow,
        source=WorkflowSource(name, walk.uri),
        annotations=annotations,
        graph=GraphPlan(
            steps=graph.steps,
            edges=edges,
            delivered=delivered,
            later=_later(proving, proved, workflow, partitions),
            gangs=gangs,
            impossible=impossible,
            outputs=graph.outputs,
            routes=graph.routes,
            names=graph.names,
            possible=_possible(workflow, proved.hinted, edges, cuts, config) if shows_possible else (),
        ),
        service=Service(wanted and unavailable is None, unavailable),
        parts=PartsPlan(partitions, early, cuts=cuts),
        proofs=ProofsPlan(candidates, proofs, inconclusive, proved.streamed, tools.contents, is_auto),
        jobs=known_jobs(tokens, workflow, graph.outputs) if in_detail else KnownJobs(),
        bandwidth=BandwidthPlan(storages, hints.learned),
        intermediates=intermediates,
    )


class _ReadHints(Struct, frozen=True):
    """The hints of a document, and what is read of its tools for them.

    :ivar is_auto: whether proven streams are used without a hint
    :ivar declaring: the steps with inputs that are declared `streamable`, by path; empty without our node runtime
    :ivar learned: the digests of the tools whose limits are learned, by step path
    :ivar tools: the tools as they are known before they run
    :ivar sized: with a `diskLimit` or `memory`: the digests of all tools, by step path
    """

    annotations: Mapping[str, StepAnnotations]
    is_auto: bool
    declaring: Collection[str]
    learned: Mapping[str, str]
    tools: KnownTools
    sized: Mapping[str, str]

    @property
    def are_given(self) -> bool:
        """Whether there is any hint."""
        return any(self.annotations.values())


def _read_hints(walk: Walk, name: str, scheduler: IOAwareScheduler, given: Sequence[Any]) -> _ReadHints:
    """Read the hints of a workflow, and its tools as far as the hints need them.

    :raises InvalidHintsException: if a hint is wrong
    """
    config = scheduler.config
    annotations = _annotations(walk, name, scheduler)
    is_auto = config.streaming == "auto" and config.runtime == "embedded"
    learned = [path for path, of in annotations.items() if of.is_learned or of.required]
    declaring = {path for path, of in annotations.items() if of.streamable_inputs and config.runtime == "embedded"}
    known = tool_contents(walk, annotations if is_auto else declaring | steps_with_cuts(annotations), given)
    tools = KnownTools(
        {path: content.digest for path, content in known.items()},
        {path: content.programs for path, content in known.items()},
        networked(walk, annotations if is_auto else declaring, given),
        directories(walk, annotations if is_auto else ()),
    )
    sized = tool_digests(walk, walk.tools if (config.disk_limit, config.memory) != (None, None) else ())
    return _ReadHints(annotations, is_auto, declaring, tool_digests(walk, learned), tools, sized)


def _prove(
    graph: IOGraph, hints: _ReadHints, tools: KnownTools, proofs: Collection[Proof] | None, config: SchedulerConfig
) -> tuple[Proving, Proved]:
    """Apply the known proofs to a graph.

    :param proofs: None: the proofs cannot be read, and nothing streams without a hint
    """
    if config.declarations == "recover":
        graph = with_refuted(graph, refuted_inputs(hints.declaring, tools.contents, proofs or ()))
    candidates = find_candidates(graph, tools) if hints.is_auto and proofs is not None else {}
    proving = Proving(graph, candidates, tools, proofs or ())
    return proving, proving.now() if hints.is_auto else Proved(graph, graph)


def _edges(
    proved: Proved, hints: _ReadHints, config: SchedulerConfig, cuts: PlannedCuts
) -> tuple[tuple[StreamEdge, ...], tuple[Partition, ...]]:
    """The stream edges of a workflow, and the rules of its read sessions."""
    edges = proved.edges() if hints.are_given or hints.is_auto else ()
    partitions = _partitions(proved.graph, hints.annotations, edges, config, cuts)
    parts = _parts(partitions)
    return proved.edges(parts) if parts else edges, partitions


def _parts(partitions: Iterable[Partition]) -> set[str]:
    """The outputs, by name, whose files are parts of another file."""
    return {partition.name for partition in partitions if partition.is_served}


def _later(proving: Proving, proved: Proved, workflow: Workflow, partitions: Iterable[Partition]) -> Wiring | None:
    """The wiring with which streams can begin that are proven in this run; None: no such stream is possible."""
    if not proving.candidates:
        return None
    return proving.later(proved, repeated_steps(workflow), _parts(partitions))


def _gangs(
    graph: IOGraph, edges: Sequence[StreamEdge], annotations: Mapping[str, StepAnnotations], config: SchedulerConfig
) -> tuple[tuple[Gang, ...], dict[str, str]]:
    """The gangs of a workflow, and the steps whose jobs cannot start, by path, with the reason."""
    here = room_here()
    gangs = find_gangs(edges, graph.steps)
    io_tasks = [path for path, hints in annotations.items() if hints.io_task is not None]
    impossible = never_start(graph.steps, io_tasks, gangs if config.oversubscribe != "never" else (), here)
    return tuple(replace(gang, apart=not_together(gang, graph.steps, here)) for gang in gangs), impossible


def _intermediates(
    workflow: Workflow,
    hints: _ReadHints,
    graph: IOGraph,
    edges: Sequence[StreamEdge],
    partitions: Sequence[Partition],
    gangs: Sequence[Gang],
    repeated: Collection[str],
    need_files: Mapping[tuple[str, str], str],
    scheduler: IOAwareScheduler,
) -> IntermediatesPlan:
    """Plan which intermediate files are removed, and which have windows. A window needs no removal.

    :param repeated: the paths of the steps whose jobs may run once more beside themselves
    :param need_files: by step and port: why the jobs that read a stream may need the whole file
    """
    config, annotations = scheduler.config, hints.annotations
    rules = (rule.value for of in annotations.values() for port in of.streaming.values() for rule in port)
    has_windows = config.intermediates == "window" or any(rule.window is not None for rule in rules)
    if config.intermediates == "keep" and not has_windows:
        return IntermediatesPlan()
    # Other runs need nothing of these modules.
    from .intermediates import plan_intermediates, with_memory

    plan = plan_intermediates(
        workflow, annotations, graph, edges, partitions, gangs, config, hints.sized, has_windows, need_files
    )
    return with_memory(plan, annotations, graph, gangs, repeated, config)


def _sites(scheduler: IOAwareScheduler) -> Sites:
    config = scheduler.context.config
    directory = Path(config["path"]).parent
    return Sites(config.get("deployments", {}), contained=scheduler.config.containers == "on", directory=directory)


def _annotations(walk: Walk, name: str, scheduler: IOAwareScheduler) -> dict[str, StepAnnotations]:
    """The hints that hold for the steps of a workflow.

    :raises InvalidHintsException: if a hint is wrong
    """
    config, streamflow_config = scheduler.config, scheduler.context.config
    streamflow_file, workflows = streamflow_config["path"], streamflow_config.get("workflows", {})
    try:
        check_annotations_names(config, workflows, streamflow_file)
        path = None
        if (file := config.annotations_of(name)) is not None:
            path = Path(streamflow_file).parent / file
            check_annotations_file(path, streamflow_file)
        with of_several_workflows(config, workflows):
            annotations = resolve(walk, path)
        if errors := check_storages(annotations, config.storages):
            raise HintErrors(errors)
    except HintErrors as error:
        raise InvalidHintsException(error) from None
    return annotations


def _partitions(
    graph: IOGraph,
    annotations: Mapping[str, StepAnnotations],
    edges: Iterable[StreamEdge],
    config: SchedulerConfig,
    cuts: PlannedCuts,
) -> tuple[Partition, ...]:
    rules = {path: [rule.value for rule in hints.sessions] for path, hints in annotations.items() if hints.sessions}
    joined = ((edge.route.consumer, edge.delivery) for edge in edges if edge.delivery.joins)
    streamed = {(consumer.step, consumer.port): delivery for consumer, delivery in joined if consumer is not None}
    found = plan_partitions(graph, rules, streamed, _shared(config), cuts)
    if config.runtime in runtimes():
        why = f"`runtime: {config.runtime}`: parts are no files"
        found = tuple(replace(each, real=each.real or why) for each in found)
    if config.runtime == "off":
        off = "`runtime: off`: nothing is read ahead"
        found = tuple(replace(each, real=off) if each.is_read_ahead else each for each in found)
    return found


def _shared(config: SchedulerConfig) -> set[str | None]:
    # The default of `scope` does not say which nodes see the storage.
    told = (storage for storage in config.storages if "scope" in storage.model_fields_set)
    return {storage.deployment for storage in told if storage.scope == "shared"}


def _possible(
    workflow: Workflow, graph: IOGraph, edges: Iterable[StreamEdge], cuts: PlannedCuts, config: SchedulerConfig
) -> tuple[PossibleRoute, ...]:
    written = cuts.never_parts(graph, _shared(config))
    return possible_routes(graph.routes, edges, standard_outputs(workflow), written)


def _storages(
    workflow: Workflow, annotations: Mapping[str, StepAnnotations], config: SchedulerConfig, sites: Sites
) -> StepStorages:
    found = find_storages(workflow, annotations, config.storages, sites)
    if found.errors:
        raise InvalidHintsException(HintErrors(found.errors))
    return found


def unavailable_here() -> str | None:
    """Why the node runtime cannot work on this node; None: no obstacle."""
    try:
        EmbeddedRuntime.check_this_node()
    except NodeRuntimeError as error:
        return str(error)
    return None


def find_storages(
    workflow: Workflow, annotations: Mapping[str, StepAnnotations], storages: Sequence[StorageConfig], sites: Sites
) -> StepStorages:
    """Compare the storage hints of steps with the storages where they will run."""
    places = Storages(storages, sites)
    steps: list[StepStorage] = []
    errors: list[HintError] = []
    warnings: list[str] = []
    reached = _Reached()
    for step, target, directory in _targets(workflow):
        deployment = deployment_name(target.deployment)
        reached.add(target, places.host_names(target), is_here=places.is_here(target, directory))
        hints = annotations.get(step)
        if hints is None or not hints.concern_storage:
            continue
        bandwidth = hints.storage_bandwidth
        storage = None
        if bandwidth is not None:
            wanted = bandwidth.value.storage
            storage = places.of(wanted, target, directory)
            if storage is not None:
                errors += above_storage(bandwidth, storage)
            else:
                where, what = places.missing(wanted, target, directory)
                not_done = "shared with others" if hints.required is not None else "applied"
                told = f"The storageBW of {step} is not {not_done} on {where}: {what}"
                warnings.append(coded(told, Code.NO_STORAGE))
        steps.append(
            StepStorage(
                step=step,
                io_task=hints.io_task is not None,
                storage_bw=None if bandwidth is None else str(hints.storage_bw),
                direction=None if bandwidth is None else hints.direction,
                deployment=deployment,
                storage=None if storage is None else storage.name,
            )
        )
    warnings += reached.missed(storages)
    return StepStorages(tuple(steps), tuple(dict.fromkeys(errors)), tuple(dict.fromkeys(warnings)))


class _Reached:
    """The deployments where steps run, and the deployments below these."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._shown: set[str] = set()
        self._here: set[str] = set()
        self._are_all_here = True

    def add(self, target: Target, host_names: Set[str], *, is_here: bool) -> None:
        """Note that steps run on a target.

        :param is_here: whether they write on the driver's node
        """
        deployment = target.deployment
        is_local = deployment_kind(str(deployment.type)) is SiteKind.LOCAL
        self._shown.add(str(LOCAL) if is_local else deployment_name(deployment))
        self._names |= {str(deployment.name), *host_names}
        if is_here:  # the name of a deployment of containers stands for a path in them
            self._here |= {str(deployment.name), *host_names} if is_local else host_names
        self._are_all_here &= is_here

    def missed(self, storages: Iterable[StorageConfig]) -> Iterator[str]:
        """Yield the warnings about storages that are not where the StreamFlow file says."""
        for storage in storages:
            is_here = self._are_all_here if storage.deployment is None else storage.deployment in self._here
            if self._names and is_here and not os.path.exists(storage.path):
                yield f"Storage {storage.name!r}: {storage.path} does not exist on the driver's node"
            if storage.deployment is not None and storage.deployment not in self._names:
                where = f"deployment {storage.deployment!r}, where no step runs"
                yield f"Storage {storage.name!r} is on {where} (steps run on {', '.join(sorted(self._shown))})"


def _targets(workflow: Workflow) -> Iterator[tuple[str, Target, str]]:
    """Yield the targets of each step, with the directory in which the step writes there."""
    for step in workflow.steps.values():
        if isinstance(step, ScheduleStep):
            for target in step.binding_config.targets:
                yield posixpath.dirname(step.name), target, str(step.output_directory or target.workdir)
