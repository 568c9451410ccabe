"""Compares a job's outputs for a stream that is declared `streamable` with its outputs for the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from streamflow_io.nested import parts
from streamflow_io.records.learned.proofs import Way

from .rehearsal import Lend, Rehearsal
from .rehearsal_rules import Finding, Manner, Ran, shows_nothing, unknown
from .repeated_job import NotApartError, RepeatedJob

_VARIES = "the outputs differ from run to run"


def next_of_declared(so_far: Sequence[tuple[Manner, Ran]]) -> Manner | Finding:
    """Decide how the job is to be run next, or what is found.

    A finding with a way and a reason says why the outputs cannot be compared.

    :param so_far: the runs in order. The first has the file, and is compared with the job. Four runs with the same
        paths may follow: with a stream, the file, a stream, the file. The second and third of the four are compared
        with the first, the fourth with the second
    """
    if not so_far:
        return "file"
    manner, ran = so_far[-1]
    if shows_nothing(manner, ran):
        return unknown(ran.said or ran.ended)
    if not ran.succeeded:
        return Finding("pipe", f"the tool fails when it runs again: {ran.said}")
    is_equal = ran.difference is None
    match [manner for manner, _ in so_far]:
        case ["file"]:
            return Finding("pipe") if is_equal else "pipe"
        case ["file", "pipe"]:
            return "twin"
        case ["file", "pipe", "twin"]:
            return Finding("pipe") if is_equal else "pipe"
        case ["file", "pipe", "twin", "pipe"]:
            return "again" if is_equal else Finding("pipe", f"{_VARIES}: {ran.difference}")
    if not is_equal:
        return Finding("pipe", f"{_VARIES}: {ran.difference}")
    return Finding(None, so_far[2][1].difference)


def next_short_of_declared(so_far: Sequence[tuple[Manner, Ran]]) -> Manner | Finding | None:
    """Decide how the job is to be run next with a short file, or how that refutes the declaration; None: no refutation.

    :param so_far: the runs in order: with the file, a stream, the file, and a stream. All are compared with the first
        one
    """
    if not so_far:
        return "file"
    manner, ran = so_far[-1]
    if shows_nothing(manner, ran):
        return None
    is_file = manner == "file"
    if len(so_far) == 4:
        return None if ran.is_equal else _refuted(ran)
    if is_file:
        return "pipe" if ran.is_equal else None  # many formats have an end, which is cut off
    return None if ran.is_equal else "file"


def _refuted(ran: Ran) -> Finding:
    return Finding(None, ran.difference if ran.succeeded else f"{ran.said} with a short stream")


class Comparison(Rehearsal):
    """One input that a job has read as a stream, because it is declared `streamable`.

    The job has succeeded, and its file is where the stream was. No user has asked for one more run. So there is none
    where the program could change anything else.
    """

    @cached_property
    def job(self) -> RepeatedJob:
        # The job has read the stream to its end, whatever the program has asked. Only the outputs count.
        return RepeatedJob(self.original, self.port, is_declared=True)

    async def run(self, lend: Lend | None = None) -> Finding | None:
        try:
            return await super().run(lend)
        except NotApartError:
            return unknown("the kernel cannot keep it from changing other files, and from TCP")

    @cached_property
    def _most(self) -> tuple[int, ...] | None:
        return None

    async def _tried(self) -> Finding:
        ran: list[tuple[Manner, Ran]] = []
        while isinstance(following := next_of_declared(ran), str):
            ran.append((following, await self._run(following, [each for _, each in ran])))
        return await self._with_output(following)

    async def _run(self, manner: Manner, ran: Sequence[Ran]) -> Ran:
        """Run the job once more."""
        if manner == "file":
            return await self.job.run(manner, None)
        before = None if len(ran) == 1 else ran[2] if manner == "again" else ran[1]
        return await self.job.run_apart(manner, before)

    async def _refuted_by(self, short: Sequence[int], way: Way) -> Finding | None:
        if self._proven is not None and self._proven.reason is not None:
            return None  # the outputs cannot be compared
        found, _ = await self._run_with_excerpts(short, lambda ran, _: next_short_of_declared(ran), look_whole=False)
        return None if found is None else await self._with_output(found)

    async def _with_output(self, finding: Finding) -> Finding:
        """The finding, with the name of the output that differs, if one does."""
        if finding.way is not None or not finding.is_known:
            return finding
        outputs = await self.job.plain_outputs()
        named = (name for name, value in outputs.items() if finding.reason in _names(name, value))
        if (name := next(named, None)) is None:
            return finding
        file = "" if finding.reason == name else f" ({finding.reason})"
        return Finding(None, f"the output `{name}`{file} differs with the complete file")


def _names(output: str, value: Any) -> set[str]:
    files = (part for part in parts(value) if isinstance(part, Mapping))
    return {output, *(str(file["basename"]) for file in files if "basename" in file)}
