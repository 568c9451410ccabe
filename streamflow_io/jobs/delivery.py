"""Decides what one job delivers before its end, over all of its attempts: events in, instructions out.

**Events** are those of the node runtime (:mod:`streamflow_io.runtime.protocol`), and those of the caller:
:class:`Begun`, :data:`Moment`, :class:`Permitted`, :class:`Succeeded`, :class:`Answer`. **Instructions** ask for a
token (:class:`Collect`), or have an effect: :class:`Put` and :class:`PutOrder` deliver, :class:`Settle` wakes readers,
:class:`Warn` and :class:`Fail` tell. Instructions after a :class:`Fail` are void.

Invariants, in whatever order events come, and however many attempts there are:

- Nothing is delivered twice in the same way. Deliveries follow an answer to :class:`Collect`, or the publication of the
  outputs. The caller executes their instructions to the end, even if the attempt ends meanwhile. If an attempt ends
  before its answer, the next attempt is asked.
- No committed file is collected or settled before the barrier. Commits are held until all that the attempt reads of
  other jobs is final.
- A commit stays: the outputs at the end are compared with all that was committed or delivered.
- The elements of a list are numbered as their files come; :class:`PutOrder` has their order in the list.
- A file is committed when its secondary files are committed, too.
- A part that the program has reported is delivered at once, and stays the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec import Struct

from streamflow_io.adapters.outputs import EarlyOutput, directory_of, relative
from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.parts.said_parts import is_found
from streamflow_io.runtime.protocol import (
    ChangedEvent,
    ClosedEvent,
    CommittedEvent,
    CompleteEvent,
    OpenedEvent,
    PartEvent,
    StartedEvent,
)

from .delivered import DeliveredOutput, Fail, Value, Warn

CommitEvent = ChangedEvent | ClosedEvent | CommittedEvent | CompleteEvent
#: `submitted`: the attempt is in the queue of a queue manager; readers of outputs with certain names may queue, too.
#: `barrier lifted`: all that the attempt reads of other jobs is final. `failed`: another attempt may follow.
#: `published`: the outputs of the job have been compared, and are on their regular ports.
Moment = Literal["submitted", "barrier lifted", "failed", "published"]


class Begun(Struct, frozen=True):
    """An attempt begins.

    :ivar directory: the output directory of the job; all paths but those of the node runtime are relative to it
    :ivar globs: where its outputs are found, by port
    :ivar certain: the paths of outputs, by port, that are certain before the outputs exist
    """

    directory: str
    globs: Mapping[str, tuple[str, ...]]
    certain: Mapping[str, str]


class Permitted(Struct, frozen=True):
    """A proof allows an output to be streamed that needs one (:attr:`EarlyOutput.when_proven`)."""

    port: str


class Succeeded(Struct, frozen=True):
    """The job has succeeded with these outputs; those in :attr:`JobDelivery.summed` have checksums."""

    values: Mapping[str, Value]


class DeliverySource(Struct, frozen=True):
    """A file of an output, or, without a path, the output as a whole.

    :ivar stage: `early`: before its commit; `committed`; `failed`: committed by an attempt that has failed; `final`: at
        the end of the job; `said`: a part that the program has reported instead of writing it
    """

    port: str
    path: str | None = None
    stage: Literal["early", "committed", "failed", "final", "said"] = "committed"


class Collect(Struct, frozen=True):
    """Make the token of a source, as StreamFlow makes it at the end of the job, and answer with its value.

    The value of a Directory has checksums. An early file or a reported part has no token of StreamFlow's. Of a file of
    a failed attempt only the checksum is wanted.

    :ivar deliveries: the ways in which the token is delivered then
    """

    source: DeliverySource
    deliveries: tuple[Delivery, ...] = ()


class Answer(Struct, frozen=True):
    """The value that :class:`Collect` has asked for.

    :ivar value: None: nothing follows; the file is missing, or its format cannot be evaluated
    """

    asked: Collect
    value: Value | None


class Put(Struct, frozen=True):
    """Deliver a token.

    :ivar number: of an element of a list; None: the output as a whole is delivered
    :ivar only: the paths of the files of a list that are delivered; None: all files are
    """

    source: DeliverySource
    delivery: Delivery
    number: int | None = None
    only: frozenset[str] | None = None


class PutOrder(Struct, frozen=True):
    """Deliver the order of a list: the number of each of its elements."""

    port: str
    order: tuple[int, ...]


class Settle(Struct, frozen=True):
    """Wake the readers that wait for a file; without a path, for the output as a whole."""

    port: str
    path: str | None = None


Event = Begun | Moment | StartedEvent | OpenedEvent | PartEvent | CommitEvent | Permitted | Answer | Succeeded
Effect = Put | PutOrder | Settle | Warn | Fail
Instruction = Collect | Effect


class JobDelivery:
    """The only place that knows what is committed and delivered of one job.

    :ivar committed: (port, path) of the commits of the attempt; without a path an output as a whole. Each attempt has a
        set of its own
    """

    def __init__(self, outputs: Iterable[EarlyOutput]) -> None:
        self.committed: set[tuple[str, str | None]] = set()
        outputs = tuple(outputs)
        self._outputs = {output.port: DeliveredOutput(output) for output in outputs}
        self._begun = Begun("", {}, {})
        # By output that needs a proof before it streams: the paths that could be delivered, and the ways.
        self._kept_back: dict[str, dict[str, tuple[Delivery, ...]]] = {
            output.port: {} for output in outputs if output.when_proven
        }
        # Commits that wait for the barrier; None: the barrier is lifted.
        self._held: list[CommitEvent] | None = []
        self._values: Mapping[str, Value] = {}
        self._final: Mapping[str, Value] = {}

    def handle(self, event: Event) -> list[Instruction]:
        """Return the instructions that follow from an event."""
        return list(self._handle(event))

    def _handle(self, event: Event) -> Iterator[Instruction]:
        match event:
            case OpenedEvent():
                yield from self._opened(event)
            case CommittedEvent() | CompleteEvent() | ClosedEvent() | ChangedEvent():
                if self._held is None:
                    yield from self._commit(event)
                else:
                    self._held.append(event)
            case PartEvent():
                yield from self._part(event)
            case Permitted(port):
                for path, deliveries in self._kept_back.pop(port, {}).items():
                    yield from self._early(port, path, *deliveries)
            case Answer(asked, Value() as value):
                yield from self._collected(asked.source, asked.deliveries, value)
            case "barrier lifted":
                held, self._held = self._held or (), None
                for commit in held:
                    yield from self._commit(commit)
            case Begun():
                self.committed, self._held, self._begun = set(), [], event
                for port, delivered in self._outputs.items():
                    delivered.begin(event.globs.get(port, ()))
                for kept_back in self._kept_back.values():
                    kept_back.clear()
            case "submitted":
                yield from self._certain(Delivery.STREAM)
                yield from self._certain(Delivery.GATE)
            case StartedEvent():
                yield from self._certain(Delivery.GATE)
            case "failed":
                for port, delivered in self._outputs.items():
                    for path in delivered.to_keep(self._files(port)):
                        yield Collect(DeliverySource(port, path, "failed"))
            case Succeeded(values):
                self._values = values
                yield from self._compare()
            case "published":
                self._final = self._values
                for port, final in self._final.items():
                    output = self._outputs[port].output
                    for item in final.items if final.is_list and output.elements else ():
                        yield from self._collected(
                            DeliverySource(port, item.path, "final"), output.elements, Value((item,))
                        )
                    yield from self._collected(DeliverySource(port, stage="final"), output.deliveries, final)

    def parts(self, port: str) -> Mapping[str, PartEvent]:
        """The parts of an output that the program has reported in this attempt, by name."""
        return self._outputs[port].parts.said

    def source(self, port: str, path: str) -> DeliverySource | None:
        """The source of a final file or Directory, for a reader that cannot have it before.

        If another output file has taken the place of this one, the source is that file. None: the job has succeeded
        without the file.
        """
        if (final := self._final.get(port)) is None:
            is_directory = self._outputs[port].output.kind is OutputKind.DIRECTORY
            return DeliverySource(port, None if is_directory else path)
        if self.is_replaced(port, path):
            return DeliverySource(port, stage="final")
        return DeliverySource(port, path, "final") if path in final.all else None

    def is_replaced(self, port: str, path: str) -> bool:
        """Whether the job has ended with another output file than this one, which other jobs have begun to read."""
        return port in self._final and path in self._outputs[port].replaced

    @property
    def summed(self) -> set[str]:
        """The Directory outputs whose files are compared at the end of the job."""
        directories = {port: delivered.directory for port, delivered in self._outputs.items()}
        return {port for port, value in directories.items() if value is not None and value.checksums is not None}

    def unchanged(self) -> list[DeliverySource]:
        """The outputs that are one committed file whose name is the glob.

        If such a file has not changed, its token is the output. For small jobs this is much cheaper than to collect an
        equal token again.
        """
        return [
            DeliverySource(port, delivered.globs[0])
            for port, delivered in self._outputs.items()
            if delivered.output.kind is OutputKind.FILE
            and len(delivered.checksums) == 1
            and tuple(delivered.checksums) == delivered.globs
            and not delivered.output.secondary
        ]

    def _certain(self, delivery: Delivery) -> Iterator[Collect]:
        for port, path in self._begun.certain.items():
            yield from self._early(port, path, delivery)

    def _early(self, port: str, path: str, *deliveries: Delivery) -> Iterator[Collect]:
        if (kept_back := self._kept_back.get(port)) is not None:
            kept_back[path] = (*kept_back.get(path, ()), *deliveries)
        elif waiting := self._outputs[port].waiting(path, *deliveries):
            yield Collect(DeliverySource(port, path, "early"), waiting)

    def _opened(self, event: OpenedEvent) -> Iterator[Collect]:
        if (delivered := self._outputs.get(event.port)) is None:
            return
        path: str | None = relative(event.path, self._begun.directory)
        if path is not None and delivered.output.kind is OutputKind.DIRECTORY:
            path = directory_of(delivered.globs, path)
        if path is not None:
            yield from self._early(event.port, path, Delivery.STREAM, Delivery.GATE)

    def _part(self, event: PartEvent) -> Iterator[Collect | Fail]:
        if (delivered := self._outputs.get(event.port)) is None:
            return
        if (wrong := delivered.parts.say(event)) is not None:
            yield delivered.wrong_part(wrong)
        # Other parts are no elements of the list, like files that no glob finds.
        waiting = delivered.waiting(event.name, Delivery.PART)
        if waiting and is_found(delivered.globs, event.name):
            yield Collect(DeliverySource(event.port, event.name, "said"), waiting)

    def _commit(self, event: CommitEvent) -> Iterator[Instruction]:
        if (delivered := self._outputs.get(event.port)) is None:
            return
        if isinstance(event, CommittedEvent | CompleteEvent) and event.at_end:
            return  # The file is delivered with all others when the job has succeeded.
        if isinstance(event, CompleteEvent):
            yield from self._complete(delivered)
            return
        path = relative(event.path, self._begun.directory)
        if isinstance(event, CommittedEvent):
            yield from self._file_committed(delivered, path)
        elif isinstance(event, ChangedEvent):
            delivered.changed[path] = event.how
        elif event.again:
            delivered.closed_again.add(path)

    def _file_committed(self, delivered: DeliveredOutput, path: str) -> Iterator[Collect | Settle]:
        output = delivered.output
        self.committed.add((output.port, path))
        ways = output.deliveries if output.kind is OutputKind.FILE else output.elements
        # A reader at the gate has the file already, but its content is compared at the end.
        needed = Delivery.COMMIT in ways or Delivery.GATE in ways
        whole = delivered.whole_with(path) if needed else []
        if path not in whole:
            yield Settle(output.port, path)
        for file in whole:
            yield Collect(DeliverySource(output.port, file), delivered.waiting(file, Delivery.COMMIT))

    def _complete(self, delivered: DeliveredOutput) -> Iterator[Collect | Settle]:
        output = delivered.output
        if output.kind is OutputKind.FILE or output.may_have_more:
            return
        if output.kind is OutputKind.DIRECTORY:
            self.committed.add((output.port, None))
        waiting = delivered.waiting(None, Delivery.COMMIT)
        if waiting or (Delivery.GATE in output.deliveries and delivered.directory is None):
            yield Collect(DeliverySource(output.port), waiting)
        elif output.kind is OutputKind.DIRECTORY:
            yield Settle(output.port)

    def _collected(self, source: DeliverySource, deliveries: Iterable[Delivery], value: Value) -> Iterator[Effect]:
        delivered, only = self._outputs[source.port], None
        is_committed = source.stage == "committed"
        if source.stage == "failed" or (is_committed and source.path is not None):
            delivered.commit(value)
        elif is_committed and delivered.output.kind is OutputKind.DIRECTORY:
            yield from delivered.commit_directory(value)
        elif is_committed:
            committed = self._files(source.port)
            value = Value(tuple(item for item in value.items if item.path in committed), is_list=True)
            only = delivered.commit_list(value)
        for way in delivered.waiting(source.path, *deliveries):
            number = delivered.deliver(way, value, source.path, early=source.stage == "early")
            yield Put(source, way, number, only)
            if way is Delivery.COMMIT and delivered.output.elements and value.is_list:
                yield PutOrder(source.port, delivered.order(value))
        if is_committed and not value.is_list:
            yield Settle(source.port, source.path)

    def _files(self, port: str) -> set[str]:
        return {path for of, path in self.committed if of == port and path is not None}

    def _compare(self) -> Iterator[Warn | Fail]:
        for port, delivered in self._outputs.items():
            yield from delivered.compare(self._values.get(port), self._files(port))
        ordered = [delivered for _, delivered in sorted(self._outputs.items())]
        for delivered in ordered:
            yield from delivered.told_changes()
        for delivered in ordered:
            yield from delivered.told_closes()
