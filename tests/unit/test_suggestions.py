"""Proposals from the records of a run, and their absence; the file that is written is an annotations file."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console

from lab.telemetry import BEGIN, job, record_of, saving_run, usage, write
from streamflow_io import cli
from streamflow_io.commands.suggest import answer, suggestions_text
from streamflow_io.hints.yaml_files import parse, plain, read_annotations
from streamflow_io.records.files import InputRecord, OutputRecord, RouteRecord
from streamflow_io.records.history import read_history
from streamflow_io.records.jobs import StartedRecord
from streamflow_io.records.records import EndRecord, Record, RunRecord, StepRecord
from streamflow_io.report.suggestions.proposal import Proposal, Refusal
from streamflow_io.report.suggestions.proposals import Suggestions, suggest

RUN = RunRecord(time=BEGIN, name="run", workflow="main.cwl")


def route(output: str = "/a/out", target: str = "/b/in", kind: str = "File", **fields: Any) -> RouteRecord:
    of = {"output": output, "input": target, "kind": kind, "delivery": "termination"}
    return record_of(RouteRecord, time=BEGIN, **of | fields)


def ran(
    name: str, started: float, ended: float, *files: Record, submitted: float | None = None, **measured: float
) -> list[Record]:
    """A job with what it did with its files, just before it ended."""
    used = replace(usage(started, ended), **measured) if measured else None
    *before, last = job(name, started if submitted is None else submitted, started, ended, usage=used)
    return [*before, *files, last]


def wrote(name: str, ended: float, path: str = "out.txt", **fields: Any) -> OutputRecord:
    """Opened and closed once, unless said otherwise; times are seconds since the start of the run."""
    close = fields.pop("close", ended)
    closes = fields.pop("closes", 1)
    return record_of(
        OutputRecord,
        time=BEGIN + ended,
        job=name,
        step=name.rpartition("/")[0],
        path=path,
        opened=BEGIN + fields.pop("opened", close - 1),
        closes=closes,
        most_closes=fields.pop("most", closes),
        last_close=BEGIN + close if closes else None,
        ended=BEGIN + ended,
        **{"port": "out", **fields},
    )


def read(name: str, source: str | None = "/a/0", path: str = "out.txt", **fields: Any) -> InputRecord:
    """Opened once and read front to back, unless said otherwise."""
    step = name.rpartition("/")[0]
    reasons = fields.get("reasons", ())
    defaults = {"time": BEGIN, "job": name, "step": step, "input": "in", "opens": 1, "sequential": not reasons}
    return record_of(InputRecord, **{**defaults, "source": source, "path": path, **fields})


def suggestions(*records: Record | Sequence[Record]) -> Suggestions:
    flat = [one for record in records for one in (record if isinstance(record, list) else [record])]
    return suggest(read_history("run", [run_of(flat), *flat, EndRecord(time=BEGIN + 100)]))  # type: ignore[arg-type,list-item]


def run_of(records: Sequence[Record]) -> RunRecord:
    """The run, with the steps before each step."""
    steps: dict[str, tuple[str, ...]] = {}
    for record in records:
        if isinstance(record, RouteRecord):
            source, target = posixpath.dirname(record.output), posixpath.dirname(record.input)
            steps[target] = (*steps.get(target, ()), source)
    return replace(RUN, steps=steps)


def content(proposals: Iterable[Proposal]) -> Any:
    """The content of the annotations file with these proposals."""
    return plain(parse(suggestions_text("run", Suggestions(1.0, 0.0, tuple(proposals), ()))))


def one_after_the_other(
    output: OutputRecord | None, used: InputRecord | None, **fields: Any
) -> tuple[dict[str, Proposal], dict[str, Refusal]]:
    """/a runs from 0 to 10 and /b from 10 to 14: what is proposed, and what is not, by the first word of the hint."""
    found = suggestions(
        route(**fields),
        ran("/a/0", 0, 10, *([output] if output else [])),
        ran("/b/0", 10, 14, *([used] if used else [])),
    )
    return (
        {proposal.text.removeprefix("try ").split()[0].strip(":,"): proposal for proposal in found.proposals},
        {refusal.what.split()[0].strip(":,"): refusal for refusal in found.refusals},
    )


def test_a_file_that_is_closed_once_and_early() -> None:
    proposals, refusals = one_after_the_other(wrote("/a/0", 10, close=3), read("/b/0", reasons=["mapped"]))
    commit = proposals["committed"]
    assert (commit.subject, commit.text, commit.is_sure) == ("/a/out", "committed: on_close", True)
    assert commit.saved == pytest.approx(4)  # /a itself is the last to end
    assert commit.lead == pytest.approx(7)
    assert commit.evidence == "1 job, 1 file (out.txt): closed once, on average 7.0 s before the job ended"
    assert refusals["streamable"].reason == "/b maps it into memory"


def test_a_standard_output_that_is_read_front_to_back() -> None:
    written = wrote("/a/0", 10, close=9.95, opened=1)
    proposals, refusals = one_after_the_other(written, read("/b/0"), standard_output=True)
    stream = proposals["streamable"]
    assert (stream.subject, stream.is_sure) == ("/a/out -> /b/in", True)
    assert (stream.saved, stream.lead) == (pytest.approx(4), pytest.approx(4))
    assert refusals["on_close"].reason == "it is closed when its job ends"


@pytest.mark.parametrize(("cores", "proposed"), [(1.0, False), (8.0, True), (None, True)])
def test_what_only_overlaps_is_not_proposed_where_the_cores_are_busy(cores: float | None, proposed: bool) -> None:
    found = suggestions(
        route(),
        _on(cores, ran("/a/0", 0, 10, wrote("/a/0", 10, opened=1), cpu_seconds=9.9)),
        _on(cores, ran("/b/0", 10, 14, read("/b/0"), cpu_seconds=3.9)),
    )
    assert bool(found.proposals) is proposed
    assert any("the cores were busy" in refusal.reason for refusal in found.refusals) is not proposed
    assert (found.saved >= 3) is proposed


@pytest.mark.parametrize(
    ("written", "read_by", "last", "proposed"),
    [
        (10, 14, 10, True),
        (10, 14, 13.5, True),
        (10, 14, 13.7, False),
        (10, 14, 30, False),
        (1, 1.4, 1, True),
        (1, 1.4, 1.35, False),
    ],
)
def test_what_only_overlaps_is_not_proposed_where_the_run_gains_less_than_it_costs(
    written: float, read_by: float, last: float, proposed: bool
) -> None:
    """:param last: when a job ends that has to do with neither"""
    found = suggestions(
        route(),
        ran("/a/0", 0, written, wrote("/a/0", written, opened=written / 10)),
        ran("/b/0", written, read_by, read("/b/0")),
        ran("/c/0", 0, last),
    )
    assert bool(found.proposals) is proposed
    reasons = [refusal.reason for refusal in found.refusals if "streamable" in refusal.what]
    assert [reason.endswith("but the run would have been no shorter") for reason in reasons] == [True] * (not proposed)


def _on(cores: float | None, records: list[Record]) -> list[Record]:
    """The same on a location with this many cores."""
    return [
        replace(record, location_cores=cores) if isinstance(record, StartedRecord) else record for record in records
    ]


def test_a_file_that_may_have_been_written_in_jumps_is_to_be_tried() -> None:
    proposals, _ = one_after_the_other(wrote("/a/0", 10, close=9.95, opened=1), read("/b/0"))
    assert not proposals["streamable"].is_sure
    assert content(proposals.values()) == {"steps": {}}


def test_a_reader_that_works_before_it_reads_starts_with_its_producer() -> None:
    written, used = wrote("/a/0", 10, opened=1), read("/b/0", reasons=["mapped"], first=BEGIN + 13)
    proposals, _ = one_after_the_other(written, used)
    gate = proposals["start"]
    assert (gate.subject, gate.text, gate.is_sure) == ("/a/out", "start: producer", True)
    assert gate.evidence == "1 reader worked 3.0 s on average before touching it"
    assert gate.saved == pytest.approx(3)
    rules = [{"port": "out", "committed": "on_termination", "start": "producer"}]
    assert content([gate]) == {"steps": {"/a": [{"class": "sfio:Streaming", "rules": rules}]}}
    proposals, _ = one_after_the_other(wrote("/a/0", 10, close=3), used)
    (hint,) = content(proposals.values())["steps"]["/a"]
    assert hint["rules"] == [{"port": "out", "committed": "on_close", "start": "producer"}]
    # A stream is better still.
    proposals, _ = one_after_the_other(written, read("/b/0", first=BEGIN + 13), standard_output=True)
    assert set(proposals) == {"streamable"}
    for unfit in (read("/b/0", reasons=["mapped"], first=BEGIN + 10.1), read("/b/0", reasons=["mapped"])):
        assert one_after_the_other(written, unfit)[0] == {}
    assert one_after_the_other(written, used, not_at_commit="/a/out has no glob")[0] == {}
    assert one_after_the_other(written, used, not_at_gate="/b runs elsewhere")[0] == {}
    # The reader asks for the size of its input by path long before opening the file, and would wait there.
    asked = read("/b/0", reasons=["asked by path"], first=BEGIN + 13, touched=BEGIN + 10.1)
    assert one_after_the_other(written, asked)[0] == {}


def test_a_reader_of_a_directory_starts_with_its_producer() -> None:
    written = wrote("/a/0", 10, "d", files=2, opened=1)
    fields = {"kind": "Directory", "not_streamed": "a Directory"}
    used = read("/b/0", path="d", files=2, opens=2, reasons=["opened again"], first=BEGIN + 13)
    proposals, _ = one_after_the_other(written, used, **fields)
    assert (proposals["start"].text, proposals["start"].saved) == ("start: producer", pytest.approx(3))
    rules = [{"port": "out", "committed": "on_termination", "start": "producer"}]
    assert content(proposals.values()) == {"steps": {"/a": [{"class": "sfio:Streaming", "rules": rules}]}}
    assert one_after_the_other(written, used, not_at_gate="/b runs elsewhere", **fields)[0] == {}
    # The reader looks at the list as soon as it starts.
    listed = read("/b/0", path="d", files=2, opens=2, reasons=["opened again"], first=BEGIN + 10.1)
    assert one_after_the_other(written, listed, **fields)[0] == {}


@pytest.mark.parametrize(("by_element", "proposed"), [(True, ["start: producer"]), (False, [])])
def test_readers_of_a_list_start_with_its_producer(by_element: bool, proposed: list[str]) -> None:
    fields = {"kind": "File[]", "by_element": by_element}
    files = [wrote("/a/0", 10, f"{n}.txt", opened=1.0 + n) for n in range(3)]
    readers = [
        ran(f"/b/0.{n}", 10, 14, read(f"/b/0.{n}", path=f"{n}.txt", reasons=["mapped"], first=BEGIN + 13))
        for n in range(3)
    ]
    found = suggestions(route(**fields), ran("/a/0", 0, 10, *files), *readers)
    assert [one.text for one in found.proposals] == proposed
    assert found.saved == pytest.approx(3 if by_element else 0)


def test_readers_of_a_scatter_start_with_the_jobs_that_write_what_they_read() -> None:
    fields = {"by_element": True}
    ends = [10, 20]
    writers = [ran(f"/a/0.{n}", 0, end, wrote(f"/a/0.{n}", end, opened=1)) for n, end in enumerate(ends)]
    readers = [
        ran(f"/b/0.{n}", 20, 24, read(f"/b/0.{n}", f"/a/0.{n}", reasons=["mapped"], first=BEGIN + 23)) for n in (0, 1)
    ]
    found = suggestions(route(**fields), *writers, *readers)
    (proposal,) = found.proposals
    assert (proposal.text, proposal.lead, proposal.saved) == ("start: producer", pytest.approx(3), pytest.approx(3))


def test_who_writes_only_when_all_is_read_gains_little_from_a_stream() -> None:
    written = wrote("/a/0", 10, close=9.95, opened=1)

    def proposed(**fields: Any) -> tuple[dict[str, Proposal], dict[str, Refusal]]:
        return one_after_the_other(written, read("/b/0", **fields), standard_output=True)

    # The reader sorts for two seconds, and reads for two before.
    assert proposed(read=BEGIN + 12, whole=True)[0]["streamable"].saved == pytest.approx(2)
    proposals, refusals = proposed(read=BEGIN + 10.1, whole=True)
    assert proposals == {}
    assert refusals["streamable"].reason == (
        "1 job read it once, front to back; it is a standard output, but no job would have ended earlier"
    )
    # What was in its memory it worked on while it wrote: it may do that while it reads.
    assert proposed(read=BEGIN + 10.1)[0]["streamable"].saved == pytest.approx(4)


def test_a_reader_that_looks_at_the_end_where_it_can_is_to_be_tried() -> None:
    written = wrote("/a/0", 10, close=9.95, opened=1)
    proposals, _ = one_after_the_other(written, read("/b/0", reasons=["probed"]), standard_output=True)
    stream = proposals["streamable"]
    assert (stream.text, stream.is_sure) == ("try streamable", False)
    assert stream.evidence == (
        "1 job read it once, front to back, but /b looks at its end, or goes back over what it has read, where it can"
    )
    _, refusals = one_after_the_other(written, read("/b/0", reasons=["probed", "mapped"]), standard_output=True)
    assert refusals["streamable"].reason == "/b maps it into memory"


@pytest.mark.parametrize(
    ("written", "fields", "reason"),
    [
        (None, {}, "nothing was seen of it"),
        (wrote("/a/0", 10, closes=0), {}, "it was not seen to be closed before its job ended"),
        (wrote("/a/0", 10, close=3, most=2), {}, "it was closed 1 to 2 times"),
        (wrote("/a/0", 10, close=9.9), {}, "it is closed when its job ends"),
        (wrote("/a/0", 10, close=3, closes=3), {}, "it was closed 3 times, by the only job"),
        (wrote("/a/0", 10, close=3), {"not_at_commit": "/a/out has secondaryFiles"}, "/a/out has secondaryFiles"),
        (wrote("/a/0", 10, close=3), {"delivery": "commit"}, "is delivered early to /b/in already"),
    ],
)
def test_no_commit_rule(written: OutputRecord | None, fields: dict[str, Any], reason: str) -> None:
    proposals, refusals = one_after_the_other(written, read("/b/0", opens=2, reasons=["opened again"]), **fields)
    assert proposals == {}
    (refusal,) = [one for what, one in refusals.items() if what.startswith("on_close")]
    assert reason in refusal.reason


@pytest.mark.parametrize(
    ("used", "fields", "reason"),
    [
        (None, {}, "nothing was seen of it"),
        (read("/b/0", opens=0, sequential=False), {}, "/b was not seen to open it"),
        (read("/b/0", opens=2, reasons=["opened again"]), {}, "/b reads it twice"),
        (read("/b/0", opens=5, reasons=["opened again"]), {}, "/b reads it 5 times"),
        (read("/b/0", opens=2, reasons=["sought", "opened again"]), {}, "/b jumps in it"),
        (
            read("/b/0", reasons=["read at a position", "mapped"]),
            {},
            "/b maps it into memory and reads it at positions",
        ),
        (
            read("/b/0", reasons=["asked by path"]),
            {},
            "/b asks for its size or kind by path, and would wait for the whole file",
        ),
        (read("/b/0", reasons=["unknown"]), {}, "/b uses it in a way that cannot be seen"),
        (read("/b/0"), {"not_streamed": "/b/in has loadContents"}, "/b/in has loadContents"),
    ],
)
def test_no_stream(used: InputRecord | None, fields: dict[str, Any], reason: str) -> None:
    proposals, refusals = one_after_the_other(wrote("/a/0", 10), used, standard_output=True, **fields)
    assert proposals == {}
    assert refusals["streamable"].reason == reason


def test_a_file_that_is_written_in_two_goes_is_no_stream() -> None:
    _, refusals = one_after_the_other(wrote("/a/0", 10, closes=2), read("/b/0"))
    assert refusals["streamable"].reason == "/a writes it in several goes"


def test_two_closes_of_two_jobs_are_a_rule() -> None:
    found = suggestions(
        route(),
        ran("/a/0.0", 0, 10, wrote("/a/0.0", 10, close=3, closes=2)),
        ran("/a/0.1", 0, 10, wrote("/a/0.1", 10, close=3, closes=2)),
        ran("/b/0.0", 10, 14, read("/b/0.0", "/a/0.0", reasons=["mapped"])),
        ran("/b/0.1", 10, 14, read("/b/0.1", "/a/0.1", reasons=["mapped"])),
    )
    assert [one.text for one in found.proposals] == ["committed: on_close:2"]
    assert found.saved == pytest.approx(4)


def test_elements_of_a_list_go_on_one_by_one() -> None:
    fields = {"kind": "File[]", "by_element": True}
    files = [wrote("/a/0", 10, f"{n}.txt", close=3.0 + 2 * n) for n in range(3)]
    readers = [ran(f"/b/0.{n}", 10, 14, read(f"/b/0.{n}", path=f"{n}.txt", reasons=["mapped"])) for n in range(3)]
    found = suggestions(route(**fields), ran("/a/0", 0, 10, *files), *readers)
    (proposal,) = found.proposals
    assert (proposal.text, proposal.lead) == ("committed: on_close", pytest.approx(7))
    assert proposal.evidence.startswith("1 job, 3 files (0.txt, 1.txt, ...): closed once")


def test_two_files_of_one_job_help_together() -> None:
    early = [
        ran("/a/0", 0, 10, wrote("/a/0", 10, close=3)),
        ran("/c/0", 0, 10, wrote("/c/0", 10, close=4)),
        ran("/b/0", 10, 30, read("/b/0", reasons=["mapped"]), read("/b/0", "/c/0", input="other", reasons=["mapped"])),
    ]
    found = suggestions(route(), route("/c/out", "/b/other"), *early)
    assert {one.subject for one in found.proposals} == {"/a/out", "/c/out"}
    assert 6 <= found.saved <= 7


def test_a_step_that_waits_without_a_file_does_not_stay_where_it_is() -> None:
    """`/c` gets a number of `/b`, so that no route leads there."""
    records = [
        replace(run_of([route()]), steps={"/b": ("/a",), "/c": ("/b",)}),
        route(),
        *ran("/a/0", 0, 10, wrote("/a/0", 10, close=3)),
        *ran("/b/0", 10, 14, read("/b/0")),
        *ran("/c/0", 14, 20),
        EndRecord(time=BEGIN + 20),
    ]
    found = suggest(read_history("run", iter(records)))
    assert found.saved == pytest.approx(4)
    assert "committed: on_close" in {one.text for one in found.proposals}


def test_each_time_on_the_critical_path_and_the_largest_lead_count() -> None:
    records = [
        replace(RUN, steps={"/a": ("/b",), "/b": ("/a",)}),
        route(),
        *ran("/a/0", 0, 10, wrote("/a/0", 10, close=9)),
        *ran("/b/0", 10, 20, read("/b/0", "/a/0", reasons=["mapped"])),
        *ran("/a/0.1", 20, 30, wrote("/a/0.1", 30, close=25)),
        *ran("/b/0.1", 30, 40, read("/b/0.1", "/a/0.1", reasons=["mapped"])),
        EndRecord(time=BEGIN + 40),
    ]
    (commit,) = suggest(read_history("run", iter(records))).proposals
    assert (commit.text, commit.lead) == ("committed: on_close", pytest.approx(5))
    assert 6 <= commit.saved <= 10


def test_a_file_that_nobody_waits_for_is_not_proposed() -> None:
    found = suggestions(
        route(),
        route("/c/out", "/b/number", "other"),
        ran("/a/0", 0, 10, wrote("/a/0", 10, close=3)),
        ran("/c/0", 0, 12),
        ran("/b/0", 12, 14, read("/b/0", reasons=["mapped"])),
    )
    assert found.proposals == ()
    reason = {one.what: one.reason for one in found.refusals}["committed: on_close"]
    assert reason.endswith("but the run would have been no shorter")


def test_a_step_that_waits_for_its_disk_is_an_io_task() -> None:
    found = suggestions(
        route(),
        ran("/compute/0.0", 0, 10, io_seconds=0.1, cpu_seconds=9.0),
        ran("/save/0.0", 10, 15, io_seconds=4.5, cpu_seconds=0.2),
        ran("/compute/0.1", 15, 25, submitted=0, io_seconds=0.1, cpu_seconds=9.0),
        ran("/busy/0", 25, 30, io_seconds=4.0, cpu_seconds=4.0),
        ran("/short/0", 30, 30.5, io_seconds=0.5, cpu_seconds=0.0),
    )
    (proposal,) = found.proposals
    assert (proposal.subject, proposal.text) == ("/save", "IOTask")
    assert proposal.evidence == "1 job: 4.5 of 5.0 s in I/O, 0.2 s of computing"
    assert {one.subject for one in found.refusals if one.what == "IOTask"} == {"/busy", "/short"}


def test_io_tasks_without_bandwidth_are_compared_by_their_requests() -> None:
    def texts(**fields: Any) -> list[str]:
        records = [replace(record, **fields) if isinstance(record, StepRecord) else record for record in saving_run()]
        return [f"{one.text}: {one.evidence}" for one in suggest(read_history("saving", iter(records))).proposals]

    assert texts(storage_bw=None) == [
        "storageBW: required: 20 times 40 MB, for which a job waited after 8.0 s in the median: 5 MB/s would do, "
        "20 MB/s were reached"
    ]
    assert texts() == []


def everything() -> list[Record]:
    """A run with a proposal of every kind."""
    records = [
        route(),
        route("/a/log file", "/c/in", standard_output=True),
        route("/b/out", "/c/other"),
        *ran(
            "/a/0",
            0,
            10,
            wrote("/a/0", 10, close=3),
            wrote("/a/0", 10, "log", port="log file", opened=1),
            io_seconds=9.0,
            cpu_seconds=0.1,
        ),
        *ran("/b/0", 10, 14, read("/b/0", reasons=["mapped"]), wrote("/b/0", 14, opened=11)),
        *ran("/c/0", 14, 18, read("/c/0", "/a/0", "log"), read("/c/0", "/b/0", input="other")),
    ]
    return [run_of(records), *records, EndRecord(time=BEGIN + 18)]


def test_the_file_is_an_annotations_file(tmp_path: Path) -> None:
    found = suggest(read_history("a run", everything()))
    file = tmp_path / "annotations.yml"
    file.write_text(suggestions_text("a run", found), encoding="utf-8")
    read_back = read_annotations(file)
    assert [scope.path for scope in read_back.scopes] == ["/a"]
    expected = content(found.proposals)
    assert [entry.value for entry in read_back.streamable] == expected["streamable"] == ["/a/log file", "/c/in"]
    written = [hint.value.model_dump(by_alias=True, exclude_defaults=True) for hint in read_back.scopes[0].hints]
    assert len(written) == len(expected["steps"]["/a"]) == 2
    text = file.read_text(encoding="utf-8")
    assert "closed once, on average 7.0 s before the job ended" in text
    assert "#  - /b/out" in text


def test_nothing_sure_is_an_empty_annotations_file(tmp_path: Path) -> None:
    found = suggestions(route(), ran("/a/0", 0, 10, wrote("/a/0", 10, opened=1)), ran("/b/0", 10, 14, read("/b/0")))
    file = tmp_path / "annotations.yml"
    file.write_text(suggestions_text("run", found), encoding="utf-8")
    assert not read_annotations(file).scopes
    assert "#  - /a/out" in file.read_text(encoding="utf-8")


STEPS = ("/a", "/b", "/c")
PLACES = st.sampled_from(["0", "0.0", "0.1", "0.10"])


@st.composite
def whole_runs(draw: st.DrawFn) -> list[Record]:
    """Runs with records as they may come, whether or not they make sense together."""
    records: list[Record] = []
    kinds = st.sampled_from(["File", "File[]", "Directory", "other"])
    for one, other in draw(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(STEPS)), max_size=4)):
        fields = {"kind": draw(kinds), "by_element": draw(st.booleans())}
        records.append(route(f"{one}/out", f"{other}/in", **fields))
    time, names = 0.0, draw(st.lists(st.builds(posixpath.join, st.sampled_from(STEPS), PLACES), max_size=6))
    for name in names:
        submitted = time = time + draw(st.floats(0, 5))
        started = submitted + draw(st.floats(0, 2))
        ended = started + draw(st.floats(0, 20))
        share = draw(st.floats(0, 1))
        files: list[Record] = []
        for path in draw(st.lists(st.sampled_from(["x", "d", "d/x"]), max_size=2)):
            closes = draw(st.integers(0, 2))
            close = draw(st.floats(started, ended))
            fields = {"closes": closes, "most": closes + draw(st.integers(0, 1)), "files": draw(st.integers(1, 3))}
            files.append(wrote(name, ended, path, close=close, opened=started, **fields))
        for source in draw(st.lists(st.sampled_from([None, *names]), max_size=2)):
            reasons = draw(st.lists(st.sampled_from(["mapped", "opened again"]), max_size=1))
            files.append(read(name, source, "x", opens=draw(st.integers(0, 2)), reasons=reasons))
        used = {"io_seconds": share * (ended - started), "cpu_seconds": (1 - share) * (ended - started)}
        records += ran(name, started, ended, *files, submitted=submitted, **used)
    return [run_of(records), *records]


@given(whole_runs())
def test_whatever_was_recorded(records: list[Record]) -> None:
    found = suggest(read_history("run", records))
    assert -1e-9 <= found.saved <= found.seconds + 1e-9
    assert all(0 <= one.lead <= found.seconds and one.saved >= 0 for one in found.proposals)
    written = plain(parse(suggestions_text("run", found)))
    assert {"steps", "streamable"} >= written.keys()
    subjects = {posixpath.dirname(one.subject) or one.subject for one in found.proposals if one.is_sure}
    assert {*written["steps"]} <= subjects | {one.subject for one in found.proposals}


# The command


def test_the_command_writes_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry, file = write(tmp_path / "telemetry.jsonl", everything()), tmp_path / "annotations.yml"
    assert cli.main(["suggest", str(telemetry), "--output", str(file)]) == 0
    assert "nothing is applied" in capsys.readouterr().out
    text = file.read_text(encoding="utf-8")
    file.write_text("mine", encoding="utf-8")
    assert cli.main(["suggest", str(telemetry), "--output", str(file)]) == 1
    assert "--force" in capsys.readouterr().err
    assert file.read_text(encoding="utf-8") == "mine"
    assert cli.main(["suggest", str(telemetry), "--output", str(file), "--force"]) == 0
    assert file.read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = write(tmp_path / "telemetry.jsonl", everything())
    assert cli.main(["suggest", str(telemetry), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ok"]
    assert {one["subject"] for one in result["proposals"]} == {
        "/a/out",
        "/a",
        "/a/log file -> /c/in",
        "/b/out -> /c/other",
    }
    assert result["annotations"]["steps"]["/a"][0]["rules"] == [{"port": "out", "committed": "on_close"}]


def test_the_command_says_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = write(tmp_path / "telemetry.jsonl", everything())
    cli.main(["suggest", str(telemetry)])
    assert "/b maps it into memory" in " ".join(capsys.readouterr().out.split())
    plain = write(tmp_path / "plain.jsonl", [RUN, *ran("/a/0", 0, 1), EndRecord(time=BEGIN + 1)])
    assert cli.main(["suggest", str(plain)]) == 1
    assert "observe: true" in capsys.readouterr().err
    assert cli.main(["suggest", str(telemetry), "-o", str(tmp_path / "none" / "a.yml")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_names_are_no_markup(tmp_path: Path) -> None:
    console = Console(record=True, width=200)
    refusal = Refusal("/a/[red]out", "on_close", "[bold]why")
    answer("run", Suggestions(1.0, 0.0, (), (refusal,)), None).show(console)
    assert "/a/[red]out" in console.export_text()
