"""Reads the steps and hints of a CWL document that cwl_utils has parsed, and of the files that `run` names."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus, urldefrag, urlparse

import cwl_utils.parser
import requests
from msgspec import Struct, field
from schema_salad.exceptions import ValidationException
from schema_salad.fetcher import DefaultFetcher
from schema_salad.utils import CacheType

from streamflow_io.files import file_of
from streamflow_io.nested import parts

from .errors import HintError, HintErrors, Level, Loc, Located, Source
from .inheritance import HintedStep, Parameter, Scope
from .models import HINT_CLASSES, Hint
from .parsing import looks_ours, parse_hint
from .yaml_files import line_in, plain, source_of
from .yaml_text import TooMuchError, check, parse

# cwl_utils has a class per CWL version and no common base, so its objects are read by attribute.
CWLObject = Any
_JAVASCRIPT = "InlineJavascriptRequirement"
_VALUE_FROM = "StepInputExpressionRequirement"
_DESCRIPTIONS = {"hints", "label", "doc", "$namespaces", "$schemas"}
_PLACE = "under `hints` of a tool, a step or a workflow"
_FILES = {"File": "File", "stdin": "File", "stdout": "File", "stderr": "File", "Directory": "Directory"}


class Walk(Struct):
    """The steps, tools and workflows of a document.

    :ivar uri: of the document; empty if it is no file
    :ivar steps: the tools, by step path
    :ivar workflows: the workflows as cwl_utils parsed them, by step path, `/` for the outermost
    :ivar tools: the tools as cwl_utils parsed them, by step path
    :ivar errors: the hints that could not be read
    :ivar expressive: the tools and steps that may use JavaScript, with their step paths
    """

    uri: str
    steps: list[HintedStep] = field(default_factory=list)
    workflows: dict[str, CWLObject] = field(default_factory=dict)
    tools: dict[str, CWLObject] = field(default_factory=dict)
    errors: list[HintError] = field(default_factory=list)
    expressive: list[tuple[str, CWLObject]] = field(default_factory=list)


class Fetcher(DefaultFetcher):
    """Fetches files that `run` names, within bounds. Asks no server whether names of classes and formats exist."""

    def __init__(self, cache: CacheType, session: requests.Session | None) -> None:
        super().__init__(cache, session)
        # cwl_utils asks for the same file again for each input of each step.
        self._checked: dict[str, str] = {}

    def fetch_text(self, url: str, content_types: list[str] | None = None) -> str:
        """Fetch a text, and check its size and depth.

        :raises TooMuchError: if the text is YAML that cannot be read in reasonable time
        """
        text = str(super().fetch_text(url, content_types))
        if self._checked.get(url) == text:
            return text
        try:
            check(text)
        except TooMuchError as error:
            raise TooMuchError(str(error), error.line, file_of(url)) from None
        self._checked[url] = text
        return text

    def check_exists(self, url: str) -> bool:
        return url.startswith(("http:", "https:")) or bool(super().check_exists(url))


class UnreadableError(ValidationException):
    """A document on which other programs would fail, or never end. The message is complete."""


def load(path: str) -> CWLObject:
    """Load a CWL document as `cwl_utils.parser.load_document_by_uri` does, without needless requests.

    :param path: the path of a file, perhaps with `#name` of a process in it
    :raises schema_salad.exceptions.ValidationException: if the document is no valid CWL
    :raises TooMuchError: if the document is YAML that cannot be read in reasonable time
    :raises UnreadableError: if the document is no mapping, or if it, or its name, is not UTF-8
    :raises HintErrors: if hints of StreamFlow-IO stand elsewhere than under `hints`
    :raises OSError: if the document cannot be read
    """
    file, fragment = urldefrag(path)
    try:
        file.encode()
    except UnicodeEncodeError:
        raise UnreadableError(f"{file}: its name is not UTF-8, as CWL asks") from None
    try:
        text = Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(f"{file}: it is not UTF-8: {error.reason} at byte {error.start}") from None
    try:
        document = parse(text)
    except TooMuchError as error:
        raise TooMuchError(str(error), error.line, file) from None
    if not isinstance(document, Mapping):
        raise UnreadableError(f"{file}: this is no CWL document; allowed: fields, as `cwlVersion: v1.2`")
    _check_positions(document, file)
    version = cwl_utils.parser.cwl_version(document)
    parsers = {"v1.0": cwl_utils.parser.cwl_v1_0, "v1.1": cwl_utils.parser.cwl_v1_1}
    parser = parsers.get(version or "", cwl_utils.parser.cwl_v1_2)
    uri = Path(file).resolve().as_uri()
    options = parser.LoadingOptions(fetcher=Fetcher({}, requests.Session()), fileuri=uri, baseuri=uri)
    return cwl_utils.parser.load_document_by_yaml(document, uri, options, fragment or None)


def read_steps(document: CWLObject) -> Walk:
    """Walk a process and all that it runs.

    Step paths are those of StreamFlow: the names of the steps on the way, `/` for the process itself.

    :param document: a Workflow, CommandLineTool or ExpressionTool of `cwl_utils.parser`; it is not changed
    :raises schema_salad.exceptions.ValidationException: if a file named by `run` is no valid CWL
    :raises UnreadableError: if a workflow runs itself
    :raises HintErrors: if a file named by `run` has hints of StreamFlow-IO elsewhere than under `hints`
    :raises OSError: if a file named by `run` cannot be read
    """
    position = _Position(document)
    walker = _Walker(position.uri)
    walker.process(document, "/", (), position, ahead=(document.id,))
    return walker.found


class _Position:
    """The position of a process: its document, and the keys that lead to it."""

    def __init__(self, root: CWLObject, way: tuple[str, ...] = ()) -> None:
        self.root = root
        self.way = way
        self.uri: str = root.loadingOptions.fileuri or ""
        self.file = file_of(self.uri)

    def below(self, *way: str) -> _Position:
        return _Position(self.root, self.way + way)


class _Walker:
    def __init__(self, uri: str) -> None:
        self.found = Walk(uri)
        self.documents: dict[str, list[CWLObject]] = {}
        self.yaml: dict[str, object] = {}

    def process(
        self,
        process: CWLObject,
        path: str,
        scopes: tuple[Scope, ...],
        position: _Position,
        features: frozenset[str] = frozenset(),
        ahead: tuple[str, ...] = (),
    ) -> None:
        """Add a process and all that it runs to the findings.

        :param features: the classes of the requirements and hints that hold around the process
        :param ahead: the files and processes that contain the process
        """
        features |= _classes(process)
        if not hasattr(process, "steps"):
            if _JAVASCRIPT in features:
                self.found.expressive.append((path, process))
            scopes += self.scope(process, path, Level.TOOL, position)
            inputs = {p.name: p for p in self.parameters(process, "inputs", position)}
            outputs = {p.name: p for p in self.parameters(process, "outputs", position)}
            self.found.steps.append(HintedStep(path, scopes, inputs, outputs))
            self.found.tools[path] = process
            return
        self.found.workflows[path] = process
        scopes += self.scope(process, path, Level.WORKFLOW, position)
        for step in process.steps:
            name = name_of(step)
            available = features | _classes(step)
            step_path = f"{path.rstrip('/')}/{name}"
            inherited = scopes + self.scope(step, step_path, Level.STEP, position.below("steps", name))
            if _JAVASCRIPT in available:
                self.found.expressive.append((step_path, step))
            self.check_value_from(step, available, position.below("steps", name))
            if isinstance(step.run, str):
                run = self.load(step)
                if run.id in ahead:
                    raise UnreadableError(f"{position.file}: step {step_path} runs {run.id}, which it is a part of")
                self.process(run, step_path, inherited, _Position(run), available, (*ahead, run.id))
            else:
                self.process(step.run, step_path, inherited, position.below("steps", name, "run"), available, ahead)

    def check_value_from(self, step: CWLObject, features: frozenset[str], position: _Position) -> None:
        if _VALUE_FROM in features:
            return
        for target in step.in_:
            if target.valueFrom:
                name = name_of(target)
                line = self.source(position.below("in", name)).line()
                field = f"steps.{name_of(step)}.in.{name}.valueFrom"
                allowed = f"`requirements: {{{_VALUE_FROM}: {{}}}}` in the workflow"
                self.found.errors.append(HintError(position.file, line, field, f"needs {_VALUE_FROM}", allowed))

    def load(self, step: CWLObject) -> CWLObject:
        options = step.loadingOptions
        uri, fragment = urldefrag(options.fetcher.urljoin(options.fileuri, step.run))
        if uri not in self.documents:
            real = _real(uri)
            document = parse(options.fetcher.fetch_text(real))
            if uri.startswith("file:"):
                _check_positions(document, file_of(uri))
            # The options of the outer document are not used: a file has the namespaces that it declares itself.
            own = {"fetcher": options.fetcher, "fileuri": real, "baseuri": os.path.dirname(real)}
            self.documents[uri] = [
                cwl_utils.parser.load_document_by_yaml(process, real, type(options)(**own))
                for process in _processes(document)
            ]
        processes = self.documents[uri]
        wanted = f"{uri}#{fragment or 'main'}"
        return next((process for process in processes if process.id == wanted), processes[0])

    def scope(self, element: CWLObject, path: str, level: Level, position: _Position) -> tuple[Scope, ...]:
        hints: list[Located[Hint]] = []
        for raw in element.hints or ():
            if not isinstance(raw, Mapping | str):
                continue
            source = source_of(raw, position.file)
            if source.line() is None:
                name = raw if isinstance(raw, str) else str(raw.get("class"))
                source = self.source(position.below("hints", name))
            hint, errors = parse_hint(_clean(raw), self.namespaces(element, position), level, source)
            self.found.errors += errors
            if hint is not None:
                hints.append(hint)
        return (Scope(path, level, tuple(hints)),) if hints else ()

    def namespaces(self, element: CWLObject, position: _Position) -> Mapping[str, str]:
        declared: Mapping[str, str] = element.loadingOptions.namespaces or {}
        if declared:
            return declared
        # cwl_utils loses the namespaces of a file with $graph when it loads one process of it.
        document = self.document(position)
        found = document.get("$namespaces") if isinstance(document, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def document(self, position: _Position) -> object:
        """Return the YAML document of a process, with the parts that cwl_utils does not keep."""
        if position.uri not in self.yaml:
            fetch = position.root.loadingOptions.fetcher.fetch_text
            self.yaml[position.uri] = parse(fetch(position.uri)) if position.uri else None
        return self.yaml[position.uri]

    def source(self, position: _Position) -> Source:
        """Return the source of an element whose line cwl_utils does not keep."""

        def find() -> dict[Loc, int]:
            # The document is parsed only when the line is needed: parsing takes longer than all else here.
            line = line_in(self.document(position), urldefrag(position.root.id)[1], position.way)
            return {} if line is None else {(): line}

        return Source(position.file, find)

    def parameters(self, process: CWLObject, field: str, position: _Position) -> Iterator[Parameter]:
        for parameter in getattr(process, field):
            name = name_of(parameter)
            streamable = None
            if parameter.streamable:
                source = self.source(position.below(field, name))
                streamable = Located(name, Level.TOOL, f"{field}.{name}.streamable", source)
            types = frozenset(_types(parameter.type_))
            source = self.source(position.below(field, name))
            fields = {
                file: Located(f"{name}.{file}", Level.TOOL, f"{field}.{name}.type.fields.{file}.streamable", source)
                if is_streamable
                else None
                for file, is_streamable in _files_of_record(parameter.type_).items()
            }
            yield Parameter(name, types, streamable, tuple(_globs(process, parameter)), fields)


def _processes(document: Any) -> Iterator[object]:
    """Yield each process of a document as a document of its own. With `$graph`, the processes are changed.

    cwl_utils refuses a `$graph` whose processes have namespaces of their own, as `cwltool --pack` writes them.
    """
    graph = document.get("$graph") if isinstance(document, Mapping) else None
    if not isinstance(graph, list) or not all(isinstance(process, MutableMapping) for process in graph):
        yield document
        return
    for process in graph:
        process["cwlVersion"] = document.get("cwlVersion")
        process["$namespaces"] = {**document.get("$namespaces", {}), **process.get("$namespaces", {})}
        yield process


def _classes(element: CWLObject) -> frozenset[str]:
    """Return the classes of the requirements and hints of a process or step that cwl_utils knows."""
    return frozenset(
        str(one.class_) for one in (*(element.requirements or ()), *(element.hints or ())) if hasattr(one, "class_")
    )


def _check_positions(document: object, file: str) -> None:
    """Check that all hints of StreamFlow-IO stand under `hints`. CWL ignores hints elsewhere, or reports another error.

    :raises HintErrors: if some stand elsewhere
    """
    errors: list[HintError] = []
    hints: set[int] = set()
    for node in parts(document):
        if not isinstance(node, Mapping):
            continue
        written = node.get("hints")
        hints |= {id(written), *map(id, written if isinstance(written, list) else ())}
        requirements = node.get("requirements")
        named: list[tuple[str, int | None]] = []
        if isinstance(requirements, list):
            entries = [entry for entry in requirements if isinstance(entry, Mapping)]
            named += [(str(entry.get("class")), source_of(entry, file).line("class")) for entry in entries]
        elif isinstance(requirements, Mapping):
            hints.add(id(requirements))
            named += [(str(key), source_of(requirements, file).line(key)) for key in requirements]
        errors += [
            HintError(file, line, "requirements", f"{name!r} is a hint, and no requirement", f"{name} under `hints`")
            for name, line in named
            if looks_ours(name)
        ]
        if id(node) not in hints:
            errors += [
                HintError(file, source_of(node, file).line(key), str(key), "it does nothing here", _PLACE)
                for key in node
                if looks_ours(str(key)) and key not in HINT_CLASSES
            ]
    if errors:
        raise HintErrors(errors)


def tool_digest(tool: CWLObject) -> str:
    """Return the SHA-256 of a tool's behaviour. The place of its file, its hints and its descriptions do not count."""
    saved = tool.save(top=False)
    content = json.dumps(_content({key: value for key, value in saved.items() if key != "id"}), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def _content(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _content(item) for key, item in value.items() if key not in _DESCRIPTIONS}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_content(item) for item in value]
    if isinstance(value, str) and value.startswith("file:"):
        return value.rsplit("#", 1)[-1].rsplit("/", 1)[-1]
    if isinstance(value, str) and value.startswith("_:"):
        return "_:"  # cwl_utils makes up such a name, for instance for the type of a list.
    return value


