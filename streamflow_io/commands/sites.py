"""The sites where steps run, and the locations of deployments as far as they are known before anything is deployed."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from itertools import product
from typing import Any

from msgspec import Struct
from rich.table import Table

from streamflow_io.adapters.deployment_sites import deployment_kind, room_here
from streamflow_io.graph.gangs import Gang, gang_cores
from streamflow_io.graph.io_graph import Step
from streamflow_io.graph.sites import ALLOCATION, Site, SiteKind
from streamflow_io.grouping import grouped
from streamflow_io.wording import counted

from .console import table

# As `2(x3),4`.
_GROUP = re.compile(r"(\d+)(?:\(x(\d+)\))?")


class KnownLocations(Struct, frozen=True):
    """The locations of a deployment.

    :ivar count: None: unknown before the run
    :ivar cores: those of each location, or of the location with the most; None: unknown before the run
    :ivar are_alike: whether all have as many cores
    :ivar origin: where the locations come from, in words; empty: from the StreamFlow file
    """

    count: int | None
    cores: float | None = None
    are_alike: bool = True
    origin: str = ""

    def __str__(self) -> str:
        count = "" if self.count is None else counted(self.count, "location")
        each = " each" if self.count not in (None, 1) else ""
        at_most = "" if self.are_alike else "at most "
        cores = "" if self.cores is None else f"{at_most}{counted(self.cores, 'core')}{each}"
        return ", ".join(filter(None, (count, cores, self.origin)))


def known_locations(
    deployments: Mapping[str, Mapping[str, Any]], environment: Mapping[str, str]
) -> dict[str, KnownLocations]:
    """Return what is known of hosts and of the driver's node, by the name of the deployment.

    :param deployments: of the StreamFlow file
    :param environment: variables of the process; a job of Slurm has its nodes there
    """
    found = {
        name: _known(str(entry["type"]), entry.get("config", {}), environment) for name, entry in deployments.items()
    }
    return {name: known for name, known in found.items() if known is not None}


def meets(gang: Gang, steps: Mapping[str, Step], locations: Mapping[str, KnownLocations]) -> bool | None:
    """Whether one job of each step of a gang has its cores on one location; None: known at run time only."""
    names = {frozenset(deployment.name for deployment in steps[step].site.deployments) for step in gang.steps}
    if not frozenset.intersection(*names):
        return False
    cores = [locations[name].cores for name in frozenset.union(*names) if name in locations]
    most = max((each for each in cores if each is not None), default=None)
    if most is None or None in cores or any(steps[step].cores is None for step in gang.steps):
        return None
    return gang_cores([gang], steps)[gang.steps[0]] <= most


def meeting_text(gang: Gang, steps: Mapping[str, Step], locations: Mapping[str, KnownLocations]) -> str:
    """Return whether a gang meets on one location, in words."""
    needed = counted(gang_cores([gang], steps)[gang.steps[0]], "core")
    known = meets(gang, steps, locations)
    if known is False:
        return f"no, with {needed}: a reader may run elsewhere, and read by TCP"
    return f"if one has {needed} free; else a reader may read by TCP"


def _known(kind: str, config: Mapping[str, Any], environment: Mapping[str, str]) -> KnownLocations | None:
    site = deployment_kind(kind)
    if site is SiteKind.LOCAL:
        return KnownLocations(1, room_here().cores)
    if site is not SiteKind.HOSTS:
        return None
    if (nodes := config.get("nodes")) is not None:
        return KnownLocations(len(nodes))
    if kind != ALLOCATION:
        return None
    if (submit := config.get("submit")) is not None:
        origin = f"asked of {submit.get('manager', 'slurm')} for {submit['time']}"
        return KnownLocations(submit["nodes"], submit.get("cores"), origin=origin)
    cores = _of_slurm(environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    if "SLURM_JOB_ID" in environment and cores:
        origin = f"allocation {environment['SLURM_JOB_ID']} of Slurm"
        return KnownLocations(len(cores), max(cores), len({*cores}) == 1, origin)
    return KnownLocations(None, origin="the nodes of the job that StreamFlow runs in")


def _of_slurm(text: str) -> Sequence[int]:
    """Return the cores of each node."""
    return [int(cores) for cores, times in _GROUP.findall(text) for _ in range(int(times or 1))]


_EARLY = {
    SiteKind.LOCAL: "streams, gate, commits",
    SiteKind.HOSTS: "streams, commits",
    SiteKind.QUEUE: "streams, gate, commits",
}


def site_to_json(site: Site) -> dict[str, Any]:
    """Return the site of a step, for programs."""
    return {
        "site": None if site.kind is None else site.kind.value,
        "deployments": list(dict.fromkeys(deployment.label for deployment in site.deployments)),
    }


def sites_table(steps: Mapping[str, Step], locations: Mapping[str, KnownLocations]) -> Table:
    """Return a table with a row for each site. The containers of all DockerRequirements on a host count as one site.

    :param locations: the locations of deployments, as far as they are known
    """
    rows = []
    for paths in grouped(steps, lambda path: _key(steps[path].site)).values():
        sites = tuple(dict.fromkeys(steps[path].site for path in paths))
        rows.append((_shown(sites) + _located(sites[0], locations), "\n".join(sorted(paths)), _early(sites)))
    return table("Where steps run", ("on", "steps", "early between them"), rows)


def _key(site: Site) -> Hashable:
    first = site.deployments[0]
    if first.image is not None and first.is_contained and site.kind is not None:
        return first.type, first.host, site.unwatched is None
    return str(site), site.unwatched is None


def _shown(sites: Sequence[Site]) -> str:
    first = sites[0].deployments[0]
    if first.image is None or sites[0].kind is None or not first.is_contained:
        return str(sites[0])
    images = sorted({deployment.label for site in sites for deployment in site.deployments})
    host = "" if first.host is None else f", on {first.host}"
    return f"containers of {', '.join(images)} ({first.type}{host})"


def _located(site: Site, locations: Mapping[str, KnownLocations]) -> str:
    hosts = {deployment.name for deployment in site.deployments if deployment.kind is SiteKind.HOSTS}
    known = [(name, str(locations[name])) for name in sorted(hosts) if name in locations]
    return "".join(f"\n{text}" if len(hosts) == 1 else f"\n{name}: {text}" for name, text in known)


def _early(sites: Sequence[Site]) -> str:
    site = sites[0]
    if site.unwatched is not None:
        return "nothing"
    if site.kind is not None and site.deployments[0].is_contained:
        pairs = [*product(sites, repeat=2)]
        if all(one.is_joined_with(other, gate=True) for one, other in pairs):
            return "streams, gate, commits"
        return "streams, commits" if all(one.is_joined_with(other) for one, other in pairs) else "commits"
    return "commits" if site.kind is None else _EARLY[site.kind]
