"""A coordination configuration that a user wrote, against that of the workflow: one mistake of each kind, and none."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.features.capio.language.comparison import Difference, compare
from streamflow_io.features.capio.language.matching import Relation, StepNames, fit
from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile, HomeNode
from streamflow_io.hints.commit import parse_commit_rule

STEPS = ("/chromosome/individuals", "/chromosome/merge", "/report", "/sort_1", "/sort_2")
NAMES = StepNames(STEPS)


def file(
    path: str, producers: str = "", consumers: str = "", committed: str = "on_termination", **fields: object
) -> CoordinatedFile:
    return CoordinatedFile(
        path,
        producers=tuple(producers.split()),
        consumers=tuple(consumers.split()),
        committed=parse_commit_rule(committed),
        **fields,  # type: ignore[arg-type]
    )


def configuration(*files: CoordinatedFile) -> Configuration:
    applications = dict.fromkeys(name for each in files for name in (*each.producers, *each.consumers))
    return Configuration("w", tuple(applications), tuple(sorted(files, key=lambda each: each.path)))


def found(ours: CoordinatedFile, *theirs: CoordinatedFile) -> list[tuple[str, str]]:
    findings = compare(configuration(ours), configuration(*theirs), STEPS)
    return [(finding.severity, finding.kind) for finding in findings]


INDIVIDUALS, MERGE = "chromosome.individuals", "chromosome.merge"
OURS = file(f"{INDIVIDUALS}-*/chr22.tsv", INDIVIDUALS, MERGE, "on_close", mode="no_update")
THEIRS = file("chr*.tsv", "individuals", "merge", "on_close", mode="no_update")


@pytest.mark.parametrize(
    ("application", "step"),
    [
        ("chromosome.individuals", "/chromosome/individuals"),
        ("/chromosome/individuals", "/chromosome/individuals"),
        ("individuals", "/chromosome/individuals"),
        ("chromosome.individuals-0.3", "/chromosome/individuals"),
        ("individuals_1", "/chromosome/individuals"),
        ("individuals12", "/chromosome/individuals"),
        ("sort_1", "/sort_1"),
        ("sort_2-0.1", "/sort_2"),
        ("sort", None),
        ("duals", None),
        ("12", None),
        ("", None),
    ],
)
def test_the_step_of_an_application(application: str, step: str | None) -> None:
    assert NAMES.step(application) == step


def test_an_end_that_fits_two_steps_fits_none() -> None:
    assert StepNames(["/a/sort", "/b/sort"]).step("sort") is None
    assert StepNames(["/a/sort", "/b/sort"]).step("b.sort") == "/b/sort"


@pytest.mark.parametrize(
    ("path", "other", "relation", "entry"),
    [
        ("chr*.txt", "a-*/chr22.txt", Relation.SAME, ""),
        ("/scratch/out/chr22.txt", "a-0.1/chr22.txt", Relation.SAME, ""),
        ("out/", "a/out", Relation.SAME, ""),
        ("out/x/y.txt", "a/out", Relation.ENTRY, "x/y.txt"),
        ("out", "a/out/y.txt", Relation.AROUND, "y.txt"),
        ("a", "a/out/y.txt", Relation.AROUND, "out/y.txt"),
    ],
)
def test_paths_that_fit(path: str, other: str, relation: Relation, entry: str) -> None:
    fitting = fit(path, other, path_is_directory=None, other_is_directory=True)
    assert fitting is not None
    assert (fitting.relation, fitting.entry) == (relation, entry)


@pytest.mark.parametrize(("path", "other"), [("chr2?.txt", "a/chr1.txt"), ("/", "a/x"), ("a/x", "a/y")])
def test_paths_that_do_not_fit(path: str, other: str) -> None:
    assert fit(path, other, path_is_directory=None, other_is_directory=True) is None


def test_the_longest_common_end_is_the_best() -> None:
    fits = [fit("/scratch/out/chr22.txt", other) for other in ("a/*", "a/chr*.txt", "a/chr22.txt", "a/out/chr22.txt")]
    scores = [each.score for each in fits if each is not None]
    assert len(scores) == 4
    assert scores == sorted(set(scores))


@pytest.mark.parametrize("path", ["chr*.tsv", "chr22.tsv", "/scratch/run/chr22.tsv", "out/chr[12]*.tsv", "*"])
@pytest.mark.parametrize("producer", ["individuals", "chromosome.individuals", "individuals-0.3", "individuals_2"])
def test_a_file_that_says_the_same(path: str, producer: str) -> None:
    assert found(OURS, replace(THEIRS, path=path, producers=(producer,))) == []


def test_writer_and_reader_may_be_said_with_different_globs() -> None:
    assert found(OURS, replace(THEIRS, path="chr22.tsv", consumers=()), file("*.tsv", "", "merge")) == []


DIRECTORY = file(f"{MERGE}/all", MERGE, "report", "on_n_files", n_files=3, is_directory=True)
THEIR_DIRECTORY = replace(DIRECTORY, path="out/all", producers=("merge",))
WAITING = file(f"{MERGE}/x.bam", MERGE, "report", "on_file", file_deps=(f"{MERGE}/x.bai", f"{MERGE}/x.csi"))
THEIR_WAITING = replace(WAITING, path="x.bam", producers=("merge",), file_deps=("x.bai", "/tmp/x.csi"))
RESULT = file("report/r.txt", "report", permanent=True)


def test_directories_and_dependencies_that_are_the_same() -> None:
    assert found(DIRECTORY, THEIR_DIRECTORY) == []
    assert found(DIRECTORY, THEIR_DIRECTORY, file("out/all/*", "merge", "report", "on_close")) == []
    assert found(WAITING, THEIR_WAITING) == []
    assert found(RESULT, file("r.txt", "report", permanent=True)) == []
    assert found(RESULT, file("r.txt", "report"), file("*", permanent=True)) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (OURS, replace(THEIRS, consumers=()), ("error", "missing edge")),
        (OURS, replace(THEIRS, consumers=("merge", "report")), ("warning", "unknown edge")),
        (OURS, replace(THEIRS, consumers=("merge", "plot")), ("warning", "unknown application")),
        (OURS, replace(THEIRS, committed=parse_commit_rule("on_termination")), ("warning", "committed")),
        (OURS, replace(THEIRS, committed=parse_commit_rule("on_close:2")), ("warning", "committed")),
        (OURS, replace(THEIRS, committed=parse_commit_rule("on_file"), file_deps=("x",)), ("error", "committed")),
        (replace(OURS, committed=parse_commit_rule("on_close:2")), THEIRS, ("error", "committed")),
        (replace(OURS, committed=parse_commit_rule("on_termination")), THEIRS, ("error", "committed")),
        (OURS, replace(THEIRS, mode="update"), ("warning", "mode")),
        (replace(OURS, mode="update"), THEIRS, ("error", "mode")),
        (OURS, replace(THEIRS, is_directory=True), ("error", "directory")),
        (OURS, replace(THEIRS, permanent=True), ("warning", "permanent")),
        (OURS, replace(THEIRS, excluded=True), ("error", "excluded")),
        (
            replace(OURS, home_node=HomeNode("manual", MERGE)),
            replace(THEIRS, home_node=HomeNode("hashing")),
            ("warning", "homeNode"),
        ),
        (DIRECTORY, replace(THEIR_DIRECTORY, n_files=2), ("error", "nFiles")),
        (DIRECTORY, replace(THEIR_DIRECTORY, n_files=4), ("warning", "nFiles")),
        (DIRECTORY, replace(THEIR_DIRECTORY, is_directory=False), ("error", "directory")),
        (WAITING, replace(THEIR_WAITING, file_deps=("x.bai",)), ("error", "fileDeps")),
        (WAITING, replace(THEIR_WAITING, file_deps=("x.bai", "x.csi", "y")), ("warning", "fileDeps")),
        (RESULT, file("r.txt", "report"), ("error", "permanent")),
        (RESULT, file("other.txt", "report"), ("warning", "missing file")),
    ],
)
def test_one_mistake(ours: CoordinatedFile, theirs: CoordinatedFile, expected: tuple[str, str]) -> None:
    assert found(ours, theirs) == [expected]


def test_an_application_that_is_no_step_also_leaves_the_edge_out() -> None:
    assert found(OURS, replace(THEIRS, producers=("individual",))) == [
        ("error", "missing edge"),
        ("warning", "unknown application"),
    ]


def test_another_path_is_another_edge() -> None:
    assert found(OURS, replace(THEIRS, path="chr1.tsv")) == [("error", "missing edge"), ("warning", "unknown edge")]


def test_a_finding_tells_both_sides() -> None:
    (finding,) = compare(configuration(OURS), configuration(replace(THEIRS, mode="update")), STEPS)
    assert finding == Difference(
        "warning", "mode", "/chromosome/individuals", ("chr22.tsv",), "mode no_update", "chr*.tsv: mode update",
        "readers wait longer than they must",
    )  # fmt: skip


def test_of_two_globs_the_longer_end_holds() -> None:
    general, special = replace(THEIRS, path="*.tsv", mode="update"), replace(THEIRS, path="chr22.tsv")
    assert found(OURS, general, special) == []
    unknown = replace(OURS, path=f"{INDIVIDUALS}-*/*")
    assert found(unknown, general, special) == [("warning", "mode")]


def test_instances_are_told_once() -> None:
    instances = [
        replace(OURS, path=f"{INDIVIDUALS}-0.{i}/chr22.tsv", producers=(f"{INDIVIDUALS}-0.{i}",)) for i in (0, 1)
    ]
    assert len(compare(configuration(*instances), configuration(), STEPS)) == 1


names = st.sampled_from([INDIVIDUALS, MERGE, "report", "sort_1", "sort_2"])
rules = st.sampled_from(["on_termination", "on_close", "on_close:3"]).map(parse_commit_rule)


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """One file for each path; each application writes into a directory of its own."""
    paths = draw(st.sets(st.tuples(names, st.sampled_from(["a", "b.txt", "b*", "out/c", "out/*", "[ab]"]))))
    files = []
    for producer, path in sorted(paths):
        consumers = tuple(sorted(draw(st.sets(names, max_size=2)) - {producer}))
        kept = draw(st.booleans())
        files.append(
            CoordinatedFile(
                f"{producer}/{path}",
                producers=(producer,),
                consumers=consumers,
                committed=draw(rules),
                mode=draw(st.sampled_from(["update", "no_update"])),
                permanent=kept,
            )
        )
    return configuration(*files)


def _overlapping(one: Configuration) -> bool:
    return any(a is not b and fit(a.path, b.path) for a in one.files for b in one.files if a.producers == b.producers)


@settings(deadline=None)
@given(configurations())
def test_a_workflow_does_not_contradict_itself(one: Configuration) -> None:
    errors = compare(one, one, STEPS)
    assert _overlapping(one) or errors == ()


@settings(deadline=None)
@given(configurations())
def test_nothing_is_missed(one: Configuration) -> None:
    """An empty file misses every edge, and has no other error."""
    edges = {(f.producers[0], c, f.path.split("/", 1)[1]) for f in one.files for c in f.consumers}
    findings = [finding for finding in compare(one, configuration(), STEPS) if finding.severity == "error"]
    assert {finding.kind for finding in findings} <= {"missing edge"}
    assert sum(len(finding.paths) for finding in findings) == len(edges)


@settings(deadline=None)
@given(configurations(), configurations())
def test_what_is_compared_is_only_read(one: Configuration, other: Configuration) -> None:
    assert compare(one, other, STEPS) == compare(one, other, reversed(STEPS))