def name_of(element: CWLObject) -> str:
    """Return the name of a step or parameter, which is the last part of its id."""
    return str(element.id).split("#")[-1].split("/")[-1]


def _real(uri: str) -> str:
    """Return the URI that `cwl_utils.parser.load_document_by_uri` loads: without links, and with `+` as a space."""
    parsed = urlparse(uri)
    return uri if parsed.scheme != "file" else Path(unquote_plus(parsed.path)).resolve().as_uri()


def _clean(raw: Mapping[str, object] | str) -> object:
    """Return a hint without additions: cwl_utils adds to `sfio:IOTask:` with no value, packing to an `$import`."""
    hint = plain(raw)
    if isinstance(hint, dict):
        for key in ("None", "id"):
            if key == "id" or hint.get(key, "") is None:
                hint.pop(key, None)
    return hint


def _types(type_: CWLObject) -> Iterator[str]:
    if isinstance(type_, Sequence) and not isinstance(type_, str):
        for member in type_:
            yield from _types(member)
    elif isinstance(type_, str):
        if type_ != "null":
            yield _FILES.get(type_, "Any" if type_ == "Any" or "#" in type_ else "other")
    elif hasattr(type_, "items"):
        for item in _types(type_.items):
            yield {"File": "File[]", "Directory": "Directory[]", "Any": "Any"}.get(item, "other")
    else:
        yield "record" if _files_of_record(type_) else "other"


