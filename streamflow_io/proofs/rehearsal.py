"""Rehearses an input of a job: the job runs once more, with that input as a stream.

The rehearsal runs when the job has succeeded, or beside the job. Beside the job its bounds are narrower, and its result
counts only when the job has succeeded. Of a large file, the first bytes are tried before the whole file, because they
take less time. A proven input is tried with a short file, and in the end together with other proven inputs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from streamflow_io.adapters.paths import NoChecksumsError
from streamflow_io.hints.inheritance import port_path
from streamflow_io.records.learned import extents
from streamflow_io.records.learned.proofs import ProofKey, Shown, Way
from streamflow_io.runtime.locations import innermost
from streamflow_io.runtime.node_commands import NodeRuntimeError

from .original_job import OriginalJob, file_sizes
from .rehearsal_rules import (
    Finding,
    Manner,
    Ran,
    disk_beside,
    disk_for,
    is_dear,
    next_manner,
    next_together,
    next_with_short,
    shorts,
    unknown,
    waits_for_more,
)
from .repeated_job import ExhaustedError, NoGateError, NotApartError, RepeatedJob
from .same_outputs import first_unlike

# CPU time that a program needs to start under the net, which does not grow with its file.
_SECONDS_TO_START = 0.1


def excerpts_of(sizes: Sequence[int]) -> tuple[int, ...] | None:
    """The bytes of each file that are tried first; None: the whole files are tried at once.

    Fewer bytes prove nothing about a larger file, so only files that are much larger have excerpts.

    :param sizes: of the files of an input, in bytes
    """
    # An excerpt ends where a line ends. With this margin it is long enough all the same.
    most = extents.ENOUGH + extents.ENOUGH // 64
    excerpts = tuple(min(size, most) for size in sizes)
    return excerpts if 0 < 2 * sum(excerpts) <= sum(sizes) else None


def next_with_excerpt(
    so_far: Sequence[tuple[Manner, Ran]], bytes_: int, sizes: Sequence[int]
) -> Manner | Finding | None:
    """Decide how a job is to be run next with an excerpt, or what is proven; None: the whole file decides.

    :param so_far: the runs in order: with the excerpt as a file, and as a stream. The second is compared with the
        first, and the first with the whole file afterwards
    :param bytes_: of all excerpts together
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
    """Whether a run might be :func:`is_dear` with this many times the bytes."""
    return is_dear(max(0.0, cpu - _SECONDS_TO_START) * times, plain * times)


#: Decides, from the runs with excerpts and the bytes of these, how the job is to be run next, or what is found.
_Decide = Callable[[Sequence[tuple[Manner, Ran]], int], Manner | Finding | None]

#: Tells whether files of a size, in bytes, may lie beside those of jobs.
Lend = Callable[[int], Awaitable[bool]]

#: Whether the code that runs belongs to a rehearsal, whose messages are not logged.
rehearsing: ContextVar[bool] = ContextVar("rehearsing", default=False)


