"""Reads YAML files, with the lines of everything in them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote_to_bytes

from msgspec.structs import replace
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from streamflow_io.wording import size_text

from .config import SchedulerConfig
from .errors import HintError, HintErrors, Level, Loc, Located, Source, field_name
from .inheritance import Annotations, Scope
from .models import NAMESPACE, PREFIX, AnnotationsFile, Hint
from .parsing import CLASSES, parse_hint, parse_model
from .yaml_text import parse

SCHEDULER_TYPE = "sfio.io-aware"
_CONFIG = "scheduling.scheduler.config"
_CONFIG_FIELDS = ", ".join(field.alias or name for name, field in SchedulerConfig.model_fields.items())


def plain(node: object) -> object:
    """Return a parsed document as plain dicts and lists."""
    if isinstance(node, Mapping):
        return {str(key): plain(value) for key, value in node.items()}
    if isinstance(node, Sequence) and not isinstance(node, str):
        return [plain(value) for value in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def source_of(node: object, file: str) -> Source:
    """Return the lines of everything in a parsed piece of a document.

    :param file: the file of the piece. An imported piece (`$import`) has a file of its own
    """
    imported = getattr(getattr(node, "lc", None), "filename", None)
    lines: dict[Loc, int] = {}
    _collect(node, (), lines)
    return Source(_path_of(imported) if isinstance(imported, str) else file, lambda: lines)


def _path_of(filename: str) -> str:
    """The path of a file as schema-salad names a file: by the path of its URI, from the working directory."""
    return filename if "://" in filename else os.fsdecode(unquote_to_bytes(os.path.abspath(filename)))


def _collect(node: object, loc: Loc, lines: dict[Loc, int]) -> None:
    if not isinstance(node, CommentedMap | CommentedSeq):
        return
    keys = list(node) if isinstance(node, CommentedMap) else list(range(len(node)))
    positions = node.lc.data or {}
    if not loc:
        first = min((position[0] for position in positions.values()), default=node.lc.line)
        if first is not None:
            lines[()] = min(first, node.lc.line) + 1 if node.lc.line is not None else first + 1
    for key in keys:
        way = (*loc, key)
        if key in positions:
            lines[way] = positions[key][0] + 1
        _collect(node[key], way, lines)


def line_in(document: object, fragment: str, way: Sequence[str]) -> int | None:
    """Return the line of an element of a CWL document, following names through lists and mappings alike.

    :param fragment: the id of the process in a document with `$graph`
    :param way: fields and names by turns, as in `("steps", "align", "run", "inputs", "reads")`
    :return: None: the document has no such element
    """
    node, line = document, None
    if isinstance(document, Mapping) and "$graph" in document:
        node = _named(document["$graph"], fragment)[0]
    for key in way:
        node, line = _named(node, key)
        if node is None:
            return None
    return line


def _last(id_: object) -> str:
    return str(id_ or "").split("#")[-1].split("/")[-1]


def _named(node: object, name: str) -> tuple[object, int | None]:
    if isinstance(node, CommentedMap) and name in node:
        position = (node.lc.data or {}).get(name)
        return node[name], position[0] + 1 if position else None
    if isinstance(node, CommentedSeq):
        for item in node:
            if isinstance(item, CommentedMap) and _last(item.get("id")) == name:
                return item, item.lc.line + 1
        if name in node:
            return name, node.lc.item(node.index(name))[0] + 1
    return None, None


def read_annotations(path: str | os.PathLike[str]) -> Annotations:
    """Read an annotations file.

    :raises HintErrors: with all mistakes in it; also if it cannot be read or is no YAML
    """
    document = read_yaml(Path(path), "annotations")
    file = str(Path(path).absolute())
    source = source_of(document, file)
    raw = plain(document)
    if not isinstance(raw, dict):
        raise HintErrors.one(file, "annotations", "not a mapping", "steps, streamable, proven", line=1)
    steps = raw.get("steps")
    streamable = raw.get("streamable")
    # Steps are checked below, one by one. Whether steps and ports exist is checked where the workflow is known.
    outline = dict(raw)
    if isinstance(steps, dict):
        del outline["steps"]
    if isinstance(streamable, list) and all(isinstance(entry, str) for entry in streamable):
        del outline["streamable"]
    rest, errors = parse_model(AnnotationsFile, outline, "", source)
    scopes, paths = [], []
    for step, entries in steps.items() if isinstance(steps, dict) else ():
        field = f"steps.{step}"
        paths.append(Located(step, Level.ANNOTATIONS, field, source.below("steps", step)))
        if not isinstance(entries, list):
            errors.append(paths[-1].error("not a list", "a list of `- class: sfio:...` entries"))
            continue
        hints: list[Located[Hint]] = []
        for index, entry in enumerate(entries):
            below = source.below("steps", step, index)
            hint, mistakes = parse_hint(entry, {PREFIX: NAMESPACE}, Level.ANNOTATIONS, below)
            errors += mistakes
            if hint is not None:
                hints.append(hint)
            elif not mistakes:
                errors.append(HintError(file, below.line(), f"{field}[{index}]", "no hint", CLASSES))
        scopes.append(Scope(step, Level.ANNOTATIONS, tuple(hints)))
    if errors:
        raise HintErrors(errors)
    ports = [
        Located(entry, Level.ANNOTATIONS, f"streamable[{index}]", source.below("streamable", index))
        for index, entry in enumerate(streamable or ())
    ]
    proven = [
        Located(entry, Level.ANNOTATIONS, f"proven[{index}]", source.below("proven", index))
        for index, entry in enumerate(() if rest is None else rest.proven)
    ]
    return Annotations(tuple(paths), tuple(scopes), tuple(ports), tuple(proven))


def check_annotations_file(path: str | os.PathLike[str], streamflow_file: str | os.PathLike[str]) -> None:
    """Check that the annotations file that a StreamFlow file names can be read.

    :raises HintErrors: if the file cannot be read; names the position in the StreamFlow file
    """
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        source = scheduler_config_source(streamflow_file)
        message = f"{os.fspath(path)!r} cannot be read: {error.strerror}"
        allowed = str(SchedulerConfig.model_fields["annotations"].description)
        line = source.line("annotations")
        raise HintErrors.one(source.file, f"{_CONFIG}.annotations", message, allowed, line=line) from None


def check_annotations_names(
    config: SchedulerConfig, workflows: Collection[str], streamflow_file: str | os.PathLike[str]
) -> None:
    """Check that each workflow with an annotations file is in the StreamFlow file.

    :raises HintErrors: if one is not
    """
    each = config.annotations if isinstance(config.annotations, dict) else {}
    unknown = [name for name in each if name not in workflows]
    if unknown:
        source = scheduler_config_source(streamflow_file)
        raise HintErrors(
            HintError(
                source.file,
                source.line("annotations", name),
                f"{_CONFIG}.annotations.{name}",
                f"unknown workflow {name!r}",
                ", ".join(sorted(workflows)),
            )
            for name in unknown
        )


@contextmanager
def of_several_workflows(config: SchedulerConfig, workflows: Collection[str]) -> Iterator[None]:
    """Extend errors about unknown steps and ports, where several workflows share one annotations file.

    The added text says how to give each workflow a file of its own.

    :raises HintErrors: those that are raised within
    """
    try:
        yield
    except HintErrors as mistakes:
        if not isinstance(config.annotations, str) or len(workflows) < 2:
            raise
        each = ", ".join(f"{name}: FILE" for name in sorted(workflows))
        more = f"; or a file for each workflow: `annotations: {{{each}}}`"
        raise HintErrors(
            replace(error, allowed=error.allowed + more)
            if error.message.startswith(("unknown step", "unknown port"))
            else error
            for error in mistakes.errors
        ) from None


def read_scheduler_config(path: str | os.PathLike[str]) -> SchedulerConfig | None:
    """Read the config of the scheduler `sfio.io-aware` from a StreamFlow file.

    :return: None: the file does not choose the scheduler `sfio.io-aware`
    :raises HintErrors: with all mistakes in it; also if the file cannot be read or is no YAML
    """
    scheduler = _scheduler(read_yaml(Path(path), "StreamFlow file"))
    if scheduler is None:
        return None
    source = source_of(scheduler, str(Path(path).absolute()))
    if scheduler.get("config") is None:  # StreamFlow requires `config`, too
        allowed = f"`config: {{}}`, or with any of {_CONFIG_FIELDS}"
        raise HintErrors.one(source.file, _CONFIG, "missing", allowed, line=source.line("config"))
    return parse_scheduler_config(plain(scheduler["config"]), source.below("config"))


def scheduler_config_source(path: str | os.PathLike[str]) -> Source:
    """Return the lines of the config of the scheduler `sfio.io-aware` in a StreamFlow file.

    The file is read when a line is needed. A file that cannot be read has no lines.
    """
    file = Path(path).absolute()

    def find() -> Mapping[Loc, int]:
        try:
            scheduler = _scheduler(read_yaml(file, "StreamFlow file"))
        except HintErrors:
            return {}
        return source_of(scheduler, str(file)).below("config").lines

    return Source(str(file), find)


def parse_scheduler_config(raw: object, source: Source) -> SchedulerConfig:
    """Validate the config of the scheduler `sfio.io-aware`.

    :raises HintErrors: with all mistakes in it
    """
    if not isinstance(raw, Mapping):
        raise HintErrors.one(source.file, _CONFIG, "not a mapping", _CONFIG_FIELDS, line=source.line())
    if not raw:
        # Nothing is to be validated, and to build the validator takes 15 ms.
        return SchedulerConfig.model_construct()
    config, errors = parse_model(SchedulerConfig, raw, _CONFIG, source)
    errors += _with_null(raw, (), source)
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if config is not None and config.memory is not None and config.memory > there and not _has_others(source.file):
        message = f"{raw['memory']} is more than the memory of this node"
        errors.append(
            HintError(source.file, source.line("memory"), f"{_CONFIG}.memory", message, f"up to {size_text(there)}")
        )
    if config is None or errors:
        raise HintErrors(errors)
    return config


def _has_others(file: str | os.PathLike[str]) -> bool:
    """Whether a StreamFlow file has deployments on other nodes, which may have more memory than this one."""
    try:
        read = read_yaml(Path(file), "StreamFlow file")
    except HintErrors:
        return False
    deployments = read.get("deployments") if isinstance(read, Mapping) else None
    entries = deployments.values() if isinstance(deployments, Mapping) else ()
    return any(isinstance(entry, Mapping) and entry.get("type") != "local" for entry in entries)


def _with_null(value: object, loc: Loc, source: Source) -> list[HintError]:
    """Return a mistake for each text with a null character, which no name of a file can have."""
    if isinstance(value, str) and "\0" in value:
        message = f"{value!r} has a null character"
        return [HintError(source.file, source.line(*loc), field_name(_CONFIG, loc), message, "a text without it")]
    if isinstance(value, Mapping):
        return [error for key, inner in value.items() for error in _with_null(inner, (*loc, key), source)]
    if isinstance(value, list):
        return [error for index, inner in enumerate(value) for error in _with_null(inner, (*loc, index), source)]
    return []


def _scheduler(document: object) -> Mapping[str, object] | None:
    """Return the entry of the scheduler in a StreamFlow file, if its type is `sfio.io-aware`."""
    for key in ("scheduling", "scheduler"):
        document = document.get(key) if isinstance(document, Mapping) else None
    return document if isinstance(document, Mapping) and document.get("type") == SCHEDULER_TYPE else None


def read_yaml(path: Path, what: str, allowed: str = "a YAML file", otherwise: str = "") -> object:
    """Read a YAML or JSON file, with the lines of everything in it.

    :param what: the kind of file, for people
    :param otherwise: text before the problem, if the file is neither
    :raises HintErrors: if the file cannot be read or is neither
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise HintErrors.one(path.absolute(), what, f"cannot be read: {reason}", allowed) from None
    except YAMLError as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        problem = (isinstance(error, MarkedYAMLError) and error.problem) or str(error)
        line = mark.line + 1 if mark is not None else None
        raise HintErrors.one(path.absolute(), what, f"{otherwise}{problem}", allowed, line) from None
