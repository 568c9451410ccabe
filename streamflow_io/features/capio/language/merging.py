"""Merge what a configuration says of the outputs of a step into rules that do not contradict each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from streamflow_io.graph.io_graph import Output, OutputKind
from streamflow_io.grouping import grouped
from streamflow_io.hints.commit import ON_CLOSE, ON_TERMINATION
from streamflow_io.hints.globs import overlap
from streamflow_io.hints.inheritance import Parameter
from streamflow_io.hints.models import Start, StreamingRule
from streamflow_io.hints.rules import find_cycle

from .matching import Claim

_ALL_ENTRIES = ("*",)


class Unexpressed(Struct, frozen=True):
    """Something in a configuration that no hint says."""

    subject: str
    reason: str


class AnnotatedRule(Struct, frozen=True):
    """A rule, and the paths of the configuration that it was made from."""

    rule: StreamingRule
    origins: tuple[str, ...]


# Claims with one rule.
_Group = list[Claim]


def merge(outputs: Sequence[tuple[Output, Sequence[Claim]]]) -> tuple[tuple[AnnotatedRule, ...], list[Unexpressed]]:
    """The rules of a step.

    Claims that contradict each other on the same files, and rules that wait for each other, are left out.

    :param outputs: the outputs of one step, each with the claims on it
    :return: rules that are valid together, and what was left out
    """
    problems: list[Unexpressed] = []
    rules: list[AnnotatedRule] = []
    taken: set[str] = set()
    for output, claims in outputs:
        kept, contradictions = _without_contradictions(claims)
        problems += contradictions
        groups, around = _groups(output, kept)
        if _too_many(groups):
            paths = ", ".join(claim.path for group in groups for claim in group)
            problems.append(Unexpressed(paths, f"more rules for the same entries of {output.name} than hints can have"))
            groups = []
        taken |= {claim.path for claim in around}
        default = all(claim.is_default for group in groups for claim in group)
        if groups and not (default and not output.rules and not output.streamable):
            rules += [_rule(output, group, kept) for group in groups]
    for claim in (claim for _, claims in outputs for claim in claims):
        if claim.part == "around" and claim.path not in taken and not claim.is_default:
            problems.append(Unexpressed(claim.path, f"a directory around {claim.output.name}: rules are for outputs"))
    valid, cycles = _without_cycles(rules, {o.port: Parameter(o.port, frozenset(), None, o.globs) for o, _ in outputs})
    return valid, [*problems, *cycles]


def _without_cycles(
    rules: Sequence[AnnotatedRule], outputs: Mapping[str, Parameter]
) -> tuple[tuple[AnnotatedRule, ...], list[Unexpressed]]:
    problems = []
    while (cycle := find_cycle(outputs, [each.rule for each in rules])) is not None:
        for index in sorted(set(cycle)):
            paths = ", ".join(rules[index].origins)
            problems.append(Unexpressed(paths, "on_file: rules that wait for each other are never complete"))
        rules = [each for index, each in enumerate(rules) if index not in cycle]
    return tuple(rules), problems


def _without_contradictions(claims: Sequence[Claim]) -> tuple[list[Claim], list[Unexpressed]]:
    problems = []
    bad: set[int] = set()
    for index, one in enumerate(claims):
        for before, other in enumerate(claims[:index]):
            if "kept" not in (one.part, other.part) and one.rule != other.rule and _same_files(one, other):
                bad |= {index, before}
                name = one.output.name
                problems.append(Unexpressed(one.path, f"another rule than {other.path}, for the same files of {name}"))
    return [claim for index, claim in enumerate(claims) if index not in bad], problems


def _same_files(one: Claim, other: Claim) -> bool:
    if one.part != other.part or one.part == "around":
        return one.part == other.part and one.path == other.path
    if (one.files == _ALL_ENTRIES) != (other.files == _ALL_ENTRIES):
        return False  # what holds for all others may become part of the whole
    return one.part == "whole" or any(overlap(a, b) for a in one.files for b in other.files)


def _groups(output: Output, claims: Sequence[Claim]) -> tuple[list[_Group], _Group]:
    """The claims of each rule: the output as a whole, and each set of entries with a rule of its own.

    :return: the groups, the one of the whole first; and the claims on directories that the rule of the whole takes in
    """
    whole = [claim for claim in claims if claim.part == "whole"]
    entries: dict[tuple[object, ...], _Group] = grouped(
        (claim for claim in claims if claim.part == "entries"), lambda claim: claim.rule
    )
    around = [claim for claim in claims if claim.part == "around"]
    if output.kind is OutputKind.FILES:
        whole, around = _counted(whole, around)
    if whole and output.kind is OutputKind.DIRECTORY:
        whole, entries = _with_all_entries(whole, entries)
    same = entries.get(whole[0].rule, []) if whole else []
    if same and (_is_permanent(whole) or not _is_permanent(same)):
        # The entries of the same rule are part of the whole, unless these alone are kept.
        whole = [*whole, *same]
        entries = {rule: group for rule, group in entries.items() if group is not same}
    kept = [claim for claim in claims if claim.part == "kept"]
    groups = [group for group in (whole, *entries.values()) if group]
    return groups or ([kept] if kept else []), around


def _is_permanent(group: _Group) -> bool:
    return any(claim.permanent for claim in group)


def _too_many(groups: Sequence[_Group]) -> bool:
    """Whether all entries of a Directory have a rule that is not that of the whole, and some have yet another."""
    entries = [group for group in groups if group[0].part == "entries"]
    return len(entries) > 1 and any(claim.files == _ALL_ENTRIES for group in entries for claim in group)


def _counted(whole: _Group, around: _Group) -> tuple[_Group, _Group]:
    """Give a File[] the rule of its directory, which is complete with a number of files."""
    counting = [claim for claim in around if claim.committed.kind == "on_n_files"]
    if not counting or len({claim.rule for claim in counting}) > 1:
        return whole, []
    if whole and whole[0].committed != ON_CLOSE:
        return whole, []
    mode = whole[0].mode if whole else counting[0].mode
    return [*(replace(claim, mode=mode) for claim in counting), *whole], counting


def _with_all_entries(
    whole: _Group, entries: dict[tuple[object, ...], _Group]
) -> tuple[_Group, dict[tuple[object, ...], _Group]]:
    """Merge the rule for all entries of a Directory into the rule of the Directory: the inverse of `expansion.py`."""
    for rule, group in entries.items():
        first, entry = whole[0], group[0]
        if entry.files != _ALL_ENTRIES or entry.mode != "update" or entry.home_node != first.home_node:
            continue
        closed = entry.committed == ON_CLOSE
        if closed and first.committed == ON_TERMINATION:
            whole = [replace(claim, committed=ON_CLOSE) for claim in whole]
        elif not (closed and first.committed.kind == "on_n_files") and (
            (first.committed, set(first.file_deps)) != (entry.committed, set(entry.file_deps))
        ):
            continue
        return [*whole, *group], {other: claims for other, claims in entries.items() if other != rule}
    return whole, entries


def _start(output: Output, claim: Claim, files: Sequence[str]) -> Start | None:
    """The start of consumers, about which a configuration says nothing. None: the mode decides."""
    if output.kind is OutputKind.DIRECTORY and not files and claim.committed == ON_CLOSE:
        return "producer"  # else the files would be had only when all are there
    replaced = (rule for rule in output.rules if rule.mode == claim.mode and set(rule.files) == set(files))
    return next((rule.start for rule in replaced), None)


def _rule(output: Output, group: _Group, claims: Sequence[Claim]) -> AnnotatedRule:
    first = group[0]
    files = sorted({glob for claim in group for glob in claim.files}) if first.part == "entries" else []
    sources = dict.fromkeys((*group, *(claim for claim in claims if claim.part == "kept")))
    fields = {
        "port": output.port,
        "files": files,
        "committed": first.committed,
        "fileDeps": first.file_deps,
        "nFiles": first.n_files,
        "mode": first.mode,
        "start": _start(output, first, files),
        "permanent": any(claim.permanent for claim in sources),
        "homeNode": first.home_node,
    }
    rule = StreamingRule.model_validate({name: value for name, value in fields.items() if value})
    return AnnotatedRule(rule, tuple(dict.fromkeys(claim.path for claim in sources)))
