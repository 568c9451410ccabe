"""Records of the files of a job, from the reports of the node runtime."""

from __future__ import annotations

import pytest
from msgspec import convert

from lab.wording import uncoded
from streamflow_io.graph.io_graph import Delivery, Hop, HopKind, Input, Output, OutputKind, Route, StreamEdge
from streamflow_io.graph.possible import possible_routes
from streamflow_io.hints.models import StreamingRule
from streamflow_io.records.files import InputRecord, OutputRecord
from streamflow_io.records.job_files import MOST_RECORDS, JobFiles
from streamflow_io.records.writer import to_json
from streamflow_io.runtime.protocol import (
    Event,
    JobSpec,
    Kind,
    ObservationSpec,
    ObservedInput,
    OutputRule,
    UsedEvent,
    WatchedOutput,
)
from streamflow_io.runtime.wire import text_of

OF = "/a/0", "/a"
RULES = (OutputRule(globs=(), committed="on_termination"),)


def spec(kind: Kind = "file", observed: tuple[str, ...] = ()) -> JobSpec:
    output = WatchedOutput(port="out", root="/job/out", globs=("*",), kind=kind, rules=RULES)
    reads = tuple(ObservedInput(name="in", path=path) for path in observed)
    return JobSpec(name="/a/0", outputs=(output,), observation=ObservationSpec(reads=reads))


def outputs(kind: Kind, *events: dict[str, object]) -> list[OutputRecord]:
    files = JobFiles(spec(kind))
    for event in events:
        files.add(convert({"job": "1", "port": "out", **event}, Event))
    return list(files.outputs(*OF, 100.0, 90.0))


def closed(path: str, time: float, closes: int = 1) -> dict[str, object]:
    return {"event": "closed", "path": f"/job/out/{path}", "time": time, "closes": closes}


def test_a_file_that_is_closed_twice() -> None:
    (record,) = outputs(
        "file",
        {"event": "opened", "path": "/job/out/a/b.txt", "time": 1.0},
        closed("a/b.txt", 2.0),
        closed("a/b.txt", 5.0, 2),
        {"event": "committed", "path": "/job/out/a/b.txt", "time": 9.0, "size": 7},
        {"event": "complete", "time": 9.0},
        {"event": "opened", "path": "/job/out/c", "time": 1.0, "port": "unknown"},
    )
    assert (record.job, record.step, record.port, record.path) == ("/a/0", "/a", "out", "a/b.txt")
    assert (record.files, record.opened, record.size, record.ended) == (1, 1.0, 7, 90.0)
    assert (record.closes, record.most_closes, record.last_close) == (2, 2, 5.0)


def test_a_file_that_is_never_closed() -> None:
    (record,) = outputs("file", {"event": "opened", "path": "/job/out/a", "time": 1.0})
    assert (record.closes, record.last_close, record.size) == (0, None, None)


def test_a_name_that_is_not_utf8_can_be_recorded() -> None:
    (record,) = outputs("file", {"event": "opened", "path": "/job/out/caf\udce9", "time": 1.0})
    assert record.path == r"caf\xe9"
    assert to_json(record)


def test_a_file_that_is_removed_is_no_output() -> None:
    committed = {"event": "committed", "path": "/job/out/d/a", "time": 9.0, "size": 7}
    (record,) = outputs("directory", closed("d/a", 2.0), closed("d/a.tmp", 3.0), committed)
    assert (record.path, record.files, record.last_close) == ("d/a", 1, 2.0)


@pytest.mark.parametrize(
    ("kind", "number", "records"),
    [("directory", 3, 1), ("directory", 1, 1), ("files", MOST_RECORDS, MOST_RECORDS), ("files", MOST_RECORDS + 1, 1)],
)
def test_many_files_are_one_record(kind: str, number: int, records: int) -> None:
    found = outputs(kind, *(closed(f"d/{n}", 2.0 + n) for n in range(number)), closed("d/0", 1000.0, 2))
    assert len(found) == records
    assert sum(record.files for record in found) == number
    assert (min(r.closes for r in found), max(r.most_closes for r in found)) == (1 if number > 1 else 2, 2)
    assert max(r.last_close or 0 for r in found) == 1000.0
    assert found[0].path == ("d" if records == 1 and number > 1 else "d/0")


def used(path: str, *reasons: str, opens: int = 1, time: float = 1.0) -> UsedEvent:
    fields = {"event": "used", "name": "in", "path": path, "opens": opens, "first": time, "last": time + 1}
    return convert(fields | {"job": "1", "time": 9.0, "sequential": not reasons, "reasons": reasons}, UsedEvent)


