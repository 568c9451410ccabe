"""Reasons why a step needs a whole file before it starts."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, MutableSequence
from typing import Any, TypeAlias

from streamflow.core.processor import CommandOutputProcessor, ObjectTokenProcessor, TokenProcessor
from streamflow.core.workflow import Step, Workflow
from streamflow.cwl.command import CWLCommand, CWLCommandTokenProcessor
from streamflow.cwl.processor import CWLCommandOutputProcessor, CWLTokenProcessor
from streamflow.cwl.step import CWLConditionalStep
from streamflow.cwl.transformer import ValueFromTransformer
from streamflow.cwl.utils import LoadListing, SecondaryFile, is_expression

from streamflow_io.adapters.output_globs import collects_only_files, field_port, file_processor, kind_of, record_fields
from streamflow_io.graph.io_graph import OutputKind
from streamflow_io.hints.models import StreamingRule
from streamflow_io.messages import Code, coded

# A list has its length when all of its elements have names.
_NAME_FIELDS = {"basename", "nameroot", "nameext", "class", "format", "length"}
PLACE_FIELDS = {"path", "location", "dirname"}
SAFE_FIELDS = _NAME_FIELDS | PLACE_FIELDS
# The size of a part is known, too.
PART_FIELDS = SAFE_FIELDS | {"size"}
_FIELD = r"""(?:\s*(?:\.\s*(\w+)|\[\s*["']([^"']+)["']\s*\]))?"""
# No text has such a field: what has it is a file, in a field of a record whose name is that of a text.
_OF_A_FIELD = r"""(\s*(?:\.\s*|\[\s*["'])(?:size|checksum|contents|listing|secondaryFiles)\b)?"""
# The use may be of an element. Or it asks whether the value is null: a missing value is known, and comes, at the end
# only.
_OF_A_FILE = rf"(?:\s*\[\s*\d+\s*\])*{_FIELD}{_OF_A_FIELD}(\s*[!=]==?\s*null\b)?"
_SELF = re.compile(rf"\bself\b{_OF_A_FILE}")
_USES = re.compile(rf"\binputs\b{_FIELD}{_OF_A_FILE}")
# The library counts only where it is called; a base command is a literal.
_NO_EXPRESSIONS = {"expression_lib", "base_command", "step", "workflow"}
_EXPRESSION = re.compile(r"\$[({]")
_TAKES = re.compile(r"""\s*\$\(\s*(self|inputs\.\w+)(?:\.(\w+)|\[(?:'([^'"]*)')\])\s*\)\s*""")
_REFERENCE = re.compile(r"""\$\(\s*\w+(?:\.\w+|\[\s*(?:'[^']*'|"[^"]*"|\d+)\s*\])*\s*\)""")

#: What has expressions that may call functions of a JavaScript library.
LibraryUser: TypeAlias = CWLCommand | CWLConditionalStep | ValueFromTransformer | CWLTokenProcessor


def output_obstacle(
    processor: CWLCommandOutputProcessor | None, kind: OutputKind, rules: Iterable[StreamingRule], name: str
) -> str | None:
    """Why an output is known only when its job has ended; None: no obstacle.

    :param processor: collects the files of the output
    :param name: the output, for people
    """
    if kind is OutputKind.OTHER or processor is None:
        return coded(f"{name} is no File, File[] or Directory", Code.KNOWN_AT_THE_END)
    if processor.output_eval is not None:
        return coded(f"{name} is computed by outputEval when the job has ended", Code.KNOWN_AT_THE_END)
    if processor.glob is None:
        return coded(f"{name} has no glob", Code.KNOWN_AT_THE_END)
    if processor.secondary_files and not _are_committed(processor, kind, rules):
        return coded(
            f"{name} has secondaryFiles, which are complete only when the job has ended", Code.KNOWN_AT_THE_END
        )
    if processor.target is not None:
        return coded(f"{name} is bound to another location in the StreamFlow file", Code.KNOWN_AT_THE_END)
    return None


def record_obstacle(processor: CommandOutputProcessor, record: str) -> str | None:
    """Why a record is known only when its job has ended; None: no obstacle.

    A field that is no File, or that may be missing, is such a reason.

    :param record: the output, for people
    """
    for name, field in record_fields(processor).items():
        collector = file_processor(field)
        if collector is None or kind_of(collector) is not OutputKind.FILE or not collects_only_files(field):
            return coded(f"{field_port(record, name)} is no File", Code.KNOWN_AT_THE_END)
        if collector.optional:
            return coded(f"{field_port(record, name)} may be missing at the end", Code.KNOWN_AT_THE_END)
    return None


def early_obstacle(
    processor: CWLCommandOutputProcessor, kind: OutputKind, command: CWLCommand, name: str
) -> str | None:
    """Why no consumer can have an output before its commit; None: no obstacle."""
    if processor.secondary_files:
        return coded(f"{name} has secondaryFiles", Code.WHOLE_FILE)
    if processor.load_contents:
        return coded(f"{name} has loadContents", Code.WHOLE_FILE)
    if kind is OutputKind.DIRECTORY and listed(processor):
        return coded(f"{name} is listed (loadListing; with CWL v1.0 always)", Code.LISTED)
    if processor.file_format is not None and is_expression(processor.file_format):
        texts = with_library([processor.file_format], command)
        if any(map(whole_self_use, texts)):
            return coded(f"the format of {name} is an expression that needs the whole file", Code.EXPRESSION)
    return None


def parts_obstacle(processor: CWLCommandOutputProcessor | None, command: CWLCommand, name: str) -> str | None:
    """Why the files of an output cannot be parts of another file; None: no obstacle."""
    if processor is None:
        return f"{name} is no File[]"
    if processor.output_eval is not None:
        return f"{name} is computed by outputEval from the written files"
    if processor.target is not None:
        return coded(f"{name} is bound to another location in the StreamFlow file", Code.KNOWN_AT_THE_END)
    return early_obstacle(processor, OutputKind.FILES, command, name)


def _are_committed(processor: CWLCommandOutputProcessor, kind: OutputKind, rules: Iterable[StreamingRule]) -> bool:
    """Whether the secondary files of each file are known to be committed by the rule of the file.

    In a list that is complete by a number of files, secondary files would be counted.
    """
    named = not any(is_expression(file.pattern) for file in processor.secondary_files)
    alone = kind is OutputKind.FILES and all(rule.committed.kind == "on_close" for rule in rules)
    return named and (kind is OutputKind.FILE or alone)


def processor_obstacle(transformer: TokenProcessor | None, shown: str) -> str | None:
    """Why an input with this processor needs the whole file; None: no obstacle.

    :param shown: the input, for people
    """
    for processor in with_inner(transformer):
        if isinstance(processor, CWLTokenProcessor):
            if processor.load_contents:
                return coded(f"{shown} has loadContents", Code.WHOLE_FILE)
            if processor.secondary_files:
                return coded(f"{shown} has secondaryFiles", Code.WHOLE_FILE)
            if any(map(whole_self_use, input_expressions(processor))):
                return coded(f"the format of {shown} is an expression that needs the whole file", Code.EXPRESSION)
            if "Directory" in _types(processor) and listed(processor):
                return coded(f"{shown} is listed (loadListing; with CWL v1.0 always)", Code.LISTED)
    return None


def listed(processor: CWLTokenProcessor | CWLCommandOutputProcessor) -> bool:
    """Whether a Directory has its `listing` when the step starts."""
    return processor.load_listing not in (None, LoadListing.no_listing)


def _types(processor: CWLTokenProcessor) -> list[str]:
    types = processor.token_type
    return [types] if isinstance(types, str) else [kind for kind in types or () if isinstance(kind, str)]


def with_inner(value: Any) -> Iterator[Any]:
    """Yield a processor, and all processors in it."""
    yield value
    inners = getattr(value, "processors", ())
    # A record has its processors by field.
    for inner in (getattr(value, "processor", None), *(inners.values() if isinstance(inners, Mapping) else inners)):
        if inner is not None and not isinstance(inner, str):
            yield from with_inner(inner)


def expressions(value: Any, seen: set[int] | None = None) -> Iterator[str]:
    """Yield all CWL expressions in an object of StreamFlow or cwl_utils, without those of the JavaScript library."""
    seen = set() if seen is None else seen
    if isinstance(value, str):
        if "$(" in value or "${" in value:
            yield value
        return
    if id(value) in seen or isinstance(value, Workflow | Step):
        return
    seen.add(id(value))
    if isinstance(value, Mapping):
        parts: list[Any] = list(value.values())
    elif isinstance(value, MutableSequence | tuple):
        parts = list(value)
    elif isinstance(value, SecondaryFile):
        parts = [value.pattern, value.required]
    elif callable(save := getattr(value, "save", None)) and hasattr(value, "loadingOptions"):
        parts = [save()]
    elif hasattr(value, "__dict__"):
        parts = [part for key, part in vars(value).items() if key not in _NO_EXPRESSIONS]
    else:
        parts = []
    for part in parts:
        yield from expressions(part, seen)


def input_expressions(transformer: TokenProcessor | None) -> tuple[str, ...]:
    """The expressions for the format and the secondary files of an input with this processor."""
    processors = (each for each in with_inner(transformer) if isinstance(each, CWLTokenProcessor))
    return tuple(
        text
        for each in processors
        for text in with_library(expressions([each.file_format, each.secondary_files]), each)
    )


def whole_file_use(expression: str, name: str, known: Container[str] = SAFE_FIELDS) -> str | None:
    """The part of an expression that needs more of an input than the known fields; None: no such part."""
    return _use_beyond(known, expression, name)


def whole_self_use(expression: str, known: Container[str] = SAFE_FIELDS) -> bool:
    """Whether an expression needs more of its own input than the known fields."""
    return _self_use_beyond(known, expression)


def record_names(transformer: TokenProcessor | None) -> frozenset[str]:
    """The names of the fields of a record input; empty for any other input."""
    records = (each for each in with_inner(transformer) if isinstance(each, ObjectTokenProcessor))
    return frozenset(name for record in records for name in record.processors)


def without_fields(value: str, expression: str, fields: Iterable[str]) -> str:
    """An expression in which each field of a record is replaced by the record.

    :param value: the record, as `self` or `inputs.NAME`
    """
    names = "|".join(map(re.escape, fields))
    if not names:
        return expression
    root, _, name = value.partition(".")
    record = rf"\b{root}\b" + (
        rf"\s*(?:\.\s*{re.escape(name)}\b|\[\s*['\"]{re.escape(name)}['\"]\s*\])" if name else ""
    )
    field = rf"\s*(?:\.\s*(?:{names})\b|\[\s*['\"](?:{names})['\"]\s*\])"
    return re.sub(record + field, value, expression)


def is_word_of(value: str, expression: str, fields: Iterable[str]) -> bool:
    """Whether an expression is only a reference to an input, or to a field of it: in a command line this is a path.

    :param value: the input, as for :func:`without_fields`
    """
    plain = without_fields(value, expression, fields)
    is_field = plain != expression or not [*fields]
    return is_field and re.fullmatch(rf"\s*\$\(\s*{re.escape(value)}\s*\)\s*", plain) is not None


def words_of(command: CWLCommand) -> dict[int, str]:
    """The expressions that are words of a command line, by the identity of their bindings."""
    bindings = (binding for processor in command.processors for binding in with_inner(processor))
    return {
        id(binding): binding.expression
        for binding in bindings
        if isinstance(binding, CWLCommandTokenProcessor)
        and isinstance(binding.expression, str)
        and not is_expression(binding.position)
    }


def own_expressions(command: CWLCommand, name: str) -> list[str]:
    """The expressions that put an input, or a field of it, into the command line, at some position."""
    own = (processor for processor in command.processors if getattr(processor, "name", None) == name)
    bindings = [binding for processor in own for binding in with_inner(processor)]
    inner = (getattr(binding, field, None) for binding in bindings for field in ("expression", "position"))
    return [expression for expression in inner if isinstance(expression, str)]


def uses_only_name(transformer: ValueFromTransformer, port: str) -> bool:
    """Whether a `valueFrom` needs only name and format of an input: then its value is the same for the final file.

    The path of the file does not count as its name: it differs between attempts.

    :param port: the port of the transformer at which the input arrives
    """
    is_self = transformer.port_name == port
    texts = with_library([transformer.value_from], transformer)
    return not any(
        _use_beyond(_NAME_FIELDS, text, port) or (is_self and _self_use_beyond(_NAME_FIELDS, text)) for text in texts
    ) and not (is_self and processor_obstacle(transformer.processor, port))


def taken_field(reader: Step, port: str) -> str | None:
    """The field of a record that a `valueFrom` takes; None: the `valueFrom` does something else, or more.

    :param port: the port of the reader at which the record arrives
    """
    if type(reader) is not ValueFromTransformer or (found := _TAKES.fullmatch(reader.value_from)) is None:
        return None
    if list(reader.input_ports) != [port]:
        return None
    record, field = found[1], found[2] or found[3]
    return field if (record == "self" and reader.port_name == port) or record == f"inputs.{port}" else None


def looks_at_file(texts: Iterable[str], own: Iterable[str], name: str) -> bool:
    """Whether expressions may look at more of an input than its path.

    :param own: the expressions in the input's own binding, where the input is `self`
    """
    path = re.compile(rf"\$\(\s*(?:inputs\s*\.\s*{re.escape(name)}|self)\s*\.\s*path\s*\)")
    known = {"class"}
    return any(_use_beyond(known, path.sub("", text), name) for text in texts) or any(
        _self_use_beyond(known, path.sub("", text)) for text in own
    )


def with_library(texts: Iterable[str], user: LibraryUser) -> tuple[str, ...]:
    """Expressions, with the JavaScript library if they may call a function."""
    texts = tuple(texts)
    return (*texts, *called_library(texts, user))


def called_library(texts: Iterable[str], user: LibraryUser) -> tuple[str, ...]:
    """The JavaScript library if expressions may call a function, which can use other inputs.

    A plain reference to a parameter calls no function.
    """
    calls = user.full_js and any(_EXPRESSION.search(_REFERENCE.sub("", text)) for text in texts)
    return tuple(user.expression_lib or ()) if calls else ()


def _use_beyond(fields: Container[str], expression: str, name: str) -> str | None:
    for match in _USES.finditer(expression):
        used = match[1] or match[2]
        if used is None or (used == name and _is_beyond(fields, match[3] or match[4], match[5], match[6])):
            return match[0].strip()
    return None


def _self_use_beyond(fields: Container[str], expression: str) -> bool:
    return any(_is_beyond(fields, match[1] or match[2], match[3], match[4]) for match in _SELF.finditer(expression))


def _is_beyond(fields: Container[str], field: str | None, of_field: str | None, is_there: str | None) -> bool:
    return is_there is None if field is None else field not in fields or of_field is not None
