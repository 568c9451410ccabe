"""Decides whether jobs of one site can read parts of a file that a job of another splits: from the file, or by a link.

StreamFlow decides where the file is when the split runs. The split may see the file by a symbolic link, or as a copy.
So what is possible here is tried at run time, unless it is certain.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import product

from .sites import LOCAL, Deployment, Site, SiteKind
from .volumes import seen_from

#: A step and its site.
At = tuple[str, Site]


def parts_obstacle(split: At, reader: At, shared: Collection[str | None] = ()) -> str | None:
    """Why no job of a reader can read a file that a job of a split sees; None: no obstacle. One sentence for the user.

    :param shared: the deployments with a storage that other deployments see, too, as the user says; None: all have one
    """
    for step, site in (split, reader):
        if site.unwatched is not None:
            return f"{step} {site.unwatched}"
        if any(deployment.kind is SiteKind.PODS for deployment in site.deployments):
            return f"{step} runs {site.where}: parts are not read in pods"
    (writer, source), (step, target) = split, reader
    for there, here in product(source.deployments, target.deployments):
        if (why := _apart(there, here, shared)) is not None:
            return f"{writer} runs {source.where}, {step} {target.where}: {why}"
    return None


def parts_condition(source: Site, target: Site) -> str | None:
    """The condition that is tried before a split reports parts, and must hold; None: no condition."""
    uncertain = [pair for pair in product(source.deployments, target.deployments) if not _is_certain(*pair)]
    if not uncertain:
        return None
    linked = all(_may_have_link(*pair) for pair in uncertain)
    return "its readers see it by the same path" + (", or reach where it is split" if linked else "")


def _apart(there: Deployment, here: Deployment, shared: Collection[str | None]) -> str | None:
    if here.kind is SiteKind.QUEUE and there.name != here.name and not {None, here.name} & {*shared}:
        # The nodes of a queue manager are not known before a job runs, so what they see cannot be tried.
        return f"name the storage that {here.name} shares, with `scope: shared`, among the `storages`"
    if _have_nothing_in_common(there, here) and not _may_have_link(there, here):
        return "they see no directory by the same path; give both a volume at one path"
    return None


def _have_nothing_in_common(there: Deployment, here: Deployment) -> bool:
    """Whether containers certainly see no file by the same path as others of their host."""
    if there.name == here.name or not (there.is_contained or here.is_contained):
        return False
    if there.node is None or there.node != here.node or there.seen is None or here.seen is None:
        return False
    paths = [bind.inside for bind in (*there.seen, *here.seen)]
    return not any(seen_from(there.seen, path, here.seen) == path for path in paths)


def _may_have_link(there: Deployment, here: Deployment) -> bool:
    """Whether a job here may get parts by the network."""
    return there.kind is here.kind is SiteKind.HOSTS or (there.name != here.name and there.has_link_to(here))


def _is_certain(there: Deployment, here: Deployment) -> bool:
    """Whether both are one machine, or nodes for which StreamFlow gives the same path to the same input."""
    if there.kind is not here.kind:
        return False
    return there.kind is SiteKind.LOCAL or (there.kind is SiteKind.QUEUE and there.name == here.name)


def are_here(site: Site) -> bool:
    """Whether all jobs of a site are processes of the driver's node, outside of containers."""
    return all(deployment.kind is SiteKind.LOCAL for deployment in site.deployments)


def is_of_hosts(site: Site) -> bool:
    """Whether all jobs of a site run on hosts of one deployment, which may be one host."""
    return len(site.deployments) == 1 and site.kind is SiteKind.HOSTS


def share_cache(site: Site) -> bool:
    """Whether all jobs of a site read what the driver's node has in its page cache."""
    return all(deployment.node == LOCAL for deployment in site.deployments)
