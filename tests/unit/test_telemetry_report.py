"""From records to numbers, figures and the page."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.telemetry import BANDWIDTH, BEGIN, BYTES, SSD, STORAGE, io_seconds, job, learning_run, usage
from streamflow_io.records.files import StreamedRecord
from streamflow_io.records.history import History, read_history
from streamflow_io.records.jobs import RehearsedRecord, SubmittedRecord
from streamflow_io.records.records import EndRecord, HeldRecord, Record, RunRecord, StepRecord
from streamflow_io.report.analysis.results import POINTS, RunResult, run_results
from streamflow_io.report.chart import draw, draw_figure
from streamflow_io.report.graph_drawing import draw_timeline, timeline_rows
from streamflow_io.report.page import learning_rows, notes, remarks, render
from streamflow_io.series import covered, levels, rates, thinned

SECONDS = 100.0
INTERVALS = st.lists(
    st.tuples(st.floats(0, SECONDS), st.floats(0, SECONDS), st.floats(0, 1e9)).map(
        lambda item: (min(item[:2]), max(item[:2]), item[2])
    ),
    max_size=20,
)
RUN = RunRecord(time=BEGIN, name="run", workflow="main.cwl", storages=(STORAGE, SSD))
IO_STEP = StepRecord(time=BEGIN, step="/io", io_task=True, storage_bw="16")


def result(*records: Record) -> RunResult:
    return run_results([read_history("run", (RUN, *records))])[0]


# Series


@given(INTERVALS, st.integers(1, 50))
def test_rates_keep_the_amount(intervals: list[tuple[float, float, float]], bins: int) -> None:
    found = rates(intervals, SECONDS, bins)
    assert len(found) == bins
    assert min(found) >= 0
    total = sum(amount for _, _, amount in intervals)
    assert math.isclose(sum(found) * SECONDS / bins, total, rel_tol=1e-6, abs_tol=1e-3)


def test_rates_are_where_the_work_was() -> None:
    assert rates([(1.5, 3.5, 20.0), (9.0, 9.0, 5.0), (10.0, 10.0, 1.0)], 10, 10) == [0, 5, 10, 5, 0, 0, 0, 0, 0, 6]
    assert rates([], 0, 3) == [0, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda pair: (min(pair), max(pair)))))
def test_covered_counts_every_second_once(intervals: list[tuple[int, int]]) -> None:
    assert covered(intervals) == len({second for start, end in intervals for second in range(start, end)})


def test_what_is_given_back_and_taken_at_one_time_counts_together() -> None:
    assert levels([(0, 8), (2, 8), (2, -8), (3, -8)], 10) == [(0, 8), (2, 8), (3, 0)]
    assert levels([], 10) == []


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(-9, 9)), min_size=1), st.integers(2, 20))
def test_thinned_levels_keep_the_highest_and_the_last(changes: list[tuple[int, int]], limit: int) -> None:
    every, some = levels(changes, 10**6), levels(changes, limit)
    assert len(some) <= limit
    assert some[-1] == every[-1]
    assert max(level for _, level in some) == max(level for _, level in every)
    assert all(first < second for (first, _), (second, _) in pairwise(some))


@given(st.integers(0, 200), st.integers(2, 50))
def test_thinned_keeps_order_first_and_last(length: int, limit: int) -> None:
    items = list(range(length))
    some = thinned(items, limit)
    assert len(some) == min(length, limit)
    assert sorted(set(some)) == some
    assert some[:1] == items[:1]
    assert some[-1:] == items[-1:]


# Jobs


def test_each_attempt_of_a_job_is_one() -> None:
    history = read_history("run", [RUN, *job("/a/0", 0, 1, 2, status="failed"), *job("/a/0", 3, 5, 8)])
    assert [(attempt.submitted, attempt.started, attempt.ended, attempt.status) for attempt in history.jobs] == [
        (0, 1, 2, "failed"),
        (3, 5, 8, "completed"),
    ]
    (step,) = run_results([history])[0].steps
    assert (step.jobs, step.completed, step.failed) == (2, 1, 1)
    assert (step.mean_seconds, step.mean_wait) == (3, 1.5)


def rehearsed(time: float, seconds: float, reason: str | None = None, *, known: bool = True) -> RehearsedRecord:
    """A rehearsal of a job. It found a way to stream the input, unless there is a reason against that."""
    return RehearsedRecord(
        time=BEGIN + time, job="/a/0", step="/a", input="/a/text", way=None if reason else "pipe", reason=reason,
        known=known, seconds=seconds, bytes=5,
    )  # fmt: skip


def test_a_rehearsal_is_no_attempt_of_its_job() -> None:
    history = read_history("run", [RUN, *job("/a/0", 0, 1, 4), rehearsed(6, 1.5), EndRecord(time=BEGIN + 7)])
    run = run_results([history])[0]
    assert [(step.step, step.jobs) for step in run.steps] == [("/a", 1)]
    assert [row.job for row in run.timeline] == ["/a/0"]


@pytest.mark.parametrize(
    ("last", "told"),
    [
        (rehearsed(8, 0.5), "it may be read while it is written"),
        (rehearsed(8, 0.5, "it is read twice"), "it is not streamed: it is read twice"),
        (rehearsed(8, 0.5, "the run has ended", known=False), "nothing is known yet: the run has ended"),
    ],
)
def test_the_report_has_the_rehearsals_of_each_input(last: RehearsedRecord, told: str) -> None:
    first = rehearsed(6, 1.5, "no core was idle", known=False)
    run = result(*job("/a/0", 0, 1, 4), first, last)
    assert remarks(run) == [f"run: /a/text was rehearsed 2 times, in 2 s: {told}."]
    assert remarks(result(last))[0].startswith("run: /a/text was rehearsed once, in 0.5 s")


def test_the_report_has_the_bursts_that_a_schedule_held_back() -> None:
    held = [HeldRecord(time=BEGIN + time, storage="scratch", until=BEGIN + 8) for time in (2, 7, 8)]
    assert remarks(result(*held)) == ["run: 2 bursts on scratch waited for slots in a schedule, 7 s at most."]


def test_a_killed_run_ends_with_its_last_record() -> None:
    records = [RUN, *job("/a/0", 0, 1, 4)[:3], SubmittedRecord(time=BEGIN + 6, job="/b/0", step="/b")]
    history = read_history("run", records)
    running, waiting = history.jobs
    assert (history.seconds, history.ended) == (6, False)
    assert history.running(running) == (1, 6)
    assert history.waiting(waiting) == (6, 6)
    assert history.running(waiting) is None
    assert "killed" in notes(run_results([history])[0])[0]


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_the_clock_of_a_node_does_not_matter(skew: float) -> None:
    history = read_history("run", [RUN, *job("/io/0", 0, 1, 4, 16, usage(skew + 1.0, skew + 4.0, BYTES))])
    assert history.measured(history.jobs[0]) == (1, 4)


# Numbers


def test_throughput_is_of_io_tasks_in_the_direction_of_their_step() -> None:
    records = [
        IO_STEP,
        *job("/io/0", 0, 1, 3, 16, usage(1, 3, written=40_000_000, read=1_000_000)),
        *job("/io/1", 0, 2, 4, 16, usage(2, 4, written=40_000_000)),
        *job("/compute/0", 0, 0, 10, usage=usage(0, 10, written=999_000_000)),
    ]
    throughput = result(*records).throughput
    assert throughput is not None
    assert throughput.bytes == 80_000_000
    assert throughput.seconds == pytest.approx(3)
    assert throughput.mean == pytest.approx(80 / 3)


def test_learning_of_the_simulated_run() -> None:
    (run,) = run_results([read_history("auto", learning_run())])
    (learning,) = run.learning
    assert [(epoch.constraint, epoch.concurrency, epoch.registered) for epoch in learning.epochs] == [
        (4, 16, True),
        (8, 8, True),
        (16, 4, True),
        (32, 2, False),
    ]
    assert [epoch.mean_seconds for epoch in learning.epochs] == [io_seconds(n) for n in (16, 8, 4, 2)]
    assert learning.chosen == 8
    *_, last, chosen = learning_rows(learning)
    assert last == ("/checkpoint", "scratch", "4", "32", "2", f"{learning.epochs[-1].jobs}", "2", "no")
    assert chosen[2:4] == ("chosen", "8")


def test_admitted_bandwidth_reaches_the_limit_and_returns() -> None:
    (run,) = run_results([read_history("auto", learning_run())])
    shared, node = sorted(run.admitted, key=lambda admitted: admitted.storage)
    assert (shared.storage, shared.location, shared.direction, shared.limit) == ("scratch", None, "write", BANDWIDTH)
    assert (node.storage, node.location, node.limit) == ("ssd", "local/node", 20)
    assert max(level for _, level in shared.levels) == BANDWIDTH
    assert shared.levels[-1][1] == node.levels[-1][1] == 0


def test_a_run_without_anything() -> None:
    run = result(EndRecord(time=BEGIN + 3))
    assert (run.seconds, run.jobs, run.throughput, run.steps) == (3, 0, None, [])
    assert notes(run) == []
    assert draw([run]) == []
    assert "Timeline" not in render([run], draw([run]))


# Figures


def histories() -> list[History]:
    return [
        read_history("auto <b>", learning_run()),
        read_history("short", list(learning_run(jobs=25))[:-1]),
        read_history("plain", learning_run(io_task=False)),
    ]


def test_every_figure_has_title_and_axes_with_units() -> None:
    figures = draw(run_results(histories()))
    titles = [figure.title for figure in figures]
    assert len(set(titles)) == len(titles)
    for words in ("Jobs over", "Admitted"):
        assert any(words in title for title in titles)
    for figure in figures:
        assert figure.y_title == "jobs" or figure.y_title.endswith(" (MB/s)"), figure.title
        assert figure.caption.endswith("."), figure.title


def test_a_drawing_is_xml_with_all_its_texts() -> None:
    for figure in draw(run_results(histories())):
        drawn = ElementTree.fromstring(draw_figure(figure))
        texts = {"".join(text.itertext()) for text in drawn.iter("text")}
        assert {figure.y_title, *(line.name for line in figure.lines)} <= texts
        assert "nan" not in draw_figure(figure)


def test_names_are_no_html() -> None:
    runs = run_results(histories())
    page = render(runs, draw(runs))
    assert "auto <b>" not in page
    assert "auto &lt;b&gt;" in page


def test_a_timeline_has_the_jobs_and_what_was_delivered_early() -> None:
    facts = {"time": BEGIN + 8, "bytes": 1000, "first": BEGIN + 1, "last": BEGIN + 8, "waited": 4.0, "behind": 0.0}
    stream = StreamedRecord(job="/b/<0>", step="/b", input="/b/in", outputs=("/a/out",), source="/a/0", **facts)
    read = job("/b/<0>", 0, 0.5, 9, usage=usage(0.5, 9))
    failed = job("/c/0", 9, 9, 10, status="failed")
    found = result(*job("/a/0", 0, 0, 8), *read[:3], stream, *read[3:], *failed)
    (path, *rows) = timeline_rows(found)
    assert path.bars[-1][:3] == (9, 10, "path")
    bars = {row.name: [bar[:3] for bar in row.bars] for row in rows}
    assert bars["/a/0"] == [(0, 8, "run")]
    assert bars["/b/<0>"] == [(0, 0.5, "wait"), (0.5, 9, "run"), (1, 8, "stream")]
    assert (bars["/c/0"], rows[-1].text) == ([(9, 10, "run bad critical")], "failed 1 s")
    assert rows[1].bars[-1][3] == "/a/out of /a/0 into in: 1.0 kB; waited 4.00 s for bytes"
    drawn = draw_timeline(found, 20.0)
    assert "/b/&lt;0&gt;" in drawn
    assert len(ElementTree.fromstring(drawn).findall("rect")) == len(path.bars) + sum(map(len, bars.values()))


def test_all_of_many_jobs_are_on_the_page() -> None:
    count = 2000
    records: list[Record] = [RUN, IO_STEP]
    for index in range(count):
        records += job(f"/io/{index}", index, index + 0.5, index + 1.25, 16, usage(index + 0.5, index + 1.25, 1000))
    runs = run_results([read_history("run", records)])
    assert runs[0].jobs == count
    assert len(runs[0].admitted[0].levels) <= POINTS
    _, row = timeline_rows(runs[0])
    assert (row.name, row.text) == ("/io", f"{count:,} jobs")
    assert len(row.bars) < count
    assert len(render(runs, draw(runs))) < 600_000


# The page


class Page(HTMLParser):
    """The tags, and the text of styles, of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.code: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "style":
            self.code.append(data)


def test_the_page_asks_nobody_for_anything() -> None:
    runs = run_results(histories())
    page = Page(render(runs, draw(runs)))
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "img", "object", "embed", "form", "base"), tag
        assert {"src", "href", "srcset", "action", "data", "background"}.isdisjoint(attributes), tag
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "form-action 'none'" in policy
    assert "http" not in policy
    own = "".join(page.code)
    assert "rect.wait" in own
    assert not re.search(r"https?:|//[a-z]|@import|url\([^#]", own, re.IGNORECASE)
