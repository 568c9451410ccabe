"""The sites where steps run, for people and for programs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import product
from typing import Any

from rich.table import Table

from streamflow_io.graph.io_graph import Step
from streamflow_io.graph.sites import Site, SiteKind
from streamflow_io.grouping import grouped

from .console import table
from .known_locations import KnownLocations

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
