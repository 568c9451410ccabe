"""Adapter: what a job makes of a stream that is declared `streamable` is compared with what it makes of the file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from streamflow_io.nested import parts
from streamflow_io.records.learned.proofs import Way

from .declared_rules import next_of_declared, next_short_of_declared
from .rehearsal import Rehearsal
from .rehearsal_rules import Finding, Manner, Ran, unknown
from .repeated_job import NotApartError, RepeatedJob


class Comparison(Rehearsal):
    """One input that a job has read as a stream, because it is declared `streamable`.

    The job has ended well, and the file is where its stream was. Nobody has asked for one more run: so there is none
    where the program could do something elsewhere.
    """

    @cached_property
    def job(self) -> RepeatedJob:
        return RepeatedJob(self.performance, self.port, self.verify, is_apart=True)

    async def run(self) -> Finding | None:
        try:
            return await super().run()
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
        """:param ran: the runs before"""
        if manner == "file":
            return await self.job.run(manner, None)
        before = None if len(ran) == 1 else ran[2] if manner == "again" else ran[1]
        return await self.job.run_apart(manner, before)

    async def _refuted_by(self, short: Sequence[int], way: Way) -> Finding | None:
        if self._proven is not None and self._proven.reason is not None:
            return None  # It cannot be compared.
        found, _ = await self._run_with_excerpts(short, lambda ran, _: next_short_of_declared(ran), look_whole=False)
        return None if found is None else await self._with_output(found)

    async def _with_output(self, finding: Finding) -> Finding:
        """A finding that names the output which differs, if one does."""
        if finding.way is not None or not finding.is_known:
            return finding
        outputs = await self.job.plain_outputs()
        named = (name for name, value in outputs.items() if finding.reason in _names(name, value))
        if (name := next(named, None)) is None:
            return finding
        file = "" if finding.reason == name else f" ({finding.reason})"
        return Finding(None, f"its output `{name}`{file} is another one when it reads the complete file")


def _names(output: str, value: Any) -> set[str]:
    files = (part for part in parts(value) if isinstance(part, Mapping))
    return {output, *(str(file["basename"]) for file in files if "basename" in file)}
