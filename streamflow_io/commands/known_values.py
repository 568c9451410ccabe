"""The values of inputs that are known before the run, from the job order or a default."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from streamflow_io.hints.cwl import CWLObject, name_of, read_steps
from streamflow_io.hints.errors import HintError, HintErrors, Loc, Source, field_name
from streamflow_io.hints.inheritance import port_path
from streamflow_io.hints.yaml_files import plain, read_yaml, source_of


class KnownValue(Struct, frozen=True):
    """A value, with its position.

    :ivar source: the source of the piece of a file that holds the value, at `loc`
    :ivar name: the field of the piece
    """

    value: object
    source: Source
    name: str = ""
    loc: Loc = ()

    def element(self, index: int, value: object) -> KnownValue:
        return KnownValue(value, self.source, self.name, (*self.loc, index))

    def error(self, message: str, allowed: str) -> HintError:
        """Return a mistake in this value."""
        field = field_name(self.name, self.loc)
        return HintError(self.source.file, self.source.line(*self.loc), field, message, allowed)


class KnownValues:
    """The known values of the inputs of a document's tools.

    :param document: as for :func:`read_steps`; the document is read at once
    :param job: the path of the job order; an unreadable job order counts as unknown. None: before a job order is
        written
    """

    def __init__(self, document: CWLObject, job: str | None) -> None:
        walk = read_steps(document)
        self._processes: Mapping[str, CWLObject] = {**walk.workflows, **walk.tools}
        self._sources = walk.sources
        self._steps = {
            port_path(path, name_of(step)): (path, workflow, step)
            for path, workflow in walk.workflows.items()
            for step in workflow.steps
        }
        given = None
        if job is not None:
            with contextlib.suppress(HintErrors):
                given = read_yaml(Path(job), "job")
        self._has_job = job is not None
        self._job = given if isinstance(given, Mapping) else None
        self._job_source = source_of(given, str(job))

    def of(self, path: str, name: str) -> list[KnownValue] | None:
        """Return the values that the jobs of a tool get for an input, in the order of scatters.

        :param path: the path of the step that runs the tool, or of a workflow
        :return: None: some value is not known before the run
        """
        known = self._of_job(name) if path == "/" else self._of_step(path, name)
        parameter = next((each for each in self._processes[path].inputs if name_of(each) == name), None)
        default = getattr(parameter, "default", None)
        if known is None and path == "/" and default is not None and not self._has_job:
            known = [KnownValue(None, self._job_source)]
        return self._or_default(known, default, path, "inputs", name)

    def _of_job(self, name: str) -> list[KnownValue] | None:
        if self._job is None:
            return None
        return [KnownValue(plain(self._job.get(name)), self._job_source, "", (name,))]

    def _of_step(self, path: str, name: str) -> list[KnownValue] | None:
        outer, workflow, step = self._steps[path]
        target = next((each for each in step.in_ if name_of(each) == name), None)
        way = ("steps", name_of(step), "in")
        if target is None:
            return [KnownValue(None, self._sources[outer](*way), ".".join(way))]
        if getattr(step, "when", None) is not None or target.valueFrom is not None or isinstance(target.source, list):
            return None
        known: list[KnownValue] | None = [KnownValue(None, self._sources[outer](*way, name), ".".join((*way, name)))]
        if target.source is not None:
            source = next((each for each in workflow.inputs if each.id == target.source), None)
            known = None if source is None else self.of(outer, name_of(source))
        known = self._or_default(known, target.default, outer, *way, name)
        scattered = [step.scatter] if isinstance(step.scatter, str) else step.scatter or ()
        return _elements(known) if target.id in scattered else known

    def _or_default(
        self, known: list[KnownValue] | None, default: object, path: str, *way: str
    ) -> list[KnownValue] | None:
        """Put the default in the place of null.

        :param way: the keys that lead to the parameter, in the process at `path`
        """
        if known is None or default is None:
            return known
        way = (*way, "default")
        value = KnownValue(plain(default), self._sources[path](*way), ".".join(way))
        return [value if each.value is None else each for each in known]


def _elements(known: list[KnownValue] | None) -> list[KnownValue] | None:
    found = []
    for each in known or ():
        if not isinstance(each.value, list):
            return None
        found += [each.element(index, value) for index, value in enumerate(each.value)]
    return None if known is None else found
