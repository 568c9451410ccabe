"""The adapter between StreamFlow's jobs and the admission."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping, Sequence

import pytest
from streamflow.core.deployment import DeploymentConfig, Target
from streamflow.core.scheduling import AvailableLocation, Hardware
from streamflow.core.workflow import Status
from streamflow.scheduling.scheduler import JobAllocation

from lab.cluster import Cluster, io_task_admission, job, target
from streamflow_io._streamflow import NoHostsError
from streamflow_io.adapters.jobs import JobState
from streamflow_io.hints.bandwidth import StaticConstraint
from streamflow_io.hints.config import StorageConfig
from streamflow_io.storage.admission.admission import Admission
from streamflow_io.storage.admission.demand import (
    Capacity,
    StoragePlace,
)
from streamflow_io.storage.storage_admission import StorageAdmission


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The locations that the admission was told of."""
    calls: list[list[str]] = []
    set_locations = Admission.set_locations

    def noted(admission: Admission, pool: str, cores: Mapping[str, float], slots: Mapping[str, int]) -> None:
        calls.append(list(cores))
        set_locations(admission, pool, cores, slots)

    monkeypatch.setattr(Admission, "set_locations", noted)
    return calls


async def test_locations_are_told_when_they_change(told: list[list[str]]) -> None:
    cluster = Cluster(2)
    admission = io_task_admission(cluster)
    for number in range(3):
        await admission.admit(job(number), [target()])
    assert told == [["cluster/node00000", "cluster/node00001"]]
    cluster.resize(3)
    await admission.admit(job(3), [target()])
    assert told[1:] == [["cluster/node00000", "cluster/node00001", "cluster/node00002"]]


class EndedAllocation(Cluster):
    """A service `ended` of the cluster has no hosts any more."""

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        if service == "ended":
            raise NoHostsError("allocation 7 has ended")
        return await super().get_available_locations(service)


async def test_a_job_is_admitted_on_the_targets_that_have_hosts() -> None:
    ended = Target(DeploymentConfig("cluster", "ssh", {}), workdir="/scratch", service="ended")
    admission, left = io_task_admission(EndedAllocation(1)), target()
    assert await admission.admit(job(0), [ended, left]) == [left]
    with pytest.raises(NoHostsError, match="allocation 7 has ended"):
        await admission.admit(job(1), [ended])


def place(admission: StorageAdmission, job: JobState, target: Target, places: Sequence[AvailableLocation]) -> None:
    """StreamFlow gives a job its locations."""
    job.allocation, job.places = JobAllocation(job.name, target, [], Status.FIREABLE, Hardware()), places
    admission.placed(job)


HOST = AvailableLocation("host1", "one", "host1", hardware=Hardware(2, 1000))
EXECUTORS = 8  # of its two cores


class Containers(Cluster):
    """An SSH host, and a deployment with two containers on it, which say that all of its cores are theirs."""

    def __init__(self) -> None:
        super().__init__(0)

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        if service is None:
            return {HOST.name: HOST}
        return {
            name: AvailableLocation(name, "box", "", stacked=True, wraps=HOST, hardware=Hardware(2, 1000))
            for name in ("box-1", "box-2")
        }


BESIDE = Target(DeploymentConfig("one", "ssh", {}), workdir="/scratch")


def contained(locations: int = 1) -> Target:
    return Target(DeploymentConfig("box", "docker-compose", {}), locations, "tool", "/scratch")


async def test_containers_share_the_executors_of_their_host() -> None:
    cluster = Containers()
    admission = io_task_admission(cluster)
    jobs = [job(number) for number in range(EXECUTORS)]
    for number, each in enumerate(jobs):
        await asyncio.wait_for(admission.admit(each, [[BESIDE, contained()][number % 2]]), 1)
    waiting = asyncio.create_task(admission.admit(job(EXECUTORS), [contained()]))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    first, second = (await cluster.get_available_locations("tool")).values()
    assert all(admission.may_start(jobs[1], contained(), location) for location in (first, second))
    assert not admission.may_start(jobs[1], BESIDE, HOST)
    place(admission, jobs[1], contained(), [second])
    admission.ended(jobs[1])
    await asyncio.wait_for(waiting, 1)


