"""Make hints of a coordination configuration: an annotations file for the workflow.

A path of the configuration means an output of the step that its application is
(:class:`~.matching.StepNames`): the one whose glob has the longest common end with it
(:func:`~.matching.fit`). What hints cannot say is told as :class:`Unexpressed`, never
dropped: it stays as the workflow has it, which is at termination if there is no hint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile, KnownJobs, instance
from streamflow_io.graph.io_graph import Output, OutputKind, Route
from streamflow_io.grouping import grouped
from streamflow_io.hints.annotations_text import Commented, annotations_text
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.models import AnnotationsFile, Streaming, StreamingRule
from streamflow_io.wording import first_of

from .matching import (
    Claim,
    Covered,
    FindDependency,
    Relation,
    StepNames,
    claim,
    components,
    covers,
    dependency_glob,
    fit,
    in_job,
    includes,
)
from .merging import AnnotatedRule, Unexpressed, merge

_MOST_PATHS = 3


class Annotation(Struct, frozen=True):
    """Hints made from a configuration.

    :ivar rules: by step path
    :ivar streamable: the inputs that are to be `streamable`, as `/step/port`, with the paths that they read
    :ivar unexpressed: what the configuration says and these hints do not
    """

    rules: Mapping[str, tuple[AnnotatedRule, ...]] = field(default_factory=dict)
    streamable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unexpressed: tuple[Unexpressed, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any hint."""
        return bool(self.rules or self.streamable)

    @property
    def file(self) -> AnnotationsFile:
        """The annotations file."""
        steps = {
            step: (Streaming.model_validate({"rules": tuple(each.rule for each in rules)}),)
            for step, rules in self.rules.items()
        }
        return AnnotationsFile(steps=steps, streamable=tuple(self.streamable))


def annotate(
    configuration: Configuration,
    steps: Iterable[str],
    outputs: Iterable[Output],
    routes: Iterable[Route],
    jobs: KnownJobs | None = None,
) -> Annotation:
    """Say in hints what a coordination configuration says.

    :func:`~streamflow_io.graph.capio_cl.from_graph.configure` makes the same configuration of these hints.

    A rule is written where it differs from the default, and where the workflow has another one, which it replaces.

    :param steps: the paths of all steps of the workflow
    :param jobs: what is known of the workflow's jobs
    """
    known = KnownJobs() if jobs is None else jobs
    return _Annotator(configuration, StepNames(steps), tuple(outputs), tuple(routes), known).annotation()


