"""Sites: where the jobs of a step run, and what can be delivered early on a site and between two sites."""

from __future__ import annotations

from enum import Enum
from itertools import product

from msgspec import Struct

from streamflow_io.messages import Code, coded

from .volumes import HOST, Bind, seen_from


class SiteKind(str, Enum):
    """The kind of a deployment's locations, as far as delivery differs.

    `LOCAL`: the driver's node. `HOSTS`: hosts that the driver logs in to; hosts of several deployments are joined by
    their network. `QUEUE`: nodes of a queue manager, which share a file system, and are not known before a job runs.
    `CONTAINERS`: containers on the driver's node, or on one host; they are joined by what they see of its directories.
    `PODS`: pods of Kubernetes; they are joined by volumes of one node, or by their network. `OTHER`: no node runtime is
    started there.
    """

    LOCAL = "local"
    HOSTS = "hosts"
    QUEUE = "queue manager"
    CONTAINERS = "containers"
    PODS = "pods"
    OTHER = "other"


class Deployment(Struct, frozen=True):
    """A deployment of the StreamFlow file, or one that StreamFlow makes for a DockerRequirement.

    :ivar name: two deployments of one name are the same; not for people, if `image` is given
    :ivar type: as in the StreamFlow file
    :ivar image: of a DockerRequirement
    :ivar host: the host of containers; None: no containers, or an unknown host, as of pods
    :ivar binds: the files of others that containers and pods see; None: unknown before they run
    :ivar workdir: jobs have their directories below it
    :ivar obstacle: why no node runtime is started there; None: no reason but perhaps the kind
    :ivar networked: whether containers and pods may have an address at which others reach them
    :ivar pod: the one pod in which all of its jobs run; None: several pods, or an unknown one
    """

    name: str
    type: str
    kind: SiteKind
    image: str | None = None
    host: Deployment | None = None
    binds: tuple[Bind, ...] | None = ()
    workdir: str = ""
    obstacle: str | None = None
    networked: bool = False
    pod: str | None = None

    @property
    def label(self) -> str:
        """The name of the deployment for people."""
        return self.image or self.name

    @property
    def node(self) -> Deployment | None:
        """The host of containers, or the host itself; None: unknown. A host with containers is a single one."""
        if self.kind is SiteKind.LOCAL:
            return LOCAL
        return Deployment(self.name, self.type, self.kind) if self.kind is SiteKind.HOSTS else self.host

    @property
    def seen(self) -> tuple[Bind, ...] | None:
        """The part of their node that its jobs see; None: unknown before they run."""
        return self.binds if self.is_contained else HOST

    @property
    def technology(self) -> str:
        """The way in which jobs run: the type, and for containers that are not on the driver's node, the host."""
        return self.type if self.host in (None, LOCAL) else f"{self.type}, on {self.host.name}"

    def on_host(self, path: str) -> str | None:
        """The path on its node of a path of its jobs; None: no such path, or an unknown one."""
        return path if self.kind is not SiteKind.CONTAINERS else seen_from(self.binds or (), path, HOST)

    @property
    def is_contained(self) -> bool:
        """Whether its jobs see only a part of the files of their node."""
        return self.kind in (SiteKind.CONTAINERS, SiteKind.PODS)

    def sees(self, other: Deployment) -> bool:
        """Whether its jobs see what the jobs of another deployment on the same host write."""
        there, here = other.seen, self.seen
        return there is not None and here is not None and seen_from(there, other.workdir, here) is not None

    def shares_files(self, other: Deployment) -> bool | None:
        """Whether the jobs of two deployments, one of them contained, see each other's files; None: to be tried."""
        is_in_pods = self.kind is other.kind is SiteKind.PODS
        is_in_one_pod = self.pod is not None and self.pod == other.pod
        if self.kind is other.kind and self.name == other.name:
            return None if is_in_pods and not is_in_one_pod else True
        if not is_in_pods and (self.node is None or self.node != other.node):
            return False
        if self.seen is None or other.seen is None:
            return None
        shares = self.sees(other) and other.sees(self)
        # Only pods of one node share the content of a volume that both have.
        return None if shares and is_in_pods and not is_in_one_pod else shares

    def has_link_to(self, other: Deployment) -> bool:
        """Whether containers or pods of both may reach each other by network, if they do not share files."""
        is_in_pods = self.kind is other.kind is SiteKind.PODS
        is_near = is_in_pods or (self.node is not None and self.node == other.node)
        return is_near and self.networked and other.networked

    def is_joined_with(self, other: Deployment, *, gate: bool = False) -> bool:
        """Whether every job here can read what every job there writes, while it is written; or this is to be tried.

        :param gate: whether the reader is held at the gate, and so needs the files; else it reads a stream
        """
        if self.is_contained or other.is_contained:
            return self.shares_files(other) is not False or (not gate and self.has_link_to(other))
        # Two queue managers, as far as is known, have no file system in common.
        return self.kind is other.kind and (self.kind is not SiteKind.QUEUE or self.name == other.name)

    def condition(self, other: Deployment, *, gate: bool) -> str | None:
        """The condition that is tried between running jobs of both, and must hold; None: no condition.

        :param gate: see :meth:`is_joined_with`
        """
        if not (self.is_contained or other.is_contained) or (shares := self.shares_files(other)):
            return None
        link = "one reaches the other by its network"
        if shares is False:
            return link
        share = "they see the files of each other"
        return f"{share}, or {link}" if self.has_link_to(other) and not gate else share

    def __str__(self) -> str:
        if self.kind is SiteKind.LOCAL:
            return "the driver's node"
        return f"{f'a container of {self.image}' if self.image else self.name} ({self.technology})"


