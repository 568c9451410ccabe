"""The outputs that have a window, and the reasons why others have none."""

from __future__ import annotations

from typing import Any, Final

import pytest
from msgspec.structs import replace

from streamflow_io.graph.io_graph import Delivery, Hop, HopKind, Input, Output, OutputKind, Route, StreamEdge
from streamflow_io.graph.last_readers import JobReader, LastReaders, Removal
from streamflow_io.graph.sites import Deployment, Site, SiteKind
from streamflow_io.graph.stream_windows import DEFAULT_SIZE, StreamWindow, WindowFacts, plan_windows
from streamflow_io.hints.models import StreamingRule

OUT = Output("/a", "o", OutputKind.FILE, streamable=True, globs=("a.txt",))
STREAM = StreamingRule(port="o", mode="no_update")


def edge(output: Output, reader: str, port: str = "i", delivery: Delivery = Delivery.STREAM, **site: Any) -> StreamEdge:
    return StreamEdge(Route(output, (), Input(reader, port, streamable=True, **site)), STREAM, delivery)


def readers(*steps: str, others: tuple[str, ...] = ()) -> LastReaders:
    jobs = frozenset(JobReader(f"{step}/__schedule__", "i", 0) for step in steps)
    return LastReaders(jobs, frozenset(others))


def _through(kind: HopKind) -> StreamEdge:
    return StreamEdge(Route(OUT, (Hop("/h", "p", kind),), Input("/b", "i", streamable=True)), STREAM, Delivery.STREAM)


def facts(*edges: StreamEdge, read: LastReaders | None = None, **more: Any) -> WindowFacts:
    output = more.pop("output", OUT)
    edges = edges or (edge(output, "/b"),)
    routes = [*(found.route for found in edges), *more.pop("routes", ())]
    outputs = [output, *more.pop("outputs", ())]
    removal = Removal({("/a", "o"): read or readers("/b")}, more.pop("kept", {}))
    return WindowFacts(outputs, routes, edges, removal, **more)


def only(found: WindowFacts, everywhere: bool = True) -> StreamWindow:
    (window,) = [window for window in plan_windows(found, everywhere) if window.port == "o"]
    return window


def test_a_file_that_only_streams() -> None:
    assert only(facts()) == StreamWindow("/a", "o", DEFAULT_SIZE, 1)
    two = facts(edge(OUT, "/b"), edge(OUT, "/c"), read=readers("/b", "/c"))
    assert only(two) == StreamWindow("/a", "o", DEFAULT_SIZE, 2)
    assert plan_windows(facts(), everywhere=False) == ()


@pytest.mark.parametrize("kind", [SiteKind.HOSTS, SiteKind.CONTAINERS])
def test_a_reader_elsewhere(kind: SiteKind) -> None:
    site = Site((Deployment("h", "ssh", kind),))
    assert only(facts(edge(OUT, "/b", site=site))).why is None


def test_the_size_of_a_rule() -> None:
    rule = StreamingRule(port="o", mode="no_update", window="2GB")
    output = Output("/a", "o", OutputKind.FILE, (rule,), globs=("a.txt",))
    assert only(facts(output=output), everywhere=False) == StreamWindow("/a", "o", 2 * 10**9, 1, is_of_rule=True)


QUEUE = Site((Deployment("q", "slurm", SiteKind.QUEUE),))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (facts(never="`runtime: off`"), "`runtime: off`"),
        (facts(need_files={("/b", "i"): "it varies"}), "/b/i may need the whole file: it varies"),
        (facts(kept={("/a", "o"): "its rule has `permanent: true`"}), "its rule has `permanent: true`"),
        (facts(routes=[Route(OUT, (), None)]), "it is a result of the workflow"),
        (facts(edge(OUT, "/b"), edge(OUT, "/c", delivery=Delivery.COMMIT)), "/c/i gets it at commit"),
        (
            facts(read=readers("/b", others=("/c/__schedule__",))),
            "/c may read it otherwise than once as a stream",
        ),
        (facts(read=readers("/b", "/c")), "/c may read it otherwise than once as a stream"),
        (
            facts(outputs=[Output("/a", "d", OutputKind.DIRECTORY, globs=(".",))]),
            "the output d may have the same file",
        ),
        (facts(outputs=[Output("/a", "n", OutputKind.OTHER, globs=("*.txt",))]), "the output n may have the same file"),
        (facts(writers={"/a": "`limited` pauses its jobs"}), "/a cannot be paused: `limited` pauses its jobs"),
        (
            facts(edge(OUT, "/b", site=QUEUE)),
            "/b runs on q (slurm): windows are on the driver's node, on hosts, and in containers of both",
        ),
        (
            facts(routes=[Route(Output("/a", "p", OutputKind.FILE, globs=("p",)), (), Input("/c", "i"))]),
            "/c would wait for /a/p until the readers of this output have ended",
        ),
        (facts(split=frozenset({("/b", "i")})), "/b/i is read in parts"),
        (
            facts(edge(OUT, "/b"), edge(Output("/a", "p", OutputKind.FILE, globs=("p",)), "/b", "j")),
            "/b also reads /a/p while that is written",
        ),
        (
            facts(edge(OUT, "/b"), edge(Output("/c", "p", OutputKind.FILE), "/b", "j", Delivery.GATE)),
            "/b also reads /c/p while that is written",
        ),
    ],
)
def test_a_file_that_something_needs(found: WindowFacts, why: str) -> None:
    assert only(found).why == why


