"""Decides what may be rehearsed, when, and what follows from the outcome.

A rehearsal is one more run of a job, with one of its inputs fed as a byte stream. It proves that the program makes the
same of a stream, or shows that the program does not. Whatever it does not show stays unknown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msgspec import Struct

from streamflow_io.records.learned.proofs import Way

from .clocks import Span, Unlike, differ_only_in_times

#: Bytes that a pipe holds before they are read. A smaller file is in the pipe as a whole: a program may have tried to
#: seek in it.
SMALL = 2**16
# The part of the file that has to be read as a stream, at least: otherwise little is gained.
_WORTH = 0.5
# A stream costs too much beyond these times the CPU time of the job, plus these seconds.
_DEAR_TIMES = 1.5
_DEAR_SECONDS = 1.0

#: How a job is run once more. `net` and `pipe`: with a stream; `file`: with the file as it was. `twin` and `again`:
#: with the file, at all the paths of the run with the stream.
Manner = Literal["net", "pipe", "file", "twin", "again"]

#: Bytes of a short file, which are the first of a longer one.
SHORT = 2**12

#: The end of a run that was not waited for, because the program gets too little of the file as a stream.
GIVEN_UP = "given up"

# Seconds between the clocks of a host and of a file system, at most.
_CLOCKS = 10.0

# Ends of a run that say nothing about the program.
_TROUBLE = ("cancelled", "driver", "lost", "producer", "rewritten", "error")

# Calls that are held only if they have a time limit. A producer that pauses for longer would end the input.
_TIMED = ("poll", "ppoll", "select", "pselect6")
# With a file, no alarm ends a wait for bytes.
_ALARMS = ("alarm", "setitimer", "timer_settime")
_CALLS = {
    "lseek": "the tool seeks in the file",
    "mmap": "the tool maps the file into memory",
    "mmap2": "the tool maps the file into memory",
    "sendfile": "the tool copies the file without reading",
    "splice": "the tool copies the file without reading",
    "copy_file_range": "the tool copies the file without reading",
    "open": "the tool opens the file again",
    "openat": "the tool opens the file again",
    "openat2": "the tool opens the file again",
    "execve": "the tool runs the file as a program",
    "execveat": "the tool runs the file as a program",
    "getdents": "the tool lists the directory of the file",
    "getdents64": "the tool lists the directory of the file",
    **{name: f"the tool asks whether there is something to read ({name})" for name in _TIMED},
    **{name: f"the tool sets an alarm ({name})" for name in _ALARMS},
}


class FreeRoom(Struct, frozen=True):
    """The free cores and the free memory of a location, or of a host below it.

    :ivar memory: in MiB
    """

    cores: float
    memory: float


@dataclass(frozen=True)
class Ran:
    """The outcome of one more run of a job.

    :ivar succeeded: the command has ended with a success code
    :ivar ended: why the run has ended, in the words of the node runtime
    :ivar said: the reason of a failure, for people
    :ivar read: bytes that were read of each stream, in the order of the files
    :ivar held_at: bytes that were read when the program waited for the whole file; None: the program has not waited
    :ivar call: the system call that has waited, or has set an alarm
    :ivar asked: the program has asked by path for more than bytes, or has set an alarm
    :ivar difference: the first difference of the outputs from those of the job; of a twin, from the run before. None:
        no difference
    :ivar is_from_outside: the run was ended from outside
    :ivar cpu: seconds of CPU time, with those of the node runtime
    :ivar is_elsewhere: the program had other paths than in the job, and may have written them into its outputs
    :ivar made: the outputs, as CWL objects
    :ivar span: the start and the end, by the clock of the host
    :ivar unlike: the lines that differ from the job, or from the run before; None: something else differs
    """

    succeeded: bool
    ended: str
    said: str = ""
    read: tuple[int, ...] = ()
    held_at: int | None = None
    call: str = ""
    asked: bool = False
    difference: str | None = None
    is_from_outside: bool = False
    cpu: float = 0.0
    is_elsewhere: bool = False
    made: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    unlike: Unlike | None = field(default=None, compare=False, repr=False)
    span: Span = field(default=(0.0, 0.0), compare=False, repr=False)

    @property
    def fed(self) -> int:
        """Bytes that were read of all streams."""
        return sum(self.read)

    @property
    def is_equal(self) -> bool:
        return self.succeeded and self.difference is None


@dataclass(frozen=True)
class Finding:
    """The result of the rehearsals of an input.

    :ivar way: how the program reads a stream; None: the program reads no stream
    :ivar reason: why the program reads no stream, or why that is not known
    :ivar is_known: false: the result is the same as without a rehearsal
    :ivar is_of_place: nothing can be rehearsed at this location
    :ivar has_failed: the reason is a failure of the program, which may be an accident
    :ivar excerpt: the number of first bytes that were tried; None: the whole file was tried
    :ivar read: bytes that were read of each file as a stream
    """

    way: Way | None = None
    reason: str | None = None
    is_known: bool = True
    is_of_place: bool = False
    has_failed: bool = False
    excerpt: int | None = None
    read: tuple[int, ...] = field(default=(), compare=False)


def unknown(reason: str) -> Finding:
    return Finding(None, reason, is_known=False)


def may_start(rooms: Sequence[FreeRoom], memory: float) -> bool:
    """Whether a rehearsal may start with this free room.

    :param rooms: of the location, and of all that it runs on, as far as known; with none, no rehearsal starts
    :param memory: that the job asks for, in MiB
    """
    return bool(rooms) and all(room.cores >= 1 and room.memory >= memory for room in rooms)


def seconds_for(plain: float) -> int:
    """The most seconds that a rehearsal may take. Waits for a processor do not count.

    :param plain: seconds that the job took
    """
    return math.ceil(2 * plain + 5)


def disk_for(outputs: int) -> int:
    """The bytes that have to be free before a rehearsal.

    :param outputs: bytes that the job has written into its output directory
    """
    return 2 * outputs + 2**26


def disk_beside(outputs: int, file: int) -> int:
    """The bytes that have to be free before a rehearsal beside its job, whose outputs are not complete yet.

    :param outputs: bytes that the job has written by now
    :param file: bytes of the input
    """
    return disk_for(outputs) + 4 * file + 2**30


def is_older(modified: float, started: float) -> bool:
    """Whether a file was certainly not modified after its job had started. Both are in seconds since the epoch.

    :param modified: by the clock of the file system
    :param started: by the clock of the host
    """
    return modified < started - _CLOCKS


def obstacle_of_work_dir(listing: Any, absolute: bool) -> str | None:
    """Why a job with an InitialWorkDirRequirement cannot be run again; None: no obstacle.

    :param listing: as StreamFlow keeps it; None: the job has no such requirement
    :param absolute: whether files may be put outside the output directory
    """
    if listing is None or not absolute:
        return None
    entries = listing if isinstance(listing, list | tuple) else [listing]
    names = [entry.get("entryname", "") if isinstance(entry, dict) else "$" for entry in entries]
    if any(str(name).startswith(("/", "$")) or ".." in str(name) for name in names):
        return "its InitialWorkDirRequirement may put something outside its output directory"
    return None


def next_manner(so_far: Sequence[tuple[Manner, Ran]], size: int, cpu: float) -> Manner | Finding:
    """Decide how a job is to be run next, or what is found.

    :param size: bytes of the file
    :param cpu: seconds of CPU time that the job itself took
    """
    if not so_far:
        return "net"
    manner, ran = so_far[-1]
    if shows_nothing(manner, ran):
        return unknown(ran.said or ran.ended)
    if manner == "file":
        *before, (streaming, streamed), _ = so_far
        if streamed.succeeded and ran.succeeded and differ_only_in_times(streamed.unlike, ran.unlike):
            return next_manner([*before, (streaming, _like_the_job(streamed))], size, cpu)
        if streaming == "pipe":
            return _with_a_pipe(so_far[0][1], streamed, cpu)
        return _with_the_file_again(streamed, ran)
    if manner == "twin":
        return _with_its_twin(so_far, size, cpu)
    if manner == "again":
        return _with_the_file_again(so_far[-3][1], ran)
    if ran.succeeded and ran.difference is not None and ran.is_elsewhere and not ran.asked:
        return "twin"
    if manner == "pipe":
        if ran.succeeded and ran.unlike is not None:
            return "file"
        return _with_a_pipe(so_far[0][1], ran, cpu)
    if waits_for_more(ran, size) or (ran.is_equal and is_dear(ran.cpu, cpu)):
        if ran.call in (*_TIMED, *_ALARMS):
            return Finding(None, _why_held(ran))
        return "pipe" if size > SMALL else unknown("the file is too small to tell")
    if not ran.is_equal:
        return "file"
    return Finding("net", read=ran.read) if ran.fed or ran.held_at else unknown("the tool has not read the file")


def next_together(so_far: Sequence[tuple[Manner, Ran]]) -> Manner | Finding:
    """Decide how a job is to be run next with several inputs as streams that are proven alone, or what is found.

    Some programs do something else only if none of their inputs is a file. `cmp -l` aligns its numbers by the smallest
    file that it knows the size of. It does not matter how much of the inputs the program reads as streams.
    """
    return next_manner(so_far, 0, math.inf)


def shorts(sizes: Sequence[int]) -> tuple[int, ...] | None:
    """The sizes of the short files that stand for these files; None: the files are short themselves.

    :param sizes: of the files of an input, in bytes
    """
    short = tuple(min(size, SHORT) for size in sizes)
    return short if 0 < 2 * sum(short) <= sum(sizes) else None


def next_with_short(so_far: Sequence[tuple[Manner, Ran]], way: Way) -> Manner | Finding | None:
    """Decide how a proven job is to be run next with a short file, or why it is refused; None: the proof stands.

    A proof with one file holds for other files, also for short ones. Some programs ask for the size of their file, and
    do something else if it is short, which a stream never is. `wc` aligns its numbers so, and `brotli` chooses its
    window.

    :param so_far: the runs in order: with a short file, with the same bytes as a stream, and, if something differs,
        with the short file again. All are compared with the first one
    :param way: the proven way
    """
    if not so_far:
        return "file"
    manner, ran = so_far[-1]
    if shows_nothing(manner, ran):
        return unknown(ran.said or ran.ended)
    if len(so_far) == 1:
        return way if ran.is_equal else None  # many formats have an end, which is cut off
    streamed = so_far[1][1]
    if streamed.is_equal:
        return None
    if not streamed.succeeded:
        return Finding(None, f"{streamed.said} with a short stream", has_failed=True)
    if manner != "file" and streamed.unlike is not None:
        return "file"
    if differ_only_in_times(streamed.unlike, ran.unlike):
        return None
    return Finding(None, f"the outputs differ with a short stream: {streamed.difference}")


def waits_for_more(ran: Ran, size: int) -> bool:
    """Whether a program waits for the whole file under the net, and may do without it when it has a pipe.

    :param size: bytes of the file
    """
    if ran.ended in ("unstreamable", GIVEN_UP):
        return True
    return ran.is_equal and is_worthless(ran.held_at, ran.asked, size)


def is_worthless(held_at: int | None, asked: bool, size: int) -> bool:
    """Whether a program gets too little of the file as a stream.

    :param held_at: bytes that were read when the program waited for the whole file; None: the program has not waited
    :param asked: whether the program has asked by path for more than bytes
    :param size: bytes of the file
    """
    return asked or (held_at is not None and held_at < _WORTH * size)


def is_dear(cpu: float, plain: float) -> bool:
    """Whether a stream costs too much CPU time, so that little is gained.

    This happens if each of many system calls is reported.

    :param cpu: seconds of CPU time of the rehearsal
    :param plain: seconds of CPU time of the job itself
    """
    return cpu > _DEAR_TIMES * plain + _DEAR_SECONDS


def shows_nothing(manner: Manner, ran: Ran) -> bool:
    """Whether the program has no part in the end of its run."""
    # With a pipe, an error means that the pipe was opened twice: the node runtime has killed the program for that.
    opened_twice = manner == "pipe" and ran.ended == "error"
    return not opened_twice and (ran.is_from_outside or ran.ended in _TROUBLE)


def _with_a_pipe(under_net: Ran, ran: Ran, cpu: float) -> Finding:
    if ran.is_equal and not ran.asked and ran.fed:
        return Finding("pipe", read=ran.read)
    if is_dear(under_net.cpu, cpu) and under_net.held_at is None:
        return Finding(
            None, f"the tool takes {under_net.cpu:.1f} s of CPU time with a stream, and {cpu:.1f} s with the file"
        )
    return Finding(None, _why_held(under_net))


def _with_its_twin(so_far: Sequence[tuple[Manner, Ran]], size: int, cpu: float) -> Manner | Finding:
    """The result for a job whose outputs may differ only because it had other paths."""
    *before, (manner, streamed), (_, twin) = so_far
    if not twin.succeeded:
        return Finding(None, f"the tool fails when it runs again: {twin.said}", has_failed=True)
    if twin.difference is not None:
        return "again"
    return next_manner([*before, (manner, _like_the_job(streamed))], size, cpu)


def _like_the_job(ran: Ran) -> Ran:
    return replace(ran, difference=None, unlike=None)


def _with_the_file_again(streamed: Ran, ran: Ran) -> Finding:
    """The result for a job that has made something else of a stream than of the file."""
    if not ran.succeeded:
        return Finding(None, f"the tool fails when it runs again: {ran.said}", has_failed=True)
    if ran.difference is not None and not (streamed.succeeded and differ_only_in_times(ran.unlike, ran.unlike)):
        return Finding(None, f"the outputs differ from run to run: {ran.difference}")
    if not streamed.succeeded:
        return Finding(None, f"{streamed.said} with a stream", has_failed=True)
    return Finding(None, f"the outputs differ with a stream: {streamed.difference}")


def _why_held(ran: Ran) -> str:
    if ran.ended == "unstreamable":
        return f"the tool does what only a file allows{f' ({ran.said})' if ran.said else ''}"
    if "stat" in ran.call or ran.call.startswith(("access", "faccessat", "readlink")):
        return "the tool asks for the size, or more, by the path"
    if ran.call.startswith(("pread", "preadv")):
        return "the tool reads at positions"
    return _CALLS.get(
        ran.call, f"the tool waits for the whole file ({ran.call})" if ran.call else "the tool waits for the whole file"
    )
