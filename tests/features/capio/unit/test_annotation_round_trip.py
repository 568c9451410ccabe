"""Hints, to a coordination configuration, and back: the same."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import combinations

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streamflow_io.features.capio.language.to_hints import Annotation, annotate
from streamflow_io.graph.capio_cl.configuration import Configuration, CoordinatedFile, KnownJobs
from streamflow_io.graph.capio_cl.from_graph import configure
from streamflow_io.graph.edges import plan_edges
from streamflow_io.graph.io_graph import Delivery, Input, Output, OutputKind, Route, StreamEdge
from streamflow_io.hints.commit import CommitRule
from streamflow_io.hints.globs import overlap
from streamflow_io.hints.inheritance import Parameter
from streamflow_io.hints.models import StreamingRule
from streamflow_io.hints.rules import find_cycle

MAKE, USE, OTHER = STEPS = ("/c/make", "/c/use", "/other")
FILE, FILES, DIRECTORY = OutputKind.FILE, OutputKind.FILES, OutputKind.DIRECTORY
PORTS = {
    "log": (FILE, "log.txt"),
    "index": (FILE, "*.idx"),
    "tables": (FILES, "out/*.tsv"),
    "parts": (FILES, "part*"),
    "all": (DIRECTORY, "all"),
}
GLOBS = {"tables": ["out/a*.tsv", "out/b.tsv", "out/*c.tsv"], "all": ["a*", "b.gz", "sub/*.gz"]}
JOBS = st.sampled_from([KnownJobs(), KnownJobs({MAKE: None}), KnownJobs({MAKE: ("0.0", "0.1")})])


@st.composite
def rules(draw: st.DrawFn, port: str, files: tuple[str, ...] = ()) -> StreamingRule:
    kind = PORTS[port][0]
    several = kind is not FILE and not files
    committed = draw(
        st.sampled_from(["on_termination", "on_close", "on_close:2", "on_file", *(["on_n_files"] if several else [])])
    )
    fields: dict[str, object] = {"port": port, "committed": committed}
    if files:
        fields["files"] = files
    else:
        # What is read before its commit is the output as a whole.
        fields["mode"] = draw(st.sampled_from(["update", "no_update"]))
        fields["permanent"] = draw(st.sampled_from([None, True]))
        fields["homeNode"] = draw(st.sampled_from([None, USE]))
    if committed == "on_file":
        fields["fileDeps"] = draw(
            st.lists(st.sampled_from([*PORTS, "x.done", "[d]one"]), min_size=1, max_size=2, unique=True)
        )
    if committed == "on_n_files":
        fields["nFiles"] = draw(st.integers(1, 3))
    return StreamingRule.model_validate(fields)


@st.composite
def hints(draw: st.DrawFn) -> dict[str, tuple[StreamingRule, ...]]:
    """Rules for outputs of one step that are valid together."""
    found: dict[str, tuple[StreamingRule, ...]] = {}
    for port in draw(st.sets(st.sampled_from(sorted(PORTS)))):
        made = [draw(rules(port))]
        if port in GLOBS:
            made += [
                draw(rules(port, (glob,)))
                for glob in draw(st.lists(st.sampled_from(GLOBS[port]), unique=True, max_size=2))
            ]
        if all(not overlap(a.files[0], b.files[0]) for a, b in combinations(made[1:], 2)):
            found[port] = tuple(made)
    return found


def outputs(rules: dict[str, tuple[StreamingRule, ...]]) -> list[Output]:
    made = [Output(MAKE, port, kind, rules.get(port, ()), globs=(glob,)) for port, (kind, glob) in PORTS.items()]
    return [*made, Output(OTHER, "o", FILE, globs=("o.txt",))]


def routes(outputs: Sequence[Output], streamable: bool = True) -> list[Route]:
    consumers = [Input(USE, output.port, streamable) for output in outputs]
    return [Route(output, (), consumer) for output, consumer in zip(outputs, consumers, strict=True)]


def configured(outputs: Sequence[Output], jobs: KnownJobs, streamable: bool = True) -> Configuration:
    ways = routes(outputs, streamable)
    return configure("w", STEPS, outputs, ways, plan_edges(ways), jobs)


def valid(rules: dict[str, tuple[StreamingRule, ...]]) -> bool:
    parameters = {port: Parameter(port, frozenset(), None, (glob,)) for port, (_, glob) in PORTS.items()}
    return find_cycle(parameters, [rule for port in rules.values() for rule in port]) is None


def without_repetitions(configuration: Configuration) -> list[CoordinatedFile]:
    """The files of a configuration, without those for which a glob says the same: as in CAPIO, `*` matches a slash.

    All `file_deps` are waited for, in whatever order.
    """
    files = [replace(file, file_deps=tuple(sorted(file.file_deps))) for file in configuration.files]
    return [
        file
        for file in files
        if not any(
            fnmatchcase(file.path, one.path) and replace(one, path=file.path) == file and one != file for one in files
        )
    ]


def back(configuration: Configuration, jobs: KnownJobs) -> Annotation:
    plain = outputs({})
    return annotate(configuration, STEPS, plain, routes(plain), jobs)


def by_port(annotation: Annotation) -> dict[str, tuple[StreamingRule, ...]]:
    found: dict[str, tuple[StreamingRule, ...]] = {}
    for each in annotation.rules.get(MAKE, ()):
        found[each.rule.port] = (*found.get(each.rule.port, ()), each.rule)
    return found


def on_file(files: str, *deps: str) -> StreamingRule:
    fields = {"port": "tables", "files": (files,), "committed": "on_file", "fileDeps": deps}
    return StreamingRule.model_validate(fields)


CLOSED = StreamingRule.model_validate({"port": "tables", "committed": "on_close"})
IN_TWO_ORDERS = {"tables": (CLOSED, on_file("out/a*.tsv", "log", "index"), on_file("out/b.tsv", "index", "log"))}


@settings(max_examples=settings().max_examples // 2)
@given(hints().filter(valid), JOBS, st.booleans())
@example(IN_TWO_ORDERS, KnownJobs(), True)
def test_the_configuration_is_the_same_again(
    given_hints: dict[str, tuple[StreamingRule, ...]], jobs: KnownJobs, streamable: bool
) -> None:
    configuration = configured(outputs(given_hints), jobs, streamable)
    annotation = back(configuration, jobs)
    assert annotation.unexpressed == ()
    again = configured(outputs(by_port(annotation)), jobs, streamable)
    assert without_repetitions(again) == without_repetitions(configuration)


def meaning(rules: dict[str, tuple[StreamingRule, ...]]) -> dict[str, set[tuple[object, ...]]]:
    """The meaning of rules, without those that say nothing new."""
    found: dict[str, set[tuple[object, ...]]] = {}
    for port, given_rules in rules.items():
        whole = next(rule for rule in given_rules if not rule.files)
        for rule in given_rules:
            said = (rule.committed, rule.mode, tuple(sorted(rule.file_deps)), rule.n_files)
            kept = bool(rule.permanent or whole.permanent)
            for files in rule.files or ("",):
                found.setdefault(port, set()).add((files, said, kept, rule.home_node))
        # Of a Directory, `no_update` is about its listing.
        like_the_whole = (whole.committed, "update", tuple(sorted(whole.file_deps)), whole.n_files)
        if whole.committed.kind == "on_n_files" and PORTS[port][0] is DIRECTORY:
            like_the_whole = (CommitRule("on_close"), "update", (), None)
        repeated = {each for each in found[port] if each[0] and each[1] == like_the_whole and whole.home_node is None}
        found[port] -= repeated
    nothing = {("", (CommitRule(), "update", (), None), False, None)}
    return {port: said for port, said in found.items() if said != nothing}


def as_asked(edge: StreamEdge) -> bool:
    """Whether all that an output's rules say is done; not so where it is delivered late, or as a list."""
    rules = edge.route.output.rules
    if edge.delivery is Delivery.TERMINATION and any(rule.committed != CommitRule() for rule in rules):
        return False
    return edge.delivery.joins or all(rule.mode == "update" for rule in rules)


@settings(max_examples=settings().max_examples // 2, suppress_health_check=[HealthCheck.filter_too_much])
@given(hints().filter(valid), JOBS)
def test_hints_that_are_served_as_they_ask_are_the_same_again(
    given_hints: dict[str, tuple[StreamingRule, ...]], jobs: KnownJobs
) -> None:
    made = outputs(given_hints)
    assume(all(as_asked(edge) for edge in plan_edges(routes(made))))
    assert meaning(by_port(back(configured(made, jobs), jobs))) == meaning(given_hints)
