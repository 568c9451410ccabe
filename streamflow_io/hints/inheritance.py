"""The hints that hold for a step: the nearest level wins.

Levels, nearest first:

1. the annotations file, the longest step path first
2. the tool
3. the step
4. the workflow around the step, then the step that runs that workflow, and so on outwards

IOTask and StorageBandwidth are inherited per class, Streaming per port. ReadSession is inherited per port, or per
input where a rule has no port.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct, field

from .bandwidth import AutoConstraint, RequiredConstraint, StorageBW
from .errors import Level, Located
from .models import Direction, Hint, IOTask, ProvenInput, ReadSession, StorageBandwidth, Streaming, StreamingRule
from .sessions import SessionRule

H = TypeVar("H", IOTask, StorageBandwidth)
R = TypeVar("R", StreamingRule, SessionRule)
STREAMABLE_TYPES = frozenset({"File", "File[]", "Directory", "record", "Any"})
SEVERAL_FILES = frozenset({"File[]", "Directory", "Any"})


class Parameter(Struct, frozen=True):
    """An input or output parameter of a tool.

    :param types: some of `File`, `Directory`, `File[]`, `Directory[]`, `record` (with files), `Any` (cannot be known)
        and `other`
    :param streamable: the position of CWL's `streamable: true`. None: the parameter is not streamable
    :param globs: the globs of an output that are no expressions
    :param fields: the files of a record, each with the position of its `streamable: true`, if it has one
    """

    name: str
    types: frozenset[str]
    streamable: Located[str] | None = None
    globs: tuple[str, ...] = ()
    fields: Mapping[str, Located[str] | None] = field(default_factory=dict)

    def streamables(self) -> Iterator[tuple[str, Located[str] | None]]:
        """Yield the parameter and its fields, as `record.field`, each with the position of its `streamable: true`."""
        yield self.name, self.streamable
        for name, position in self.fields.items():
            yield f"{self.name}.{name}", position


class Scope(Struct, frozen=True):
    """An element with hints.

    :param path: the path of the step that has the hints, or of the workflow whose steps inherit them
    """

    path: str
    level: Level
    hints: tuple[Located[Hint], ...]

    def rules(self) -> Iterator[Located[StreamingRule]]:
        """Yield all rules of the Streaming hints of this element."""
        for hint in self.hints:
            if isinstance(hint.value, Streaming):
                yield from _located(hint, hint.value.rules)

    def session_rules(self) -> Iterator[Located[SessionRule]]:
        """Yield all rules of the ReadSession hints of this element."""
        for hint in self.hints:
            if isinstance(hint.value, ReadSession):
                yield from _located(hint, hint.value.rules)


class HintedStep(Struct, frozen=True):
    """A tool that runs in a workflow, with the elements whose hints it inherits, the farthest first."""

    path: str
    scopes: tuple[Scope, ...]
    inputs: Mapping[str, Parameter]
    outputs: Mapping[str, Parameter]


class Annotations(Struct, frozen=True):
    """The annotations file: the step paths it names, their hints, and its `streamable` and `proven` lists."""

    steps: tuple[Located[str], ...] = ()
    scopes: tuple[Scope, ...] = ()
    streamable: tuple[Located[str], ...] = ()
    proven: tuple[Located[ProvenInput], ...] = ()


class StepAnnotations(Struct, frozen=True):
    """All hints that hold for a step, with their positions.

    :ivar path: the StreamFlow step path; `/` if the process is a single tool
    :ivar io_task: set if the step is an I/O task
    :ivar storage_bandwidth: the bandwidth constraint of the step
    :ivar streaming: the rules of its outputs, by the name of the output; outputs without rules are missing
    :ivar sessions: the rules of read sessions, one for each output that has one, and each input without an output
    :ivar streamable_inputs: inputs that are read front to back, with the position that says so
    :ivar streamable_outputs: outputs that are written front to back, with the position that says so
    :ivar proven: proofs of others for its inputs. Proofs are no hints, because each holds for one tool
    """

    path: str
    io_task: Located[IOTask] | None = None
    storage_bandwidth: Located[StorageBandwidth] | None = None
    streaming: Mapping[str, tuple[Located[StreamingRule], ...]] = field(default_factory=dict)
    sessions: tuple[Located[SessionRule], ...] = ()
    streamable_inputs: Mapping[str, Located[str]] = field(default_factory=dict)
    streamable_outputs: Mapping[str, Located[str]] = field(default_factory=dict)
    proven: tuple[ProvenInput, ...] = ()

    @property
    def partitions(self) -> dict[str, Located[SessionRule]]:
        """The rules of outputs that hold parts of an input, by the name of the output."""
        return {rule.value.port: rule for rule in self.sessions if rule.value.port is not None}

    @property
    def is_learned(self) -> bool:
        """Whether the storageBW of the step is learned."""
        return isinstance(self.storage_bw, AutoConstraint)

    @property
    def required(self) -> RequiredConstraint | None:
        """The constraint of jobs that are limited to the required bandwidth. None: the step has no such constraint."""
        return self.storage_bw if isinstance(self.storage_bw, RequiredConstraint) else None

    @property
    def within(self) -> float | None:
        """Seconds until a consumer needs the data that a job moves. None: learned from earlier runs."""
        return None if self.storage_bandwidth is None else self.storage_bandwidth.value.within

    @property
    def storage_bw(self) -> StorageBW | None:
        """The bandwidth that each job of the step needs. None: jobs take no bandwidth."""
        return None if self.storage_bandwidth is None else self.storage_bandwidth.value.storage_bw

    @property
    def is_limited(self) -> bool:
        """Whether jobs of the step are limited to their storageBW."""
        return self.storage_bandwidth is not None and self.storage_bandwidth.value.is_limited

    @property
    def concern_storage(self) -> bool:
        """Whether jobs of the step are admitted by storage, and measured."""
        return self.io_task is not None or self.storage_bandwidth is not None

    @property
    def direction(self) -> Direction:
        """The direction in which the bytes of the step's jobs count."""
        return "write" if self.storage_bandwidth is None else self.storage_bandwidth.value.direction

    def __bool__(self) -> bool:
        """Whether any hint holds for the step."""
        streams = self.streaming or self.streamable_inputs or self.streamable_outputs
        return bool(self.concern_storage or streams or self.sessions)