LOCAL = Deployment("local", "local", SiteKind.LOCAL)
#: The type of a deployment whose hosts are the nodes of an allocation of a queue manager.
ALLOCATION = "sfio.allocation"

_HOSTS = "hosts (SSH or an allocation)"
_WATCHED = f"only jobs of the driver's node, {_HOSTS}, queue managers, pods, and containers on the first two stream yet"


class Site(Struct, frozen=True):
    """The deployments where the jobs of a step run.

    :ivar deployments: those that the step is bound to, at least one; each job runs on one of them
    :ivar locations: how many locations each job takes
    """

    deployments: tuple[Deployment, ...] = (LOCAL,)
    locations: int = 1

    @property
    def kind(self) -> SiteKind | None:
        """The one kind of the site; None: several kinds, several queue managers, or containers of several hosts."""
        joined = {(d.kind, d.name if d.kind is SiteKind.QUEUE else d.host) for d in self.deployments}
        return self.deployments[0].kind if len(joined) == 1 else None

    @property
    def is_here(self) -> bool:
        """Whether all jobs use the cores and the memory of the driver's node."""
        return all(deployment.node == LOCAL for deployment in self.deployments)

    @property
    def unwatched(self) -> str | None:
        """Why no node runtime can watch the jobs there; None: no obstacle. The text follows the path of a step."""
        for deployment in self.deployments:
            if deployment.obstacle is not None or deployment.kind is SiteKind.OTHER:
                why = f"runs {Site((deployment,)).where}: {deployment.obstacle or _WATCHED}"
                return coded(why, Code.NOT_WATCHED)
        if self.locations > 1:
            many = f"takes {self.locations} locations of {self} for each job: only jobs on one location stream yet"
            return coded(many, Code.NOT_WATCHED)
        return None

    @property
    def where(self) -> str:
        """The site, with its preposition."""
        return f"{'in' if self.deployments[0].image else 'on'} {self}"

    def is_joined_with(self, other: Site, *, gate: bool = False) -> bool:
        """See :meth:`Deployment.is_joined_with`."""
        if self.kind is None or other.kind is None or self.unwatched or other.unwatched:
            return False
        pairs = product(self.deployments, other.deployments)
        return all(here.is_joined_with(there, gate=gate) for here, there in pairs)

    def condition(self, other: Site, *, gate: bool) -> str | None:
        """The conditions that are tried between jobs of both, if they are joined; see :meth:`Deployment.condition`."""
        pairs = product(self.deployments, other.deployments)
        found = set(filter(None, (here.condition(there, gate=gate) for here, there in pairs)))
        return "; ".join(sorted(found)) or None

    def __str__(self) -> str:
        return " or ".join(dict.fromkeys(map(str, self.deployments)))


DRIVERS_NODE = Site()


def not_joined(producer: tuple[str, Site], consumer: tuple[str, Site], *, gate: bool) -> str | None:
    """Why a consumer cannot run while its producer does, where both run; None: no obstacle. One sentence for the user.

    :param producer: path and site of the step
    :param consumer: path and site of the step
    :param gate: whether the consumer would be held at the gate; else it would read bytes
    """
    (writer, source), (reader, target) = producer, consumer
    for step, site in (producer, consumer):
        if site.unwatched is not None:
            return f"{step} {site.unwatched}"
        if site.kind is None:
            one = "one kind of deployment, or to one queue manager"
            if any(deployment.kind is SiteKind.CONTAINERS for deployment in site.deployments):
                one = "one kind of deployment, or to containers of one host"
            return coded(f"{step} runs {site.where}: to stream, bind it to {one}", Code.NOT_JOINED)
    where = f"{writer} runs {source.where}, {reader} {_after(source, target)}"
    if not source.is_joined_with(target, gate=gate):
        return coded(f"{where}: {_apart(source, target)}", Code.NOT_JOINED)
    if gate and source.kind is target.kind is SiteKind.HOSTS:
        needs = "the gate needs both on the driver's node, or both on one queue manager"
        return coded(f"{where}: {needs}", Code.NOT_JOINED)
    return None


def _after(first: Site, second: Site) -> str:
    """The place of the second site, in a sentence that has named the first."""
    shown = second.where
    is_alike = first.deployments[0].image and second.deployments[0].image
    return shown.replace("in a container of", "in one of", 1) if is_alike else shown


def _apart(source: Site, target: Site) -> str:
    """Why no job of one site can read what a job of the other writes, in words for the user."""
    if SiteKind.PODS in (source.kind, target.kind):
        if source.kind is target.kind:
            return "they share no volume; give both a PersistentVolumeClaim, or a hostPath, at their workdir"
        return "pods stream with pods only"
    if SiteKind.CONTAINERS not in (source.kind, target.kind):
        return f"a stream needs both on the driver's node, both on {_HOSTS}, or both on one queue manager"
    deployments = {*source.deployments, *target.deployments}
    if len({deployment.node for deployment in deployments}) > 1:
        if source.kind is target.kind:
            return "streams between containers need one host"
        return "a container streams with others of its host, and with steps on that host"
    if source.kind is target.kind:
        return "they share no directory of their host; give both a volume at their workdir"
    return "they share no directory; give the container the workdir of its host, as a volume at its own"