async def test_a_job_of_two_containers_takes_of_their_host_once() -> None:
    cluster = Containers()
    admission = io_task_admission(cluster)
    both = contained(2)
    jobs = [job(number) for number in range(EXECUTORS)]
    for each in jobs:
        await asyncio.wait_for(admission.admit(each, [both]), 1)
        place(admission, each, both, [*(await cluster.get_available_locations("tool")).values()])
    waiting = asyncio.create_task(admission.admit(job(EXECUTORS), [both]))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    admission.ended(jobs[0])
    await asyncio.wait_for(waiting, 1)


async def test_a_grant_at_a_host_that_is_lost_holds_at_no_host() -> None:
    """The host may be lost between the grant and the place."""
    cluster = Cluster(2)
    admission, task = io_task_admission(cluster), job(0)
    await asyncio.wait_for(admission.admit(task, [target()]), 1)
    first, second = (await cluster.get_available_locations()).values()
    assert [admission.may_start(task, target(), where) for where in (first, second)] == [True, False]
    both, left = {"cluster/node00000", "cluster/node00001"}, {"cluster/node00001"}
    assert not admission.may_start(task, target(), second, both)
    assert admission.may_start(task, target(), second, left)
    place(admission, task, target(), [second])
    admission.ended(task)


@pytest.mark.parametrize("is_told", [False, True])
async def test_a_grant_at_several_hosts_of_which_one_is_lost_holds_at_no_host(is_told: bool) -> None:
    cluster = Cluster(3)
    admission, task = io_task_admission(cluster), job(0)
    pair = Target(DeploymentConfig("cluster", "ssh", {}), 2, workdir="/scratch")
    await asyncio.wait_for(admission.admit(task, [pair]), 1)
    first, *left = (await cluster.get_available_locations()).values()
    assert [admission.may_start(task, pair, where) for where in (first, *left)] == [True, True, False]
    cluster.lose(first)
    if is_told:
        await admission.hosts_changed("cluster")
    assert all(admission.may_start(task, pair, where, {"cluster/node00001", "cluster/node00002"}) for where in left)
    place(admission, task, pair, left)
    admission.ended(task)


async def test_a_host_that_is_lost_as_soon_as_a_task_that_waits_is_granted_it() -> None:
    """Another host comes in its place."""
    cluster = Cluster(1)
    storage = StorageConfig(name="ssd", path="/", scope="node", write=10)
    admission, tasks, there = io_task_admission(cluster, storage=storage), [job(0), job(1)], target()
    await asyncio.wait_for(admission.admit(tasks[0], [there]), 1)
    waiting = asyncio.create_task(admission.admit(tasks[1], [there]))
    await asyncio.sleep(0)
    admission.ended(tasks[0])
    (lost,) = (await cluster.get_available_locations()).values()
    cluster.resize(2)
    cluster.lose(lost)
    await admission.hosts_changed("cluster")
    assert await asyncio.wait_for(waiting, 1) == [there]
    (host,) = (await cluster.get_available_locations()).values()
    assert admission.may_start(tasks[1], there, host, {"cluster/node00001"})


class Allocations(Cluster):
    """Two services of the cluster, each with a host. Those in `ended` have no hosts any more."""

    def __init__(self) -> None:
        super().__init__(0)
        self.ended: dict[str | None, NoHostsError] = {}

    async def get_available_locations(self, service: str | None = None) -> MutableMapping[str, AvailableLocation]:
        if service in self.ended:
            raise self.ended[service]
        name = f"host-{service}"
        return {name: AvailableLocation(name, "cluster", name, service=service, hardware=Hardware(1, 1000))}

    async def host(self, target: Target) -> AvailableLocation:
        (found,) = (await self.get_available_locations(target.service)).values()
        return found

    def end(self, target: Target) -> NoHostsError:
        self.ended[target.service] = NoHostsError(f"allocation of {target.service} has ended")
        return self.ended[target.service]


