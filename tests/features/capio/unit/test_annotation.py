"""From a coordination configuration to hints: what each rule becomes, and what no hint can say."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.features.capio.language.to_hints import Annotation, annotate, annotation_text
from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile
from streamflow_io.graph.io_graph import Input, Output, OutputKind, Route
from streamflow_io.hints.commit import parse_commit_rule
from streamflow_io.hints.globs import overlap
from streamflow_io.hints.inheritance import Parameter
from streamflow_io.hints.models import AnnotationsFile, StreamingRule
from streamflow_io.hints.rules import find_cycle
from streamflow_io.hints.yaml_files import parse, plain

STEPS = ("/c/make", "/c/use", "/other")
READER = Input("/c/use", "data")
LOG = Output("/c/make", "log", OutputKind.FILE, globs=("log.txt",))
OUTPUTS = [
    LOG,
    Output("/c/make", "tables", OutputKind.FILES, globs=("out/*.tsv",)),
    Output("/c/make", "index", OutputKind.FILE, globs=("*.idx",)),
    Output("/c/make", "all", OutputKind.DIRECTORY, globs=("all",)),
    Output("/c/make", "result", OutputKind.FILE, globs=("r.vcf",)),
    Output("/c/make", "number", OutputKind.OTHER, globs=()),
    Output("/other", "o", OutputKind.FILE, globs=("o.txt",)),
]


def routes(outputs: list[Output], reader: Input) -> list[Route]:
    results = [Route(output, (), None) for output in outputs if output.port == "result"]
    return results + [Route(output, (), reader) for output in outputs]


def file(path: str, committed: str = "on_close", **fields: object) -> CoordinatedFile:
    given = {"producers": ("make",), "consumers": ("use",), "committed": parse_commit_rule(committed), **fields}
    return CoordinatedFile(path, **given)  # type: ignore[arg-type]


def annotated(*files: CoordinatedFile, outputs: list[Output] = OUTPUTS, reader: Input = READER) -> Annotation:
    return annotate(Configuration("w", ("make", "use"), files), STEPS, outputs, routes(outputs, reader))


def test_what_else_a_file_says_is_named() -> None:
    given = Configuration("w", ("make", "use"), (file("log.txt"),), ("storage",))
    annotation = annotate(given, STEPS, OUTPUTS, routes(OUTPUTS, READER))
    assert [(one.subject, one.reason) for one in annotation.unexpressed] == [("storage", "there is no such hint")]
    assert annotation.rules


def rules(annotation: Annotation, step: str = "/c/make") -> list[dict[str, object]]:
    """The rules of a step, without `start`, which follows from `mode`."""
    fields = {"by_alias": True, "mode": "json", "exclude_defaults": True, "exclude": {"start"}}
    return [each.rule.model_dump(**fields) for each in annotation.rules.get(step, ())]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (file("log.txt"), {"port": "log", "committed": "on_close"}),
        (file("/scratch/l*.txt", "on_close:3"), {"port": "log", "committed": "on_close:3"}),
        (file("out/*.tsv"), {"port": "tables", "committed": "on_close"}),
        (file("*.tsv"), {"port": "tables", "committed": "on_close"}),
        (file("/x/out/chr*.tsv"), {"port": "tables", "files": ["out/chr*.tsv"], "committed": "on_close"}),
        (
            file("out", "on_n_files", n_files=3, is_directory=True),
            {"port": "tables", "committed": "on_n_files", "nFiles": 3},
        ),
        (
            file("x/all/", "on_n_files", n_files=3, is_directory=True),
            {"port": "all", "committed": "on_n_files", "nFiles": 3},
        ),
        (file("all/*.gz"), {"port": "all", "files": ["*.gz"], "committed": "on_close"}),
        (file("all/x/*.gz"), {"port": "all", "files": ["x/*.gz"], "committed": "on_close"}),
        (
            file("all", "on_file", file_deps=("a.idx",), is_directory=True),
            {"port": "all", "committed": "on_file", "fileDeps": ["index"]},
        ),
        (
            file("a.idx", "on_file", file_deps=("out/a.tsv",)),
            {"port": "index", "committed": "on_file", "fileDeps": ["out/a.tsv"]},
        ),
        (
            file("a.idx", "on_file", file_deps=("done",)),
            {"port": "index", "committed": "on_file", "fileDeps": ["[d]one"]},
        ),
        (
            file("a.idx", "on_file", file_deps=("x/log",)),
            {"port": "index", "committed": "on_file", "fileDeps": ["[l]og"]},
        ),
        (file("log.txt", permanent=True), {"port": "log", "committed": "on_close", "permanent": True}),
        (file("r.vcf", permanent=True), {"port": "result", "committed": "on_close"}),
        (
            file("log.txt", home_node="use"),
            {"port": "log", "committed": "on_close", "homeNode": "/c/use"},
        ),
        (file("log.txt", "on_termination", mode="no_update"), {"port": "log", "mode": "no_update"}),
    ],
)
def test_a_rule(given: CoordinatedFile, expected: dict[str, object]) -> None:
    annotation = annotated(given)
    assert rules(annotation) == [expected]
    assert annotation.unexpressed == ()
    assert [each.origins for each in annotation.rules["/c/make"]] == [(given.path,)]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (file("log.txt", producers=("nobody",)), "application nobody: no step"),
        (file("log.txt", consumers=("nobody",)), "application nobody: no step"),
        (file("log.txt", consumers=("other",)), "log.txt: /other does not read it"),
        (file("missing.txt"), "missing.txt: no output of /c/make is such a file"),
        (file("log.txt", excluded=True), "log.txt: exclude"),
        (file("log.txt", home_node="nobody"), "log.txt: its home node is that of nobody"),
        (file("log.txt", "on_n_files", n_files=2), "log.txt: on_n_files: /c/make/log is a single file"),
        (file("all", "on_n_files"), "all: on_n_files without n_files"),
        (file("log.txt", "on_file"), "log.txt: on_file without file_deps"),
        (file("log.txt", "on_file", file_deps=("log.txt",)), "log.txt: on_file: rules that wait for each other"),
        (file("all/sub", is_directory=True), "all/sub: a directory in /c/make/all"),
        (file("r.vcf"), "r.vcf: not permanent, but /c/make/result is a workflow output"),
        (file("log.txt", producers=()), "log.txt: no application writes it"),
    ],
)
def test_what_no_hint_says_is_told(given: CoordinatedFile, reason: str) -> None:
    (told,) = annotated(given).unexpressed
    assert f"{told.subject}: {told.reason}".startswith(reason)


def test_files_of_another_step_commit_nothing() -> None:
    annotation = annotated(file("log.txt", "on_file", file_deps=("o.txt",)), file("o.txt", producers=("other",)))
    assert rules(annotation) == []
    assert "of another application" in annotation.unexpressed[0].reason


def test_two_rules_for_the_same_files_are_none() -> None:
    annotation = annotated(file("out/a*.tsv"), file("out/*b.tsv", "on_close:2"), file("out/c.tsv"))
    assert rules(annotation) == [{"port": "tables", "files": ["out/c.tsv"], "committed": "on_close"}]
    assert ["another rule than out/a*.tsv" in told.reason for told in annotation.unexpressed] == [True]


def test_entries_with_one_rule_are_one_rule() -> None:
    annotation = annotated(file("all/a.*"), file("all/a.b"), file("all", "on_n_files", n_files=2, is_directory=True))
    assert rules(annotation) == [
        {"port": "all", "committed": "on_n_files", "nFiles": 2},
        {"port": "all", "files": ["a.*", "a.b"], "committed": "on_close"},
    ]


def test_more_rules_for_entries_than_hints_have() -> None:
    annotation = annotated(
        file("all/*", "on_close:2"), file("all/a"), file("all", "on_n_files", n_files=2, is_directory=True)
    )
    assert rules(annotation) == []
    assert [told.reason for told in annotation.unexpressed] == [
        "more rules for the same entries of /c/make/all than hints can have"
    ]


def test_a_directory_and_its_entries_are_one_rule() -> None:
    directory = file("all", "on_termination", is_directory=True)
    assert rules(annotated(directory, file("all/*"))) == [{"port": "all", "committed": "on_close"}]
    (rule,) = annotated(directory, file("all/*")).rules["/c/make"]
    assert rule.rule.start == "producer"
    counted = replace(directory, committed=parse_commit_rule("on_n_files"), n_files=2)
    assert rules(annotated(counted, file("all/*"))) == [{"port": "all", "committed": "on_n_files", "nFiles": 2}]


def test_when_consumers_start_stays_as_the_workflow_has_it() -> None:
    hinted = replace(LOG, rules=(StreamingRule(port="log", start="producer"),))
    (rule,) = annotated(file("log.txt"), outputs=[hinted]).rules["/c/make"]
    assert rule.rule == StreamingRule(port="log", committed=parse_commit_rule("on_close"), start="producer")


def test_defaults_are_written_where_they_replace_a_hint() -> None:
    given = file("log.txt", "on_termination")
    assert not annotated(given)
    hinted = replace(LOG, rules=(StreamingRule(port="log", mode="no_update"),))
    streamable = replace(LOG, streamable=True)
    for each in (hinted, streamable):
        assert rules(annotated(given, outputs=[each])) == [{"port": "log"}]


def test_permanent_alone() -> None:
    given = file("log.txt", "on_termination", producers=(), consumers=(), permanent=True)
    assert rules(annotated(given)) == [{"port": "log", "permanent": True}]
    assert rules(annotated(file("log.txt"), replace(given, path="*"))) == [
        {"port": "log", "committed": "on_close", "permanent": True},
        *({"port": each, "permanent": True} for each in ("tables", "index", "all")),
    ]


def test_inputs_that_read_growing_files_are_streamable() -> None:
    given = file("log.txt", mode="no_update")
    assert annotated(given).streamable == {"/c/use/data": ("log.txt",)}
    by_another_glob = annotated(replace(given, consumers=()), file("*.txt", "on_termination", producers=()))
    assert by_another_glob.streamable == {"/c/use/data": ("log.txt",)}
    assert annotated(file("log.txt")).streamable == {}
    assert annotated(replace(given, consumers=("other",))).streamable == {}
    assert annotated(given, reader=replace(READER, streamable=True)).streamable == {}


def test_a_single_tool() -> None:
    only = Output("/", "o", OutputKind.FILE, globs=("o",))
    written = file("o", producers=("main",), consumers=())
    annotation = annotate(Configuration("w", ("main",), (written,)), ["/"], [only], [])
    assert rules(annotation, "/") == [{"port": "o", "committed": "on_close"}]


paths = st.sampled_from(
    ["log.txt", "*.txt", "out/*.tsv", "out/a.tsv", "*.tsv", "all", "all/*", "all/a", "a.idx", "*", "q", "out"]
)
files = st.builds(
    CoordinatedFile,
    paths,
    is_directory=st.booleans(),
    producers=st.lists(st.sampled_from(["make", "other", "x"]), max_size=2, unique=True).map(tuple),
    consumers=st.lists(st.sampled_from(["use", "x"]), max_size=2, unique=True).map(tuple),
    committed=st.sampled_from(["on_termination", "on_close", "on_close:2", "on_file", "on_n_files"]).map(
        parse_commit_rule
    ),
    mode=st.sampled_from(["update", "no_update"]),
    file_deps=st.lists(paths, max_size=2).map(tuple),
    n_files=st.none() | st.integers(0, 3),
    permanent=st.booleans(),
    excluded=st.booleans(),
)


@settings(deadline=None)
@given(st.lists(files, max_size=6, unique_by=lambda each: each.path))
def test_rules_are_valid_together_whatever_the_file_says(given: list[CoordinatedFile]) -> None:
    annotation = annotated(*given)
    made = [each.rule for each in annotation.rules.get("/c/make", ())]
    parameters = {each.port: Parameter(each.port, frozenset(), None, each.globs) for each in OUTPUTS}
    assert find_cycle(parameters, made) is None
    for index, one in enumerate(made):
        for other in made[:index]:
            if one.port == other.port:
                assert bool(one.files) or bool(other.files)
                assert not any(overlap(a, b) for a in one.files for b in other.files)
    assert annotation.file.model_dump() is not None


@settings(deadline=None)
@example([file("out/*.tsv"), file("out/a.tsv")])
@given(st.lists(files, max_size=6, unique_by=lambda each: each.path))
def test_nothing_is_dropped_silently(given: list[CoordinatedFile]) -> None:
    """An application with a rule of its own, whose files a step writes, becomes a rule or is reported."""
    annotation = annotated(*given)
    expressed = {origin for each in annotation.rules.values() for rule in each for origin in rule.origins}
    told = " ".join(f"{each.subject} {each.reason}" for each in annotation.unexpressed)
    for each in given:
        has_rule = (str(each.committed), each.mode) != ("on_termination", "update")
        if has_rule or each.excluded:
            assert each.path in expressed or each.path in told or "x" in each.producers


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(lambda name: "/" not in name)


@settings(deadline=None)
@example("?0", "?0")
@given(names, names)
def test_the_text_is_the_annotations_file(name: str, dep: str) -> None:
    given = file(f"all/{name}", "on_file", file_deps=(f"x/{dep}",), producers=("make", name))
    annotation = annotated(given, file("log.txt", mode="no_update"))
    text = annotation_text(annotation, f"{name}.json", (f"a note: {dep}",))
    assert AnnotationsFile.model_validate(plain(parse(text))) == annotation.file
    assert all(each.subject.isprintable() is False or each.subject in text for each in annotation.unexpressed)
