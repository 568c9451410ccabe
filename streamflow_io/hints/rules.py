"""Checks of hints that need the steps around the hints, or the storages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from streamflow_io.installed_features import missing
from streamflow_io.messages import Code, coded

from .bandwidth import AutoConstraint, RequiredConstraint, StaticConstraint
from .config import StorageConfig
from .errors import HintError, Level, Located, listed
from .globs import is_pattern, overlap
from .inheritance import (
    SEVERAL_FILES,
    Annotations,
    HintedStep,
    Parameter,
    Scope,
    StepAnnotations,
    annotate,
    can_stream,
    fits,
    key_of,
    port_path,
    scopes_of,
)
from .models import IOTask, StorageBandwidth, StreamingRule
from .sessions import SessionRule

_FILE = frozenset({"File", "Any"})
_FILES = frozenset({"File[]", "Any"})
_VALUE = frozenset({"other", "Any"})

Parameters = Callable[[HintedStep], Mapping[str, Parameter]]


def check_sessions(scope: Scope, heirs: Sequence[HintedStep]) -> Iterator[HintError]:
    """Yield the mistakes in the ReadSession rules of one element.

    :param heirs: the steps that inherit from the element. A rule holds for those that have its input and its output
    """
    known = set[tuple[str, str]]()
    for rule in scope.session_rules():
        if (key := key_of(rule.value)) in known:
            yield rule.error(f"a second rule for {key[1]!r}", "one rule for each output, or input", key[0])
        known.add(key)
        if rule.value.form == "declared" and (why := missing("cuts")) is not None:
            yield rule.error(why, "no records: the program of the step says the parts", "records")
        else:
            yield from _check_names(rule, heirs)


def check_partitions(step: StepAnnotations) -> Iterator[HintError]:
    """Yield a mistake for each output that has both a rule for its parts and a Streaming rule."""
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
    """Yield a mistake if none of the steps has the input or output that a field names, with one of these types."""
    name = getattr(rule.value, field)
    found = [parameters(step)[name] for step in heirs if name in parameters(step)]
    if not heirs or any(not types.isdisjoint(parameter.types) for parameter in found):
        return
    what = "output" if parameters is _outputs else "input"
    allowed = [p.name for step in heirs for p in parameters(step).values() if not types.isdisjoint(p.types)]
    message = f"{what} {name!r} is no {kind}" if found else f"unknown {what} {name!r}"
    yield rule.error(message, f"{what}s of type {kind}: {listed(allowed)}", field)


Rule = Located[StreamingRule]
# An output of a tool, and an input of a tool that gets it, each as step path and name.
ToolEdge = tuple[tuple[str, str], tuple[str, str]]


def resolve_steps(
    steps: Sequence[HintedStep], workflows: Collection[str], annotations: Annotations
) -> tuple[dict[str, StepAnnotations], list[HintError]]:
    """Resolve the hints of each step, and find all mistakes in them.

    :param steps: the tools of a workflow
    :param workflows: the paths of the workflows in it, `/` for the outermost
    :return: annotations by step path, one for each step; errors, some of them possibly more than once
    """
    resolved = {step.path: annotate(step, annotations) for step in steps}
    errors = [*_check_addresses(steps, workflows, annotations)]
    for scope, heirs in _scopes(steps, annotations):
        errors += [*_check_once(scope), *_check_same_files(scope), *_check_ports(scope, heirs)]
        errors += check_sessions(scope, heirs)
    for step in steps:
        rules = [rule for port in resolved[step.path].streaming.values() for rule in port]
        for rule in rules:
            errors += [*_check_types(step, rule), *_check_deps(step, rule), *_check_home_node(rule, resolved)]
        errors += [*_check_cycles(step, rules), *check_partitions(resolved[step.path])]
        errors += _check_limited(resolved[step.path])
    return resolved, errors


def check_streamable(steps: Mapping[str, StepAnnotations], edges: Iterable[ToolEdge]) -> list[HintError]:
    """Find data that should be readable as written, and goes to inputs that are not `streamable`.

    :param edges: the outputs of tools and the inputs of tools that get them
    :return: warnings, not errors: such an input gets the data under `update`
    """
    found = []
    for (step, output), (consumer, name) in edges:
        for rule in steps[step].streaming.get(output, ()):
            streams = rule.value.mode == "no_update" and rule.value.start == "producer"
            if streams and name not in steps[consumer].streamable_inputs:
                message = f"the input {port_path(consumer, name)} is not `streamable`: it gets the data under `update`"
                found.append(rule.error(message, "`streamable: true` on the input", "mode"))
    return list(dict.fromkeys(found))


def check_both_ends(steps: Mapping[str, StepAnnotations], edges: Iterable[ToolEdge]) -> list[HintError]:
    """Find data without a rule that is `streamable` at one end only, where it is made or where it is read.

    An input that is read in parts is meant to be complete, and causes no warning.

    :param edges: as for :func:`check_streamable`
    :return: warnings, not errors: the data is delivered as without `streamable`
    """
    found = []
    for (step, output), (consumer, name) in edges:
        writer, reader = port_path(step, output), port_path(consumer, name)
        made = steps[step].streamable_outputs.get(output)
        read = steps[consumer].streamable_inputs.get(name)
        origin = made or read
        ruled = output in steps[step].streaming or output in steps[step].partitions
        ruled |= any(rule.value.of == name for rule in steps[consumer].sessions)
        if (made is None) is (read is None) or origin is None or ruled:
            continue
        if _has_streamable_field(steps[step].streamable_outputs, output) or _has_streamable_field(
            steps[consumer].streamable_inputs, name
        ):
            continue  # a `valueFrom` may take just that file of the record
        one, other = (writer, reader) if read is None else (reader, writer)
        message = coded(
            f"{one} is `streamable`, and {other} is not: nothing streams from {writer} to {reader}", Code.ONE_END
        )
        found.append(origin.error(message, "`streamable: true` on both, or a rule for the output"))
    return list(dict.fromkeys(found))


def _has_streamable_field(streamables: Iterable[str], record: str) -> bool:
    return any(name.startswith(f"{record}.") for name in streamables)


def check_storages(annotations: Mapping[str, StepAnnotations], storages: Sequence[StorageConfig]) -> list[HintError]:
    """Compare the bandwidth constraints with the storages of the StreamFlow file.

    A constraint that names no storage must fit into at least one storage, if there are any.

    :return: an error for each unknown storage and for each storageBW above the storage's bandwidth
    """
    errors = []
    for hint in (step.storage_bandwidth for step in annotations.values()):
        if hint is None:
            continue
        wanted = hint.value
        candidates = [storage for storage in storages if wanted.storage in (None, storage.name)]
        if not candidates and wanted.storage is not None:
            allowed = ", ".join(storage.name for storage in storages) or "none, the StreamFlow file has no storages"
            errors.append(hint.error(f"unknown storage {wanted.storage!r}", allowed, "storage"))
        if candidates:
            errors += above_storage(hint, max(candidates, key=lambda one: one.bandwidth(wanted.direction)))
    return list(dict.fromkeys(errors))


def above_storage(hint: Located[StorageBandwidth], storage: StorageConfig) -> Iterator[HintError]:
    """Yield an error if a constraint can ask for more bandwidth than a storage has."""
    wanted = hint.value
    limit = storage.bandwidth(wanted.direction)
    if _most(wanted) > limit:
        bandwidth = "read and write" if wanted.direction == "both" else wanted.direction
        message = f"{wanted.storage_bw} is above the {bandwidth} bandwidth of storage {storage.name!r}"
        yield hint.error(message, f"at most {limit:g} MB/s", "storageBW")


def _most(hint: StorageBandwidth) -> float:
    match hint.storage_bw:
        case StaticConstraint(value):
            return value
        case AutoConstraint(bounds):
            return 0 if bounds is None else bounds.maximum
        case RequiredConstraint():
            return 0


def _scopes(steps: Sequence[HintedStep], annotations: Annotations) -> list[tuple[Scope, list[HintedStep]]]:
    """Return all elements with hints, and the steps that inherit from each."""
    heirs: dict[tuple[str, Level], tuple[Scope, list[HintedStep]]] = {}
    for step in steps:
        for scope in scopes_of(step, annotations):
            heirs.setdefault((scope.path, scope.level), (scope, []))[1].append(step)
    return list(heirs.values())


def _check_addresses(
    steps: Sequence[HintedStep], workflows: Collection[str], annotations: Annotations
) -> Iterator[HintError]:
    """Check the steps and ports that the annotations file names."""
    paths = {step.path for step in steps} | set(workflows)
    for entry in annotations.steps:
        if entry.value not in paths:
            yield entry.error(_unknown("step", entry.value), listed(paths))
    parameters = ((step, each) for step in steps for each in (*step.inputs.values(), *step.outputs.values()))
    ports = {port_path(step.path, name) for step, each in parameters for name, _ in each.streamables()}
    for entry in annotations.streamable:
        if entry.value not in ports:
            yield entry.error(_unknown("port", entry.value), listed(ports))
    inputs = {port_path(step.path, name) for step in steps for name in step.inputs}
    for proven in annotations.proven:
        if proven.value.input not in inputs:
            yield proven.error(_unknown("input", proven.value.input), listed(inputs), "input")


def _unknown(what: str, path: str) -> str:
    return (
        f"unknown {what} {path!r}" if path.startswith("/") else f"{path!r} is no {what} path: it does not begin with /"
    )


def _check_once(scope: Scope) -> Iterator[HintError]:
    for class_ in (IOTask, StorageBandwidth):
        for hint in [hint for hint in scope.hints if isinstance(hint.value, class_)][1:]:
            yield hint.error(f"a second {hint.name} at the same place", f"one {hint.name}", "class")


def _check_same_files(scope: Scope) -> Iterator[HintError]:
    for first, second in combinations(scope.rules(), 2):
        one, other = first.value, second.value
        if one.port != other.port:
            continue
        if not one.files and not other.files:
            yield second.error(f"a second rule for all files of {one.port!r}", "one rule for each file", "port")
        for a, b in ((a, b) for a in one.files for b in other.files if overlap(a, b)):
            message = f"{b!r} and {a!r} of another rule for {one.port!r} match the same files"
            yield second.error(message, "one rule for each file", "files")


def _check_ports(scope: Scope, heirs: Sequence[HintedStep]) -> Iterator[HintError]:
    """Check that at least one heir has the output of each rule."""
    for rule in scope.rules():
        port = rule.value.port
        if any(can_stream(step.outputs.get(port)) for step in heirs):
            continue
        found = any(port in step.outputs for step in heirs)
        message = f"output {port!r} is no File, File[] or Directory" if found else f"unknown port {port!r}"
        outputs = [name for step in heirs for name, output in step.outputs.items() if can_stream(output)]
        yield rule.error(message, f"outputs with files: {listed(outputs)}", "port")


def _check_types(step: HintedStep, rule: Rule) -> Iterator[HintError]:
    port = rule.value.port
    if not SEVERAL_FILES.isdisjoint(step.outputs[port].types):
        return
    for given, field in ((rule.value.files, "files"), (rule.value.n_files, "nFiles")):
        if given:
            yield rule.error(f"output {port!r} is a single file", f"{field} with a Directory or File[] only", field)


def _check_deps(step: HintedStep, rule: Rule) -> Iterator[HintError]:
    outputs = [name for name, output in step.outputs.items() if can_stream(output)]
    for index, dep in enumerate(rule.value.file_deps):
        if dep not in outputs and not is_pattern(dep) and not {".", "/"} & set(dep):
            whose = "this tool" if rule.level is Level.TOOL else f"step {step.path}"
            message = f"{dep!r} is no output with files of {whose}, and no glob"
            yield rule.error(message, f"{listed(outputs)}, or globs", "fileDeps", index)


def _check_limited(step: StepAnnotations) -> Iterator[HintError]:
    if step.storage_bandwidth is None or step.io_task is not None:
        return
    message = f"{step.path} is no I/O task: to pause it would delay its compute"
    if step.required is not None:
        yield step.storage_bandwidth.error(message, "`storageBW: required` with sfio:IOTask only", "storageBW")
    elif step.is_limited:
        yield step.storage_bandwidth.error(message, "`limited` with sfio:IOTask only", "limited")


def _check_home_node(rule: Rule, steps: Collection[str]) -> Iterator[HintError]:
    if rule.value.home_node is not None and rule.value.home_node not in steps:
        yield rule.error(f"unknown step {rule.value.home_node!r}", listed(steps), "homeNode")


def _check_cycles(step: HintedStep, rules: Sequence[Rule]) -> list[HintError]:
    cycle = find_cycle(step.outputs, [rule.value for rule in rules])
    if cycle is None:
        return []
    waiting = [rules[index].value for index in cycle]
    names = [", ".join(rule.files) or rule.port for rule in waiting]
    message = f"rules wait for each other: {' -> '.join(names)}"
    allowed = "fileDeps that do not lead back to the same files"
    return [rules[min(cycle)].error(message, allowed, "fileDeps")]


def find_cycle(outputs: Mapping[str, Parameter], rules: Sequence[StreamingRule]) -> list[int] | None:
    """Find rules that wait for each other through `fileDeps`.

    :param outputs: the outputs of a step, by name
    :param rules: all rules for these outputs
    :return: the indices of such rules, each before the one that it waits for, the first once more at the end. None: no
        rules wait for each other
    """
    graph = {
        index: [other for other, target in enumerate(rules) if _waits_for(outputs, rule, target)]
        for index, rule in enumerate(rules)
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as cycle:
        # graphlib lists the nodes from the awaited to the waiting one
        return list(reversed(cycle.args[1]))
    return None


def _waits_for(outputs: Mapping[str, Parameter], rule: StreamingRule, other: StreamingRule) -> bool:
    """Whether some file of one rule is committed by a file of the other."""
    for dep in rule.file_deps:
        if dep in outputs:
            if dep == other.port:
                return True
        elif any(overlap(dep, files) for files in other.files or outputs[other.port].globs):
            return True
    return False
