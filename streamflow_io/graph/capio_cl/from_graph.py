"""Makes a coordination configuration from the I/O graph: the future files, and their rules.

A rule is written as it is served. If an edge fell back, its file is committed at termination, or read once committed.
CAPIO has files and directories, but no lists. So a rule for a Directory or a File[] becomes rules for the directory and
rules for the files in it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache

from msgspec.structs import replace

from streamflow_io.graph.io_graph import Delivery, Output, OutputKind, Route, StreamEdge
from streamflow_io.grouping import grouped
from streamflow_io.hints.commit import ON_CLOSE, ON_TERMINATION, CommitRule
from streamflow_io.hints.globs import is_pattern, matches, overlap
from streamflow_io.hints.inheritance import within
from streamflow_io.hints.models import FiringRule, StreamingRule

from .configuration import Configuration, CoordinatedFile, KnownJobs, application_name, applications, instance, reached


def configure(
    name: str,
    steps: Iterable[str],
    outputs: Iterable[Output],
    routes: Iterable[Route],
    edges: Iterable[StreamEdge],
    jobs: KnownJobs,
) -> Configuration:
    """Write an I/O graph as a coordination configuration.

    :param name: of the workflow
    :param steps: paths, in the order of the workflow
    :param outputs: all of them
    :param routes: all of them
    :param edges: the edges that :func:`plan_edges` has made of the routes
    :return: the files of all outputs that reach an input or a workflow output, or that another output waits for. A
        known instance has paths `STEP-TAG/...`, any other job has `STEP-*/...`. A path that several outputs have
        follows the latest of their rules.
    """
    steps = tuple(steps)
    found = _Expansion(steps, tuple(outputs), tuple(routes), {edge.route: edge for edge in edges}, jobs)
    names = tuple(app for step in steps for app in applications(step, jobs))
    order = {application: index for index, application in enumerate(names)}
    files = (
        replace(
            found.files[path],
            producers=tuple(sorted(found.files[path].producers, key=order.__getitem__)),
            consumers=tuple(sorted(found.files[path].consumers, key=order.__getitem__)),
        )
        for path in sorted(found.files)
    )
    return Configuration(name, names, tuple(files))


class _Expansion:
    def __init__(
        self,
        steps: tuple[str, ...],
        outputs: tuple[Output, ...],
        routes: tuple[Route, ...],
        edges: Mapping[Route, StreamEdge],
        jobs: KnownJobs,
    ) -> None:
        self.files: dict[str, CoordinatedFile] = {}
        self._steps = steps
        self._outputs = {(output.step, output.port): output for output in outputs}
        self._routes = grouped(routes, lambda route: route.output)
        self._edges = edges
        self._jobs = jobs
        awaited = {(output.step, dep) for output in outputs for rule in output.rules for dep in rule.file_deps}
        for output in outputs:
            named = any(_waits_for(dep, output) for step, dep in awaited if step == output.step)
            reached = output in self._routes or (output.step, output.port) in awaited or named
            if reached and output.kind is not OutputKind.OTHER:
                self._add_output(output)

    def _add_output(self, output: Output) -> None:
        rules = self._served(output)
        tags = self._jobs.instances(output.step)
        for tag in [None] if tags is None else tags:
            app = application_name(output.step) if tag is None else instance(output.step, tag)
            directory = f"{app}-*" if tag is None else app
            consumers = dict.fromkeys(name for route in self._routes[output] for name in self._consumers(route, tag))
            for file in self._files(output, rules, tag, directory):
                self._add(replace(file, producers=(app,), consumers=tuple(consumers)))

    def _served(self, output: Output) -> tuple[StreamingRule, ...]:
        """The rules of an output in the way in which all of its consumers get it."""
        edges = [self._edges.get(route) for route in self._routes[output] if route.consumer is not None]
        rules = output.rules or tuple({edge.rule: None for edge in edges if edge is not None})
        if any(edge is None or edge.delivery is Delivery.TERMINATION for edge in edges):
            return tuple(_relaxed(rule, committed=ON_TERMINATION, file_deps=(), n_files=None) for rule in rules)
        if any(edge is not None and edge.delivery is Delivery.COMMIT for edge in edges):
            return tuple(_relaxed(rule) for rule in rules)
        return rules

    def _files(
        self, output: Output, rules: Sequence[StreamingRule], tag: str | None, directory: str
    ) -> Iterator[CoordinatedFile]:
        whole = next((rule for rule in rules if not rule.files), _no_rule())
        for path in self._globs(output, tag):
            if output.kind is OutputKind.DIRECTORY:
                yield self._file(output, whole, tag, directory, path, _of_directory(whole), is_directory=True)
                yield self._file(output, whole, tag, directory, posixpath.join(path, "*"), _of_file(output, whole))
            else:
                own = (None if is_pattern(path) else _named(rules, path)) or whole
                yield self._file(output, own, tag, directory, path, _of_file(output, own))
                if whole.n_files is not None:
                    parent = posixpath.dirname(path)
                    yield self._file(output, whole, tag, directory, parent, _of_directory(whole), is_directory=True)
            for rule in rules:
                for entry in rule.files:
                    if (below := _below(output, path, entry)) is not None:
                        yield self._file(output, rule, tag, directory, below, _of_file(output, rule))

    def _file(
        self,
        output: Output,
        rule: StreamingRule,
        tag: str | None,
        directory: str,
        path: str,
        served: tuple[CommitRule, FiringRule],
        is_directory: bool = False,
    ) -> CoordinatedFile:
        committed, mode = served
        whole = next((rule.permanent for rule in output.rules if not rule.files), None)
        is_result = any(_leaves(route) for route in self._routes[output])
        permanent = next((said for said in (rule.permanent, whole) if said is not None), is_result)
        on_file, on_n_files = committed.kind == "on_file", committed.kind == "on_n_files"
        return CoordinatedFile(
            path=_join(directory, path),
            is_directory=is_directory,
            committed=committed,
            mode=mode,
            file_deps=tuple(self._deps(output, rule.file_deps, tag, directory)) if on_file else (),
            n_files=rule.n_files if on_n_files else None,
            permanent=permanent,
            home_node=None if rule.home_node is None else application_name(rule.home_node),
        )

    def _consumers(self, route: Route, tag: str | None) -> Iterator[str]:
        """Yield the applications that a file reaches; if it enters a loop, or goes round in one, all its steps.

        :param tag: of the job that wrote the file; None: any job of the step
        """
        if route.consumer is None:
            return
        if (step := route.consumer.step) in self._steps:
            yield from reached(route, step, tag, self._jobs)
            return
        last = route.hops[-1].step
        loop = last.removesuffix("-loop-combinator")
        loop = posixpath.dirname(last) if loop == last else loop
        for inner in self._steps if loop != "/" and not _leaves(route) else ():
            if within(inner, loop):
                yield from applications(inner, self._jobs)

    def _globs(self, output: Output, tag: str | None) -> tuple[str, ...]:
        globs = None if tag is None else self._jobs.globs.get((output.step, output.port, tag))
        return tuple(dict.fromkeys(output.globs if globs is None else globs))

    def _deps(self, output: Output, deps: Iterable[str], tag: str | None, directory: str) -> Iterator[str]:
        """Yield the paths of `fileDeps`: outputs of the step, or globs in the job's output directory.

        CAPIO does not look for names that a glob matches. So a glob that can only match outputs with known names is
        replaced by these names.
        """
        for dep in deps:
            if (awaited := self._outputs.get((output.step, dep))) is not None:
                yield from (_join(directory, path) for path in self._globs(awaited, tag))
            elif output.kind is OutputKind.DIRECTORY and "/" not in dep:
                yield from (_join(directory, posixpath.join(path, dep)) for path in self._globs(output, tag))
            else:
                yield from (_join(directory, path) for path in self._matched(output.step, dep, tag))

    def _matched(self, step: str, dep: str, tag: str | None) -> tuple[str, ...]:
        """The names of outputs that a glob matches; the glob itself if it may match other names, or matches none."""
        matched = [one for one in self._outputs.values() if one.step == step and _waits_for(dep, one)]
        names = dict.fromkeys(path for one in matched for path in self._globs(one, tag) if overlap(dep, path))
        certain = all(one.kind is OutputKind.FILE for one in matched) and not any(map(is_pattern, names))
        return tuple(names) if names and certain else (dep,)

    def _add(self, file: CoordinatedFile) -> None:
        before = self.files.get(file.path)
        self.files[file.path] = file if before is None else _merged(before, file)


def _relaxed(rule: StreamingRule, **changes: object) -> StreamingRule:
    """The rule, with bytes that may be read once committed."""
    return rule.model_copy(update={"mode": "update", **changes})


def _of_file(output: Output, rule: StreamingRule) -> tuple[CommitRule, FiringRule]:
    """The rule of a file. If a rule counts files, each of them is committed by its close.

    For a Directory `no_update` is about the listing: no file in it is read before its commit.
    """
    committed = ON_CLOSE if rule.committed.kind == "on_n_files" else rule.committed
    return committed, "update" if output.kind is OutputKind.DIRECTORY else rule.mode


def _of_directory(rule: StreamingRule) -> tuple[CommitRule, FiringRule]:
    """The rule of a Directory itself. It is complete at the end if its files are committed by their first close."""
    return ON_TERMINATION if rule.committed == ON_CLOSE else rule.committed, rule.mode


def _named(rules: Iterable[StreamingRule], path: str) -> StreamingRule | None:
    return next((rule for rule in rules if any(matches(glob, path) for glob in rule.files)), None)


def _waits_for(dep: str, output: Output) -> bool:
    """Whether a glob of `fileDeps` can match files of an output."""
    return is_pattern(dep) and any(overlap(dep, glob) for glob in output.globs)


def _below(output: Output, path: str, entry: str) -> str | None:
    """The path of the entries that a rule names, relative to the job's output directory; None: elsewhere."""
    if output.kind is OutputKind.DIRECTORY:
        return posixpath.join(path, entry)
    if not is_pattern(path) or not overlap(entry, path):
        return None
    return entry if "/" in entry else posixpath.join(posixpath.dirname(path), entry)