class Rehearsal(Struct, eq=False, dict=True):
    """The rehearsal of one input of a job as a stream.

    :ivar killed: how often the rehearsal was ended before it had shown anything
    :ivar spent: seconds of all runs so far
    :ivar waits_for_its_job: the rehearsal does not run beside its job
    :ivar keys: the keys of all inputs of the job that can be rehearsed, by port
    :ivar writers: the steps that have written the files of the inputs of the job, by port, as far as known
    :ivar beside: the other inputs of the job that are known to be read as streams, with their ways
    """

    original: OriginalJob
    port: str
    key: ProofKey
    killed: int = 0
    spent: float = 0.0
    waits_for_its_job: bool = False
    keys: Mapping[str, ProofKey] = field(default_factory=dict)
    writers: Mapping[str, Collection[str]] = field(default_factory=dict)
    beside: Mapping[str, Way] = field(default_factory=dict)
    _has_tried_excerpts: bool = False
    # A finding that is still to be tried with short files, and together with other inputs.
    _proven: Finding | None = None
    _is_short_tried: bool = False
    # The knowledge of an earlier rehearsal with which this one has begun. None: everything is tried.
    _earlier: Shown | None = None
    _made_of_excerpts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The input, as /step/port."""
        return port_path(self.original.step.name, self.port)

    @property
    def host(self) -> str:
        """The name of the host on which the rehearsal runs, or of the location nearest to the host."""
        return str(innermost(self.original.place).name)

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(self.job.sizes)

    @property
    def is_compared(self) -> bool:
        """Whether the job has run once more, and its outputs are compared."""
        return self.job.is_compared

    @cached_property
    def job(self) -> RepeatedJob:
        """The job, to be run once more."""
        return RepeatedJob(self.original, {self.port: None})

    @cached_property
    def _most(self) -> tuple[int, ...] | None:
        """The most bytes of each file that are tried first; None: the whole files are tried at once."""
        return excerpts_of(self.job.sizes)

    @cached_property
    def _short(self) -> tuple[int, ...] | None:
        """The bytes of each short file; None: the files are short themselves."""
        return shorts(self.job.sizes)

    @property
    def way(self) -> Way | None:
        """How the program reads the input alone as a stream, as far as is known."""
        return None if self._proven is None else self._proven.way

    @property
    def shown(self) -> Shown | None:
        """The knowledge of the input alone, while not everything is tried. None: nothing is known.

        The first bytes of a file are tried again: what they have made is compared with what the job has made.
        """
        found = self._proven
        if found is None or found.way is None or found.excerpt is not None or not self.original.has_ended:
            return None
        sizes = tuple(self.job.sizes) if self._earlier is None else self._earlier.sizes
        return Shown(found.way, found.read, sizes, self._is_short_tried)

    def go_on(self, earlier: Shown) -> None:
        """Begin with what an earlier rehearsal has not tried, which had the same key."""
        self._proven, self._is_short_tried = Finding(earlier.way, read=earlier.read), earlier.is_short_tried
        self._earlier = earlier

    def _begin_anew(self) -> None:
        self._proven, self._is_short_tried, self._earlier = None, False, None

    @property
    def share(self) -> float:
        """The part of the files of the job that the next run reads."""
        return (self._next + self._others) / (self.size + self._others)

    @property
    def runs(self) -> float:
        """The runs of the job that are needed to prove the input alone, each counted by the part of the files it reads.

        With short files there are two runs. A job reads all of its other files then.
        """
        short = 0 if self._short is None else sum(self._short) + self._others
        return 1 + 2 * short / (self.size + self._others)

    @property
    def had_its_time(self) -> bool:
        """Whether the rehearsal has taken the time that it needs on an idle core: other programs have used the core."""
        return self.spent > self.original.seconds * self.runs

    @property
    def _next(self) -> int:
        """The bytes of its files that the next run reads."""
        if self._proven is not None:
            return self.size if self._short is None or self._is_short_tried else sum(self._short)
        return self.size if self._most is None or self._has_tried_excerpts else sum(self._most)

    @cached_property
    def _others(self) -> int:
        """The bytes of the other inputs of the job that can be rehearsed."""
        return sum(sum(file_sizes(self.original.files(port))) for port in self.keys if port != self.port)

    @property
    def seconds(self) -> float:
        """The seconds that the next run is expected to take; infinite before the job has succeeded."""
        return self.original.seconds * self.share

    async def run(self, lend: Lend | None = None) -> Finding | None:
        """Rehearse the input, and return the result. When cancelled, leaves neither processes nor files.

        If the call is cancelled after the input was proven alone, that finding is kept for the next call.

        :param lend: None: the run has no limit
        :return: None: the excerpts have shown nothing, and the next call is to try the whole files
        :raises NotApartError: if the rehearsal cannot run before its job has ended
        """
        rehearsing.set(True)
        try:
            if (lack := await self._lack_of_room(lend)) is not None:
                return unknown(lack)
            finding = self._proven or await self._tried()
            if finding is None or finding.way is None:
                return finding
            self._proven = finding
            refuted = None
            if self._short is not None and not self._is_short_tried:
                refuted = await self._refuted_by(self._short, finding.way)
                self._is_short_tried = refuted is None
            if (refuted := refuted or await self._refuted_together(finding.way)) is not None:
                self._begin_anew()
            return refuted or finding
        except NotApartError:
            raise
        except NoGateError as error:
            return Finding(None, str(error), is_known=False, is_of_place=True)
        except Exception as error:
            return _unknown_after(error)

    async def _tried(self) -> Finding | None:
        """Return what the files show, or first their excerpts; None: the excerpts have shown nothing."""
        if self._most is None or self._has_tried_excerpts:
            return await self._run_until_known()
        finding = await self._try_excerpts(self._most)
        self._has_tried_excerpts = True
        return finding

    async def confirmed(self, finding: Finding) -> Finding | None:
        """Wait until the job itself has succeeded, and return the finding if it still holds.

        :return: None: the excerpts have shown nothing after all, and the next run is to try the whole files
        """
        await self.original.ended()
        if finding.is_known and (changed := await self._changed()) is not None:
            return changed
        if finding.excerpt is None:
            return finding
        try:
            is_like = first_unlike(await self.job.plain_outputs(), self._made_of_excerpts) is None
        except Exception:
            is_like = False
        if is_like:
            return finding
        self._begin_anew()
        return None

    async def _changed(self) -> Finding | None:
        """Return the result for a job with files that have changed, or are gone; None: no file has changed."""
        changes = "the tool changes the file"
        try:
            if not await self.job.has_changed_files():
                return None
        except Exception as error:
            return _unknown_after(error)
        return unknown(changes) if self.key.kind == "declared" else Finding(None, changes)

    async def _run_until_known(self) -> Finding:
        following = await _found(self.job, lambda ran: next_manner(ran, self.size, self.original.cpu))
        # A failure for lack of space says nothing about the program.
        if following.way is None and following.is_known and (lack := await self._lack_of_room()) is not None:
            return unknown(lack)
        return following

    async def _try_excerpts(self, most: Sequence[int]) -> Finding | None:
        """Return what the excerpts prove; None: the whole files decide."""
        sizes = self.job.sizes
        try:
            finding, self._made_of_excerpts = await self._run_with_excerpts(
                most, lambda ran, bytes_: next_with_excerpt(ran, bytes_, sizes), look_whole=True
            )
            return finding
        except (NoGateError, NotApartError):
            raise
        except Exception:
            # After any error, the whole files decide.
            return None

    async def _refuted_by(self, short: Sequence[int], way: Way) -> Finding | None:
        """Return why the proof does not hold for short files; None: the proof stands, as far as is known."""
        finding, _ = await self._run_with_excerpts(short, lambda ran, _: next_with_short(ran, way), look_whole=False)
        return finding

    async def _refuted_together(self, way: Way) -> Finding | None:
        """Return why the proof does not hold when other inputs are streams, too; None: the proof stands."""
        if not self.beside:
            return None
        together = RepeatedJob(self.original, {self.port: way, **self.beside})
        finding = await _found(together, next_together)
        if finding.way is not None:
            return None
        others = " and ".join(port_path(self.original.step.name, port) for port in self.beside)
        return replace(finding, reason=f"together with {others}, {finding.reason}")

    async def _run_with_excerpts(
        self, most: Sequence[int], decide: _Decide, *, look_whole: bool
    ) -> tuple[Finding | None, Mapping[str, Any]]:
        """Run the job with excerpts as long as `decide` asks for it.

        :return: the finding, and the outputs of the first run
        """
        directory = self.job.new_directory()
        try:
            excerpts = await self.job.make_excerpts(directory, most, look_whole=look_whole)
            ran: list[tuple[Manner, Ran]] = []
            while isinstance(following := decide(ran, excerpts.bytes), str):
                if ran and not ran[-1][1].succeeded:
                    # The node runtime has removed the excerpts of a failed run, but not those of a run that was given
                    # up after its end.
                    await self.job.remove((directory,))
                    excerpts = await self.job.make_excerpts(directory, most, look_whole=look_whole)
                before = ran[0][1] if ran else None
                ran.append((following, await self.job.run_with(excerpts, following, before)))
            return following, ran[0][1].made or {}
        finally:
            await self.job.remove((directory,))

    async def _lack_of_room(self, lend: Lend | None = None) -> str | None:
        try:
            outputs = await self.job.used()
            needed = disk_for(outputs) if self.original.has_ended else disk_beside(outputs, self.size)
            there = await self.job.free()
        except (IndexError, ValueError):
            return "the free space is not known"
        needed += sum(self._most or ())
        return None if there >= needed and (lend is None or await lend(needed)) else "there is too little space"


def _unknown_after(error: Exception) -> Finding:
    """The result of a rehearsal that an error has ended. No error of a rehearsal may matter to the run."""
    is_told = isinstance(error, ExhaustedError | NoChecksumsError | NodeRuntimeError)
    return unknown(str(error) if is_told else f"{type(error).__name__}: {error}")


async def _found(job: RepeatedJob, decide: Callable[[Sequence[tuple[Manner, Ran]]], Manner | Finding]) -> Finding:
    """Run a job until it is decided what is found."""
    ran: list[tuple[Manner, Ran]] = []
    while not isinstance(following := decide(ran), Finding):
        before = ran[-1][1] if following in ("twin", "again") else None
        ran.append((following, await job.run(following, before)))
    return following
