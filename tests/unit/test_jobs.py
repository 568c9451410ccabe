"""Every listener is told of every job: in one order, submitted first, and ended last and once."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamflow.core.workflow import Job, Status, Token

from lab.fakes import FakeRuntime
from lab.jobs import allocation
from streamflow_io.adapters.jobs import Jobs, JobState, Listener
from streamflow_io.adapters.tokens import StreamSource, StreamToken, file_value
from streamflow_io.engine.context import Run
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import JobSpec
from streamflow_io.runtime.wire import with_observation


class Noting(Listener):
    """Notes what is told of each job."""

    def __init__(self, name: str, told: list[tuple[str, str, JobState]]) -> None:
        self._name = name
        self._told = told

    def submitted(self, job: JobState) -> None:
        self._told.append((self._name, "submitted", job))

    def ended(self, job: JobState) -> None:
        self._told.append((self._name, "ended", job))

    async def run_closed(self) -> None:
        self._told.append((self._name, "closed", job("")))


class Measuring(Noting):
    """Asks for measures of an attempt."""

    def starting(self, job: JobState, spec: JobSpec, runtime: NodeRuntime) -> JobSpec:
        assert not spec.observation.io
        return with_observation(spec, io=True)


def job(name: str, **inputs: Token) -> JobState:
    return JobState(Job(name, 0, inputs, None, None, None))


NAMES = st.sampled_from(["/a/0", "/a/1", "/b/0"])


@given(st.lists(st.tuples(st.sampled_from(["submit", "end", "end again"]), NAMES)))
def test_a_job_that_was_submitted_ends_once(actions: list[tuple[str, str]]) -> None:
    told: list[tuple[str, str, JobState]] = []
    jobs = Jobs({}, [Noting("x", told), Noting("y", told)])
    known: dict[str, JobState] = {}
    for action, name in actions:
        if action == "submit":
            known[name] = job(name)
            jobs.submitted(known[name], 0.0)
        elif name in known:
            jobs.ended(known[name], Status.COMPLETED, 1.0)
    assert {each.name for each in jobs} == {name for name, each in known.items() if each.status is None}
    jobs.cancel_all(2.0)
    counted = Counter((listener, what, id(each)) for listener, what, each in told)
    assert set(counted.values()) <= {1}
    assert len(told) == 4 * sum(action == "submit" for action, _ in actions)
    assert [listener for listener, _, _ in told] == ["x", "y"] * (len(told) // 2)
    seen: set[int] = set()
    for _, what, each in told:
        assert (what == "ended") <= (id(each) in seen)
        seen.add(id(each))


async def test_a_listener_is_closed_before_those_that_are_told_before_it() -> None:
    told: list[tuple[str, str, JobState]] = []
    await Jobs({}, [Noting("x", told), Noting("y", told)]).run_closed()
    assert [listener for listener, _, _ in told] == ["y", "x"]


async def test_a_listener_that_cannot_be_closed_keeps_no_other_from_being_closed() -> None:
    class Failing(Listener):
        async def run_closed(self) -> None:
            raise OSError("no answer")

    told: list[tuple[str, str, JobState]] = []
    with pytest.raises(OSError, match="no answer"):
        await Jobs({}, [Noting("x", told), Failing(), Noting("y", told)]).run_closed()
    assert [name for name, _, _ in told] == ["y", "x"]


async def test_node_runtimes_end_with_a_run_of_which_a_part_cannot_be_closed() -> None:
    async def fail(_: bool) -> None:
        raise OSError("no answer")

    run, ended = cast(Any, Run.__new__(Run)), asyncio.Event()

    async def end() -> None:
        ended.set()

    run.proofs, run.failure = SimpleNamespace(end=fail), SimpleNamespace(status="failed")
    run._runtimes = SimpleNamespace(close=end)
    with pytest.raises(OSError, match="no answer"):
        await run.close()
    assert ended.is_set()


def test_what_one_listener_raises_keeps_no_other_from_being_told() -> None:
    class Failing(Listener):
        def ended(self, job: JobState) -> None:
            raise ValueError(job.name)

    told: list[tuple[str, str, JobState]] = []
    jobs = Jobs({}, [Noting("x", told), Failing(), Noting("y", told)])
    state = job("/a/0")
    jobs.submitted(state, 0.0)
    with pytest.raises(ValueError, match="/a/0"):
        jobs.ended(state, Status.FAILED, 1.0)
    assert [listener for listener, what, _ in told if what == "ended"] == ["x", "y"]
    assert (state.status, state.ended, [*jobs]) == (Status.FAILED, 1.0, [])


def test_an_attempt_is_told_what_all_listeners_ask_for() -> None:
    told: list[tuple[str, str, JobState]] = []
    jobs = Jobs({}, [Noting("x", told), Measuring("y", told)])
    spec = JobSpec(name="/a/0")
    assert jobs.starting(job("/a/0"), spec, FakeRuntime("here")) == with_observation(spec, io=True)


@pytest.mark.parametrize("name", ["/a/b/0.1", "/a/b/0", "/a/b/"])
def test_a_job_has_its_step_also_without_a_tag(name: str) -> None:
    assert job(name).step == "/a/b"


def test_what_is_known_of_a_job() -> None:
    sources = [StreamSource(name, "out", "out.txt") for name in ("/p/0", "/q/0", "/p/0")]
    inputs = {str(number): StreamToken(file_value("/o"), source) for number, source in enumerate(sources)}
    jobs, state = Jobs({}), job("/a/b/0.3", **inputs)
    jobs.submitted(state, 5.0)
    assert (state.step, state.submitted, state.sources) == ("/a/b", 5.0, ("/p/0", "/q/0"))
    jobs.placed(state, allocation(state.name, "n1"), (), 2.0)
    assert (state.location.name, state.cores, jobs.find("/a/b/0.3")) == ("n1", 2.0, state)
    state.keep(7)
    state.keep("seven")
    assert (state.kept(int), state.drop(str), state.kept(str), state.kept(list)) == (7, "seven", None, None)
