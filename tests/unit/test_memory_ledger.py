"""Steps that may write into memory, and the memory that their jobs are granted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Output, OutputKind, Step
from streamflow_io.graph.last_readers import JobReader, LastReaders, Removal
from streamflow_io.graph.memory_steps import MemoryPlan, plan_memory
from streamflow_io.graph.sites import Deployment, Site, SiteKind
from streamflow_io.graph.stream_windows import StreamWindow
from streamflow_io.storage.intermediates.memory import FreeMemory, MemoryLedger

ALL = 1000


def there(free: int = ALL, asked: int = 0) -> FreeMemory:
    return FreeMemory(free, ALL, asked)


def test_the_limit_holds_for_all_files_and_files_of_ended_jobs_count() -> None:
    ledger = MemoryLedger(100, 0)
    assert ledger.grant("a", 60, there())
    assert not ledger.grant("b", 60, there())
    assert ledger.ended("a", 20) == 40
    assert not ledger.grant("b", 81, there())
    assert ledger.grant("b", 80, there())
    assert ledger.removed("a") == 20
    assert ledger.granted == 80


def test_what_running_jobs_have_been_granted_is_not_free() -> None:
    ledger = MemoryLedger(ALL, 0)
    assert ledger.grant("a", 50, there(100))
    assert not ledger.grant("b", 50, there(100))
    ledger.ended("a", 50)
    assert ledger.grant("b", 50, there(100))


def test_a_job_is_granted_memory_once() -> None:
    ledger = MemoryLedger(ALL, 0)
    assert ledger.grant("a", 1, there())
    assert not ledger.grant("a", 1, there())


@given(st.data())
def test_any_job_alone_finds_its_memory_and_no_more_is_granted_than_is_free(data: st.DataObject) -> None:
    """Jobs come and go: they and the files never take more than there is."""
    largest = data.draw(st.integers(0, ALL))
    limit = data.draw(st.integers(1, 2 * ALL))
    ledger, running, files = MemoryLedger(limit, largest), dict[str, int](), dict[str, int]()
    for number in range(data.draw(st.integers(1, 30))):
        name, granted = f"job {number}", sum(files.values())
        if running and data.draw(st.booleans()):
            ended = data.draw(st.sampled_from(sorted(running)))
            del running[ended]
            if ended in files:
                files[ended] -= ledger.ended(ended, data.draw(st.integers(0, 2 * files[ended])))
                if data.draw(st.booleans()):
                    assert files.pop(ended) == ledger.removed(ended)
            continue
        asks = data.draw(st.integers(0, largest))
        if sum(running.values()) + granted + asks > ALL:
            # If nothing runs, a job can always start.
            assert running
            continue
        running[name] = asks
        size = data.draw(st.integers(0, ALL))
        asked = sum(running.values()) + granted
        if ledger.grant(name, size, FreeMemory(data.draw(st.integers(0, ALL)), ALL, asked)):
            files[name] = size
            assert asked + size <= ALL
        assert ledger.granted == sum(files.values()) <= limit


HOST = Site((Deployment("hpc", "ssh", SiteKind.HOSTS),))


def step(path: str, memory: float | None = 100.0, site: Site | None = None) -> Step:
    return Step(path, 1.0, site or Site(), memory)


def planned(
    *steps: Step,
    readers: LastReaders | None = None,
    windows: tuple[StreamWindow, ...] = (),
    gangs: tuple[Gang, ...] = (),
    kept: bool = False,
) -> MemoryPlan:
    found = readers or LastReaders(frozenset({JobReader("/b/__schedule__", "i", 0)}))
    removal = Removal({("/a", "o"): found}, {("/a", "o"): "it is permanent"} if kept else {})
    outputs = [Output("/a", "o", OutputKind.FILE)]
    return plan_memory(500, {each.path: each for each in steps}, outputs, removal, windows, gangs, {})


def test_a_step_whose_files_are_removed() -> None:
    assert planned(step("/a"), step("/b")) == MemoryPlan(500, {"/a": 0}, {}, 100.0)


def test_files_that_stay_or_leave_are_on_disk() -> None:
    assert planned(step("/a"), kept=True).why_not == {"/a": "it is permanent"}
    result = LastReaders(steps=frozenset({"/o-collector/__schedule__"}))
    assert planned(step("/a"), readers=result).why_not == {"/a": "/a/o may be a result of the workflow"}
    assert planned(step("/a"), step("/b", site=HOST)).why_not == {"/a": "/b reads /a/o elsewhere"}
    assert planned(step("/a", site=HOST), step("/b")).why_not == {"/a": "/b reads /a/o elsewhere"}


def test_files_of_hosts_are_in_the_memory_of_hosts() -> None:
    assert planned(step("/a", site=HOST), step("/b", site=HOST)).steps == {"/a": 0}
    for kind in (SiteKind.QUEUE, SiteKind.CONTAINERS, SiteKind.PODS, SiteKind.OTHER):
        site = Site((Deployment("d", "t", kind),))
        assert (
            "in containers, on a queue manager, or"
            in planned(step("/a", site=site), step("/b", site=site)).why_not["/a"]
        )
    many = Site(HOST.deployments, 2)
    assert planned(step("/a", site=many), step("/b", site=many)).steps == {}


def test_nothing_is_in_memory_if_it_is_not_known_what_jobs_need() -> None:
    plan = planned(step("/a"), step("/b", None))
    assert (plan.steps, plan.why_not) == ({}, {"/a": "an expression says how much memory /b needs"})


def test_a_gang_asks_for_the_memory_of_all_its_steps() -> None:
    assert planned(step("/a"), step("/b"), step("/c", 150), gangs=(Gang(("/a", "/b"), ("/a",), 1),)).largest == 200


def test_a_window_takes_three_times_its_size() -> None:
    window = StreamWindow("/a", "o", 7, frozenset(), None, False)
    assert planned(step("/a"), step("/b"), windows=(window,)).steps == {"/a": 21}