def read(**readers_of: tuple[str, ...]) -> Removal:
    """The readers of the output `o` of each step. With a digit, of the output `o2`."""
    second = {"a2": ("/a", "o2"), "b2": ("/b", "o2")}
    return Removal({second.get(name, (f"/{name}", "o")): readers(*steps) for name, steps in readers_of.items()})


B_READS: Final = edge(OUT, "/b")
#: Comes from `/x`, and is not read before the job there has ended.
OF_X: Final = edge(Output("/x", "o", OutputKind.FILE), "/a", delivery=Delivery.TERMINATION)


@pytest.mark.parametrize(
    ("removal", "edges", "late"),
    [
        (read(a=("/b",)), [B_READS], None),
        # Of other steps, the reader gets only what was there before the writer.
        (read(a=("/b",), x=("/a", "/b")), [B_READS], None),
        (read(a=("/b",), x=("/y", "/b"), y=("/a",)), [B_READS, OF_X], None),
        (read(a=("/b",), x=("/b",)), [B_READS], "/b also gets /x/o"),
        (read(a=("/b",), a2=("/b",)), [B_READS], "/b also gets /a/o2"),
        (read(a=("/b",), a2=("/x",), x=("/b",)), [B_READS], "/b also gets /x/o"),
        (read(a=("/b", "/c"), b2=("/c",)), [B_READS, edge(OUT, "/c", "j")], "/c also gets /b/o2"),
        # The writer starts before the other step has ended.
        *(
            (read(a=("/b",), x=("/a", "/b")), [B_READS, replace(OF_X, delivery=delivery)], "/b also gets /x/o")
            for delivery in (Delivery.STREAM, Delivery.GATE, Delivery.COMMIT, Delivery.PART)
        ),
        # The reader may be skipped, or has a list of files.
        (read(a=("/b",)), [_through(HopKind.WHEN)], "/b may not read it"),
        (read(a=("/b",)), [_through(HopKind.PICK_VALUE)], "/b may not read it"),
        (read(a=("/b",)), [_through(HopKind.GATHER)], "/b starts when every job of /a has opened its file"),
        (read(a=("/b",)), [_through(HopKind.FORWARD)], None),
    ],
)
def test_readers_that_may_begin_late(removal: Removal, edges: list[StreamEdge], late: str | None) -> None:
    """The writer is not paused before they begin: its cores may be needed by what they wait for."""
    found = WindowFacts([OUT], [edge.route for edge in edges], edges, removal)
    assert only(found) == StreamWindow("/a", "o", DEFAULT_SIZE, len(removal.readers["/a", "o"].jobs), late=late)


def test_readers_that_need_cores() -> None:
    assert only(facts(late={"/b": "`oversubscribe: never`"})).late == "`oversubscribe: never`"


def test_other_files_of_the_job_do_no_harm() -> None:
    others = [
        Output("/a", "p", OutputKind.FILE, globs=("b.txt",)),
        Output("/a", "d", OutputKind.DIRECTORY, globs=("d",)),
        Output("/a", "n", OutputKind.OTHER, globs=()),
        Output("/z", "o2", OutputKind.DIRECTORY, globs=(".",)),
    ]
    assert only(facts(outputs=others)).why is None


def test_a_name_that_is_not_known_may_be_any() -> None:
    output = Output("/a", "o", OutputKind.FILE, globs=("*",))
    assert only(facts(output=output)).why is None
    other = Output("/a", "p", OutputKind.FILE, globs=("b.txt",))
    assert only(facts(output=output, outputs=[other])).why == "the output p may have the same file"
