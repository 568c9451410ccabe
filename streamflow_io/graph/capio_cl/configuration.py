"""The coordination configuration of a workflow: applications, writers and readers of each file, and rules of the file.

This is the content of CAPIO-CL in JSON (`language.py`), as plain data, with no default left implicit.

An application is a step, or an instance of a step that is scattered.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from streamflow_io.graph.io_graph import HopKind, Route
from streamflow_io.hints.commit import ON_TERMINATION, CommitRule
from streamflow_io.hints.models import FiringRule


class CoordinatedFile(Struct, frozen=True):
    """A file or a directory, and the rules that hold for it.

    :ivar path: a path, or a glob; relative to the directory of the run (`CAPIO_DIR`), or absolute
    :ivar producers: names of the applications that write it
    :ivar consumers: names of the applications that read it
    :ivar committed: when it is complete
    :ivar mode: when its bytes may be read
    :ivar file_deps: with `on_file`: the paths whose commit commits it
    :ivar n_files: with `on_n_files`: how many files the directory holds when it is complete
    :ivar permanent: kept after the run
    :ivar excluded: not coordinated
    :ivar home_node: the application whose node holds the data. None: left open
    """

    path: str
    is_directory: bool = False
    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    committed: CommitRule = ON_TERMINATION
    mode: FiringRule = "update"
    file_deps: tuple[str, ...] = ()
    n_files: int | None = None
    permanent: bool = False
    excluded: bool = False
    home_node: str | None = None

    @property
    def rule(self) -> tuple[object, ...]:
        """Everything that decides when the file is complete, and when its bytes may be read."""
        return self.is_directory, self.committed, self.mode, self.file_deps, self.n_files

    @property
    def is_default(self) -> bool:
        """Whether the file is complete, and its bytes may be read, at the same time as without a rule."""
        return (self.committed, self.mode) == (ON_TERMINATION, "update")


class Configuration(Struct, frozen=True):
    """The coordination configuration of a workflow.

    :ivar name: of the workflow
    :ivar applications: names, in the order of the workflow
    :ivar files: one for each path, in the order of the paths
    :ivar left_out: what else a CAPIO-CL file says of files
    """

    name: str
    applications: tuple[str, ...]
    files: tuple[CoordinatedFile, ...]
    left_out: tuple[str, ...] = ()

    @property
    def mentioned(self) -> tuple[str, ...]:
        """The applications, and those that are only named by a file."""
        of_files = (name for file in self.files for name in (*file.producers, *file.consumers))
        return tuple(dict.fromkeys((*self.applications, *of_files)))

    def below(self, directory: str) -> Configuration:
        """The same configuration with absolute paths.

        :param directory: `CAPIO_DIR`, absolute
        """

        def absolute(path: str) -> str:
            return posixpath.join(directory, path)

        files = (
            replace(file, path=absolute(file.path), file_deps=tuple(map(absolute, file.file_deps)))
            for file in self.files
        )
        return replace(self, files=tuple(files))


# Each instance has files of its own, and the official parser compares each path with all others.
MOST_INSTANCES = 256


def application_name(step: str, tag: str | None = None) -> str:
    """Name the application of a step: `/chromosome/individuals` is `chromosome.individuals`, `/` is `main`.

    :param step: a StreamFlow step path
    :param tag: the StreamFlow tag of an instance, as in `0.3`: `chromosome.individuals-0.3`
    """
    name = step.strip("/").replace("/", ".") or "main"
    return name if tag is None else f"{name}-{tag}"


class KnownJobs(Struct, frozen=True):
    """The jobs of a workflow that are known before its run.

    :ivar tags: by step path, the StreamFlow tags of its jobs; None: several unknown ones
    :ivar globs: by step path, output and tag: where the output is, relative to the job's output directory. If one is
        missing, the globs of the output hold
    """

    tags: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    globs: Mapping[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)

    def instances(self, step: str) -> tuple[str, ...] | None:
        """The tags of the jobs of a step; None: unknown, or too many to tell apart."""
        tags = self.tags.get(step, ("0",))
        return None if tags is None or len(tags) > MOST_INSTANCES else tags


def applications(step: str, jobs: KnownJobs) -> tuple[str, ...]:
    """The applications of a step: its instances, or the step itself if they are not known."""
    tags = jobs.instances(step)
    return (application_name(step),) if tags is None else tuple(instance(step, tag) for tag in tags)


def instance(step: str, tag: str) -> str:
    """The application of one job of a step."""
    # A job that is not scattered has the tag of the workflow.
    return application_name(step, tag if "." in tag else None)


def reached(route: Route, step: str, tag: str | None, jobs: KnownJobs) -> tuple[str, ...]:
    """The instances of a step that a file reaches."""
    tags = jobs.instances(step)
    if tags is None:
        return (application_name(step),)
    way = None if tag is None else _way(route, tag)
    found = tags if way is None else tuple(t for t in tags if _reaches(way, t.split(".")))
    return tuple(instance(step, t) for t in found or tags)


def _way(route: Route, tag: str) -> list[str] | None:
    """The first parts of the tags that a file can have where it arrives; `*` stands for any number. None: any tag."""
    parts = tag.split(".")
    gathered: str | None = None
    for hop in route.hops:
        match hop.kind:
            case HopKind.GATHER if len(parts) > hop.widths:
                *parts, gathered = parts[: len(parts) - hop.widths + 1]
                gathered = gathered if hop.widths == 1 else None
                continue
            case HopKind.SCATTER if hop.obstacle is None:
                parts.append(gathered or "*")
            case HopKind.SCATTER | HopKind.GATHER | HopKind.LOOP | HopKind.UNKNOWN:
                return None
        gathered = None
    return parts


def _reaches(way: Sequence[str], tag: Sequence[str]) -> bool:
    return len(way) <= len(tag) and all(part in ("*", other) for part, other in zip(way, tag, strict=False))
