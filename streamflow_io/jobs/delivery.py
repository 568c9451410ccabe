"""What one job delivers before its end, over all of its attempts: events in, instructions out.

**Events** are those of the node runtime (:mod:`streamflow_io.runtime.protocol`), those of who runs the job
(:class:`Begun`, :data:`Moment`, :class:`Permitted`, :class:`Succeeded`), and :class:`Answer`. **Instructions** ask for
something (:class:`Collect`), or have an effect: :class:`Put` and :class:`PutOrder` deliver, :class:`Settle` wakes
readers, :class:`Warn` and :class:`Fail` tell; what follows after :class:`Fail` is void.

Invariants, in whatever order events come, and however many attempts there are:

- Nothing is delivered twice in the same way. It is delivered in answer to :class:`Collect`, or when the outputs are
  published: who gets these instructions executes them to the end, whatever becomes of the attempt meanwhile. An attempt
  may end before it has answered; then the next one is asked.
- Nothing that is committed is collected or settled before the barrier: until all that the attempt reads of others is
  final, its commits are held.
- What is committed stays: what the outputs are in the end is compared with it, and with all that was delivered.
- The elements of a list are numbered as their files come; :class:`PutOrder` has their order in the list.
- A file is committed when its secondary files are, too.
- A part that was said is delivered at once, and stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

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
#: `submitted`: the attempt is in the queue of a queue manager; what has a certain name lets its readers be in it, too.
#: `barrier lifted`: all that it reads of others is final. `failed`: perhaps there is another one. `published`: the
#: outputs of the job, which were compared, are on their regular ports.
Moment = Literal["submitted", "barrier lifted", "failed", "published"]


@dataclass(frozen=True)
class Begun:
    """An attempt begins.

    :ivar directory: the output directory of the job; all paths are relative to it, but those of the node runtime
    :ivar globs: where its outputs are found
    :ivar certain: where outputs will be, of which that is certain before they exist
    """

    directory: str
    globs: Mapping[str, tuple[str, ...]]
    certain: Mapping[str, str]


@dataclass(frozen=True)
class Permitted:
    """It is proven that an output may be streamed which is so only then (:attr:`EarlyOutput.when_proven`)."""

    port: str


@dataclass(frozen=True)
class Succeeded:
    """The job has ended well; its outputs are these, with checksums where :attr:`JobDelivery.summed` wants them."""

    values: Mapping[str, Value]


@dataclass(frozen=True)
class DeliverySource:
    """A file of an output, or, without a path, the output as a whole.

    :ivar stage: as it is when it is not committed, when it is, when its attempt has failed, or when the job has ended;
        or as the program has said that it would be, had it been written
    """

    port: str
    path: str | None = None
    stage: Literal["early", "committed", "failed", "final", "said"] = "committed"


@dataclass(frozen=True)
class Collect:
    """Make a token, as StreamFlow does it at the end of the job, and say what it is; of a Directory with checksums.

    What is early has no token of StreamFlow's; of what has failed only the checksum is wanted.

    :ivar deliveries: in which ways it is delivered then
    """

    source: DeliverySource
    deliveries: tuple[Delivery, ...] = ()


@dataclass(frozen=True)
class Answer:
    """:ivar value: None: it is not there, or it is early, and its format cannot be told, now or ever"""

    asked: Collect
    value: Value | None


@dataclass(frozen=True)
class Put:
    """Deliver something: an element of a list with its number, of a list perhaps only some files."""

    source: DeliverySource
    delivery: Delivery
    number: int | None = None
    only: frozenset[str] | None = None


@dataclass(frozen=True)
class PutOrder:
    """Deliver the order of a list: the number of each of its elements."""

    port: str
    order: tuple[int, ...]


@dataclass(frozen=True)
class Settle:
    """Who waits for a file may go on; without a path, for the output as a whole."""

    port: str
    path: str | None = None


Event = Begun | Moment | StartedEvent | OpenedEvent | PartEvent | CommitEvent | Permitted | Answer | Succeeded
Effect = Put | PutOrder | Settle | Warn | Fail
Instruction = Collect | Effect


class JobDelivery:
    """The only place that knows what is committed and delivered of one job.

    :ivar committed: (port, path) of what the attempt has committed, without a path an output as a whole; each attempt
        has one of its own
    """

    def __init__(self, outputs: Iterable[EarlyOutput]) -> None:
        self.committed: set[tuple[str, str | None]] = set()
        outputs = tuple(outputs)
        self._outputs = {output.port: DeliveredOutput(output) for output in outputs}
        self._begun = Begun("", {}, {})
        # By output that must not be streamed yet: what could be, and how.
        self._kept_back: dict[str, dict[str, tuple[Delivery, ...]]] = {
            output.port: {} for output in outputs if output.when_proven
        }
        # None: the barrier is lifted.
        self._held: list[CommitEvent] | None = []
        self._values: Mapping[str, Value] = {}
        self._final: Mapping[str, Value] = {}

    def handle(self, event: Event) -> list[Instruction]:
        """What follows of an event."""
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
        """What the program has said in this attempt of the parts of an output, by name."""
        return self._outputs[port].parts.said

    def source(self, port: str, path: str) -> DeliverySource | None:
        """Where a file or Directory is that is final, for a reader that cannot have it before.

        It may be the output that has taken its place. None: the job has succeeded without it.
        """
        if (final := self._final.get(port)) is None:
            is_directory = self._outputs[port].output.kind is OutputKind.DIRECTORY
            return DeliverySource(port, None if is_directory else path)
        if self.is_replaced(port, path):
            return DeliverySource(port, stage="final")
        return DeliverySource(port, path, "final") if path in final.all else None

    def is_replaced(self, port: str, path: str) -> bool:
        """Whether the job has ended, and an output is another file than this, which others have begun to read."""
        return port in self._final and path in self._outputs[port].replaced

    @property
    def summed(self) -> set[str]:
        """The Directories of which the files are compared at the end of the job."""
        directories = {port: delivered.directory for port, delivered in self._outputs.items()}
        return {port for port, value in directories.items() if value is not None and value.checksums is not None}

    def unchanged(self) -> list[DeliverySource]:
        """The outputs that are one committed file whose glob is its name: if it is still the same, it is what they are.

        For small jobs it is much cheaper than to collect them again, which would make equal tokens.
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
        # Others are no elements of the list, as files that no glob finds.
        waiting = delivered.waiting(event.name, Delivery.PART)
        if waiting and is_found(delivered.globs, event.name):
            yield Collect(DeliverySource(event.port, event.name, "said"), waiting)

    def _commit(self, event: CommitEvent) -> Iterator[Instruction]:
        if (delivered := self._outputs.get(event.port)) is None:
            return
        if isinstance(event, CommittedEvent | CompleteEvent) and event.at_end:
            return  # It is delivered with all others when the job has succeeded.
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
        # Who is held at the gate has it already, but what it gets is compared at the end.
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