class _Annotator:
    def __init__(
        self,
        configuration: Configuration,
        names: StepNames,
        outputs: tuple[Output, ...],
        routes: tuple[Route, ...],
        jobs: KnownJobs,
    ) -> None:
        self.configuration = configuration
        self.names = names
        self.outputs = grouped(outputs, lambda output: output.step)
        self.results = {route.output for route in routes if route.consumer is None}
        self.readers = {
            output: [route.consumer for route in same if route.consumer is not None]
            for output, same in grouped(routes, lambda route: route.output).items()
        }
        self.jobs = jobs
        self.unexpressed: list[Unexpressed] = []

    def annotation(self) -> Annotation:
        self._unknown_applications()
        for section in self.configuration.left_out:
            self._tell(section, "there is no such hint")
        made = (claim for file in self.configuration.files for claim in self._claims(file))
        claims = grouped(made, lambda claim: claim.output)
        rules: dict[str, tuple[AnnotatedRule, ...]] = {}
        for step, outputs in self.outputs.items():
            merged, problems = merge([(output, claims[output]) for output in outputs])
            self.unexpressed += problems
            if merged:
                rules[step] = merged
        return Annotation(rules, self._streamable(rules), tuple(dict.fromkeys(self.unexpressed)))

    def _unknown_applications(self) -> None:
        for application in self.configuration.mentioned:
            if self.names.step(application) is None:
                self._tell(f"application {application}", "no step, or more than one, has this name")

    def _tell(self, subject: str, reason: str) -> None:
        self.unexpressed.append(Unexpressed(subject, reason))

    def _claims(self, file: CoordinatedFile) -> Iterator[Claim]:
        """The claims of a file of the configuration about outputs."""
        if file.excluded:
            self._tell(file.path, "exclude: hints coordinate only what they name; no rule is written for it")
            return
        if file.home_node is not None and self.names.step(file.home_node) is None:
            self._tell(file.path, f"its home node is that of {file.home_node}, which is no step")
        if not file.producers:
            yield from self._without_writer(file)
        meant: list[Output] = []
        for step in self._steps(file.producers):
            targets = self._targets(file.path, step, file.is_directory or None)
            if not targets:
                self._tell(file.path, f"no output of {step} is such a file")
            claims = []
            for output, covered in targets.items():
                made = self._claim(file, output, covered)
                if isinstance(made, Claim):
                    claims.append(made)
                elif made is not None:
                    self._tell(file.path, made)
            yield from claims
            around = [output.name for output, covered in targets.items() if covered.fit.relation is Relation.AROUND]
            if around and not file.is_default and all(each.part == "kept" for each in claims):
                self._tell(file.path, f"a directory around {', '.join(around)}: rules are for outputs")
            meant += targets
        self._unknown_readers(file, meant)

    def _claim(self, file: CoordinatedFile, output: Output, covered: Covered) -> Claim | str | None:
        """The claim of a file about one output, or why hints cannot make it. None: the file claims nothing."""
        relation = covered.fit.relation
        if file.is_directory and relation is Relation.ENTRY and not file.is_default:
            return f"a directory in {output.name}: rules are for the output, or for files in it"
        kept = file.permanent and output not in self.results
        holds_list = file.is_directory and output.kind is OutputKind.FILES and "/" not in covered.fit.entry
        if relation is Relation.AROUND and not holds_list:
            return Claim(output, file.path, "kept", permanent=True) if kept and file.is_default else None
        if output in self.results - self._kept_results:
            self._tell(file.path, f"not permanent, but {output.name} is a workflow output: it is kept all the same")
        made = claim(file, output, covered, self._dependencies(output.step), self.names)
        return replace(made, permanent=kept) if isinstance(made, Claim) else made

    def _steps(self, applications: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(step for name in applications if (step := self.names.step(name)) is not None))

    def _targets(self, path: str, step: str, is_directory: bool | None = None) -> dict[Output, Covered]:
        """The outputs of a step that a path means: by their names in its jobs, else by all that they can be called."""
        for globs in (self._known_globs, _any_globs):
            found = {
                output: covered
                for output in self.outputs.get(step, ())
                if (covered := covers(path, output, globs(output, path), is_directory=is_directory)) is not None
            }
            if found:
                best = max(covered.fit.score for covered in found.values())
                return {output: covered for output, covered in found.items() if covered.fit.score == best}
        return {}

    def _known_globs(self, output: Output, path: str) -> list[tuple[str, ...]]:
        """The globs of an output in the job whose directory a path begins with, or in all."""
        tags = self.jobs.instances(output.step) or ()
        own = [tag for tag in tags if path.startswith(f"{instance(output.step, tag)}/")]
        known = [self.jobs.globs.get((output.step, output.port, tag), output.globs) for tag in own or tags]
        return list(dict.fromkeys(known)) or [output.globs]

    def _without_writer(self, file: CoordinatedFile) -> Iterator[Claim]:
        """A path that stands only under `permanent`, or that is only read."""
        if not file.is_default:
            self._tell(file.path, "no application writes it")
        if not file.permanent:
            return
        for output in (output for outputs in self.outputs.values() for output in outputs):
            globs = self._known_globs(output, file.path)
            covered = covers(file.path, output, globs, is_directory=file.is_directory or None)
            if covered is None or output in self.results or output.kind is OutputKind.OTHER:
                continue
            # A name says nothing about an output without a known name.
            if covered.fit.literal or any(
                includes(components(file.path), components(glob)) for of_job in globs for glob in of_job
            ):
                yield Claim(output, file.path, "kept", permanent=True)

    def _unknown_readers(self, file: CoordinatedFile, outputs: Sequence[Output]) -> None:
        readers = {reader.step for output in outputs for reader in self.readers.get(output, ())}
        for step in self._steps(file.consumers):
            if outputs and step not in readers:
                self._tell(file.path, f"{step} does not read it in the workflow")

    @cached_property
    def _kept_results(self) -> set[Output]:
        """The workflow outputs that the configuration calls permanent."""
        permanent = [file.path for file in self.configuration.files if file.permanent]
        return {
            output
            for output in self.results
            if any(covers(path, output, self._known_globs(output, path)) is not None for path in permanent)
        }

    def _dependencies(self, step: str) -> FindDependency:
        ports = frozenset(output.port for output in self.outputs.get(step, ()))

        def find(path: str) -> tuple[str, ...] | str:
            writers = [self._steps(f.producers) for f in self.configuration.files if f.path == path and f.producers]
            if writers and not any(step in steps for steps in writers):
                return f"file_deps: {path} is of another application, and a rule waits for files of its own step only"
            targets = self._targets(path, step, is_directory=False)
            whole = [output.port for output, covered in targets.items() if not covered.files]
            globs = [dependency_glob(glob, ports) for covered in targets.values() for glob in covered.files]
            if not targets and (name := in_job(path, step)):
                globs.append(dependency_glob(name, ports))
            return (*whole, *globs)

        return find

    def _streamable(self, rules: Mapping[str, Sequence[AnnotatedRule]]) -> dict[str, tuple[str, ...]]:
        """The inputs that read files under `no_update`, and are not `streamable` yet."""
        found: dict[str, dict[str, None]] = {}
        for step, annotated in rules.items():
            for each in annotated:
                if each.rule.mode == "no_update":
                    output = next(output for output in self.outputs[step] if output.port == each.rule.port)
                    for file in self.configuration.files:
                        if file.path in each.origins:
                            self._readers(file, output, found)
        return {port: tuple(paths) for port, paths in sorted(found.items())}

    def _readers(self, file: CoordinatedFile, output: Output, found: dict[str, dict[str, None]]) -> None:
        others = (f.consumers for f in self.configuration.files if not f.producers and fit(f.path, file.path))
        consumers = self._steps(name for names in (file.consumers, *others) for name in names)
        for reader in self.readers.get(output, ()):
            if reader.step in consumers and not reader.streamable:
                found.setdefault(port_path(reader.step, reader.port), {})[file.path] = None


