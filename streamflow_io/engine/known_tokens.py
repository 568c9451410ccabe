"""The tags and values of tokens of a translated workflow that are known before it runs.

They are followed backwards through the steps of StreamFlow to the inputs of the workflow. The results of a job, a loop
or an expression are known only at run time.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableSequence, Sequence
from itertools import product
from typing import Any
from urllib.parse import unquote

from cwl_utils.errors import JavascriptException, SubstitutionError, WorkflowException
from streamflow.core.workflow import Port, Step, Token, Workflow
from streamflow.cwl import utils
from streamflow.cwl.combinator import ListMergeCombinator
from streamflow.cwl.processor import CWLCommandOutputProcessor
from streamflow.cwl.step import CWLConditionalStep, CWLEmptyScatterConditionalStep, CWLExecuteStep
from streamflow.cwl.transformer import BroadcastTransformer, CWLTokenTransformer, DefaultTransformer, ForwardTransformer
from streamflow.workflow.combinator import (
    CartesianProductCombinator,
    DotProductCombinator,
    LoopCombinator,
    LoopTerminationCombinator,
)
from streamflow.workflow.step import (
    Combinator,
    CombinatorStep,
    GatherStep,
    InputInjectorStep,
    ScatterStep,
    ScheduleStep,
    TransferStep,
    Transformer,
)
from streamflow.workflow.token import TerminationToken

from streamflow_io.adapters.output_globs import file_processor, output_processor, relative_glob
from streamflow_io.files import file_of
from streamflow_io.graph.capio_cl.configuration import MOST_INSTANCES, KnownJobs
from streamflow_io.graph.io_graph import Output

_ROOT = "0"

# A tag whose last number is unknown ends with `.*`. None: even the number of levels is unknown.
Tags = tuple[str, ...] | None
# The steps that hand on their tokens unchanged.
_HandOn = CWLConditionalStep | CWLEmptyScatterConditionalStep | CWLTokenTransformer
_ANYWHERE = ("*",)
_OUTPUT_DIRECTORY = "/outdir"
_MADE_UP = re.compile(r"[0-9a-f]{40}")
_RUNTIME = re.compile(r"\bruntime\b(?!\s*\.\s*outdir\b)")
_AT_RUN_TIME = re.compile(r"\b(?:path|location|dirname|size|checksum|contents|listing|secondaryFiles|format)\b")


class UnknownValue(Exception):  # noqa: N818 (it is no error)
    """A value that is known only at run time."""


class KnownTokens:
    """The tokens of a translated workflow that are known before it runs."""

    def __init__(self) -> None:
        self._tags: dict[str, Tags] = {}

    def tags_of(self, step: CWLExecuteStep) -> Tags:
        """The tags of the jobs of a step; None: unknown, and several."""
        schedule = next((s for s in step.get_job_port().get_input_steps() if isinstance(s, ScheduleStep)), None)
        if schedule is None:
            return None
        inputs = [port for name, port in schedule.get_input_ports().items() if not name.startswith("__connector__")]
        return self._longest(inputs)

    def _longest(self, ports: Iterable[Port]) -> Tags:
        """The tags of a step that needs a token of each of these ports: the tags of the port that is scattered most."""
        longest: Tags = (_ROOT,)
        for port in ports:
            tags = self._port_tags(port)
            if tags is None:
                return None
            if tags and (not longest or tags[0].count(".") > longest[0].count(".")):
                longest = tags
            elif not tags:
                return ()
        return longest

    def _port_tags(self, port: Port) -> Tags:
        if port.name not in self._tags:
            self._tags[port.name] = None  # a port that leads back to itself is in a loop
            writers = port.get_input_steps()
            self._tags[port.name] = self._step_tags(writers[0], port) if len(writers) == 1 else None
        return self._tags[port.name]

    def _step_tags(self, step: Step, port: Port) -> Tags:
        match step:
            case InputInjectorStep():
                return (_ROOT,)
            case CWLExecuteStep():
                return self.tags_of(step)
            case ScatterStep():
                return self._scattered(step)
            case GatherStep():
                tags = self._port_tags(_data_port(step))
                return tuple(dict.fromkeys(_up(tag, step.depth) for tag in tags)) or None if tags else None
            case CombinatorStep():
                return self._combined(step.combinator, step.get_input_ports())
            case CWLConditionalStep() | CWLEmptyScatterConditionalStep() | CWLTokenTransformer():
                return self._port_tags(_handed_on(step, port))
            case Transformer() | TransferStep():
                return self._longest(p for name, p in step.get_input_ports().items() if name != "__job__")
        return None

    def _scattered(self, step: ScatterStep) -> Tags:
        port = step.get_input_port()
        tags = self._port_tags(port)
        found: list[str] = []
        for tag in () if tags is None else tags:
            size = self._size(port, tag)
            found += [f"{tag}.*"] if size is None else [f"{tag}.{index}" for index in range(size)]
        return None if tags is None else tuple(found)

    def _size(self, port: Port, tag: str) -> int | None:
        """The number of elements of a list; None: unknown."""
        try:
            value = self.value(port, tag)
        except UnknownValue:
            source = self._source(port)
            if not isinstance(source, GatherStep) or source.depth != 1:
                return None
            tags = self._port_tags(_data_port(source))
            gathered = [one for one in tags or () if _up(one, 1) == tag]
            return None if tags is None or any(map(is_open, gathered)) else len(gathered)
        return len(value) if isinstance(value, list) else 0 if value is None else None

    def _source(self, port: Port) -> Step | None:
        """The step that writes to a port, behind steps that hand on their tokens; None: no single step writes."""
        while len(writers := port.get_input_steps()) == 1:
            if not isinstance(writers[0], _HandOn):
                return writers[0]
            port = _handed_on(writers[0], port)
        return None

    def _combined(self, combinator: Combinator, ports: Mapping[str, Port]) -> Tags:
        parts = []
        for item in combinator.items:
            inner = combinator.combinators.get(item)
            parts.append(self._port_tags(ports[item]) if inner is None else self._combined(inner, ports))
        known = [tags for tags in parts if tags is not None]
        if len(known) < len(parts) or not known or isinstance(combinator, LoopCombinator | LoopTerminationCombinator):
            return None
        if isinstance(combinator, CartesianProductCombinator) and combinator.depth == 1:
            prefixes = dict.fromkeys(_up(tag, 1) for tag in known[0])
            return tuple(
                ".".join([prefix, *last])
                for prefix in prefixes
                for last in product(*([t.rpartition(".")[2] for t in tags if _up(t, 1) == prefix] for tags in known))
            )
        if isinstance(combinator, DotProductCombinator):
            return () if () in known else max(known, key=lambda tags: tags[0].count("."))
        return None

    def value(self, port: Port, tag: str) -> Any:
        """The value of the token with this tag, as in the job of the workflow.

        :raises UnknownValue: if the value is known only at run time
        """
        writers = port.get_input_steps()
        if len(writers) != 1:
            raise UnknownValue
        match writers[0]:
            case InputInjectorStep() as step:
                tokens = [t for t in _data_port(step).token_list if not isinstance(t, TerminationToken)]
                if len(tokens) != 1:
                    raise UnknownValue
                return tokens[0].value
            case ScatterStep() as step:
                value, index = self.value(step.get_input_port(), _up(tag, 1)), tag.rpartition(".")[2]
                if is_open(tag) or not isinstance(value, list) or int(index) >= len(value):
                    raise UnknownValue
                return value[int(index)]
            case CombinatorStep() as step if isinstance(step.combinator, ListMergeCombinator):
                return self._merged_value(step, step.combinator, tag)
            case CombinatorStep() as step:
                return self._combined_value(step, _output_name(step, port), tag)
            case CWLConditionalStep() | CWLEmptyScatterConditionalStep() | CWLTokenTransformer() as step:
                return self.value(_handed_on(step, port), tag)
            case TransferStep() as step:
                return self.value(step.get_input_port(_output_name(step, port)), tag)
            case ForwardTransformer() | BroadcastTransformer() as step:
                return self.value(step.get_input_port(), tag)
            case DefaultTransformer() as step:
                value = self.value(step.get_input_port(step.primary_port), tag)
                return self.value(step.default_port, _ROOT) if value is None else value
        raise UnknownValue

    def _merged_value(self, step: CombinatorStep, merge: ListMergeCombinator, tag: str) -> list[Any]:
        values = [self.value(step.get_input_port(name), tag) for name in merge.input_names]
        if len(values) == 1 and isinstance(values[0], list):
            (values,) = values
        return list(_flat(values)) if merge.flatten else values

    def _combined_value(self, step: CombinatorStep, name: str, tag: str) -> Any:
        if name not in step.input_ports or _makes_lists_or_pairs(step.combinator):
            raise UnknownValue
        port = step.get_input_port(name)
        if (tags := self._port_tags(port)) is None:
            raise UnknownValue
        # A value that is not scattered is the same for all jobs.
        return self.value(port, next((t for t in tags if t == tag or tag.startswith(f"{t}.")), tag))


def is_open(tag: str) -> bool:
    """Whether a tag stands for any number of tags."""
    return "*" in tag


def _makes_lists_or_pairs(combinator: Combinator) -> bool:
    kinds = CartesianProductCombinator | ListMergeCombinator
    return isinstance(combinator, kinds) or any(map(_makes_lists_or_pairs, combinator.combinators.values()))


def _flat(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _up(tag: str, levels: int) -> str:
    return ".".join(tag.split(".")[:-levels])


def _data_port(step: Step) -> Port:
    return next(port for name, port in step.get_input_ports().items() if name not in ("__job__", "__size__"))


def _handed_on(step: Step, port: Port) -> Port:
    """The input port whose tokens a step hands on, unchanged, to one of its output ports."""
    name = step.port_name if isinstance(step, CWLTokenTransformer) else _output_name(step, port)
    return step.get_input_port(name)


def _output_name(step: Step, port: Port) -> str:
    return next(str(name) for name, output in step.output_ports.items() if output == port.name)


def with_paths(value: Any) -> Any:
    """A value with a path for each file.

    :raises UnknownValue: if one is nowhere on this machine
    """
    if isinstance(value, Mapping):
        value = {key: with_paths(inner) for key, inner in value.items()}
        if value.get("class") in ("File", "Directory"):
            path = str(value.get("path") or value.get("location") or "")
            path = file_of(path) if path.startswith("file:") else path
            if not path or "://" in path:
                raise UnknownValue
            value |= {"path": path, "basename": value.get("basename") or posixpath.basename(path)}
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [with_paths(inner) for inner in value]
    return value


def known_globs(step: CWLExecuteStep, processor: CWLCommandOutputProcessor | None) -> tuple[str, ...]:
    """The globs of an output, relative to the output directory of its job; `*` stands for an expression.

    `*` also stands for the name that StreamFlow makes up for a standard stream, which differs between runs.
    """
    streams = [getattr(step.command, name, None) for name in ("stdout", "stderr")]
    return tuple(
        "*"
        if utils.is_expression(glob) or (glob in streams and _MADE_UP.fullmatch(glob) is not None)
        else relative_glob(glob, _OUTPUT_DIRECTORY)
        for glob in _globs(processor)
    )


def known_jobs(tokens: KnownTokens, workflow: Workflow, outputs: Iterable[Output]) -> KnownJobs:
    """The jobs of a workflow that are known before it runs. For globs in JavaScript a process is started."""
    tags = {
        step.name: None if (found := tokens.tags_of(step)) is None or any(map(is_open, found)) else found
        for step in workflow.steps.values()
        if isinstance(step, CWLExecuteStep)
    }
    globs = {}
    for output in outputs:
        step = workflow.steps[output.step]
        processor = file_processor(output_processor(step, output.port))
        if not any(utils.is_expression(glob) for glob in _globs(processor)):
            continue
        known = tags[output.step]
        for tag in known if known is not None and len(known) <= MOST_INSTANCES else ():
            globs[output.step, output.port, tag] = _evaluated_globs(tokens, step, processor, tag)
    return KnownJobs(tags, globs)


def _globs(processor: CWLCommandOutputProcessor | None) -> Sequence[str]:
    if processor is None or processor.glob is None:
        return _ANYWHERE
    return processor.glob if isinstance(processor.glob, MutableSequence) else [processor.glob]


def _evaluated_globs(
    tokens: KnownTokens, step: CWLExecuteStep, processor: CWLCommandOutputProcessor, tag: str
) -> tuple[str, ...]:
    """The globs of an output of one job, relative to its output directory; `*` stands for an unknown one."""
    found = [pattern for glob in _globs(processor) for pattern in _evaluated(tokens, step, processor, glob, tag)]
    return tuple(dict.fromkeys(relative_glob(pattern, _OUTPUT_DIRECTORY) for pattern in found))


def _evaluated(
    tokens: KnownTokens, step: CWLExecuteStep, processor: CWLCommandOutputProcessor, glob: str, tag: str
) -> Sequence[str]:
    if not utils.is_expression(glob):
        return [glob]
    if _RUNTIME.search(glob):
        return _ANYWHERE
    library = {"full_js": processor.full_js, "expression_lib": processor.expression_lib}
    try:
        names = utils.resolve_dependencies(glob, **library)
        inputs = _inputs(tokens, step, names, glob, tag)
        context = utils.build_context(inputs=inputs, output_directory=_OUTPUT_DIRECTORY)
        value = utils.eval_expression(glob, context, **library)
    except (UnknownValue, WorkflowException, JavascriptException, SubstitutionError):
        # The expression uses values that are known only at run time, or that are missing here.
        return _ANYWHERE
    values = value if isinstance(value, MutableSequence) else [value]
    return values if all(isinstance(v, str) for v in values) else _ANYWHERE


def _inputs(tokens: KnownTokens, step: CWLExecuteStep, names: Collection[str], glob: str, tag: str) -> dict[str, Token]:
    """The inputs that an expression uses.

    :param names: of these inputs; empty: perhaps all inputs of the step
    :raises UnknownValue: if the expression uses something of them that is known only at run time
    """
    ports = {name: port for name, port in step.get_input_ports().items() if name != "__job__"}
    inputs = {}
    for name in names or ports:
        if name not in ports:
            raise UnknownValue
        value = _named(tokens.value(ports[name], tag))
        if isinstance(value, dict | list) and _AT_RUN_TIME.search(glob):
            raise UnknownValue
        inputs[name] = Token(value=value)
    return inputs


def _named(value: Any) -> Any:
    """A File or Directory with the parts of its name, which are the same at every place."""
    if isinstance(value, list):
        return [_named(element) for element in value]
    if isinstance(value, dict) and value.get("class") in ("File", "Directory"):
        path = str(value.get("path") or value.get("location") or "")
        name = value.get("basename") or posixpath.basename(unquote(path) if "://" in path else path)
        root, extension = posixpath.splitext(name)
        return {**value, "basename": name, "nameroot": root, "nameext": extension}
    return value
