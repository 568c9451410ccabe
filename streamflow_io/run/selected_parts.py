"""The files of which the jobs of a step select their own part: they are read ahead in the order of the list.

Nothing about the jobs changes. What they will read is known when their input is there, long before most of them start.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable
from typing import Any

from streamflow.core.workflow import Step, Token
from streamflow.log_handler import logger
from streamflow.workflow.token import FileToken, TerminationToken

from streamflow_io.hints.sessions import SessionRule
from streamflow_io.sessions.extents import Span
from streamflow_io.sessions.selected import selected

from .read_session import ReadSession

#: Begins the session of a file, with the number of jobs that consume each part; None: there is none.
Begin = Callable[[str, int], Awaitable["ReadSession | None"]]


class SelectedParts:
    """What the jobs of one step read of one of their inputs.

    :param step: the path of the step
    :param schedule: StreamFlow's step that submits its jobs, and has their input
    """

    def __init__(self, step: str, schedule: Step, rule: SessionRule, begin: Begin) -> None:
        self._step = step
        self._rule = rule
        self._begin = begin
        ports = [rule.of, *(port for port in (rule.part, rule.parts) if isinstance(port, str))]
        self._needed = len(ports)
        # By tag, what has come for one job.
        self._found: dict[str, dict[str, Token]] = {}
        self._sessions: dict[str, ReadSession | None] = {}
        # By job, what it reads; the jobs that have ended before that was known.
        self._reads: dict[str, tuple[ReadSession, int]] = {}
        self._early: set[str] = set()
        self._warned = False
        self._following = asyncio.create_task(self._follow(schedule, ports))

    def ended(self, job_name: str) -> None:
        """A job has ended, however."""
        if (read := self._reads.pop(job_name, None)) is not None:
            session, part = read
            session.consume(part)
        else:
            self._early.add(job_name)

    async def close(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self, schedule: Step, ports: list[str]) -> None:
        await asyncio.gather(*(self._take(schedule, port) for port in ports))
        for session in self._sessions.values():
            if session is not None:
                session.all_announced()

    async def _take(self, schedule: Step, name: str) -> None:
        port = schedule.get_input_port(name)
        # A consumer of its own gets all tokens, also those that have come before.
        consumer = posixpath.join(schedule.name, "__read_session__")
        while not isinstance(token := await port.get(consumer), TerminationToken):
            found = self._found.setdefault(token.tag, {})
            found[name] = token
            if len(found) == self._needed:
                await self._announce(token.tag, self._found.pop(token.tag))

    async def _announce(self, tag: str, inputs: dict[str, Token]) -> None:
        of = inputs[self._rule.of]
        path = of.value.get("path") if isinstance(of, FileToken) else None
        if path is None:
            return
        reads_all = self._rule.part is None
        is_new = path not in self._sessions
        if is_new:
            self._sessions[path] = await self._begin(path, 0 if reads_all else 1)
        if (session := self._sessions[path]) is None or (reads_all and not is_new):
            return
        span = (0, session.size) if reads_all else self._span(inputs, session.size)
        if span is None:
            return
        part = session.announce([span])
        if (job_name := posixpath.join(self._step, tag)) in self._early:
            session.consume(part)
        else:
            self._reads[job_name] = session, part

    def _span(self, inputs: dict[str, Token], size: int) -> Span | None:
        parts: Any = self._rule.parts
        if isinstance(parts, str):
            parts = inputs[parts].value
        try:
            return selected(inputs[str(self._rule.part)].value, parts, size)
        except ValueError as error:
            if not self._warned:
                self._warned = True
                logger.warning(f"Step {self._step}: `{self._rule.part}` says no part of {self._rule.of}: {error}")
            return None
