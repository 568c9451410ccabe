"""Sites: where the jobs of a step run, and what can be delivered early there and between two of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SiteKind(str, Enum):
    """What the locations of a deployment are, as far as delivery differs.

    `LOCAL`: the driver's node. `HOSTS`: hosts that the driver logs in to; those of several deployments are joined by
    their network. `QUEUE`: nodes of a queue manager, which share a file system, and are not known before a job runs.
    `OTHER`: no node runtime is started there.
    """

    LOCAL = "local"
    HOSTS = "hosts"
    QUEUE = "queue manager"
    OTHER = "other"


@dataclass(frozen=True)
class Deployment:
    """A deployment of the StreamFlow file.

    :ivar type: as written there
    """

    name: str
    type: str
    kind: SiteKind

    def __str__(self) -> str:
        return "the driver's node" if self.kind is SiteKind.LOCAL else f"{self.name} ({self.type})"


LOCAL = Deployment("local", "local", SiteKind.LOCAL)


@dataclass(frozen=True)
class Site:
    """Where the jobs of a step run.

    :ivar deployments: those that it is bound to, at least one: each job runs on one of them
    :ivar locations: how many locations each job takes
    """

    deployments: tuple[Deployment, ...] = (LOCAL,)
    locations: int = 1

    @property
    def kind(self) -> SiteKind | None:
        """None: the deployments are of several kinds, or several queue managers."""
        joined = {(d.kind, d.name if d.kind is SiteKind.QUEUE else None) for d in self.deployments}
        return self.deployments[0].kind if len(joined) == 1 else None

    @property
    def unwatched(self) -> str | None:
        """Why no node runtime can watch the jobs there, if so; follows the path of a step."""
        if (other := next((d for d in self.deployments if d.kind is SiteKind.OTHER), None)) is not None:
            return f"runs on {other}: only jobs of the driver's node, SSH hosts and queue managers stream yet"
        if self.locations > 1:
            return f"takes {self.locations} locations of {self} for each job: only jobs on one location stream yet"
        return None

    def is_joined_with(self, other: Site) -> bool:
        """Whether every job here can read what every job there writes, while it is written."""
        if self.kind is None or self.kind is not other.kind or self.unwatched or other.unwatched:
            return False
        # A queue manager and another have no file system in common, for all we know.
        return self.kind is not SiteKind.QUEUE or self.deployments[0].name == other.deployments[0].name

    def __str__(self) -> str:
        return " or ".join(map(str, dict.fromkeys(self.deployments)))


DRIVERS_NODE = Site()


def not_joined(producer: tuple[str, Site], consumer: tuple[str, Site], *, gate: bool) -> str | None:
    """Why a consumer cannot run while its producer does, where both run, if so; one sentence for the user.

    :param producer: path and site of the step, as of the consumer
    :param gate: whether the consumer would be held at the gate; else it would read bytes
    """
    (writer, source), (reader, target) = producer, consumer
    for step, site in (producer, consumer):
        if site.unwatched is not None:
            return f"{step} {site.unwatched}"
        if site.kind is None:
            return f"{step} runs on {site}: to stream, bind it to one kind of deployment, or to one queue manager"
    where = f"{writer} runs on {source}, {reader} on {target}"
    if not source.is_joined_with(target):
        return f"{where}: a stream needs both on the driver's node, both on SSH hosts, or both on one queue manager"
    if gate and source.kind is SiteKind.HOSTS:
        return f"{where}: the gate needs both on the driver's node, or both on one queue manager"
    return None