def _any_globs(output: Output, _: str) -> list[tuple[str, ...]]:
    return [output.globs]


def annotation_text(annotation: Annotation, origin: str, notes: tuple[str, ...] = ()) -> str:
    """Write hints as an annotations file, with the paths that they come from.

    :param origin: the name of the file that they were made from
    :return: YAML; without its comments, it is :attr:`Annotation.file`
    """
    start = [f"Hints from {origin}.", *notes]
    if annotation.unexpressed:
        start += ["Not expressed:", *(f"- {each.subject}: {each.reason}" for each in annotation.unexpressed)]
    return annotations_text(
        start,
        {
            step: [Commented((f"from {_first(each.origins)}",), _fields(each.rule)) for each in rules]
            for step, rules in annotation.rules.items()
        },
        {
            port: (f"reads {_first(paths)} as it is written: the tool must read it front to back, once",)
            for port, paths in annotation.streamable.items()
        },
    )


def _fields(rule: StreamingRule) -> dict[str, str]:
    """A rule with its commit and firing rule, also where they are the default, and what else was given."""
    written = rule.model_dump(by_alias=True, mode="json", exclude_defaults=True, exclude={"start"})
    if rule.start != ("producer" if rule.mode == "no_update" else "commit"):
        written["start"] = rule.start
    return {"port": rule.port, "committed": str(rule.committed), "mode": rule.mode, **written}


def _first(paths: tuple[str, ...]) -> str:
    """Some paths: those of the instances of one step differ only in their numbers."""
    return first_of(paths, _MOST_PATHS)
