"""Files whose parts the jobs of a step select themselves: they are read ahead in the order of the list.

Nothing about the jobs changes. Their parts are known when their input is there, long before most of them start.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from streamflow.core.workflow import Step, Token
from streamflow.log_handler import logger
from streamflow.workflow.token import FileToken, TerminationToken

from streamflow_io.adapters.jobs import JobState
from streamflow_io.hints.sessions import SessionRule
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.extents import Span
from streamflow_io.runtime.locations import location_name

from .read_session import ReadAheadSession

#: Begins the sessions of a file, with the number of jobs that consume each part: by the name of their location.
Begin = Callable[[str, int], Awaitable[Mapping[str, ReadAheadSession]]]
_OF = re.compile(r"([0-9]{1,18})of([0-9]{1,18})")


def selected(value: object, parts: object, size: int) -> Span:
    """Where a part is, by bytes. What a tool reads besides, as a header, or to the end of a line, is not in it.

    :param value: what says which part: KofN, or a whole number from 1 with `parts`
    :param parts: how many there are; None: the value says it
    :param size: of the file
    :raises ValueError: if it is none; says why
    """
    if parts is None and isinstance(value, str) and (found := _OF.fullmatch(value)) is not None:
        number, count = int(found[1]), int(found[2])
    elif parts is None:
        raise ValueError(f"{value!r} is not KofN, as 2of16")
    elif _is_whole(value) and _is_whole(parts):
        number, count = int(str(value)), int(str(parts))
    else:
        raise ValueError(f"{value!r} of {parts!r} are not two whole numbers")
    if not 1 <= number <= count:
        allowed = f"1 to {count} are allowed" if count >= 1 else "there is at least one part"
        raise ValueError(f"there is no part {number} of {count}: {allowed}")
    return size * (number - 1) // count, size * number // count


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class SelectedParts:
    """The parts that the jobs of one step read of one of their inputs.

    Where one location has the file, the file is read ahead in the order of the list. Of several locations it is not
    known which jobs will run where. Each location reads for a job that is about to run there, so that no byte is read
    at two of them.

    :param step: the path of the step
    :param schedule: StreamFlow's step that submits its jobs, and has their input
    """

    def __init__(self, step: str, schedule: Step, rule: SessionRule, begin: Begin) -> None:
        self._step = step
        self._rule = rule
        self._begin = begin
        ports = [rule.of, *(port for port in (rule.part, rule.parts) if isinstance(port, str))]
        self._needed = len(ports)
        # By the tag of a job, whose inputs come long before the job. First the inputs that have come.
        self._found: dict[str, dict[str, Token]] = {}
        self._files: dict[str, Mapping[str, ReadAheadSession]] = {}
        # The part of a job, and where it is read ahead; the jobs that have ended before that was known.
        self._reads: dict[str, tuple[str, ReadAheadSession, int]] = {}
        self._early: set[str] = set()
        # Where jobs run; and of the other jobs, the parts that they will read, and the sessions that may read them.
        self._places: dict[str, str] = {}
        self._unplaced: dict[str, tuple[Mapping[str, ReadAheadSession], Span]] = {}
        self._all_known = False
        self._warned = False
        # One after the other: parts are announced in the order of the list.
        self._announcing = asyncio.Lock()
        self._following = asyncio.create_task(self._follow(schedule, ports))

    def placed(self, job: JobState) -> None:
        """Note that a job is about to run at its location: a part that is read ahead elsewhere is of no use."""
        location = self._places[job.tag] = location_name(job.places[0])
        if job.tag in self._reads and self._reads[job.tag][0] != location:
            self._consume(job.tag)
        elif (found := self._unplaced.pop(job.tag, None)) is not None:
            self._read_at(location, job.tag, *found)
            self._tell_all_announced()

    def ended(self, job: JobState) -> None:
        """A job has ended, however."""
        if self._unplaced.pop(job.tag, None) is not None:
            self._tell_all_announced()
        self._consume(job.tag)

    def _consume(self, tag: str) -> None:
        if (read := self._reads.pop(tag, None)) is not None:
            _, session, part = read
            session.consume(part)
        else:
            self._early.add(tag)

    def _read_at(self, location: str, tag: str, file: Mapping[str, ReadAheadSession], span: Span) -> None:
        if (session := file.get(location)) is not None:
            self._reads[tag] = location, session, session.announce([span])

    def _tell_all_announced(self) -> None:
        if self._all_known and not self._unplaced:
            for file in self._files.values():
                for session in file.values():
                    session.all_announced()

    async def close(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self, schedule: Step, ports: list[str]) -> None:
        await asyncio.gather(*(self._take(schedule, port) for port in ports))
        self._all_known = True
        self._tell_all_announced()

    async def _take(self, schedule: Step, name: str) -> None:
        port = schedule.get_input_port(name)
        # A consumer of its own gets all tokens, also those that have come before.
        consumer = posixpath.join(schedule.name, "__read_session__")
        while not isinstance(token := await port.get(consumer), TerminationToken):
            found = self._found.setdefault(token.tag, {})
            found[name] = token
            if len(found) == self._needed:
                async with self._announcing:
                    await self._announce(token.tag, self._found.pop(token.tag))

    async def _announce(self, tag: str, inputs: dict[str, Token]) -> None:
        of = inputs[self._rule.of]
        path = of.value.get("path") if isinstance(of, FileToken) else None
        if path is None:
            return
        reads_all, is_new = self._rule.part is None, path not in self._files
        if is_new:
            self._files[path] = await self._begin(path, 0 if reads_all else 1)
        if not (file := self._files[path]) or (reads_all and not is_new):
            return
        size = next(iter(file.values())).size
        span = (0, size) if reads_all else self._span(inputs, size)
        if span is None:
            return
        place = next(iter(file)) if len(file) == 1 else self._places.get(tag)
        if place is None:
            self._unplaced[tag] = file, span
            return
        self._read_at(place, tag, file, span)
        if tag in self._early or self._places.get(tag, place) != place:
            self._consume(tag)

    def _span(self, inputs: dict[str, Token], size: int) -> Span | None:
        parts: Any = self._rule.parts
        if isinstance(parts, str):
            parts = inputs[parts].value
        try:
            return selected(inputs[str(self._rule.part)].value, parts, size)
        except ValueError as error:
            if not self._warned:
                self._warned = True
                no_part = f"Step {self._step}: `{self._rule.part}` names no part of {self._rule.of}: {error}"
                logger.warning(coded(no_part, Code.NO_PART))
            return None
