"""From a coordination configuration back to hints: an annotations file for the workflow. Pure.

A path of the configuration means an output of the step that its application is
(:class:`~streamflow_io.coordination.matching.StepNames`): the one whose glob has the longest common end with it
(:func:`~streamflow_io.coordination.matching.fit`). What hints cannot say is told as :class:`Unexpressed`, never
dropped: without a rule a file is committed at termination, which is late but right.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from streamflow_io.hints.commit import CommitRule
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.models import AnnotationsFile, Streaming

from .claims import Claim, FindDependency, claim, covers, dependency_glob
from .configuration import Configuration, CoordinatedFile
from .graph import Input, Output, OutputKind
from .matching import Relation, StepNames, fit
from .merging import AnnotatedRule, Unexpressed, merge


@dataclass(frozen=True)
class OutputFiles:
    """An output of a step, with its files.

    :ivar globs: relative to the job's output directory; `*` for what is known only at run time
    :ivar readers: the inputs that it reaches
    :ivar is_result: it is a workflow output
    """

    output: Output
    globs: tuple[str, ...]
    readers: tuple[Input, ...] = ()
    is_result: bool = False


@dataclass(frozen=True)
class Annotation:
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


def annotate(configuration: Configuration, steps: Iterable[str], outputs: Sequence[OutputFiles]) -> Annotation:
    """Say in hints what a coordination configuration says.

    A rule is written where it differs from the default, and where the workflow has another one, which it replaces.

    :param steps: the paths of all steps of the workflow
    :param outputs: all outputs of the workflow's steps that hold files
    """
    return _Annotator(configuration, StepNames(steps), outputs).annotation()


class _Annotator:
    def __init__(self, configuration: Configuration, names: StepNames, outputs: Sequence[OutputFiles]) -> None:
        self.configuration = configuration
        self.names = names
        self.outputs = outputs
        self.unexpressed: list[Unexpressed] = []

    def annotation(self) -> Annotation:
        self._unknown_applications()
        claims: dict[tuple[str, str], list[Claim]] = {}
        for file in self.configuration.files:
            for made in self._claims(file):
                claims.setdefault((made.output.step, made.output.port), []).append(made)
        rules: dict[str, tuple[AnnotatedRule, ...]] = {}
        for step in dict.fromkeys(each.output.step for each in self.outputs):
            outputs = [each for each in self.outputs if each.output.step == step]
            merged, problems = merge([(o.output, o.globs, claims.get((step, o.output.port), [])) for o in outputs])
            self.unexpressed += problems
            if merged:
                rules[step] = merged
        return Annotation(rules, self._streamable(rules), tuple(dict.fromkeys(self.unexpressed)))

    def _unknown_applications(self) -> None:
        files = self.configuration.files
        mentioned = (*self.configuration.applications, *(a for f in files for a in (*f.producers, *f.consumers)))
        for application in dict.fromkeys(mentioned):
            if self.names.step(application) is None:
                self._tell(f"application {application}", "no step, or more than one, has this name")

    def _tell(self, subject: str, reason: str) -> None:
        self.unexpressed.append(Unexpressed(subject, reason))

    def _claims(self, file: CoordinatedFile) -> Iterator[Claim]:
        """What a file of the configuration says of outputs."""
        if file.excluded:
            self._tell(file.path, "exclude: hints coordinate only what they name; no rule is written for it")
            return
        self._without_hint(file)
        if not file.producers:
            yield from self._without_writer(file)
        for step in self._steps(file.producers):
            targets = self._targets(file.path, step)
            if not targets:
                self._tell(file.path, f"no output of {step} is such a file")
            for target, files, relation in targets:
                made = self._claim(file, target, files, relation)
                if isinstance(made, Claim):
                    yield made
                elif made is not None:
                    self._tell(file.path, made)
            self._unknown_readers(file, targets)

    def _without_hint(self, file: CoordinatedFile) -> None:
        """Tell what no hint can say of any file."""
        if file.in_memory is not None:
            self._tell(file.path, f"storage: {'memory' if file.in_memory else 'fs'} has no hint")
        if (home := file.home_node) is None:
            return
        if home.policy == "hashing":
            self._tell(file.path, "home node policy `hashing` has no hint")
        elif home.application is not None and self.names.step(home.application) is None:
            self._tell(file.path, f"its home node is that of {home.application}, which is no step")

    def _claim(
        self, file: CoordinatedFile, target: OutputFiles, files: tuple[str, ...], relation: Relation
    ) -> Claim | str | None:
        """What it says of one output; a text: why hints cannot say it; None: nothing."""
        output = target.output
        if file.is_directory and relation is Relation.ENTRY and not _is_default(file):
            return f"a directory in {output.name}: rules are for the output, or for files in it"
        if relation is Relation.AROUND and not (file.is_directory and output.kind is OutputKind.FILES):
            if file.permanent and not target.is_result:
                return Claim(output, (), file.path, permanent=True, only_permanent=True)
            return None if _is_default(file) else f"a directory around {output.name}: rules are for outputs"
        if target.is_result and not self._is_permanent(target):
            self._tell(file.path, f"not permanent, but {output.name} is a workflow output: it is kept all the same")
        return claim(file, output, files, self._dependencies(output.step), self.names, target.is_result)

    def _steps(self, applications: Iterable[str]) -> list[str]:
        return list(dict.fromkeys(step for name in applications if (step := self.names.step(name)) is not None))

    def _targets(self, path: str, step: str) -> list[tuple[OutputFiles, tuple[str, ...], Relation]]:
        """The outputs of a step that a path means, each with the globs of its entries; none: all of it."""
        found = [
            (each, covered)
            for each in self.outputs
            if each.output.step == step and (covered := covers(path, each.output, each.globs)) is not None
        ]
        best = max((fits.score for _, (_, fits) in found), default=(0, 0))
        return [(each, files, fits.relation) for each, (files, fits) in found if fits.score == best]

    def _without_writer(self, file: CoordinatedFile) -> Iterator[Claim]:
        """A path that stands only under `permanent`, or that is only read."""
        if not _is_default(file):
            self._tell(file.path, "no application writes it")
        if not file.permanent:
            return
        for step in dict.fromkeys(each.output.step for each in self.outputs):
            for target, files, _ in self._targets(file.path, step):
                if not target.is_result and target.output.kind is not OutputKind.OTHER:
                    yield Claim(target.output, files, file.path, permanent=True, only_permanent=True)

    def _unknown_readers(
        self, file: CoordinatedFile, targets: Sequence[tuple[OutputFiles, tuple[str, ...], Relation]]
    ) -> None:
        readers = {reader.step for target, _, _ in targets for reader in target.readers}
        for step in self._steps(file.consumers):
            if targets and step not in readers:
                self._tell(file.path, f"{step} does not read it in the workflow")

    def _is_permanent(self, target: OutputFiles) -> bool:
        permanent = (file for file in self.configuration.files if file.permanent)
        return any(covers(file.path, target.output, target.globs) is not None for file in permanent)

    def _dependencies(self, step: str) -> FindDependency:
        ports = frozenset(each.output.port for each in self.outputs if each.output.step == step)

        def find(path: str) -> tuple[str, ...] | str:
            writers = [self._steps(f.producers) for f in self.configuration.files if f.path == path and f.producers]
            if writers and not any(step in steps for steps in writers):
                return f"file_deps: {path} is of another application, and a rule waits for files of its own step only"
            targets = self._targets(path, step)
            whole = [each.output.port for each, files, _ in targets if not files]
            globs = [dependency_glob(glob, ports) for _, files, _ in targets for glob in files]
            name = path.rstrip("/").rpartition("/")[2]
            if not targets and name:
                globs.append(dependency_glob(name, ports))
            return (*whole, *globs)

        return find

    def _streamable(self, rules: Mapping[str, Sequence[AnnotatedRule]]) -> dict[str, tuple[str, ...]]:
        """The inputs that read files under `no_update`, and are not `streamable` yet."""
        found: dict[str, dict[str, None]] = {}
        for target in self.outputs:
            origins = [
                origin
                for each in rules.get(target.output.step, ())
                if each.rule.port == target.output.port and each.rule.mode == "no_update"
                for origin in each.origins
            ]
            for file in self.configuration.files:
                if file.path in origins:
                    self._readers(file, target, found)
        return {port: tuple(paths) for port, paths in sorted(found.items())}

    def _readers(self, file: CoordinatedFile, target: OutputFiles, found: dict[str, dict[str, None]]) -> None:
        others = (f.consumers for f in self.configuration.files if not f.producers and fit(f.path, file.path))
        consumers = self._steps(name for names in (file.consumers, *others) for name in names)
        for reader in target.readers:
            if reader.step in consumers and not reader.streamable:
                found.setdefault(port_path(reader.step, reader.port), {})[file.path] = None


def _is_default(file: CoordinatedFile) -> bool:
    return (file.committed, file.mode) == (CommitRule(), "update")
