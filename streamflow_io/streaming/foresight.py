"""What is known of the jobs of a translated workflow before it runs: their tags, and where their outputs will be.

Followed backwards through the steps of StreamFlow to the inputs of the workflow; what goes through a job, a loop or an
expression is known only at run time.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from itertools import product
from typing import Any

from streamflow.core.workflow import Port, Step, Token, Workflow
from streamflow.cwl import utils
from streamflow.cwl.combinator import ListMergeCombinator
from streamflow.cwl.processor import CWLCommandOutputProcessor
from streamflow.cwl.step import CWLConditionalStep, CWLEmptyScatterConditionalStep, CWLExecuteStep
from streamflow.cwl.transformer import (
    BroadcastTransformer,
    CWLTokenTransformer,
    DefaultTransformer,
    ForwardTransformer,
)
from streamflow.workflow.combinator import CartesianProductCombinator, DotProductCombinator, LoopCombinator
from streamflow.workflow.combinator import LoopTerminationCombinator as LoopEnd
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

from streamflow_io.coordination.expansion import MOST_INSTANCES, KnownJobs
from streamflow_io.coordination.graph import Output

from .globs import file_processor, relative_glob

_ROOT = "0"
_ANYWHERE = ("*",)
_OUTPUT_DIRECTORY = "/outdir"
_RUNTIME = re.compile(r"\bruntime\b(?!\s*\.\s*outdir\b)")
_AT_RUN_TIME = re.compile(r"\b(?:path|location|dirname|size|checksum|contents|listing|secondaryFiles|format)\b")

# Tags of which only the length is known end with `.*`. None: not even that.
Tags = tuple[str, ...] | None


class _Unknown(Exception):  # noqa: N818 (it is no error)
    """A value that is known only at run time."""


def known_globs(step: CWLExecuteStep, processor: CWLCommandOutputProcessor | None) -> tuple[str, ...]:
    """The globs of an output as far as they are no expressions, relative to the output directory of its job.

    A name that StreamFlow makes up for a standard stream is another one in each run.
    """
    return tuple(
        "*" if utils.is_expression(glob) else relative_glob(glob, _OUTPUT_DIRECTORY) for glob in _globs(processor)
    )


def foresee(workflow: Workflow, outputs: Iterable[Output], javascript: bool) -> KnownJobs:
    """Look what is known of the jobs of a workflow before it runs.

    :param javascript: evaluate the globs that need it, too: a process is started for it
    """
    foresight = _Foresight(workflow, javascript)
    tools = [step for step in workflow.steps.values() if isinstance(step, CWLExecuteStep)]
    tags = {step.name: _all_known(foresight.tags_of(step)) for step in tools}
    globs = {}
    for output in outputs:
        step = workflow.steps[output.step]
        processor = file_processor(step.output_processors[output.port])
        if not any(utils.is_expression(glob) for glob in _globs(processor)):
            continue
        known = tags[output.step]
        for tag in known if known is not None and len(known) <= MOST_INSTANCES else ():
            globs[output.step, output.port, tag] = foresight.globs(step, processor, tag)
    return KnownJobs(tags, globs)


def _globs(processor: CWLCommandOutputProcessor | None) -> Sequence[str]:
    if processor is None or processor.glob is None:
        return _ANYWHERE
    return processor.glob if isinstance(processor.glob, MutableSequence) else [processor.glob]


class _Foresight:
    def __init__(self, workflow: Workflow, javascript: bool) -> None:
        self._workflow = workflow
        self._javascript = javascript
        self._tags: dict[str, Tags] = {}

    def tags_of(self, step: CWLExecuteStep) -> Tags:
        """The tags of the jobs of a step; None: not known, and several."""
        schedule = next((s for s in step.get_job_port().get_input_steps() if isinstance(s, ScheduleStep)), None)
        if schedule is None:
            return None
        inputs = [port for name, port in schedule.get_input_ports().items() if not name.startswith("__connector__")]
        return self._longest(inputs)

    def globs(self, step: CWLExecuteStep, processor: CWLCommandOutputProcessor, tag: str) -> tuple[str, ...]:
        """The globs of an output of one job, relative to its output directory; `*` where they are not known."""
        found = [pattern for glob in _globs(processor) for pattern in self._evaluated(step, processor, glob, tag)]
        return tuple(dict.fromkeys(relative_glob(pattern, _OUTPUT_DIRECTORY) for pattern in found))

    def _evaluated(
        self, step: CWLExecuteStep, processor: CWLCommandOutputProcessor, glob: str, tag: str
    ) -> Sequence[str]:
        if not utils.is_expression(glob):
            return [glob]
        if _RUNTIME.search(glob) or (processor.full_js and not self._javascript):
            return _ANYWHERE
        try:
            inputs = self._inputs(step, processor, glob, tag)
        except _Unknown:
            return _ANYWHERE
        context = utils.build_context(inputs=inputs, output_directory=_OUTPUT_DIRECTORY)
        try:
            value = utils.eval_expression(
                glob, context, full_js=processor.full_js, expression_lib=processor.expression_lib
            )
        except Exception:  # Whatever an expression of somebody else does with what is missing here.
            return _ANYWHERE
        values = value if isinstance(value, MutableSequence) else [value]
        return [v for v in values if isinstance(v, str)] if all(isinstance(v, str) for v in values) else _ANYWHERE

    def _inputs(
        self, step: CWLExecuteStep, processor: CWLCommandOutputProcessor, glob: str, tag: str
    ) -> dict[str, Token]:
        """The inputs that an expression uses."""
        names = utils.resolve_dependencies(glob, full_js=processor.full_js, expression_lib=processor.expression_lib)
        ports = {name: port for name, port in step.get_input_ports().items() if name != "__job__"}
        inputs = {}
        for name in names or ports:
            if name not in ports:
                raise _Unknown
            value = _named(self._value(ports[name], tag))
            if isinstance(value, dict | list) and _AT_RUN_TIME.search(glob):
                raise _Unknown
            inputs[name] = Token(value=value)
        return inputs

    # --- tags

    def _longest(self, ports: Iterable[Port]) -> Tags:
        """The tags of what needs a token of each of these ports: those that are scattered most."""
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
            self._tags[port.name] = None  # what leads back to itself is a loop
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
            case CWLConditionalStep() | CWLEmptyScatterConditionalStep():
                return self._port_tags(step.get_input_port(_output_name(step, port)))
            case CWLTokenTransformer():
                return self._port_tags(step.get_input_port(step.port_name))
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
        """How many elements a list has."""
        try:
            value = self._value(port, tag)
        except _Unknown:
            source = self._source(port)
            if not isinstance(source, GatherStep) or source.depth != 1:
                return None
            tags = self._port_tags(_data_port(source))
            gathered = [one for one in tags or () if _up(one, 1) == tag]
            return None if tags is None or any(map(_is_open, gathered)) else len(gathered)
        return len(value) if isinstance(value, list) else 0 if value is None else None

    def _source(self, port: Port) -> Step | None:
        """The step that writes to a port, past those that hand on what they get."""
        while True:
            writers = port.get_input_steps()
            if len(writers) != 1:
                return None
            match writers[0]:
                case CWLTokenTransformer() as step:
                    port = step.get_input_port(step.port_name)
                case CWLConditionalStep() | CWLEmptyScatterConditionalStep() as step:
                    port = step.get_input_port(_output_name(step, port))
                case step:
                    return step

    def _combined(self, combinator: Combinator, ports: Mapping[str, Port]) -> Tags:
        parts = []
        for item in combinator.items:
            inner = combinator.combinators.get(item)
            parts.append(self._port_tags(ports[item]) if inner is None else self._combined(inner, ports))
        known = [tags for tags in parts if tags is not None]
        if len(known) < len(parts) or not known or isinstance(combinator, LoopCombinator | LoopEnd):
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

    # --- values

    def _value(self, port: Port, tag: str) -> Any:
        """What the token with a tag will be, as in the job of the workflow.

        :raises _Unknown: if only the run tells
        """
        writers = port.get_input_steps()
        if len(writers) != 1:
            raise _Unknown
        match writers[0]:
            case InputInjectorStep() as step:
                tokens = [t for t in _data_port(step).token_list if not isinstance(t, TerminationToken)]
                if len(tokens) != 1:
                    raise _Unknown
                return tokens[0].value
            case ScatterStep() as step:
                value = self._value(step.get_input_port(), _up(tag, 1))
                if _is_open(tag):
                    raise _Unknown
                return value[int(tag.rpartition(".")[2])]
            case CombinatorStep() as step:
                return self._combined_value(step, _output_name(step, port), tag)
            case CWLConditionalStep() | CWLEmptyScatterConditionalStep() | TransferStep() as step:
                return self._value(step.get_input_port(_output_name(step, port)), tag)
            case CWLTokenTransformer() as step:
                return self._value(step.get_input_port(step.port_name), tag)
            case ForwardTransformer() | BroadcastTransformer() as step:
                return self._value(step.get_input_port(), tag)
            case DefaultTransformer() as step:
                value = self._value(step.get_input_port(step.primary_port), tag)
                return self._value(step.default_port, _ROOT) if value is None else value
        raise _Unknown

    def _combined_value(self, step: CombinatorStep, name: str, tag: str) -> Any:
        port = step.get_input_port(name)
        tags = self._port_tags(port)
        if tags is None or _makes_lists_or_pairs(step.combinator):
            raise _Unknown
        # What is not scattered is the same for all.
        return self._value(port, next((t for t in tags if t == tag or tag.startswith(f"{t}.")), tag))


def _all_known(tags: Tags) -> Tags:
    return None if tags is None or any(map(_is_open, tags)) else tags


def _is_open(tag: str) -> bool:
    return "*" in tag


def _makes_lists_or_pairs(combinator: Combinator) -> bool:
    kinds = CartesianProductCombinator | ListMergeCombinator
    return isinstance(combinator, kinds) or any(map(_makes_lists_or_pairs, combinator.combinators.values()))


def _up(tag: str, levels: int) -> str:
    return ".".join(tag.split(".")[:-levels])


def _data_port(step: Step) -> Port:
    return next(port for name, port in step.get_input_ports().items() if name not in ("__job__", "__size__"))


def _output_name(step: Step, port: Port) -> str:
    return next(str(name) for name, output in step.output_ports.items() if output == port.name)


def _named(value: Any) -> Any:
    """A File or Directory with the parts of its name, which are the same wherever it is."""
    if isinstance(value, list):
        return [_named(element) for element in value]
    if isinstance(value, dict) and value.get("class") in ("File", "Directory"):
        name = value.get("basename") or posixpath.basename(str(value.get("path") or value.get("location") or ""))
        root, extension = posixpath.splitext(name)
        return {**value, "basename": name, "nameroot": root, "nameext": extension}
    return value
