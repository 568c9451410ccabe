"""The job that fed each job: compared with the definition, written down without an index."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lab.telemetry import BEGIN
from streamflow_io.graph.io_graph import Delivery
from streamflow_io.records.files import EdgeRecord, ReadingRecord
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.records.records import RunRecord
from streamflow_io.report.analysis.network import Network, step_of

STEPS = ("/a", "/b", "/b/inner", "/c")
TAGS = ("0", "0.0", "0.1", "0.1.0", "0.10", "0.1.0.2")

steps = st.sampled_from(STEPS)
names = st.tuples(steps, st.sampled_from(TAGS)).map("/".join)
jobs = names.map(lambda name: JobAttempt(name, step_of(name)))
readings = st.builds(
    ReadingRecord,
    time=st.just(BEGIN),
    job=names,
    step=steps,
    input=st.just("/b/in"),
    output=st.just("/a/out"),
    delivery=st.sampled_from(("stream", "gate")),
    sources=st.lists(names, max_size=3).map(tuple),
)
edges = st.builds(
    EdgeRecord,
    time=st.just(BEGIN),
    output=steps.map(lambda step: f"{step}/out"),
    input=st.none() | steps.map(lambda step: f"{step}/in"),
    delivery=st.sampled_from(Delivery),
)
runs = st.builds(
    RunRecord,
    time=st.just(BEGIN),
    name=st.just("run"),
    workflow=st.just("w.cwl"),
    steps=st.dictionaries(steps, st.lists(steps, max_size=3).map(tuple)),
)
histories = st.builds(
    History,
    st.just("run"),
    runs,
    jobs=st.lists(jobs, max_size=12),
    edges=st.lists(edges, max_size=6),
    readings=st.lists(readings, max_size=8),
)


def fits(one: str, other: str) -> bool:
    """Whether one tag is the other, or continues it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def follows(one: str, other: str) -> bool:
    """Whether one tag is of the iteration after that of the other, in some loop."""
    ours, its = one.split("."), other.split(".")
    pairs = range(1, min(len(ours), len(its)))
    return any(ours[:at] == its[:at] and int(ours[at]) == int(its[at]) + 1 for at in pairs)


def go_round(history: History, one: str, other: str) -> bool:
    """Whether results of one step come back to it through another, which it feeds."""
    reached = {one}
    for _ in STEPS:
        reached |= {step for step, before in history.run.steps.items() if reached & {*before}}
    return other in reached - {one} or other == one


def tag(job: JobAttempt) -> str:
    return job.name.rpartition("/")[2]


@given(histories)
def test_a_job_is_fed_by_the_steps_before_with_a_fitting_tag(history: History) -> None:
    network = Network(history, history.jobs)
    for index, job in enumerate(history.jobs):
        before = history.run.steps.get(job.step, ())
        assert network.upstream(index) == {
            other
            for other, candidate in enumerate(history.jobs)
            if other != index
            and candidate.step in before
            and (
                fits(tag(candidate), tag(job))
                or (go_round(history, job.step, candidate.step) and follows(tag(job), tag(candidate)))
            )
        }


@given(histories)
def test_what_is_read_early_comes_from_the_last_attempt_of_another_job(history: History) -> None:
    network = Network(history, history.jobs)
    for index, job in enumerate(history.jobs):
        sources = {name for reading in history.readings if reading.job == job.name for name in reading.sources}
        attempts = [[one for one, j in enumerate(history.jobs) if j.name == name and one != index] for name in sources]
        assert network.read_early(index) == {found[-1] for found in attempts if found}


@given(histories)
def test_outputs_are_early_between_steps_unless_delivered_at_the_end(history: History) -> None:
    network = Network(history, history.jobs)
    early = {
        (step_of(edge.output), step_of(edge.input), edge.output)
        for edge in history.edges
        if edge.input is not None and edge.delivery is not Delivery.TERMINATION
    }
    assert {(*pair, output) for pair, outputs in network.early.items() for output in outputs} == early