def inputs(observed: tuple[str, ...], *events: UsedEvent) -> list[InputRecord]:
    files = JobFiles(spec(observed=observed))
    for event in events:
        files.add(event)

    def origin(path: str) -> tuple[str | None, str]:
        return ("/p/0", path.removeprefix("/made/")) if path.startswith("/made/") else (None, path)

    return list(files.inputs(*OF, 100.0, origin))


def test_inputs_and_what_was_never_opened() -> None:
    one, other = inputs(("/made/x", "/given/y"), used("/made/x"))
    assert (one.input, one.source, one.path, one.opens, one.sequential, one.first) == ("in", "/p/0", "x", 1, True, 1.0)
    assert (other.source, other.path, other.opens, other.sequential, other.first) == (None, "/given/y", 0, False, None)


def test_a_directory_is_read_as_its_files_are() -> None:
    (record,) = inputs(("/made/d",), used("/made/d/1"), used("/made/d/2", "mapped", opens=3, time=0.5), used("/made/e"))
    assert (record.path, record.files, record.opens, record.sequential) == ("d", 2, 3, False)
    assert (record.reasons, record.first, record.last) == (("mapped",), 0.5, 2.0)


def test_many_inputs_are_one_record() -> None:
    paths = tuple(f"/made/{number}" for number in range(MOST_RECORDS + 1))
    (record,) = inputs(paths, used(paths[3]))
    assert (record.source, record.path, record.files, record.opens) == (None, "/made", len(paths), 1)


# What could be done


def test_observing_is_not_said_where_it_is_not_wanted() -> None:
    assert "reads" not in text_of(JobSpec(name="a"))
    assert '"reads":[]' in text_of(spec())


Could = tuple[bool, str | None, str | None, str | None]


def possible(kind: OutputKind = OutputKind.FILE, *hops: Hop, **fields: str) -> Could:
    route = Route(Output("/a", "out", kind, **fields), hops, Input("/b", "in"))  # type: ignore[arg-type]
    (found,) = possible_routes([route, Route(route.output, (), None)], (), ["/a/out"])
    assert (found.output, found.input, found.delivery) == ("/a/out", "/b/in", Delivery.TERMINATION)
    assert found.standard_output
    return found.by_element, found.not_at_commit, found.not_streamed, found.not_at_gate


def test_what_could_be_done_with_a_route() -> None:
    scatter = Hop("/b-scatter", "out", HopKind.SCATTER)
    assert possible() == (False, None, None, None)
    assert possible(OutputKind.FILES, scatter) == (True, None, None, None)
    assert uncoded(possible(OutputKind.FILE, Hop("/b", "out", HopKind.LOOP))[1]) == "it enters a loop (/b)"
    assert possible(obstacle="no glob")[1:] == ("no glob", "no glob", "no glob")
    assert possible(stream_obstacle="loadContents")[1:] == (None, "loadContents", "loadContents")
    assert possible(OutputKind.DIRECTORY)[1] is None
    assert possible(OutputKind.DIRECTORY)[3] is None
    assert "only a File has bytes" in str(possible(OutputKind.DIRECTORY)[2])
    assert "File[]" in str(possible(OutputKind.FILES)[2])
    assert "File[]" in str(possible(OutputKind.FILES)[3])


def test_what_another_route_forbids() -> None:
    """A job waits for all of its inputs, and so for what is computed of the whole file."""
    made = Output("/a", "out", OutputKind.FILE)
    size = Route(made, (Hop("/b-size", "out", HopKind.VALUE_FROM),), Input("/b", "size"))
    beside = Route(made, (), Input("/c", "in"))
    found = {one.input: one for one in possible_routes([Route(made, (), Input("/b", "in")), size, beside], (), [])}
    for reason in (found["/b/in"].not_at_gate, found["/b/in"].not_streamed):
        assert uncoded(reason) == "/b/size is computed from it by valueFrom, which uses more than its name"
    assert found["/b/in"].not_at_commit is None
    assert (found["/c/in"].not_at_gate, found["/c/in"].not_streamed) == (None, None)


def test_nothing_replaces_the_rule_of_a_user() -> None:
    rule = StreamingRule(port="out", permanent=True)
    made = Output("/a", "out", OutputKind.FILE, rules=(rule,))
    early, late = (Route(made, (), Input(step, "in")) for step in ("/b", "/c"))
    found = possible_routes([early, late], [StreamEdge(early, rule, Delivery.COMMIT)], [])
    reasons = [(one.not_at_commit, one.not_at_gate, one.not_streamed) for one in found]
    assert reasons == [(None,) * 3, ("a Streaming rule holds for the output already",) * 3]


def test_a_route_that_is_served_already() -> None:
    route = Route(Output("/a", "out", OutputKind.FILE), (), Input("/b", "in"))
    edge = StreamEdge(route, StreamingRule(port="out"), Delivery.COMMIT)
    (found,) = possible_routes([route], [edge], [])
    assert found.delivery is Delivery.COMMIT