def _members(type_: CWLObject) -> list[CWLObject]:
    """Return the types of a union, or a list of the single type."""
    return list(type_) if isinstance(type_, Sequence) and not isinstance(type_, str) else [type_]


def _files_of_record(type_: CWLObject) -> dict[str, bool]:
    """Return the file fields of a record, and whether each is streamable. Empty: the type is no record of files."""
    records = [each for each in _members(type_) if each != "null"]
    if len(records) != 1 or not hasattr(records[0], "fields"):
        return {}
    files = (each for each in records[0].fields or () if "File" in _types(each.type_))
    # Fields have no `streamable` in CWL v1.0.
    return {
        str(each.name).rpartition("/")[2].rpartition("#")[2]: bool(getattr(each, "streamable", False)) for each in files
    }


def _globs(process: CWLObject, parameter: CWLObject) -> Iterator[str]:
    if parameter.type_ in ("stdout", "stderr"):
        globs = [getattr(process, parameter.type_)]
    else:
        fields = [field for type_ in _members(parameter.type_) for field in getattr(type_, "fields", None) or ()]
        found = [getattr(getattr(each, "outputBinding", None), "glob", None) for each in (parameter, *fields)]
        globs = [glob for each in found for glob in ([each] if isinstance(each, str) else each or ())]
    return (glob for glob in globs if isinstance(glob, str) and "$" not in glob)
