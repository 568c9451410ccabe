"""From I/O graphs to coordination configurations, checked with the official parser; the names of applications; DOT."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.graph.capio_cl.configuration import (
    MOST_INSTANCES,
    Configuration,
    CoordinatedFile,
    KnownJobs,
    application_name,
)
from streamflow_io.graph.capio_cl.from_graph import configure
from streamflow_io.graph.capio_cl.language import resolved, write_dot
from streamflow_io.graph.edges import plan_edges
from streamflow_io.graph.gangs import Gang
from streamflow_io.graph.io_graph import Hop, HopKind, Input, Output, OutputKind, Route
from streamflow_io.hints.commit import CommitRule
from streamflow_io.hints.models import StreamingRule
from tests.unit.test_capio_cl import as_read_officially, as_written, officially

STEPS = ("/a", "/b/c", "/b/d", "/e")
TAGS: dict[str, tuple[str, ...] | None] = {"/a": ("0",), "/b/c": ("0.0", "0.1"), "/b/d": None, "/e": ("0",)}
GATHER = Hop("/b/c-gather", "out", HopKind.GATHER)
SCATTER = Hop("/b/c-scatter", "in", HopKind.SCATTER)


@st.composite
def streaming_rules(draw: st.DrawFn, port: str, kind: OutputKind, others: tuple[str, ...]) -> tuple[StreamingRule, ...]:
    def rule(**fields: object) -> StreamingRule:
        several = kind is not OutputKind.FILE
        allowed = ["on_termination", "on_close", "on_close:3", "on_file", *(["on_n_files"] if several else [])]
        committed = draw(st.sampled_from(allowed))
        if committed == "on_file":
            fields["fileDeps"] = draw(st.lists(st.sampled_from(["*.done", *others]), min_size=1, unique=True))
        if committed == "on_n_files":
            fields["nFiles"] = draw(st.integers(1, 50))
        fields |= {
            "mode": draw(st.sampled_from(["update", "no_update"])),
            "permanent": draw(st.sampled_from([None, True, False])),
            "homeNode": draw(st.sampled_from([None, "/a", "/b/d"])),
        }
        return StreamingRule.model_validate({"port": port, "committed": committed, **fields})

    globs = [] if kind is OutputKind.FILE else draw(st.lists(st.sampled_from(["*.x", "*.y"]), unique=True))
    whole = [rule()] if draw(st.booleans()) else []
    return (*whole, *(rule(files=[glob]) for glob in globs))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Output], list[Route]]:
    outputs, routes = [], []
    for number, step in enumerate(STEPS):
        ports = ("out", "more") if draw(st.booleans()) else ("out",)
        for port in ports:
            kind = draw(st.sampled_from(list(OutputKind)))
            glob = "" if kind is OutputKind.DIRECTORY else draw(st.sampled_from([".txt", "*.dat"]))
            rules = draw(streaming_rules(port, kind, tuple(other for other in ports if other != port)))
            made = Output(step, port, kind, rules, draw(st.booleans()), globs=(f"{port}{glob}",))
            outputs.append(made)
            hops = st.sampled_from([(), (GATHER,), (SCATTER,), (GATHER, SCATTER)])
            for consumer in draw(st.lists(st.sampled_from(STEPS[number + 1 :]), unique=True)) if number < 3 else ():
                routes.append(Route(made, draw(hops), Input(consumer, f"{port}{number}", draw(st.booleans()))))
            if draw(st.booleans()):
                routes.append(Route(made, (), None))
    return outputs, routes


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("capio")


@settings(max_examples=settings().max_examples // 2)
@given(graph=graphs())
def test_the_official_parser_reads_what_the_graph_says(
    directory: Path, graph: tuple[list[Output], list[Route]]
) -> None:
    outputs, routes = graph
    edges = plan_edges(routes)
    configuration = configure("wf", STEPS, outputs, routes, edges, KnownJobs(TAGS))
    engine = officially(configuration, "1.1", directory)
    for file in configuration.files:
        assert as_read_officially(engine, file) == as_written(file), file.path


@settings(max_examples=settings().max_examples // 2)
@given(graph=graphs())
def test_every_output_that_is_read_has_its_writers_and_readers(graph: tuple[list[Output], list[Route]]) -> None:
    outputs, routes = graph
    configuration = configure("wf", STEPS, outputs, routes, plan_edges(routes), KnownJobs(TAGS))
    files = {file.path: file for file in configuration.files}
    assert list(files) == sorted(files)
    for route in routes:
        made = route.output
        if made.kind is OutputKind.OTHER:
            continue
        for app in {"/b/c": ["b.c-0.0", "b.c-0.1"], "/b/d": ["b.d"]}.get(made.step, [made.step[1:]]):
            file = files[f"{'b.d-*' if app == 'b.d' else app}/{made.globs[0]}"]
            assert file.producers == (app,)
            assert file.is_directory == (made.kind is OutputKind.DIRECTORY)
            if route.consumer is None:
                assert file.permanent or any(rule.permanent is False for rule in made.rules)
            else:
                name = route.consumer.step[1:].replace("/", ".")
                assert any(consumer.split("-")[0] == name for consumer in file.consumers)


@settings(max_examples=settings().max_examples // 2)
@given(graph=graphs())
def test_nothing_is_read_earlier_than_it_is_served(graph: tuple[list[Output], list[Route]]) -> None:
    outputs, routes = graph
    edges = plan_edges(routes)
    configuration = configure("wf", STEPS, outputs, routes, edges, KnownJobs(TAGS))
    early = {edge.route for edge in edges if edge.delivery.joins}
    for made in outputs:
        readers = [route for route in routes if route.output == made and route.consumer is not None]
        late = any(route not in early for route in readers)
        app = {"/b/c": "b.c-0.0", "/b/d": "b.d"}.get(made.step, made.step[1:])
        if late:
            assert all(
                file.mode == "update" for file in configuration.files if file.path.startswith(f"{app}/{made.port}")
            )


def one(*rules: StreamingRule, kind: OutputKind = OutputKind.FILE, **fields: object) -> tuple[CoordinatedFile, ...]:
    """The files of an output that one step reads."""
    made = Output("/a", "out", kind, rules, **fields)  # type: ignore[arg-type]
    routes = [Route(made, (), Input("/b", "in", streamable=True))]
    return configure("wf", ("/a", "/b"), [made], routes, plan_edges(routes), KnownJobs()).files


def rule(committed: str, mode: str = "update", **fields: object) -> StreamingRule:
    return StreamingRule.model_validate({"port": "out", "committed": committed, "mode": mode, **fields})


def said(files: tuple[CoordinatedFile, ...]) -> list[str]:
    return [f"{file.path} {file.committed} {file.mode}{' D' if file.is_directory else ''}" for file in files]


@pytest.mark.parametrize(
    ("kind", "made", "expected"),
    [
        (OutputKind.FILE, rule("on_close", "no_update"), ["a/x on_close no_update"]),
        (OutputKind.FILE, rule("on_close:3"), ["a/x on_close:3 update"]),
        (OutputKind.FILES, rule("on_close", start="commit"), ["a/x on_close update"]),
        (OutputKind.FILES, rule("on_n_files", nFiles=3), ["a on_n_files update D", "a/x on_close update"]),
        (
            OutputKind.DIRECTORY,
            rule("on_n_files", "no_update", nFiles=3),
            ["a/x on_n_files no_update D", "a/x/* on_close update"],
        ),
        (
            OutputKind.DIRECTORY,
            rule("on_close", start="producer"),
            ["a/x on_termination update D", "a/x/* on_close update"],
        ),
        (OutputKind.DIRECTORY, rule("on_close:3"), ["a/x on_close:3 update D", "a/x/* on_close:3 update"]),
        (OutputKind.DIRECTORY, rule("on_close"), ["a/x on_termination update D", "a/x/* on_termination update"]),
        (
            OutputKind.DIRECTORY,
            rule("on_termination", "no_update"),
            ["a/x on_termination no_update D", "a/x/* on_termination update"],
        ),
    ],
)
def test_what_a_rule_becomes(kind: OutputKind, made: StreamingRule, expected: list[str]) -> None:
    assert said(one(made, kind=kind, globs=("x",))) == expected


def test_entries_of_a_list_have_rules_of_their_own() -> None:
    files = one(rule("on_close"), rule("on_close:2", files=["chr22.*"]), kind=OutputKind.FILES, globs=("out/*.vcf",))
    assert said(files) == ["a/out/*.vcf on_close update", "a/out/chr22.* on_close:2 update"]


def test_a_known_name_takes_the_rule_that_matches_it() -> None:
    rules = (rule("on_close"), rule("on_close:2", files=["chr22.*"]))
    files = one(*rules, kind=OutputKind.FILES, globs=("chr21.vcf", "chr22.vcf"))
    assert said(files) == ["a/chr21.vcf on_close update", "a/chr22.vcf on_close:2 update"]


def test_outputs_with_one_path_are_complete_when_both_are() -> None:
    first = Output("/a", "one", OutputKind.FILE, (rule("on_close"),), globs=("x",))
    second = Output("/a", "two", OutputKind.FILE, (rule("on_close:2"),), globs=("./x",))
    routes = [Route(first, (), Input("/b", "in")), Route(second, (), None)]
    (file,) = configure("wf", ("/a", "/b"), [first, second], routes, plan_edges(routes), KnownJobs()).files
    assert file == CoordinatedFile("a/x", False, ("a",), ("b",), CommitRule("on_close", 2), permanent=True)


@pytest.mark.parametrize(
    ("deps", "committed", "file_deps"),
    [
        (("a.done", "b.done"), "on_file", ("a/a.done", "a/b.done")),
        (("b.done", "a.done"), "on_file", ("a/a.done", "a/b.done")),  # in another order they are the same
        (("a.done",), "on_termination", ()),
        (("a.done", "c.done"), "on_termination", ()),
    ],
)
def test_outputs_with_one_path_that_wait_for_files(
    deps: tuple[str, ...], committed: str, file_deps: tuple[str, ...]
) -> None:
    """A configuration says for one file either of two lists: none says that both are there."""
    rules = [rule("on_file", fileDeps=list(names)) for names in (("a.done", "b.done"), deps)]
    outputs = [Output("/a", port, OutputKind.FILE, (of,), globs=("x",)) for port, of in zip("mn", rules, strict=True)]
    routes = [Route(output, (), Input("/b", output.port)) for output in outputs]
    found = configure("wf", ("/a", "/b"), outputs, routes, plan_edges(routes), KnownJobs()).files
    (file,) = [file for file in found if file.path == "a/x"]
    assert (str(file.committed), file.file_deps) == (committed, file_deps)


@pytest.mark.parametrize(
    ("dep", "glob", "committed", "file_deps"),
    [
        ("*.done", "a.done", "on_file", ("a/a.done",)),
        ("*.done", "*.done", "on_termination", ()),  # it is not known which there are
        ("*.done", "a.log", "on_termination", ()),
        ("done", "d*", "on_termination", ()),
    ],
)
def test_globs_in_dependencies(dep: str, glob: str, committed: str, file_deps: tuple[str, ...]) -> None:
    """CAPIO looks for no names: a glob is what it can match where that is known, or nothing waits for it."""
    waiting = Output("/a", "out", OutputKind.FILE, (rule("on_file", fileDeps=[dep]),), globs=("x",))
    outputs = [waiting, Output("/a", "done", OutputKind.FILE, globs=(glob,))]
    routes = [Route(waiting, (), Input("/b", "file"))]
    configuration = configure("wf", ("/a", "/b"), outputs, routes, plan_edges(routes), KnownJobs())
    files = {file.path: file for file in resolved(configuration).files}
    assert (str(files["a/x"].committed), files["a/x"].file_deps) == (committed, file_deps)
    assert set(file_deps) <= set(files)


@pytest.mark.parametrize(
    ("hops", "tag", "expected"),
    [
        ((), "0.1.0", ["0.1.0"]),
        ((GATHER,), "0.1.0", ["0.1.0", "0.1.1"]),
        ((GATHER, SCATTER), "0.1.0", ["0.1.0"]),
        ((GATHER, GATHER), "0.1.0", ["0.0.0", "0.0.1", "0.1.0", "0.1.1"]),
        ((replace(GATHER, widths=2), SCATTER), "0.1.0", ["0.0.0", "0.0.1", "0.1.0", "0.1.1"]),
        ((SCATTER,), "0.1", ["0.1.0", "0.1.1"]),
        ((), "0.1", ["0.1.0", "0.1.1"]),
        ((replace(SCATTER, obstacle="flat_crossproduct needs the whole list"),), "0.1", ["0.0.0", "0.0.1", "0.1.0"]),
        ((Hop("/x", "in", HopKind.UNKNOWN),), "0.1", ["0.0.0", "0.1.1"]),
    ],
)
def test_which_instances_a_file_reaches(hops: tuple[Hop, ...], tag: str, expected: list[str]) -> None:
    made = Output("/a", "out", OutputKind.FILE, globs=("x",))
    tags = {"/a": (tag, "0.7.7"), "/b": ("0.0.0", "0.0.1", "0.1.0", "0.1.1")}
    files = configure("wf", ("/a", "/b"), [made], [Route(made, hops, Input("/b", "in"))], (), KnownJobs(tags)).files
    assert set(expected) <= {consumer.removeprefix("b-") for consumer in files[0].consumers}
    if not any(hop.obstacle or hop.kind is HopKind.UNKNOWN for hop in hops):
        assert files[0].consumers == tuple(f"b-{tag}" for tag in expected)


def test_too_many_instances_have_a_pattern() -> None:
    made = Output("/a", "out", OutputKind.FILE, globs=("x",))
    tags = {"/a": tuple(f"0.{number}" for number in range(MOST_INSTANCES + 1))}
    configuration = configure("wf", ("/a",), [made], [Route(made, (), None)], (), KnownJobs(tags))
    assert configuration.applications == ("a",)
    assert [file.path for file in configuration.files] == ["a-*/x"]


def test_what_goes_round_in_a_loop_is_read_by_its_steps() -> None:
    made = Output("/a", "out", OutputKind.FILE, globs=("x",))
    steps = ("/a", "/loop/b", "/loop/c", "/d")
    for hop in ("/loop-loop-combinator", "/loop/x-back-propagation-transformer"):
        routes = [Route(made, (Hop(hop, "x", HopKind.LOOP),), Input("/", "x"))]
        assert configure("wf", steps, [made], routes, (), KnownJobs()).files[0].consumers == ("loop.b", "loop.c")
    routes = [Route(made, (Hop("/loop/x-loop-output", "x", HopKind.LOOP),), Input("/loop", "x"))]
    (file,) = configure("wf", steps, [made], routes, (), KnownJobs()).files
    assert (file.consumers, file.permanent) == ((), True)


@pytest.mark.parametrize(
    ("step", "tag", "name"),
    [
        ("/", None, "main"),
        ("/align", None, "align"),
        ("/chromosome/individuals", "0.3", "chromosome.individuals-0.3"),
        ("/b/c", "0.1.12", "b.c-0.1.12"),
    ],
)
def test_names_of_applications(step: str, tag: str | None, name: str) -> None:
    assert application_name(step, tag) == name


def test_the_graph_is_dot() -> None:
    files = (
        CoordinatedFile('a/"x"', False, ("a",), ("b",), CommitRule("on_close", 2), "no_update"),
        CoordinatedFile("a/d", True, ("a",), (), CommitRule("on_n_files"), n_files=3, permanent=True),
    )
    text = write_dot(Configuration("wf", ("a", "b-0.1", "c"), files), [Gang(("/a", "/b"), ("/a",), 1)])
    lines = [line.strip() for line in text.splitlines()]
    inside = lines[lines.index("subgraph cluster_1 {") : lines.index("}")]
    assert [line.split(" ")[0] for line in inside[2:]] == ['"application:a"', '"application:b-0.1"']
    assert r'"file:a/\"x\"" [shape=note, label="a/\"x\"\non_close:2, no_update"];' in lines
    assert r'"file:a/d" [shape=folder, label="a/d\non_n_files, 3 files, update\npermanent"];' in lines
    assert text.count("{") == text.count("}")
    assert all(re.fullmatch(r'.*[;{}]|digraph "wf" \{', line) for line in lines)


def test_a_graph_with_the_names_of_others_is_safe_to_print() -> None:
    text = write_dot(Configuration("\x1b[2J\u202e", ("a\x07", "a\x08"), ()), [])
    assert text.startswith(r'digraph "\\x1b[2J\\u202e" {')
    assert r'"application:a\\x07"' in text
    assert r'"application:a\\x08"' in text