def within(path: str, scope: str) -> bool:
    """Whether a step path equals another one or lies below it."""
    return path == scope or scope == "/" or path.startswith(f"{scope}/")


def scopes_of(step: HintedStep, annotations: Annotations) -> list[Scope]:
    """Return the elements whose hints a step inherits, the nearest first."""
    annotated = [scope for scope in annotations.scopes if within(step.path, scope.path)]
    return [*sorted(annotated, key=lambda scope: -len(scope.path)), *reversed(step.scopes)]


def annotate(step: HintedStep, annotations: Annotations) -> StepAnnotations:
    """Return the hints that hold for one step. Hints that cannot hold are left out: `resolve_steps` has the errors."""
    scopes = scopes_of(step, annotations)
    streaming = {name: _rules(parameter, scopes) for name, parameter in step.outputs.items()}
    return StepAnnotations(
        path=step.path,
        io_task=_nearest(IOTask, scopes),
        storage_bandwidth=_nearest(StorageBandwidth, scopes),
        streaming={name: rules for name, rules in streaming.items() if rules},
        sessions=tuple(_sessions(step, scopes)),
        streamable_inputs=_streamable(step.path, step.inputs, annotations),
        streamable_outputs=_streamable(step.path, step.outputs, annotations),
        proven=tuple(_proven(step, annotations)),
    )


def key_of(rule: SessionRule) -> tuple[str, str]:
    """Return the subject of a rule. Two rules of one step may not have the same."""
    return ("of", rule.of) if rule.port is None else ("port", rule.port)


def port_path(step: str, port: str) -> str:
    """Return `/step/port`."""
    return f"{step.rstrip('/')}/{port}"


def can_stream(parameter: Parameter | None) -> bool:
    """Whether a rule can hold for an output."""
    return parameter is not None and not STREAMABLE_TYPES.isdisjoint(parameter.types)


def _located(hint: Located[Hint], rules: Sequence[R]) -> Iterator[Located[R]]:
    for index, rule in enumerate(rules):
        yield Located(rule, hint.level, f"{hint.name}.rules[{index}]", hint.source.below("rules", index))


def _nearest(class_: type[H], scopes: Sequence[Scope]) -> Located[H] | None:
    for scope in scopes:
        for hint in scope.hints:
            if isinstance(hint.value, class_):
                return Located(hint.value, hint.level, hint.name, hint.source)
    return None


def _rules(parameter: Parameter, scopes: Sequence[Scope]) -> tuple[Located[StreamingRule], ...]:
    if can_stream(parameter):
        for scope in scopes:
            if rules := tuple(rule for rule in scope.rules() if rule.value.port == parameter.name):
                return rules
    return ()


def _sessions(step: HintedStep, scopes: Sequence[Scope]) -> Iterator[Located[SessionRule]]:
    found = set[tuple[str, str]]()
    for scope in scopes:
        rules = [rule for rule in scope.session_rules() if fits(step, rule.value) and key_of(rule.value) not in found]
        found |= {key_of(rule.value) for rule in rules}
        yield from rules


def fits(step: HintedStep, rule: SessionRule) -> bool:
    """Whether a step has the input and the output of a rule."""
    return rule.of in step.inputs and (rule.port is None or rule.port in step.outputs)


def _streamable(step: str, parameters: Mapping[str, Parameter], annotations: Annotations) -> dict[str, Located[str]]:
    everything = [(name, position) for each in parameters.values() for name, position in each.streamables()]
    found = {name: position for name, position in everything if position is not None}
    for entry in annotations.streamable:
        for name, _ in everything:
            if entry.value == port_path(step, name):
                found[name] = entry
    for parameter in parameters.values():
        # A record is streamable if all of its files are, and its files are if the record is.
        (whole, _), *fields = parameter.streamables()
        if whole in found:
            found |= {name: found.get(name, found[whole]) for name, _ in fields}
        elif fields and all(name in found for name, _ in fields):
            found[whole] = found[fields[0][0]]
    return found


def _proven(step: HintedStep, annotations: Annotations) -> Iterator[ProvenInput]:
    names = {port_path(step.path, name) for name in step.inputs}
    return (entry.value for entry in annotations.proven if entry.value.input in names)
