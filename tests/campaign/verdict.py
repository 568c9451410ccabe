"""The verdict on a run after its fault: decided from what was seen, without looking at anything."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lab.runs import Run

_MESSAGE = re.compile(r"^\S+ \S+ ERROR\s+(.*)$")
#: What StreamFlow and we say of others when one has failed.
_CONSEQUENCES = ("FAILED Workflow execution", "CANCELLED ")
#: What we say where a node runtime cannot be had.
_FALLBACK = "Nothing streams in"
_FRAME = re.compile(r"^(Traceback |  File |    |During handling|The above exception)")


@dataclass(frozen=True)
class Verdict:
    """How a trial ended.

    :ivar outcome: `identical`, `failed`, `ended` (the driver was the victim) or `untouched` (the fault came too late)
    :ivar message: the first clear error of a run that failed
    :ivar violations: of the guarantees; none if all is well
    """

    outcome: str
    message: str | None
    violations: tuple[str, ...]


def judge(
    run: Run,
    plain: Run,
    *,
    struck: bool,
    driver_was_victim: bool,
    left: Sequence[str],
    plain_steps: Collection[str] = (),
) -> Verdict:
    """Compare a run with what plain StreamFlow does, and look at what is left of it.

    :param struck: whether anything was done to the run
    :param left: what was found of it when it had ended
    :param plain_steps: those whose jobs StreamFlow runs and speaks of by itself
    """
    violations = [f"left behind: {what}" for what in left]
    violations += [f"read wrong data with success: {note}" for note in sorted(_reads(run) - _reads(plain))]
    message = clear_error(run.log, plain_steps)
    if not struck and _FALLBACK in run.log:
        violations.append("nothing streams, although nothing had been done to it")
    if run.ok:
        outcome = "identical" if struck else "untouched"
        violations += _differences(run, plain)
    else:
        outcome = "ended" if driver_was_victim else "failed"
        if not struck:
            violations.append("failed, although nothing had been done to it")
        if message is None and not driver_was_victim:
            violations.append("failed without a clear message")
    return Verdict(outcome, message, tuple(violations))


def clear_error(log: str, plain_steps: Collection[str] = ()) -> str | None:
    """The first error of a log that says something: no stack trace, and not only that a job has failed.

    :param plain_steps: of their jobs StreamFlow says only that when the tool itself says nothing
    """
    lines = log.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=False):
        if (found := _MESSAGE.match(line)) is None:
            continue
        text = found[1].strip()
        if text.endswith("with error:"):
            said = "" if _FRAME.match(following.lstrip("\t")) else following.strip()
            text = f"{text} {said}" if said else text if _step(text) in plain_steps else ""
        if text and not text.startswith(_CONSEQUENCES):
            return text
    return None


def _step(message: str) -> str | None:
    found = re.match("FAILED Job /([^/]+)/", message)
    return found and found[1]


def _reads(run: Run) -> set[str]:
    return {noted for _, noted in run.trace if noted.startswith("read ")}


def _differences(run: Run, plain: Run) -> list[str]:
    found = []
    if run.outputs != plain.outputs:
        found.append(f"the output object differs from plain StreamFlow's: {run.outputs} instead of {plain.outputs}")
    differing = [name for name in run.files.keys() | plain.files.keys() if run.files.get(name) != plain.files.get(name)]
    found += [f"the output file differs from plain StreamFlow's: {name}" for name in sorted(differing)]
    return found + [f"succeeded without: {note}" for note in sorted(_reads(plain) - _reads(run))]
