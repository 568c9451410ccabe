"""The data of docs/tools.md, from the results of the cases."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.tools import NOT_INSTALLED, Section
from tests.matrix.programs import Case, Consumer, Filler, Outcome, Producer, Program, Walker
from tests.matrix.running import Observation

Seen = dict[Case, Observation | None]

_TITLES: Mapping[type, str] = {
    Producer: "Commands that write a file",
    Walker: "Commands that read a directory",
    Filler: "Commands that write a directory",
}
_READS, _READS_STDIN = "Commands that read a file", "Commands that read their standard input"


def sections(seen: Mapping[Case, Observation | None]) -> list[Section]:
    """The results, by the kind of the commands."""
    found: dict[str, dict[str, dict[str, str]]] = {title: {} for title in (_READS, _READS_STDIN, *_TITLES.values())}
    for case, observation in seen.items():
        results = found[_title(case.program)].setdefault(case.program.name, {})
        results[case.rule.name] = _result(case, observation)
    return [Section(title, tuple(next(iter(part.values()))), part) for title, part in found.items() if part]


def expected(case: Case) -> str:
    """The result of a case that ends as the table of programs says."""
    outcome, because = case.expected.outcome, case.expected.because
    return f"{outcome.value}: {because}" if because and outcome is not Outcome.EQUAL else outcome.value


def _title(program: Program) -> str:
    if isinstance(program, Consumer):
        return _READS_STDIN if program.stdin else _READS
    return _TITLES[type(program)]


def _result(case: Case, observation: Observation | None) -> str:
    if observation is None:
        return NOT_INSTALLED
    if not case.expected.allows(observation.outcome):
        return f"{observation.outcome.value}: not as expected"
    return expected(case)
