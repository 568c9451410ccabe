"""The plan of a workflow: all that is decided before its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct, field
from streamflow.core.workflow import Workflow

from streamflow_io.graph.candidates import Candidate, Wiring
from streamflow_io.graph.capio_cl.configuration import Configuration, KnownJobs
from streamflow_io.graph.capio_cl.from_graph import configure
from streamflow_io.graph.gangs import Gang, gang_cores
from streamflow_io.graph.io_graph import Delivery, Input, InputRoute, Output, Route, Step, StreamEdge
from streamflow_io.graph.partitions import NOT_VERIFIED, Partition
from streamflow_io.graph.possible import PossibleRoute
from streamflow_io.graph.sites import LOCAL, SiteKind
from streamflow_io.hints.inheritance import StepAnnotations, port_path
from streamflow_io.hints.rules import check_both_ends
from streamflow_io.jobs.learned_streams import has_stdin
from streamflow_io.messages import Code, coded
from streamflow_io.records.learned.proofs import InconclusiveRehearsal, Proof
from streamflow_io.storage.admission.demand import StepStorages

from .cuts import PlannedCuts

if TYPE_CHECKING:
    # Most runs remove nothing.
    from streamflow_io.graph.last_readers import Removal
    from streamflow_io.graph.memory_steps import MemoryPlan
    from streamflow_io.graph.stream_windows import StreamWindow


class GraphPlan(Struct, frozen=True):
    """The ways of the files of a workflow from step to step.

    :ivar steps: all tools, by step path
    :ivar edges: all stream edges, also those that fell back
    :ivar delivered: the edges of files and of names, as they are served
    :ivar later: the wiring for streams that may be proven in the run; None: no proof can lead to one
    :ivar gangs: steps that run at the same time
    :ivar impossible: steps whose jobs cannot start, and why
    :ivar outputs: of all tools
    :ivar routes: how outputs reach inputs and workflow outputs
    :ivar names: how the names of files reach other values, where no file arrives
    :ivar possible: how outputs could be delivered, if the run is observed, or if a plan without hints is shown
    """

    steps: Mapping[str, Step] = field(default_factory=dict)
    edges: tuple[StreamEdge, ...] = ()
    delivered: tuple[StreamEdge, ...] = ()
    later: Wiring | None = None
    gangs: tuple[Gang, ...] = ()
    impossible: Mapping[str, str] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    routes: tuple[Route, ...] = ()
    names: tuple[Route, ...] = ()
    possible: tuple[PossibleRoute, ...] = ()

    @property
    def mixed_hosts(self) -> frozenset[str]:
        """Hosts where jobs in containers and jobs beside them read early of each other; "": the driver's node."""
        gangs = (step for gang in self.gangs for step in gang.steps)
        places = {deployment for step in gangs for deployment in self.steps[step].site.deployments}
        names = {place: "" if place.node == LOCAL else place.node.name for place in places if place.node is not None}
        inside = {name for place, name in names.items() if place.kind is SiteKind.CONTAINERS}
        return frozenset(inside & {name for place, name in names.items() if place.kind is not SiteKind.CONTAINERS})

    @property
    def wiring(self) -> Wiring:
        """The wiring of the workflow."""
        return self.later or Wiring(self.routes, self.names, self.delivered)

    def part_readers(self, step: str, port: str) -> list[Input]:
        """The inputs that read the parts of an output."""
        edges = (edge for edge in self.delivered if edge.delivery is Delivery.PART and not edge.route.by_name)
        found = (edge.route for edge in edges if (edge.route.output.step, edge.route.output.port) == (step, port))
        return [route.consumer for route in found if route.consumer is not None]


class PartsPlan(Struct, frozen=True):
    """The plan for splits, and for files that many jobs read.

    :ivar partitions: the rules of read sessions, each with its outcome
    :ivar early_inputs: the routes of workflow inputs that jobs get before they are read for a checksum
    """

    partitions: tuple[Partition, ...] = ()
    early_inputs: tuple[InputRoute, ...] = ()
    cuts: PlannedCuts = field(default_factory=PlannedCuts)

    @property
    def read_early(self) -> frozenset[tuple[str, str]]:
        """The inputs, as step and port, that jobs get before they are read for their checksum."""
        readers = (route.consumer for route in self.early_inputs)
        return frozenset((reader.step, reader.port) for reader in readers if reader is not None)

    @property
    def virtual(self) -> frozenset[str]:
        """The outputs, by name, that no job writes: their files are parts of another file."""
        return frozenset(partition.name for partition in self.partitions if partition.is_virtual)


class ProofsPlan(Struct, frozen=True):
    """The streams that no hint asks for.

    :ivar candidates: by path: steps that may stream without a hint, and steps with inputs that are declared
        `streamable` and stream
    :ivar known: the remembered proofs; None: the proofs cannot be read
    :ivar inconclusive: the remembered rehearsals that have shown nothing
    :ivar proven: the outputs that stream because of these proofs, by name
    :ivar contents: digests of all that is known of such tools before they run, by step path
    :ivar is_auto: whether proven streams are used without a hint
    """

    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    known: tuple[Proof, ...] | None = ()
    inconclusive: tuple[InconclusiveRehearsal, ...] = ()
    proven: frozenset[str] = frozenset()
    contents: Mapping[str, str] = field(default_factory=dict)
    is_auto: bool = False


class BandwidthPlan(Struct, frozen=True):
    """The plan for the bandwidth of storages.

    :ivar storages: the steps that say something about storage, and the storage of each; None: no step does
    :ivar tools: the digests of the tools whose limits are learned, by step path
    """

    storages: StepStorages | None = None
    tools: Mapping[str, str] = field(default_factory=dict)


