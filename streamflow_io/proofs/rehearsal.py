"""An input of a job is rehearsed: the job runs once more, with that input as a stream.

It does so when the job has ended well, or beside it: then its bounds are narrower, and what it has shown counts when
the job has ended well. Of a large file the first bytes are tried before, which take less long (:mod:`.excerpt_rules`).
What is proven is tried with a short file at last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from streamflow_io.adapters.paths import NoChecksumsError
from streamflow_io.hints.inheritance import port_path
from streamflow_io.records.learned import extents
from streamflow_io.records.learned.proofs import ProofKey, Way

from .performance import Performance
from .rehearsal_rules import (
    Finding,
    Manner,
    Ran,
    disk_beside,
    disk_for,
    is_dear,
    next_manner,
    next_with_short,
    shorts,
    unknown,
    waits_for_more,
)
from .repeated_job import ExhaustedError, NoGateError, NotApartError, RepeatedJob
from .same_outputs import first_unlike

# That a program has to start under the net, which does not grow with its file.
_SECONDS_TO_START = 0.1


def excerpts_of(sizes: Sequence[int]) -> tuple[int, ...] | None:
    """How many bytes of each file are tried first; None: all of them are tried at once.

    With fewer bytes nothing is proven of a larger file, so only files that are much larger have excerpts.

    :param sizes: of the files of an input, in bytes
    """
    # An excerpt ends where a line ends.
    most = extents.ENOUGH + extents.ENOUGH // 64
    excerpts = tuple(min(size, most) for size in sizes)
    return excerpts if 0 < 2 * sum(excerpts) <= sum(sizes) else None


def next_with_excerpt(
    so_far: Sequence[tuple[Manner, Ran]], bytes_: int, sizes: Sequence[int]
) -> Manner | Finding | None:
    """How a job is to be run next with an excerpt, or what it has proven; None: nothing, all of the file decides.

    :param so_far: how it has gone, in order: with the excerpt as a file, and as a stream. Of the second run
        `difference` says what is not as in the first one, which is compared with the whole file afterwards
    :param bytes_: of the excerpt; of all files, if there are several
    :param sizes: of the files of which it is an excerpt
    """
    if not so_far:
        return "file"
    manner, ran = so_far[-1]
    if ran.asked:
        return None
    if manner == "net" and len(sizes) == 1 and waits_for_more(ran, bytes_):
        return "pipe"
    if not ran.is_equal:
        return None
    if manner == "file":
        return "net"
    has_read_all = ran.fed == bytes_ and ran.held_at in (None, bytes_)
    is_enough = all(read >= min(size, extents.ENOUGH) for read, size in zip(ran.read, sizes, strict=True))
    if not (has_read_all and is_enough) or _would_be_dear(ran.cpu, so_far[0][1].cpu, sum(sizes) / bytes_):
        return None
    return Finding("pipe" if manner == "pipe" else "net", excerpt=bytes_, read=ran.read)


def _would_be_dear(cpu: float, plain: float, times: float) -> bool:
    """Whether it might be :func:`is_dear` with so many times as many bytes."""
    return is_dear(max(0.0, cpu - _SECONDS_TO_START) * times, plain * times)


#: How a job is to be run next with excerpts, of how it has gone and their bytes; or what that shows.
_Decide = Callable[[Sequence[tuple[Manner, Ran]], int], Manner | Finding | None]

#: Whether what is done now is part of a rehearsal, of which nobody wants to hear.
rehearsing: ContextVar[bool] = ContextVar("rehearsing", default=False)


@dataclass(eq=False)
class Rehearsal:
    """One input of a job, which is to be read as a stream.

    :ivar verify: as of the streams of the run
    :ivar killed: how often it was ended before it had shown anything
    :ivar spent: seconds, in all that was tried
    :ivar waits_for_its_job: it does not run beside it
    """

    performance: Performance
    port: str
    key: ProofKey
    verify: Literal["full", "samples"]
    killed: int = 0
    spent: float = 0.0
    waits_for_its_job: bool = False
    _has_tried_excerpts: bool = False
    # What is left to be tried with short files.
    _proven: Finding | None = None
    _made_of_excerpts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The input, as /step/port."""
        return port_path(self.performance.step.name, self.port)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(self.job.sizes)

    @property
    def is_compared(self) -> bool:
        """Whether it has run, and what it has made is compared."""
        return self.job.is_compared

    @cached_property
    def job(self) -> RepeatedJob:
        """The job, to be run once more."""
        return RepeatedJob(self.performance, self.port, self.verify)

    @cached_property
    def _most(self) -> tuple[int, ...] | None:
        """How many bytes of each file are tried first, at most; None: it is tried as a whole at once."""
        return excerpts_of(self.job.sizes)

    @cached_property
    def _short(self) -> tuple[int, ...] | None:
        """How many bytes of each file a short one has; None: they are short."""
        return shorts(self.job.sizes)

    @property
    def share(self) -> float:
        """Which part of its files is read, the next time that it runs once."""
        if self._proven is not None:
            return sum(self._short or ()) / self.size
        if self._most is None or self._has_tried_excerpts:
            return 1.0
        return sum(self._most) / self.size

    @property
    def seconds(self) -> float:
        """About so long it takes to run once, the next time; infinite as long as nobody knows."""
        return self.performance.seconds * self.share

    async def run(self) -> Finding | None:
        """What it shows. When it is cancelled, nothing of it is left, neither processes nor files.

        What it has shown by then is not tried again, if it is cancelled while short files are tried.

        :return: None: the first bytes of its files have shown nothing, and it is to be run once more, with all of them
        :raises NotApartError: if it cannot run before its job has ended
        """
        rehearsing.set(True)
        try:
            if (lack := await self._lack_of_room()) is not None:
                return unknown(lack)
            finding = self._proven or await self._tried()
            if finding is None or finding.way is None or self._short is None:
                return finding
            self._proven = finding
            return await self._refuted_by(self._short, finding.way) or finding
        except NotApartError:
            raise
        except (ExhaustedError, NoChecksumsError) as error:
            return unknown(str(error))
        except NoGateError as error:
            return Finding(None, str(error), is_known=False, is_of_place=True)
        except Exception as error:
            # It must not matter to the run, whatever it is.
            return unknown(f"{type(error).__name__}: {error}")

    async def _tried(self) -> Finding | None:
        """What its files show, or the first bytes of them; None: these have shown nothing."""
        if self._most is None or self._has_tried_excerpts:
            return await self._run_until_known()
        finding = await self._try_excerpts(self._most)
        self._has_tried_excerpts = True
        return finding

    async def confirmed(self, finding: Finding) -> Finding | None:
        """Wait until the job itself has ended well, whatever it has shown before.

        :return: None: the first bytes of its files have shown nothing, and it is to be run once more, with all of them
        """
        await self.performance.ended()
        if finding.excerpt is None:
            return finding
        try:
            is_like = first_unlike(await self.job.plain_outputs(), self._made_of_excerpts) is None
        except Exception:
            is_like = False
        if is_like:
            return finding
        self._proven = None
        return None

    async def _run_until_known(self) -> Finding:
        ran: list[tuple[Manner, Ran]] = []
        while not isinstance(following := next_manner(ran, self.size, self.performance.cpu), Finding):
            before = ran[-1][1] if following in ("twin", "again") else None
            ran.append((following, await self.job.run(following, before)))
        # What has failed for want of space says nothing of the program.
        if following.way is None and following.is_known and (lack := await self._lack_of_room()) is not None:
            return unknown(lack)
        return following

    async def _try_excerpts(self, most: Sequence[int]) -> Finding | None:
        """What the first bytes of its files prove; None: nothing."""
        sizes = self.job.sizes
        try:
            finding, self._made_of_excerpts = await self._run_with_excerpts(
                most, lambda ran, bytes_: next_with_excerpt(ran, bytes_, sizes), look_whole=True
            )
            return finding
        except (NoGateError, NotApartError):
            raise
        except Exception:
            # Whatever it is, all of the file decides.
            return None

    async def _refuted_by(self, short: Sequence[int], way: Way) -> Finding | None:
        """Why what is proven does not hold for short files; None: it does, as far as is known."""
        finding, _ = await self._run_with_excerpts(short, lambda ran, _: next_with_short(ran, way), look_whole=False)
        return finding

    async def _run_with_excerpts(
        self, most: Sequence[int], decide: _Decide, *, look_whole: bool
    ) -> tuple[Finding | None, Mapping[str, Any]]:
        """Run the job with the first bytes of its files as long as that is wanted.

        :return: what is found, and what the first run has made
        """
        directory = self.job.new_directory()
        try:
            excerpts = await self.job.make_excerpts(directory, most, look_whole=look_whole)
            ran: list[tuple[Manner, Ran]] = []
            while isinstance(following := decide(ran, excerpts.bytes), str):
                if ran and not ran[-1][1].succeeded:
                    # Nothing is left of a job that has failed, but all of one that had ended well when it was given up.
                    await self.job.remove((directory,))
                    excerpts = await self.job.make_excerpts(directory, most, look_whole=look_whole)
                before = ran[0][1] if ran else None
                ran.append((following, await self.job.run_with(excerpts, following, before)))
            return following, ran[0][1].made or {}
        finally:
            await self.job.remove((directory,))

    async def _lack_of_room(self) -> str | None:
        try:
            outputs = await self.job.used()
            needed = disk_for(outputs) if self.performance.has_ended else disk_beside(outputs, self.size)
            there = await self.job.free()
        except (IndexError, ValueError):
            return "how much space is free is not told"
        return None if there >= needed + sum(self._most or ()) else "there is too little space"
