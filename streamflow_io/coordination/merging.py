"""The claims of a configuration on the outputs of a step, as rules that do not contradict each other. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from streamflow_io.hints.globs import overlap
from streamflow_io.hints.inheritance import Parameter
from streamflow_io.hints.models import StreamingRule
from streamflow_io.hints.rules import find_cycle

from .claims import Claim
from .graph import Output


@dataclass(frozen=True)
class Unexpressed:
    """Something in a configuration that no hint says.

    :ivar subject: a path, or an application
    :ivar reason: why, for people
    """

    subject: str
    reason: str


@dataclass(frozen=True)
class AnnotatedRule:
    """A rule, and the paths of the configuration that it was made from."""

    rule: StreamingRule
    origins: tuple[str, ...]


_Claimed = tuple[Output, tuple[str, ...], Sequence[Claim]]


def merge(outputs: Sequence[_Claimed]) -> tuple[tuple[AnnotatedRule, ...], list[Unexpressed]]:
    """The rules of a step.

    Claims that contradict each other on the same files, and rules that wait for each other, are left out.

    :param outputs: the outputs of one step, each with its globs and the claims on it
    :return: rules that are valid together, and what was left out
    """
    problems: list[Unexpressed] = []
    rules: list[AnnotatedRule] = []
    for output, _, claims in outputs:
        kept, contradictions = _without_contradictions(claims)
        problems += contradictions
        if kept and not (all(_is_default(each) for each in kept) and not output.rules and not output.streamable):
            rules += _rules(output, kept)
    outside = {output.port: Parameter(output.port, frozenset(), None, globs) for output, globs, _ in outputs}
    while (cycle := find_cycle(outside, [each.rule for each in rules])) is not None:
        for index in set(cycle):
            paths = ", ".join(rules[index].origins)
            problems.append(Unexpressed(paths, "on_file: rules that wait for each other are never complete"))
        rules = [each for index, each in enumerate(rules) if index not in cycle]
    return tuple(rules), problems


def _is_default(claim: Claim) -> bool:
    return claim.rule == Claim(claim.output, (), "").rule and not claim.permanent


def _without_contradictions(claims: Sequence[Claim]) -> tuple[list[Claim], list[Unexpressed]]:
    coordinating = [claim for claim in claims if not claim.only_permanent]
    problems = []
    bad: set[int] = set()
    for index, one in enumerate(coordinating):
        for later, other in enumerate(coordinating[:index]):
            if one.rule != other.rule and _same_files(one, other):
                bad |= {index, later}
                name = one.output.name
                problems.append(Unexpressed(one.path, f"another rule than {other.path}, for the same files of {name}"))
    kept = [claim for index, claim in enumerate(coordinating) if index not in bad]
    return [*kept, *(claim for claim in claims if claim.only_permanent)], problems


def _same_files(one: Claim, other: Claim) -> bool:
    if not one.files or not other.files:
        return one.files == other.files
    return any(overlap(a, b) for a in one.files for b in other.files)


def _rules(output: Output, claims: Sequence[Claim]) -> Iterator[AnnotatedRule]:
    """One rule for the output as a whole, and one for each set of entries that have a rule of their own."""
    whole = [claim for claim in claims if not claim.files and not claim.only_permanent]
    kept = [claim for claim in claims if claim.only_permanent]
    if whole:
        yield _rule(output, whole, kept)
    entries: dict[tuple[object, ...], list[Claim]] = {}
    for claim in claims:
        if claim.files and not claim.only_permanent:
            entries.setdefault(claim.rule, []).append(claim)
    for rule, alike in entries.items():
        if not whole or rule != whole[0].rule or any(claim.permanent for claim in alike):
            yield _rule(output, alike, kept)
    if not whole and not entries and kept:
        yield _rule(output, kept, ())


def _rule(output: Output, claims: Sequence[Claim], kept: Sequence[Claim]) -> AnnotatedRule:
    first = claims[0]
    files = sorted({glob for claim in claims for glob in claim.files})
    fields: dict[str, object] = {"port": output.port, "committed": first.committed, "mode": first.mode}
    if all(claim.files for claim in claims):
        fields["files"] = files
    if first.file_deps:
        fields["fileDeps"] = first.file_deps
    if first.n_files is not None:
        fields["nFiles"] = first.n_files
    if any(claim.permanent for claim in (*claims, *kept)):
        fields["permanent"] = True
    if first.home_node is not None:
        fields["homeNode"] = first.home_node
    origins = tuple(dict.fromkeys(claim.path for claim in (*claims, *kept)))
    return AnnotatedRule(StreamingRule.model_validate(fields), origins)
