"""The I/O graph: the steps of a workflow and the ways that their files take from step to step.

A :class:`Route` is what the workflow says: the output of one step reaches an input of another, or a workflow output,
through some hops. A :class:`StreamEdge` is what follows from it: how the file is delivered, by which rules, and why it
is not delivered as asked.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct

from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.models import StreamingRule

from .sites import DRIVERS_NODE, Site

# The endings by which StreamFlow names its own steps after a step or an input.
_OWN = re.compile(
    "-(token-transformer|value-from-transformer|(cmd|wf|step)-default-transformer|(input|output)-forward-transformer"
    "|back-propagation-transformer|list-merge-combinator(-transformer|-list-to-element)?|combinator"
    "|combinator-transformer|transformer|list-to-element|(empty-)?scatter(-condition|-combinator|-size-transformer)?"
    "|gather(-[^/]*)?|dot-product-combinator|loop-[a-z-]+|when)$"
)


class OutputKind(str, Enum):
    """The type of an output, as far as rules differ."""

    FILE = "File"
    FILES = "File[]"
    DIRECTORY = "Directory"
    OTHER = "other"


class HopKind(str, Enum):
    """The kinds of hops between an output and the input that it reaches."""

    GATHER = "gather"
    SCATTER = "scatter"
    SUBWORKFLOW = "subworkflow"
    FORWARD = "forward"
    COMBINATOR = "combinator"
    WHEN = "when"
    DEFAULT = "default"
    LINK_MERGE = "linkMerge"
    PICK_VALUE = "pickValue"
    VALUE_FROM = "valueFrom"
    LOOP = "loop"
    FIELD = "field"
    UNKNOWN = "unknown"


class Delivery(str, Enum):
    """How a file gets from a step to the next.

    `STREAM`: the consumer reads bytes while they are written. `GATE`: the consumer starts with its producer, and is
    held where it touches an uncommitted file. `COMMIT`: the consumer gets the file once it is committed. `PART`: no job
    writes the file; the consumer gets its bytes from another file, whose part it is. `TERMINATION`: the consumer gets
    the file when the job that wrote it has ended, as with plain StreamFlow.
    """

    STREAM = "stream"
    GATE = "gate"
    COMMIT = "commit"
    PART = "part"
    TERMINATION = "termination"

    @property
    def joins(self) -> bool:
        """Whether the consumer runs while its producer does: both belong to one gang."""
        return self in (Delivery.STREAM, Delivery.GATE)


class Step(Struct, frozen=True):
    """A tool that is run.

    :ivar cores: cores of a job; None: an expression tells them at run time
    :ivar site: where its jobs run
    :ivar memory: of a job, MiB; None: an expression tells it at run time
    """

    path: str
    cores: float | None = 1.0
    site: Site = DRIVERS_NODE
    memory: float | None = None


class Output(Struct, frozen=True):
    """An output of a step, or a field of a record output: `record.field`.

    :ivar rules: the Streaming rules that hold for it
    :ivar streamable: written front to back
    :ivar obstacle: why the output is known only when the job has ended; None: no obstacle
    :ivar stream_obstacle: why a consumer cannot have it before commit; None: no obstacle
    :ivar part_obstacle: why its files cannot be parts of another file; looked for only where a rule asks for parts
    :ivar globs: where the output is, relative to the job's output directory; `*` if known only at run time
    :ivar site: where the jobs of the step run
    :ivar optional: whether a job may succeed without a file for it
    :ivar record: the output that it is a field of
    :ivar record_obstacle: why that record as a whole is known only when the job has ended; None: no obstacle
    """

    step: str
    port: str
    kind: OutputKind
    rules: tuple[StreamingRule, ...] = ()
    streamable: bool = False
    obstacle: str | None = None
    stream_obstacle: str | None = None
    part_obstacle: str | None = None
    globs: tuple[str, ...] = ("*",)
    site: Site = DRIVERS_NODE
    optional: bool = True
    record: str | None = None
    record_obstacle: str | None = None

    @property
    def name(self) -> str:
        return port_path(self.step, self.port)

    @property
    def whole(self) -> tuple[str, str]:
        """The step, and its output: this one, or the record that it is a field of."""
        return self.step, self.record or self.port


class Input(Struct, frozen=True):
    """An input of a step.

    :ivar streamable: read once, front to back
    :ivar refuted: why the input is not read as declared; None: no contradiction is known
    :ivar obstacle: why the whole file is needed before the step starts; None: no obstacle
    :ivar part_obstacle: why more is needed than is known of a part of another file; None: no obstacle. Looked for only
        where a rule asks for parts, or any input is streamable
    :ivar site: where the jobs of the step run
    """

    step: str
    port: str
    streamable: bool = False
    obstacle: str | None = None
    part_obstacle: str | None = None
    site: Site = DRIVERS_NODE
    refuted: str | None = None

    @property
    def name(self) -> str:
        return port_path(self.step, self.port)


class Hop(Struct, frozen=True):
    """A thing between an output and an input.

    :ivar step: its name in the translated workflow
    :ivar port: the name of its port at which the file arrives
    :ivar obstacle: why no file can pass it before commit; None: no obstacle
    :ivar widths: of a scatter: over how many inputs it scatters; of a gather: how many scatters it takes back at once
    :ivar by_name: only the name of the file goes on from here, as part of another value
    :ivar decides: the way from here depends on the file, and so on its name
    :ivar fills: if no file comes, another value goes on
    :ivar field: the only field of a record that goes on from here
    """

    step: str
    port: str
    kind: HopKind
    obstacle: str | None = None
    widths: int = 1
    by_name: bool = False
    decides: bool = False
    fills: bool = False
    field: str | None = None

    @property
    def place(self) -> str:
        """The input, output or step of the CWL document that the hop belongs to, for people."""
        return _OWN.sub("", self.step)


class Route(Struct, frozen=True):
    """A way that a file takes.

    :ivar consumer: the input that it reaches; None: a workflow output
    """

    output: Output
    hops: tuple[Hop, ...]
    consumer: Input | None

    @property
    def by_name(self) -> bool:
        """Whether only the name of the file arrives."""
        return any(hop.by_name for hop in self.hops)

    @property
    def of_record(self) -> bool:
        """Whether a record arrives, and the output is one of its fields."""
        return self.output.record is not None and not any(hop.kind is HopKind.FIELD for hop in self.hops)

    @property
    def needs_name(self) -> bool:
        """Whether other things than the consumer depend on the name of the file."""
        return any(hop.by_name or hop.decides for hop in self.hops)


class InputRoute(Struct, frozen=True):
    """A way that an input of the workflow takes.

    :ivar input: the step of StreamFlow that hands it on
    :ivar consumer: the input that it reaches; None: a workflow output
    :ivar site: the site of the user's file
    """

    input: str
    hops: tuple[Hop, ...]
    consumer: Input | None
    site: Site = DRIVERS_NODE


class StreamEdge(Struct, frozen=True):
    """A route, and how it is served.

    :ivar rule: the Streaming rule that it follows
    :ivar delivery: how the file is delivered
    :ivar by_element: the elements of a list are delivered one by one to a scatter
    :ivar reordered: the elements come in the order of their commits; the consumer's results are put in order at the end
    :ivar fallback: why it is not delivered as the rule asks; None: no fallback. One sentence for the user
    """

    route: Route
    rule: StreamingRule
    delivery: Delivery
    by_element: bool = False
    reordered: bool = False
    fallback: str | None = None

    @property
    def name(self) -> str:
        """The edge for people: `/a/output -> /b/input`."""
        consumer = self.route.consumer
        return f"{self.route.output.name} -> {consumer.name if consumer else 'workflow output'}"

    @property
    def condition(self) -> str | None:
        """The condition for this delivery between jobs, which is at commit otherwise; None: no condition."""
        consumer = self.route.consumer
        if consumer is None or not self.delivery.joins:
            return None
        return self.route.output.site.condition(consumer.site, gate=self.delivery is Delivery.GATE)

    @property
    def begins(self) -> str | None:
        """The condition for an early reader to have its whole list; None: the reader has no such list."""
        gathered = any(hop.kind is HopKind.GATHER for hop in self.route.hops)
        if not self.delivery.joins or self.by_element or not gathered:
            return None
        return f"every job of {self.route.output.step} has opened its file"

    @property
    def is_plain(self) -> bool:
        """Whether the delivery is the same as with plain StreamFlow."""
        return self.delivery is Delivery.TERMINATION and not self.by_element


class IOGraph(Struct, frozen=True):
    """The I/O graph of a workflow.

    :ivar steps: the tools, by step path
    :ivar outputs: of the tools
    :ivar routes: the ways of their outputs to inputs and workflow outputs
    :ivar names: the ways of the names of their outputs, as part of other values, where no file arrives
    :ivar inputs: the ways of the inputs of the workflow; looked for only with the obstacles of parts
    """

    steps: dict[str, Step]
    outputs: tuple[Output, ...]
    routes: tuple[Route, ...]
    names: tuple[Route, ...] = ()
    inputs: tuple[InputRoute, ...] = ()
