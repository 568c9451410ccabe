"""The conditions of a verdict about declared cuts, and the comparison that gives one.

The cuts of a program can depend on all that it is given. So a verdict holds for the same values of all other inputs.
If the rule says how many records are a part, a verdict holds for all files of the same extension. Otherwise it holds
for the same file only, because programs round in different ways. It also holds for the same file only where an
expression of the tool looks at more of the file than its path.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from streamflow_io.graph.candidates import ToolPrograms
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.jobs.proof_key import OtherPrograms
from streamflow_io.parts.said_parts import in_order
from streamflow_io.wording import counted

from .verdicts import VerdictKey

Values = Mapping[str, Any]


class Declaration(Struct, frozen=True):
    """A rule that declares the cuts of a step.

    :ivar tool: a hex digest of the tool's content
    :ivar is_bound: a verdict holds for the same file only
    """

    rule: SessionRule
    tool: str
    is_bound: bool = False
    programs: ToolPrograms = ()


class Compared(NamedTuple):
    """The outcome of a comparison.

    :ivar parts: the number of parts that the rule gives
    :ivar difference: the first difference between the parts and the files. None: the rule is verified
    """

    parts: int
    difference: str | None


class NoRuleError(ValueError):
    """Why a rule says nothing about a job."""


def rule_of(rule: SessionRule, inputs: Values) -> str:
    """A rule as `sfio-node cut` reads it.

    :param inputs: those of the job, as in CWL
    :raises NoRuleError: if the input with the number of parts has no such number
    """
    told = {name: value for name, value in _told_to(rule, inputs).items() if name not in ("of", "port", "count")}
    if rule.count is not None:
        told["count"] = True
    return json.dumps(told, sort_keys=True)


def told_of(rule: SessionRule) -> dict[str, Any]:
    """The cuts of a rule, and their files, in JSON."""
    told = {"of", "port", "records", "parts", "every", "chunk", "names", "first", "count"}
    return rule.model_dump(mode="json", by_alias=True, exclude_none=True, include=told)


def _told_to(rule: SessionRule, inputs: Values) -> dict[str, Any]:
    """The cuts of a rule for one job, with the number of parts that an input may say."""
    told = told_of(rule)
    if isinstance(rule.parts, str):
        count = inputs.get(rule.parts)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise NoRuleError(f"its input `{rule.parts}`, the number of parts, is {json.dumps(count, default=str)}")
        told["parts"] = count
    return told


def needs_content(declaration: Declaration) -> bool:
    """Whether files with other contents may have other cuts."""
    return declaration.is_bound or declaration.rule.every is None


def inputs_digest(declaration: Declaration, inputs: Values) -> str:
    """The digest of all that the cuts of a job may depend on, beside the tool and the rule.

    :param inputs: those of the job, as in CWL; files have a `checksum`
    :raises NoRuleError: if an input cannot be told from others
    """
    rule = declaration.rule
    file = inputs[rule.of]
    others = {name: _content(name, value) for name, value in inputs.items() if name != rule.of}
    of = _content(rule.of, file) if needs_content(declaration) else posixpath.splitext(str(file["basename"]))[1]
    return hashlib.sha256(json.dumps([others, of], sort_keys=True).encode()).hexdigest()


def verdict_key(declaration: Declaration, inputs: Values, programs: OtherPrograms = ()) -> VerdictKey:
    """The conditions of a verdict about a job.

    :param inputs: those of the job, as in CWL; files have a `checksum`
    :param programs: the programs of the tool that differ at the location of the job
    :raises NoRuleError: if the rule says nothing about the job, or an input cannot be told from others
    """
    told = json.dumps(_told_to(declaration.rule, inputs), sort_keys=True)
    differing = hashlib.sha256(json.dumps(programs).encode()).hexdigest() if programs else ""
    return VerdictKey(declaration.tool, told, inputs_digest(declaration, inputs), differing)


def _content(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        if value.get("class") == "Directory":
            raise NoRuleError(f"its input `{name}` is a Directory, so a change cannot be seen")
        if value.get("class") == "File":
            if not value.get("checksum"):
                raise NoRuleError(f"its input `{name}` has no checksum, so a change cannot be seen")
            beside = [_content(name, other) for other in value.get("secondaryFiles") or ()]
            return [value.get("basename"), value.get("checksum"), value.get("size"), beside]
        return {str(key): _content(name, inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_content(name, inner) for inner in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)


#: The exit codes of `sfio-node cut --compare`; other ones: it cannot be told.
SAME, DIFFERENT = 0, 1


class InconclusiveError(ValueError):
    """Why a comparison proves nothing, though there is no difference."""


def reason(said: str) -> str:
    """Why `sfio-node cut` fails, without its name."""
    return said.removeprefix("sfio-node: cut: ")


def parts_of(said: str) -> list[dict[str, Any]]:
    """The parts, as `sfio-node cut` says them."""
    return [part for part in map(json.loads, said.splitlines()) if "path" in part]


def records_of(said: str) -> int | None:
    """The number of records that `sfio-node cut` says at the end. None: the rule does not ask for it."""
    lines = said.splitlines()
    records: int | None = json.loads(lines[-1]).get("records") if lines else None
    return records


def compared(
    rule: str, said: str, globs: Sequence[str], written: Sequence[Values], directory: str, count: Any = None
) -> Compared:
    """The outcome of a comparison in which all bytes are the same.

    :param rule: as `sfio-node cut` reads it
    :param directory: where they are to be
    :param count: of the records, as the program has it
    :raises InconclusiveError: if any rule would give the same
    """
    parts = parts_of(said)
    names = in_order(globs, [part["path"] for part in parts])
    difference = _difference_of_lists(names, written)
    if difference is None and (away := next((f for f in written if posixpath.dirname(f["path"]) != directory), None)):
        difference = f"{away['path']} is not in the output directory of the job"
    if difference is None and (records := records_of(said)) is not None and records != count:
        difference = f"the program counts {json.dumps(count, default=str)} records, the rule gives {records}"
    filled = sum(any(length for _, length in part["extents"]) for part in parts)
    if difference is None and filled < 2 and json.loads(rule).get("parts") != 1:
        raise InconclusiveError("there is only one part" if filled else "there is no part with a byte")
    return Compared(len(parts), difference)


def _difference_of_lists(cut: Sequence[str], written: Sequence[Values]) -> str | None:
    """The first difference between the elements of an output as they are cut, and as the program has made them.

    :param cut: the names of the parts that the output finds, in its order
    """
    names = [str(file.get("basename")) for file in written]
    for number, (ours, theirs) in enumerate(zip(cut, names, strict=False), start=1):
        if ours != theirs:
            return f"element {number} of the output is {theirs}, the rule gives {ours}"
    if len(cut) != len(names):
        return f"the output has {counted(len(names), 'element')}, the rule gives {len(cut)}"
    if beside := next((file for file in written if file.get("secondaryFiles")), None):
        return f"{beside.get('basename')} has secondaryFiles"
    return None