ONE, OTHER = (Target(DeploymentConfig("cluster", "ssh", {}), workdir="/scratch", service=name) for name in "ab")


async def test_a_grant_at_a_target_that_has_ended_holds_at_no_target() -> None:
    """The bandwidth of the storage, which both targets share, is free for others, and then for the task."""
    cluster = Allocations()
    storage = StorageConfig(name="scratch", path="/", scope="shared", read=1000, write=15)
    admission, task, other = io_task_admission(cluster, storage=storage), job(0), job(1)
    assert (await asyncio.wait_for(admission.admit(task, [ONE, OTHER]), 1))[0] == ONE
    waiting = asyncio.create_task(admission.admit(other, [OTHER]))
    await asyncio.sleep(0)
    host = await cluster.host(OTHER)
    assert not admission.may_start(task, OTHER, host, {"cluster/host-b"})
    admission.no_hosts(task, ONE, cluster.end(ONE))
    await asyncio.wait_for(waiting, 1)
    admission.ended(other)
    assert admission.may_start(task, OTHER, host, {"cluster/host-b"})


@pytest.mark.parametrize("is_told_by_another_job", [False, True])
async def test_a_task_that_waits_fails_when_its_last_target_has_ended(is_told_by_another_job: bool) -> None:
    cluster = Allocations()
    admission = io_task_admission(cluster)
    jobs = [job(number) for number in range(4)]
    for each in jobs:
        await asyncio.wait_for(admission.admit(each, [ONE]), 1)
        place(admission, each, ONE, [await cluster.host(ONE)])
    only, both = (asyncio.create_task(admission.admit(job(4 + n), to)) for n, to in enumerate(([ONE], [ONE, OTHER])))
    await asyncio.sleep(0)
    error = cluster.end(ONE)
    if is_told_by_another_job:
        await asyncio.wait_for(admission.admit(job(6), [ONE, OTHER]), 1)
    else:
        admission.no_hosts(jobs[0], ONE, error)
    with pytest.raises(NoHostsError, match="allocation of a has ended"):
        await asyncio.wait_for(only, 1)
    await asyncio.wait_for(both, 1)


class Required:
    """Jobs with `storageBW: required`; those with an odd number are small."""

    def spacing(self, job: JobState, bandwidth: float, executors: int) -> StaticConstraint | None:
        assert (bandwidth, executors) == (1000, 64)
        return StaticConstraint(600) if int(job.name[-1]) % 2 else None


async def test_what_is_required_takes_an_executor_and_no_bandwidth_unless_it_is_small() -> None:
    cluster = Cluster(1)
    admission = io_task_admission(cluster, spacing=Required().spacing)
    jobs = [job(number, storage_bw="required") for number in range(6)]
    for number in (0, 2, 4, 1):
        await asyncio.wait_for(admission.admit(jobs[number], [target()]), 1)
    place = StoragePlace("ssd", "cluster/node00000")
    assert admission.capacity(place, "write") == Capacity(400_000_000, False, 64, 60)
    assert admission.capacity(StoragePlace(None, place.location), "write") is None
    waiting = {number: asyncio.create_task(admission.admit(jobs[number], [target()])) for number in (3, 5)}
    await asyncio.sleep(0.01)
    assert not any(task.done() for task in waiting.values())
    admission.ended(jobs[1])
    await asyncio.wait_for(waiting[3], 1)
    assert not waiting[5].done(), "it came later"
    admission.ended(jobs[3])
    await asyncio.wait_for(waiting[5], 1)