def _join(directory: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(directory, path))


def _leaves(route: Route) -> bool:
    """Whether a file is a result of the workflow, or of a loop, and then perhaps of the workflow."""
    return route.consumer is None or (bool(route.hops) and route.hops[-1].step.endswith("-loop-output"))


def _merged(one: CoordinatedFile, other: CoordinatedFile) -> CoordinatedFile:
    """The rule for a path that two outputs have: it is complete, and may be read, when both rules allow it."""
    producers = tuple(dict.fromkeys((*one.producers, *other.producers)))
    consumers = tuple(dict.fromkeys((*one.consumers, *other.consumers)))
    late = max(one, other, key=lambda file: _lateness(file.committed))
    differ = _lateness(one.committed) != _lateness(other.committed) or set(one.file_deps) != set(other.file_deps)
    settled = late.committed if not differ or late.committed.kind == "on_close" else ON_TERMINATION
    return replace(
        late,
        is_directory=one.is_directory or other.is_directory,
        producers=producers,
        consumers=consumers,
        committed=settled,
        mode="no_update" if one.mode == other.mode == "no_update" else "update",
        file_deps=late.file_deps if settled.kind == "on_file" else (),
        n_files=late.n_files if settled.kind == "on_n_files" else None,
        permanent=one.permanent or other.permanent,
    )


def _lateness(rule: CommitRule) -> tuple[int, int]:
    return (["on_close", "on_n_files", "on_file", "on_termination"].index(rule.kind), rule.closes)


@cache
def _no_rule() -> StreamingRule:
    """The rule where no hint gives one; the name of the output does not matter."""
    # Made when needed: the first rule costs the build of its model.
    return StreamingRule(port="output")
