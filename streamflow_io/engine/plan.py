"""What will be done with a workflow: all that is decided before its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from streamflow.core.workflow import Workflow

from streamflow_io.adapters.outputs import Declaration
from streamflow_io.graph.candidates import Candidate
from streamflow_io.graph.capio_cl.applications import KnownJobs
from streamflow_io.graph.capio_cl.configuration import Configuration
from streamflow_io.graph.capio_cl.from_graph import configure, stricter_than_served
from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Delivery, Input, InputRoute, Output, Route, Step, StreamEdge
from streamflow_io.graph.later import Wiring
from streamflow_io.graph.partitions import Partition
from streamflow_io.graph.possible import PossibleRoute
from streamflow_io.graph.sites import LOCAL, SiteKind
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.messages import Code, coded
from streamflow_io.records.learned.proofs import Proof
from streamflow_io.records.learned.verdicts import Verdict
from streamflow_io.storage.admission.gang_placement import gang_cores
from streamflow_io.storage.admission.storages import StepStorages

#: Why the real split runs the first time.
NOT_VERIFIED = "not verified yet: the first run compares what its program writes"


@dataclass(frozen=True)
class Plan:
    """What will be done with a workflow.

    :ivar workflow: as StreamFlow translates it; rewired when the plan is applied
    :ivar file: the CWL file
    :ivar annotations: the hints that hold, by step path
    :ivar tools: the digests of the tools whose limits are learned, by step path
    :ivar steps: all tools, by step path
    :ivar edges: all stream edges, also those that fell back
    :ivar partitions: what is made of each rule of a read session
    :ivar early_inputs: how those inputs of the workflow reach their jobs that come before they are read for a checksum
    :ivar read_first: other files of read sessions that are known before the run, with a step that reads them
    :ivar declared: where splits are declared to cut, by step and output
    :ivar verdicts: of declared splits, as they are remembered
    :ivar candidates: steps that may stream without a hint, if that is wanted, and those with inputs that stream because
        they are declared `streamable`, by step path
    :ivar proofs: of what streams without a hint, as they are remembered; None: they cannot be read
    :ivar proven: the outputs that are streamed by them, by name
    :ivar contents: digests of all that is known of tools before they run, by step path, where these may stream so
    :ivar is_auto: whether what is proven is to stream without a hint
    :ivar delivered: those of files and of names, as they are served
    :ivar later: how the workflow is wired for what may be proven in its run; None: nothing may
    :ivar streams: whether files are delivered early in this run
    :ivar unavailable: why they are not, though some are to be
    :ivar outputs: of all tools
    :ivar routes: how they reach inputs and workflow outputs
    :ivar names: how the names of their files do, as part of other values, where no file arrives
    :ivar possible: how they could be delivered, if the run is observed, or if a plan without hints is shown
    :ivar jobs: what is known of the jobs before the run
    :ivar storages: the steps that say something about storage, and which one they use; none if none does
    :ivar impossible: steps of which no job can start, and why
    :ivar runtime_edges: with a node runtime of a feature, what the record of each early edge says of the runtime
    :ivar apart: the gangs whose steps do not all run at the same time, by their number, and why
    """

    workflow: Workflow
    steps: Mapping[str, Step]
    file: str = ""
    annotations: Mapping[str, StepAnnotations] = field(default_factory=dict)
    tools: Mapping[str, str] = field(default_factory=dict)
    edges: tuple[StreamEdge, ...] = ()
    partitions: tuple[Partition, ...] = ()
    early_inputs: tuple[InputRoute, ...] = ()
    read_first: Mapping[str, str] = field(default_factory=dict)
    declared: Mapping[tuple[str, str], Declaration] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    candidates: Mapping[str, Candidate] = field(default_factory=dict)
    proofs: tuple[Proof, ...] | None = ()
    proven: frozenset[str] = frozenset()
    contents: Mapping[str, str] = field(default_factory=dict)
    is_auto: bool = False
    delivered: tuple[StreamEdge, ...] = ()
    later: Wiring | None = None
    gangs: tuple[Gang, ...] = ()
    streams: bool = False
    unavailable: str | None = None
    outputs: tuple[Output, ...] = ()
    routes: tuple[Route, ...] = ()
    names: tuple[Route, ...] = ()
    possible: tuple[PossibleRoute, ...] = ()
    jobs: KnownJobs = field(default_factory=KnownJobs)
    storages: StepStorages | None = None
    impossible: Mapping[str, str] = field(default_factory=dict)
    apart: Mapping[int, str] = field(default_factory=dict)
    runtime_edges: Mapping[StreamEdge, str] = field(default_factory=dict)

    @property
    def warnings(self) -> Iterator[str]:
        """What is to be said before the run."""
        if self.storages is not None:
            yield from self.storages.warnings
        for path, why in self.impossible.items():
            yield coded(f"No job of {path} can start: {why}", Code.NEVER_STARTS)
        for edge in self.edges:
            if edge.fallback is not None:
                yield f"{edge.name} is delivered at {edge.delivery.value}: {edge.fallback}"
        for partition in self.partitions:
            reason = partition.real or partition.trial
            if reason is not None and reason != NOT_VERIFIED:
                rule = f"The rule of `sfio:ReadSession` for {partition.name}"
                yield coded(f"{rule} does nothing: {reason}", Code.PARTS_WRITTEN)
        if self.unavailable is not None:
            plain = "Nothing streams in this run, everything is as with plain StreamFlow"
            yield coded(f"{plain}: {self.unavailable}", Code.NOTHING_STREAMS)

    @property
    def mixed_hosts(self) -> frozenset[str]:
        """Deployments where jobs in containers read early of jobs beside them, or these of those; "": this node."""
        gangs = (step for gang in self.gangs for step in gang.steps)
        places = {deployment for step in gangs for deployment in self.steps[step].site.deployments}
        names = {place: "" if place.node == LOCAL else place.node.name for place in places if place.node is not None}
        inside = {name for place, name in names.items() if place.kind is SiteKind.CONTAINERS}
        return frozenset(inside & {name for place, name in names.items() if place.kind is not SiteKind.CONTAINERS})

    @property
    def gang_cores(self) -> dict[str, float]:
        """The cores of the whole gang of each step that is of one, as far as gangs run."""
        return gang_cores(self.gangs, self.steps) if self.streams else {}

    @cached_property
    def configuration(self) -> Configuration:
        """The coordination configuration, as far as it is known before the run."""
        return self.configure(self.jobs)

    @property
    def wiring(self) -> Wiring:
        """How the workflow is wired."""
        return self.later or Wiring(self.routes, self.names, self.delivered)

    @property
    def read_early(self) -> frozenset[tuple[str, str]]:
        """The inputs that come before they are read for their checksum, as step and port."""
        readers = (route.consumer for route in self.early_inputs)
        return frozenset((reader.step, reader.port) for reader in readers if reader is not None)

    @property
    def virtual(self) -> frozenset[str]:
        """The outputs that nobody writes, by name: their files are parts of another."""
        return frozenset(partition.name for partition in self.partitions if partition.is_virtual)

    def part_readers(self, step: str, port: str) -> list[Input]:
        """The inputs that read the parts of an output."""
        edges = (edge for edge in self.delivered if edge.delivery is Delivery.PART and not edge.route.by_name)
        found = (edge.route for edge in edges if (edge.route.output.step, edge.route.output.port) == (step, port))
        return [route.consumer for route in found if route.consumer is not None]

    def configure(self, jobs: KnownJobs) -> Configuration:
        """The coordination configuration, with what is known of the jobs. What nobody writes is not in it."""
        outputs = [output for output in self.outputs if output.name not in self.virtual]
        routes = [route for route in self.routes if route.output.name not in self.virtual]
        return configure(self.workflow.name, self.steps, outputs, routes, self.edges, jobs)

    @property
    def stricter(self) -> dict[str, str]:
        """Outputs that are delivered to some earlier than the configuration says, and why."""
        return stricter_than_served(self.routes, self.edges)
