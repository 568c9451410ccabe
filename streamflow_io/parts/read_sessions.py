"""The read sessions of a run; :mod:`.director` decides what is read next, and the plan for which rules."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace
from streamflow.core.deployment import ExecutionLocation, Target
from streamflow.core.scheduling import AvailableLocation
from streamflow.log_handler import logger

from streamflow_io._streamflow import sees_file_here
from streamflow_io.adapters.jobs import JobState, Listener
from streamflow_io.adapters.tokens import PartToken
from streamflow_io.graph.partitions import Partition, share_cache
from streamflow_io.grouping import grouped
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.messages import Code, coded
from streamflow_io.runtime.embedded import EmbeddedRuntime
from streamflow_io.runtime.extents import Span
from streamflow_io.runtime.locations import location_name
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Event, FilePart, PartEvent
from streamflow_io.runtime.remote import RemoteRuntime
from streamflow_io.runtime.wire import part_of

from .part_ways import CutFile, PartSites, PartWays, known_as
from .read_session import ReadAheadSession
from .selected_parts import Begin, SelectedParts
from .session_starter import SessionStarter, WorthReading
from .splitting import Split

# The number of runs of parts that each node has, if all parts are known at once.
_RUNS = 8


class _Reads(Struct, frozen=True):
    """The parts of virtual splits that a job reads, each with its session."""

    parts: Sequence[tuple[ReadAheadSession, int]]


class ReadSessions(Listener):
    """Reads files ahead of their jobs: the parts of virtual splits, and files whose jobs select their own part.

    No job depends on a session, which only fills the page cache. A job waits for its part before it gets a core, and
    at most as long as :class:`ReadAheadSession` says.

    :param partitions: the outcome of each rule
    :param hints: of the steps of the workflow, by path
    :param ways: are told what is read ahead
    """

    def __init__(
        self,
        partitions: Iterable[Partition],
        hints: Mapping[str, StepAnnotations],
        sites: PartSites,
        ways: PartWays,
        starter: SessionStarter,
    ) -> None:
        self._hints = hints
        self._sites = sites
        self._ways = ways
        self._starter = starter
        self._of_splits: dict[str, tuple[CutFile, SpreadSessions]] = {}
        self._parts: dict[FilePart, tuple[ReadAheadSession, int]] = {}
        # By step, the inputs whose parts its jobs read.
        self._ahead = grouped((each for each in partitions if each.is_read_ahead), lambda each: each.step)
        # By step, once its first job has come.
        self._selected: dict[str, list[SelectedParts]] = {}

    async def split(self, job: JobState, split: Split, runtime: NodeRuntime) -> None:
        """A job is about to say the parts of a file, which is read from its beginning on."""
        # Another attempt of the job says the same parts again.
        if not isinstance(runtime, EmbeddedRuntime | RemoteRuntime) or job.name in self._of_splits:
            return
        step = job.step
        # What was just written is in the page cache.
        if (partition := split.partition) is not None and (cut := split.cut) is not None and not partition.grows:
            readers = self._sites.readers(step, partition.port)
            if isinstance(runtime, EmbeddedRuntime):
                is_of_use = all(share_cache(reader.site) for reader in readers)
                file = self._starter.look(partition.of, job.target) if is_of_use else None
            else:
                file = self._look_there(job, cut, runtime)
            consumers = max(1, len(readers))
            if file is not None and (
                first := await self._starter.begin(step, file, runtime, consumers, "said", guess=True)
            ):
                others = await self._elsewhere(job, file, first, consumers)
                homes = [Home(first, job.location.name), *others]
                self._of_splits[job.name] = cut, SpreadSessions(homes, file.chunk)
                self._ways.read_ahead(job)

    async def _elsewhere(
        self, job: JobState, file: WorthReading, first: ReadAheadSession, consumers: int
    ) -> list[Home]:
        """Begin sessions at the other nodes whose jobs see the file, unless the file is cached where the split runs."""
        seen = {runtime: location for runtime, location in self._ways.seen_at(job).items() if runtime.has_sessions}
        if seen:
            await first.looked()
        if first.ended is not None:
            return []
        # Elsewhere its device has another number.
        there = replace(file, identity=replace(file.identity, device=None))

        async def begin(runtime: RemoteRuntime) -> Home | None:
            session = await self._starter.begin(job.step, there, runtime, consumers, "said")
            return None if session is None else Home(session, seen[runtime])

        return [home for home in await asyncio.gather(*map(begin, seen)) if home is not None]

    def _look_there(self, job: JobState, cut: CutFile, runtime: RemoteRuntime) -> WorthReading | None:
        """Whether a file that a job splits on a host is worth a session: all readers of its parts get them there."""
        if not runtime.has_sessions or cut.found is None or not cut.from_home:
            return None
        return self._starter.look_at(cut.found, posixpath.dirname(cut.found.path), job.target)

    def event(self, job: JobState, event: Event) -> None:
        """Announce a part that the job has said."""
        if not isinstance(event, PartEvent) or (found := self._of_splits.get(job.name)) is None:
            return
        cut, session = found
        if (part := known_as(part_of(cut.as_read(event)))) not in self._parts:
            home, number = session.announce(_spans(part))
            self._parts[part] = home.session, number
            self._ways.read_at(part, home.location, is_at_split=session.is_first(home))

    def split_ended(self, job: JobState) -> None:
        """A job will not say more parts."""
        if (found := self._of_splits.pop(job.name, None)) is not None:
            _, session = found
            session.all_announced()

    async def arrived(self, job: JobState) -> None:
        """Wait until the parts that a job needs have arrived, or will not soon: before that the job needs no core.

        Lists of parts are not waited for: they may be larger than the window.
        """
        parts = [known_as(token.part) for token in job.job.inputs.values() if isinstance(token, PartToken)]
        if reads := [self._parts[part] for part in parts if part in self._parts]:
            job.keep(_Reads(reads))
            for session, part in reads:
                await session.arrived(part)

    def submitted(self, job: JobState) -> None:
        """Read ahead the parts of a file that the job and the others of its step select."""
        step = job.step
        if step in self._selected or step not in self._ahead:
            return
        schedule = self._sites.workflow.steps[posixpath.join(step, "__schedule__")]
        rules = [located.value for located in self._hints[step].sessions]
        self._selected[step] = [
            SelectedParts(step, schedule, rule, self._begin_at(step, job.targets[0]))
            for rule in rules
            if rule.form == "selected" and any(rule.of == each.of for each in self._ahead[step])
        ]

    def placed(self, job: JobState) -> None:
        for parts in self._selected.get(job.step, ()):
            parts.placed(job)

    def ended(self, job: JobState) -> None:
        reads = job.drop(_Reads)
        for session, part in () if reads is None else reads.parts:
            session.consume(part)
        for parts in self._selected.get(job.step, ()):
            parts.ended(job)

    async def run_closed(self) -> None:
        """Read nothing more ahead."""
        selected = [parts for of_step in self._selected.values() for parts in of_step]
        await asyncio.gather(*(parts.close() for parts in selected))
        await asyncio.gather(*(session.close() for session in self._starter.sessions))

    def _begin_at(self, step: str, target: Target) -> Begin:
        async def begin(path: str, consumers: int) -> dict[str, ReadAheadSession]:
            locations = await self._locations(target)
            # Of several locations it is not known where a whole file is needed.
            if len(locations) > 1 and consumers == 0:
                return {}
            there = await asyncio.gather(*(self._has(each.location, path) for each in locations))
            homes = [each for each, has in zip(locations, there, strict=True) if has]
            begun = await asyncio.gather(*(self._begin_on(each, step, target, path, consumers) for each in homes))
            return {
                location_name(home): session for home, session in zip(homes, begun, strict=True) if session is not None
            }

        return begin

    async def _begin_on(
        self, home: AvailableLocation, step: str, target: Target, path: str, consumers: int
    ) -> ReadAheadSession | None:
        try:
            runtime = await self._sites.runtimes.at(home.location, target.workdir)
            if isinstance(runtime, EmbeddedRuntime):
                file = self._starter.look(path, target)
            elif isinstance(runtime, RemoteRuntime) and runtime.has_sessions:
                found = await runtime.find(path)
                file = self._starter.look_at(found, posixpath.dirname(found.path), target)
            else:
                return None
        except NodeRuntimeError as error:
            logger.warning(coded(f"Nothing is read ahead for {step}: {error}", Code.NOT_READ_AHEAD))
            return None
        return None if file is None else await self._starter.begin(step, file, runtime, consumers, "selected")

    async def _has(self, location: ExecutionLocation, path: str) -> bool:
        """Whether a file is at a location. StreamFlow copies other files there, which are in the page cache then."""
        context = self._sites.context
        if location.local or context.data_manager.get_data_locations(path, location.deployment, location.name):
            return True
        return await sees_file_here(context, location, path)

    async def _locations(self, target: Target) -> list[AvailableLocation]:
        connector = self._sites.context.deployment_manager.get_connector(target.deployment.name)
        return list((await connector.get_available_locations(service=target.service)).values())


def _spans(part: FilePart) -> list[Span]:
    """The bytes of the file that a part has."""
    extents = [piece for piece in part.pieces if not isinstance(piece, str)]
    return [(offset, offset + length) for offset, length in extents]


class Home(Struct, frozen=True):
    """Where parts of a file are read.

    :ivar location: the name of the location
    """

    session: ReadAheadSession
    location: str


class SpreadSessions:
    """Chooses for each part the session that reads the part: each byte is read at one node.

    Parts that follow each other are read at the same node for a while, because the kernel reads ahead of each reader.

    The first session is where the split runs. A program that looks for its cuts reads the file there, and the session
    reads ahead of the program: such parts stay. A program that says its parts at once leaves them to all nodes.

    :param homes: the first one where the split runs
    :param chunk: bytes of a chunk
    """

    def __init__(self, homes: Sequence[Home], chunk: int) -> None:
        self._homes = homes
        self._last = homes[0]
        # The most bytes by which one session may be behind another.
        self._run = max(chunk, homes[0].session.size // (_RUNS * len(homes)))

    def announce(self, spans: Sequence[Span]) -> tuple[Home, int]:
        """A part is known.

        :return: where the part is read, and its number there
        """
        first, *others = self._homes
        chosen = first
        if first.session.ended is None and not first.session.is_to_read(spans):
            going_on = [first, *(home for home in others if home.session.ended is None)]
            chosen = min(going_on, key=lambda home: home.session.waiting)
            if self._last in going_on and self._last.session.waiting < chosen.session.waiting + self._run:
                chosen = self._last
        if chosen is not first:
            first.session.leave(spans)
        self._last = chosen
        return chosen, chosen.session.announce(spans)

    def is_first(self, home: Home) -> bool:
        """Whether a part is read where the split runs."""
        return home is self._homes[0]

    def all_announced(self) -> None:
        """No more parts come."""
        for home in self._homes:
            home.session.all_announced()
