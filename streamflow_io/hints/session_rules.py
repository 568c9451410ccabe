"""The checks of read sessions that need to know the steps they are about. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from .errors import HintError, Located, listed
from .inheritance import HintedStep, Parameter, Scope, StepAnnotations, fits, key_of
from .sessions import SessionRule

_FILE = frozenset({"File", "Any"})
_FILES = frozenset({"File[]", "Any"})
_VALUE = frozenset({"other", "Any"})

Parameters = Callable[[HintedStep], Mapping[str, Parameter]]


def check_sessions(scope: Scope, heirs: Sequence[HintedStep]) -> Iterator[HintError]:
    """The mistakes in the ReadSession rules of one element.

    :param heirs: the steps that inherit from it: a rule holds for those that have its input and its output
    """
    known = set[tuple[str, str]]()
    for rule in scope.session_rules():
        if (key := key_of(rule.value)) in known:
            yield rule.error(f"a second rule for {key[1]!r}", "one rule for each output, or input", key[0])
        known.add(key)
        yield from _check_names(rule, heirs)


def check_partitions(step: StepAnnotations) -> Iterator[HintError]:
    """Outputs of a step that a Streaming rule says something else of."""
    for rule in step.sessions:
        if rule.value.port in step.streaming:
            message = f"{rule.value.port!r} has a Streaming rule, too"
            yield rule.error(message, "one of both: a part is complete when its place in the file is known", "port")


def _check_names(rule: Located[SessionRule], heirs: Sequence[HintedStep]) -> Iterator[HintError]:
    value = rule.value
    if value.port is not None:
        yield from _check(rule, "port", heirs, _outputs, _FILES, "File[]")
        heirs = [step for step in heirs if value.port in step.outputs]
    if not heirs:
        return
    yield from _check(rule, "of", heirs, _inputs, _FILE, "File")
    heirs = [step for step in heirs if fits(step, value)]
    for field in ("part", "parts"):
        if isinstance(getattr(value, field), str):
            yield from _check(rule, field, heirs, _inputs, _VALUE, "value")
    if value.count is not None:
        yield from _check(rule, "count", heirs, _outputs, _VALUE, "value")


def _inputs(step: HintedStep) -> Mapping[str, Parameter]:
    return step.inputs


def _outputs(step: HintedStep) -> Mapping[str, Parameter]:
    return step.outputs


def _check(
    rule: Located[SessionRule],
    field: str,
    heirs: Sequence[HintedStep],
    parameters: Parameters,
    types: frozenset[str],
    kind: str,
) -> Iterator[HintError]:
    """Whether at least one of the steps has what a field names, of one of these types."""
    name = getattr(rule.value, field)
    found = [parameters(step)[name] for step in heirs if name in parameters(step)]
    if not heirs or any(not types.isdisjoint(parameter.types) for parameter in found):
        return
    what = "output" if parameters is _outputs else "input"
    allowed = [p.name for step in heirs for p in parameters(step).values() if not types.isdisjoint(p.types)]
    message = f"{what} {name!r} is no {kind}" if found else f"unknown {what} {name!r}"
    yield rule.error(message, f"{what}s of type {kind}: {listed(allowed)}", field)
