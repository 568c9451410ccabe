from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from lab.container_sites import Containers, docker_bench, ssh_bench
from lab.machines.laboratory import (
    CLUSTERS,
    DOCKER,
    GLUSTERFS,
    PODS,
    Laboratory,
    containers_obstacle,
    keep_containers,
    keep_pods,
    missing_programs,
    obstacle,
    pods_obstacle,
    slurm_obstacle,
    start_hosts,
    start_slurm,
)
from lab.node import wait_for
from lab.once import once
from lab.sites import Site, allocation_site, hosts_site, login_site, on_volume, slurm_site
from tests.integration.conftest import _prepared

__all__ = ["_prepared"]

# Whether the work directories of all tests of a Slurm are on a distributed file system: `tests/RUNNING.md`.
ON_VOLUME = os.environ.get("SFIO_SLURM_FILES") == "glusterfs"

why_not = functools.cache(obstacle)
why_no_containers = functools.cache(containers_obstacle)
why_no_pods = functools.cache(pods_obstacle)


def require_laboratories() -> None:
    """Skip the test where there can be no clusters."""
    _require(CLUSTERS, why_not)


def require_glusterfs() -> None:
    """Skip the test where there can be no distributed file system."""
    missing = missing_programs(GLUSTERFS)
    why = f"needs programs that are not installed: {', '.join(missing)}" if missing else None
    _require(GLUSTERFS, lambda: why if os.access("/dev/fuse", os.W_OK) else "/dev/fuse cannot be written")


def require_containers() -> None:
    """Skip the test where there can be no engines of containers."""
    _require(DOCKER, why_no_containers)


def require_pods() -> None:
    """Skip the test where there can be no pods."""
    _require(PODS, why_no_pods)


def _require(programs: Iterable[str], why: Callable[[], str | None]) -> None:
    """Skip the test for a reason; `.ci/run` has installed the programs."""
    if os.environ.get("SFIO_TEST_PACKAGES") == "installed" and (missing := missing_programs(programs)):
        pytest.fail(f"not installed: {', '.join(missing)}")
    if (reason := why()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm_laboratory() -> Iterator[Laboratory]:
    """A real Slurm with 4 nodes of 2 cores, one for each process that runs tests."""
    require_laboratories()
    if (reason := slurm_obstacle()) is not None:
        pytest.skip(reason)
    with start_slurm(ON_VOLUME) as running:
        yield running


@pytest.fixture(scope="session")
def hosts_laboratory() -> Iterator[Laboratory]:
    """Two SSH hosts, a pair for each process that runs tests."""
    require_laboratories()
    with start_hosts() as running:
        yield running


@pytest.fixture(scope="session")
def containers_laboratory(common: Path) -> Laboratory:
    """Engines of containers, one laboratory for all processes that run tests: it lasts as long as they do."""
    require_containers()
    return once(common / "containers", lambda: keep_containers(_main_process()))


@pytest.fixture(scope="session")
def pods_laboratory(common: Path) -> Laboratory:
    """A stand-in for Kubernetes, one for all processes that run tests."""
    require_pods()
    return once(common / "pods", lambda: keep_pods(_main_process()))


def _main_process() -> int:
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@pytest.fixture
def docker(containers_laboratory: Laboratory, tmp_path: Path) -> Iterator[Containers]:
    bench = docker_bench(containers_laboratory, tmp_path)
    yield bench
    bench.remove_containers()


@pytest.fixture
def containers_host(containers_laboratory: Laboratory, tmp_path: Path) -> Iterator[Containers]:
    """An SSH host with an engine of containers."""
    bench = ssh_bench(containers_laboratory, tmp_path)
    yield bench
    bench.remove_containers()


@pytest.fixture
def slurm(slurm_laboratory: Laboratory, tmp_path: Path) -> Site:
    """A Slurm with an empty queue: the jobs that an earlier test has ended are gone."""
    site = slurm_site(slurm_laboratory, tmp_path)
    wait_for(lambda: not site.queue(), "the end of the jobs of earlier tests", 60)
    return on_volume(site) if ON_VOLUME else site


@pytest.fixture
def allocation(slurm_laboratory: Laboratory, tmp_path: Path) -> Iterator[Site]:
    """Two nodes of the Slurm, as a batch job finds them."""
    with allocation_site(slurm_laboratory, tmp_path) as site:
        yield on_volume(site) if ON_VOLUME else site


@pytest.fixture
def login(slurm_laboratory: Laboratory, tmp_path: Path) -> Site:
    return login_site(slurm_laboratory, tmp_path)


@pytest.fixture
def hosts(hosts_laboratory: Laboratory, tmp_path: Path) -> Site:
    return hosts_site(hosts_laboratory, tmp_path)


@pytest.fixture(params=["slurm", "hosts"])
def site(request: pytest.FixtureRequest) -> Site:
    """Each of them."""
    found: Site = request.getfixturevalue(request.param)
    return found
