"""The jobs of a workflow as applications of a coordination configuration, and the jobs that a file reaches.

An application is a step, or an instance of a step that is scattered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from streamflow_io.graph.io_graph import HopKind, Route

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