class IntermediatesPlan(Struct, frozen=True):
    """The plan for the files that are not needed after the run.

    :ivar removal: which intermediate files go when; None: all of them stay
    :ivar windows: the outputs for which a window is asked
    :ivar disk_limit: the most bytes in the directories of jobs on each disk; None: no limit
    :ivar tools: with a limit, or memory: the digests of all tools, by step path
    :ivar memory: which files may lie in memory; None: no memory is given
    """

    removal: Removal | None = None
    windows: tuple[StreamWindow, ...] = ()
    disk_limit: int | None = None
    tools: Mapping[str, str] = field(default_factory=dict)
    memory: MemoryPlan | None = None


class Service(Struct, frozen=True):
    """The way in which files are delivered in a run.

    :ivar streams: whether files are delivered early
    :ivar unavailable: why no file is delivered early, though some edge asks for it; None: no obstacle
    :ivar runtime_edges: with a node runtime of a feature: what the record of each early edge says of the runtime
    """

    streams: bool = False
    unavailable: str | None = None
    runtime_edges: Mapping[StreamEdge, str] = field(default_factory=dict)


class WorkflowSource(Struct, frozen=True):
    """Where a workflow is written.

    :ivar name: of the workflow in the StreamFlow file
    :ivar file: the CWL file
    """

    name: str = ""
    file: str = ""


class Plan(Struct, frozen=True, dict=True):
    """The plan of a workflow.

    :ivar workflow: as StreamFlow translates it; rewired when the plan is applied
    :ivar source: where the workflow is written
    :ivar annotations: the hints that hold, by step path
    :ivar graph: how files go from step to step
    :ivar service: how files are delivered in this run
    :ivar parts: the plan for splits, and for files that many jobs read
    :ivar proofs: the streams that no hint asks for
    :ivar jobs: the jobs that are known before the run
    :ivar bandwidth: the plan for the bandwidth of storages
    :ivar intermediates: the plan for the files that are not needed after the run
    """

    workflow: Workflow
    source: WorkflowSource = field(default_factory=WorkflowSource)
    annotations: Mapping[str, StepAnnotations] = field(default_factory=dict)
    graph: GraphPlan = field(default_factory=GraphPlan)
    service: Service = field(default_factory=Service)
    parts: PartsPlan = field(default_factory=PartsPlan)
    proofs: ProofsPlan = field(default_factory=ProofsPlan)
    jobs: KnownJobs = field(default_factory=KnownJobs)
    bandwidth: BandwidthPlan = field(default_factory=BandwidthPlan)
    intermediates: IntermediatesPlan = field(default_factory=IntermediatesPlan)

    @property
    def warnings(self) -> Iterator[str]:
        """Yield the warnings before the run."""
        if self.bandwidth.storages is not None:
            yield from self.bandwidth.storages.warnings
        for path, why in self.graph.impossible.items():
            yield coded(f"No job of {path} can start: {why}", Code.NEVER_STARTS)
        for edge in self.graph.edges:
            if edge.fallback is not None:
                yield f"{edge.name} is delivered at {edge.delivery.value}: {edge.fallback}"
        for partition in self.parts.partitions:
            reason = partition.real or partition.trial
            if reason not in (None, NOT_VERIFIED):
                rule = f"The rule of `sfio:ReadSession` for {partition.name}"
                yield coded(f"{rule} does nothing: {reason}", Code.PARTS_WRITTEN)
        for window in self.intermediates.windows:
            if window.why is not None and window.is_of_rule:
                name = port_path(window.step, window.port)
                yield coded(f"{name} has no window, and is kept whole: {window.why}", Code.NO_WINDOW)
        if self.service.unavailable is not None:
            plain = "Nothing streams in this run, everything is as with plain StreamFlow"
            yield coded(f"{plain}: {self.service.unavailable}", Code.NOTHING_STREAMS)

    @property
    def one_ended(self) -> list[str]:
        """The edges that do not stream because only one end is `streamable`, in words."""
        streams = [edge.route for edge in self.graph.edges if edge.delivery is Delivery.STREAM]
        edges = [
            ((route.output.step, route.output.port), (route.consumer.step, route.consumer.port))
            for route in self.graph.routes
            if route.consumer is not None
            and {route.output.step, route.consumer.step} <= self.annotations.keys()
            # Files may stream without hints, too. Then another table of `plan` shows them.
            and route not in streams
            and not (self.proofs.is_auto and route.consumer.step in self.proofs.candidates)
        ]
        return [error.message for error in check_both_ends(self.annotations, edges)]

    @property
    def gang_cores(self) -> dict[str, float]:
        """The cores of the whole gang, by each step of a gang; empty if nothing streams."""
        return gang_cores(self.graph.gangs, self.graph.steps) if self.service.streams else {}

    @property
    def read_near(self) -> frozenset[str]:
        """The steps whose jobs may read streams on the host of their producer only: see `are_out_of_reach`."""
        found = (path for path, candidate in self.proofs.candidates.items() if candidate.inputs)
        return frozenset(path for path in found if has_stdin(self.workflow.steps.get(path)))

    @cached_property
    def configuration(self) -> Configuration:
        """The coordination configuration, as far as it is known before the run. It has no parts: no job writes them."""
        graph, virtual = self.graph, self.parts.virtual
        outputs = [output for output in graph.outputs if output.name not in virtual]
        routes = [route for route in graph.routes if route.output.name not in virtual]
        return configure(self.workflow.name, graph.steps, outputs, routes, graph.edges, self.jobs)
