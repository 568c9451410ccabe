"""What the driver and `sfio-node` say to each other, as data: `docs/node-protocol.md`."""

from __future__ import annotations

import json
from os import stat_result
from signal import SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGXCPU, SIGXFSZ
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, model_validator
from pydantic.alias_generators import to_camel
from typing_extensions import Self

from streamflow_io.hints.reasons import StreamWait


def _as_string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("it is no string")
    return value


#: As `os.fsdecode` has it: each byte that is not UTF-8 is a lone surrogate, which pydantic's own strings cannot hold.
ByteString = Annotated[str, PlainValidator(_as_string)]
Path = ByteString


def readable(path: str) -> str:
    """A path for people, and for files in UTF-8: a byte that is not UTF-8 is `\\xNN`."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class _Message(BaseModel):
    # Built when first used: a run imports all of them, and needs some.
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, defer_build=True)


class OutputRule(_Message):
    """When a file that matches is committed."""

    globs: tuple[str, ...]
    committed: Literal["on_termination", "on_close", "on_file", "on_n_files"]
    closes: int = 1
    file_deps: tuple[str, ...] = ()
    n_files: int | None = None


class WatchedOutput(_Message):
    """An output that is watched: files below `root`, an absolute directory, that match `globs`.

    :ivar phases: the bursts are told in which its files grow; None: they are not
    :ivar closes: it is told when its files are closed after writing, whatever the rules; None: where rules ask for it
    """

    port: str
    root: Path
    globs: tuple[str, ...]
    kind: Literal["file", "files", "directory"]
    rules: tuple[OutputRule, ...]
    phases: Literal[True] | None = None
    closes: Literal[True] | None = None


class Link(_Message):
    """Where the streams of a job on another host are read.

    :ivar address: `IP:PORT` of the `serve` that the producer's job belongs to; IPv6 in brackets
    :ivar job: the producer's job there
    :ivar certificate: the file with the certificate of the run, on the host of the reader
    :ivar tls: all that is said is inside TLS; None: the handshake only
    """

    address: str
    job: str
    certificate: Path
    tls: Literal[True] | None = None


class _EarlyInput(_Message):
    """What the command reads while its producer writes it.

    :ivar port: the output of the producer, as its events name it
    :ivar path: what its producer writes
    :ivar named: as the producer's events have it, where that is another path
    :ivar lock: the producer has another `serve` than the reader: it lives as long as it locks its events
    """

    name: str
    port: str
    path: Path
    named: Path | None = None
    lock: Literal[True] | None = None


class StreamLimit(_Message):
    """How fast a byte stream is fed, in bytes per second, above 0; None: as fast as it is read."""

    rate: int | None = None


class InputStream(_EarlyInput):
    """A file that is fed to the command while its producer writes it.

    :ivar events: the events of the producer's job; or
    :ivar link: how they are had from another host; or
    :ivar replay: the file is complete, and is fed as if it were being written: one of the three
    :ivar target: `{"fifo": PATH}`, or `{"stdin": True}`
    :ivar verify: how much of what was fed is compared with the file at the commit
    :ivar limit: None: it is fed as fast as it is read
    :ivar id: what it is called where its limit changes, and in :class:`DrainedEvent`; None: as the producer's job
    :ivar phases: it is told how far it is, and when all that there was has been fed; None: it is not
    :ivar net: it is not declared `streamable`: the command must not see that it is no file; None: it is
    :ivar pipe: only with net: until so many bytes of it were read, it is a pipe to the command; None: it is not
    :ivar most: not with replay: so many bytes are fed; the job ends with `outgrown` if the file has more; None: all are
    :ivar closes: only with events: it ends when the file was closed after writing so often, and is compared when that
        is final; None: when it is committed
    """

    events: Path | None = None
    link: Link | None = None
    target: dict[str, Path | bool]
    verify: Literal["full", "samples"] = "full"
    limit: StreamLimit | None = None
    id: str | None = None
    phases: Literal[True] | None = None
    net: Literal[True] | None = None
    pipe: int | None = None
    most: int | None = None
    replay: Literal[True] | None = None
    closes: int | None = None

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if sum(source is not None for source in (self.events, self.link, self.replay)) != 1:
            raise ValueError("a stream has either events or a link, or is a replay")
        return self


class FileIdentity(_Message):
    """What tells a file from what it is when somebody has written to it.

    :ivar device: None: it differs from place to place
    :ivar mtime: nanoseconds since the epoch
    """

    device: int | None = None
    inode: int
    size: int
    mtime: int

    @classmethod
    def of(cls, found: stat_result) -> Self:
        """What a file on this node is."""
        return cls(device=found.st_dev, inode=found.st_ino, size=found.st_size, mtime=found.st_mtime_ns)


#: Bytes of a file, as offset and length; or bytes themselves, in base64.
Piece = tuple[int, int] | str


class FilePart(_Message):
    """A part of a file: its pieces, one after the other.

    :ivar file: absolute
    :ivar identity: what the file was when the part was cut: it must not change
    :ivar digest: of the bytes of the pieces in the file, if that was still written then: they alone must not change
    """

    file: Path
    identity: FileIdentity
    pieces: tuple[Piece, ...]
    digest: str | None = None


class FoundFile(_Message):
    """A file as somebody has found it.

    :ivar path: its real path
    """

    path: Path
    identity: FileIdentity


class Memory(_Message):
    """How much memory there is; what is not known is None.

    :ivar available: bytes that are free, or are given back when they are needed
    :ivar limit: the most that the cgroups of `sfio-node` let it have
    """

    available: int | None = None
    limit: int | None = None


class PartInput(_Message):
    """A part of a file that is fed to the command, or is there as a file.

    :ivar name: the input
    :ivar port: the output whose element it is
    :ivar target: `{"fifo": PATH}`, `{"stdin": True}`, or `{"file": PATH}`
    :ivar link: how it is had from the host where it was said; None: the file is read here
    :ivar number: that of the part there
    """

    name: str
    port: str
    part: FilePart
    target: dict[str, Path | bool]
    link: Link | None = None
    number: int | None = None


class PartitionedInput(_Message):
    """A file of which the command says where it cuts it, instead of writing its parts.

    :ivar port: the output that they are
    :ivar of: the file
    :ivar file: where the command says it: nothing is there before
    :ivar grows: it is still written
    """

    port: str
    of: Path
    file: Path
    grows: bool | None = None


class GatedInput(_EarlyInput):
    """A file or directory that the command is held at until it is committed.

    :ivar events: the events of the producer's job
    :ivar target: where the command finds it
    :ivar mode: of a directory: whether a listing waits until it is complete, or has entries as they are committed
    """

    events: Path
    target: Path
    kind: Literal["file", "directory"]
    mode: Literal["update", "no_update"] | None = None


class ObservedInput(_Message):
    """A file or directory of which it is told how the command reads it.

    :ivar name: the input
    :ivar path: absolute
    """

    name: str
    path: Path


class RateLimit(_Message):
    """How fast the processes of a job may move bytes: they are paused when they are faster.

    :ivar rate: bytes per second, above 0; None: it has no limit yet
    :ivar path: of the storage, or of a directory on it
    :ivar expected: the bytes that it will move, as far as that is known; it is told when a tenth of them was moved
    """

    rate: int | None = None
    direction: Literal["read", "write", "both"]
    path: Path
    expected: int | None = None


class WrittenTo(_Message):
    """Where a job writes of which it is told in which bursts it does.

    :ivar path: of the storage, or of a directory on it
    """

    path: Path


class Mount(_Message):
    """A directory that a job finds at another place, where there is one already."""

    path: Path
    at: Path


class Excerpt(_Message):
    """A file with the first bytes of another one, of which the command gets to know what it would of that.

    :ivar path: as the command finds it
    """

    name: str
    path: Path
    of: Path


class _Spec(_Message):
    def text(self) -> str:
        """What stands in the file. It is ASCII, also where a path is not UTF-8."""
        return json.dumps(self.model_dump(by_alias=True, exclude_none=True), separators=(",", ":"))


class JobSpec(_Spec):
    """`job.json`: what `sfio-node exec` shall do.

    :ivar partitions: at most one; None: as an empty list
    :ivar measure: estimate the job's time in I/O, at the cost of about 1 percent of a core at most
    :ivar observed: how these are read is told, and when all `outputs` are opened and closed; None: it is not
    :ivar limit: None: it never has one
    :ivar phases: None: the bursts in which it writes are not told
    :ivar cores: that it has: how many of them it needs is told; None: it is not
    :ivar idle: it computes, reads and writes only as far as nobody else wants to; None: as others do
    :ivar seconds: it is ended after so many, without those in which it waited for a processor; None: it is not
    :ivar spare: it is ended when less than so many bytes are free where its first scratch directory is; None: it is not
    :ivar scratch: directories that are removed if it does not succeed; None: as an empty list
    :ivar directories: of the job, in which others are not to change anything; None: as an empty list
    :ivar mounts: directories that it finds at other places, if that can be had; None: as an empty list
    :ivar excerpts: what tells them from their files is told; None: as an empty list
    :ivar confined: it can change nothing but what is there, where the kernel can see to that; None: it can
    :ivar apart: where the kernel cannot, it does not start; None: it does
    """

    name: str
    success_codes: tuple[int, ...] = (0,)
    stdin: Path | None = None
    stdout: Path | None = None
    stderr: Path | None = None
    outputs: tuple[WatchedOutput, ...] = ()
    inputs: tuple[InputStream | PartInput, ...] = ()
    gates: tuple[GatedInput, ...] = ()
    partitions: tuple[PartitionedInput, ...] | None = None
    measure: bool = False
    observed: tuple[ObservedInput, ...] | None = None
    limit: RateLimit | None = None
    phases: WrittenTo | None = None
    cores: int | None = None
    idle: Literal[True] | None = None
    seconds: int | None = None
    spare: int | None = None
    scratch: tuple[Path, ...] | None = None
    directories: tuple[Path, ...] | None = None
    mounts: tuple[Mount, ...] | None = None
    excerpts: tuple[Excerpt, ...] | None = None
    confined: Literal[True] | None = None
    apart: Literal[True] | None = None


class SessionSpec(_Spec):
    """`session.json`: the file of which `sfio-node read` shall bring chunks into the page cache.

    :ivar threads: how many chunks are read at the same time
    """

    file: Path
    identity: FileIdentity
    threads: int


class _Told(BaseModel):
    """What `sfio-node` says; fields that are not known are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class ReadyEvent(_Told):
    """The first that `serve` prints.

    :ivar address: `IP:PORT` where its links listen, if it was to
    :ivar message: why there is none, if it was to
    :ivar pid: the process of `serve`, at the location
    """

    event: Literal["ready"]
    address: str | None = None
    message: str | None = None
    pid: int | None = None


class SpecAnswer(_Told):
    """The answer of `serve` to the request for a job.

    :ivar message: why not
    """

    event: Literal["ready", "refused"]
    job: str
    message: str = ""


class PrintedEvent(_Told):
    """What the command of a job has printed that a `serve` has started, on either stream.

    :ivar text: a piece of it
    """

    event: Literal["printed"]
    job: str
    text: ByteString


class ReturnedEvent(_Told):
    """The command of a job has ended that a `serve` has started.

    :ivar code: its exit code, as a shell would say it
    """

    event: Literal["returned"]
    job: str
    code: int


class _Event(_Told):
    job: str
    time: float


class _FileEvent(_Event):
    port: str
    path: Path


class StartedEvent(_Event):
    """The command runs; all watches are armed. Of a session: it has the file.

    :ivar pid: of its `sfio-node exec`, or `read`
    :ivar cached: of a session: the bytes of the file that are in the page cache; None: that cannot be told
    """

    event: Literal["started"]
    pid: int
    cached: int | None = None


class OpenedEvent(_FileEvent):
    """A file that matches an output exists."""

    event: Literal["opened"]


class ClosedEvent(_FileEvent):
    """A file was closed after writing; `again`: and was committed before."""

    event: Literal["closed"]
    closes: int
    again: bool = False


class CommittedEvent(_FileEvent):
    """The rule of a file holds; `at_end`: only because the job has succeeded."""

    event: Literal["committed"]
    size: int
    at_end: bool = False


class CompleteEvent(_Event):
    """An output as a whole is committed; `at_end`: only because the job has succeeded."""

    event: Literal["complete"]
    port: str
    at_end: bool = False


class ChangedEvent(_FileEvent):
    """A file is not what it was when it was committed: it was written, or removed. Once for each file."""

    event: Literal["changed"]
    how: Literal["written", "removed"]


class UsedEvent(_Event):
    """How the command used an observed file; once for each that it opened, before `exit`.

    :ivar path: of a directory: that of a file in it
    :ivar sequential: it was only read, front to back, in each opening
    :ivar reasons: why not, if so: `opened again`, `mapped`, `sought`, `probed`, `read at a position`,
        `opened for writing`, `executed`, `asked by path`, `unknown`
    :ivar first: when it was opened first
    :ivar last: when it was opened last
    :ivar touched: when it was first opened, or asked for more than its data by its path
    :ivar read: it was not read later, as far as could be seen; none: not known
    :ivar whole: the command had written to none of its outputs by then
    :ivar directory: it is a directory, which was opened as to list it
    """

    event: Literal["used"]
    name: str
    path: Path
    opens: int
    sequential: bool
    reasons: tuple[str, ...] = ()
    first: float
    last: float
    touched: float | None = None
    read: float | None = None
    whole: bool = False
    directory: bool = False


class StreamPart(_Told):
    """The first bytes of a file that was not committed yet, as somebody has read them who wanted no more.

    :ivar path: the file, where its producer has it
    :ivar digest: in a form that `sfio-node` knows
    :ivar whole: they are all that it has
    """

    path: Path
    bytes: int
    digest: str
    verify: Literal["full", "samples"]
    whole: bool = False


class StreamEvent(_Event):
    """A byte stream ended well: it was read to its end, or nobody wanted more of it.

    :ivar id: what it is called; None: as `name`, which is the producer's job
    :ivar first: when its first byte was fed, by the clock of the node, as `time`
    :ivar last: when its last one was
    :ivar waited: for so many seconds the command had taken all that there was, and waited for more, as far as is seen
    :ivar behind: for so many the command had not taken what had been fed
    :ivar lag: so many bytes there were at most that it had not been given; None: it came over a link
    :ivar part: what has to be compared with the file; None: nothing any more
    """

    event: Literal["stream"]
    name: str
    id: str | None = None
    bytes: int
    seconds: float
    first: float
    last: float
    waited: float
    behind: float
    lag: int | None = None
    part: StreamPart | None = None


class HeldEvent(_Event):
    """The command waits for the file of a stream that is under the net: it has asked for what only that has.

    :ivar call: the system call
    :ivar bytes: so many it had read
    """

    event: Literal["held"]
    name: str
    call: str
    bytes: int


class AskedEvent(_Event):
    """The command has told an excerpt from its file.

    :ivar call: the system call by which it has, first
    """

    event: Literal["asked"]
    name: str
    call: str


class PartEvent(_Event):
    """The command has said where a part is of the file that it splits.

    :ivar number: of the line in which it was said
    :ivar name: of the file that it would be
    :ivar size: of all pieces, bytes
    :ivar path: the file that is split
    """

    event: Literal["part"]
    port: str
    number: int = 0
    name: Path
    size: int
    path: Path
    identity: FileIdentity
    pieces: tuple[Piece, ...]
    digest: str | None = None

    @property
    def part(self) -> FilePart:
        return FilePart(file=self.path, identity=self.identity, pieces=self.pieces, digest=self.digest)


class PlacedEvent(_Event):
    """A part is there as a file, before the command starts."""

    event: Literal["placed"]


class ChunkEvent(_Event):
    """A chunk was brought into the page cache.

    :ivar cached: bytes of it that were there before; None: that cannot be told
    :ivar resident: those that are there now
    """

    event: Literal["chunk"]
    chunk: int
    bytes: int
    cached: int | None = None
    resident: int | None = None
    seconds: float
    requests: int


class EvictedEvent(_Event):
    """So many bytes are not in the page cache any more, of what a session has brought and watches."""

    event: Literal["evicted"]
    bytes: int


class MovedEvent(_Event):
    """So many bytes were moved so far by a job with a :class:`RateLimit`, in its direction; at most every 2 s."""

    event: Literal["moved"]
    bytes: int


class CoresEvent(_Event):
    """A job needs another number of its cores, as of :attr:`JobSpec.cores`; fewer: for some seconds already."""

    event: Literal["cores"]
    needed: int


class PhaseEvent(_Event):
    """A burst has ended: nothing has grown for a while, or will any more.

    :ivar port: the output whose file has grown; None: the job has written, wherever
    :ivar number: from 0
    :ivar start: when its first byte was there
    :ivar last: when its last byte was there
    :ivar end: bytes of the file when it ended
    """

    event: Literal["phase"]
    port: str | None = None
    path: Path | None = None
    number: int
    start: float
    last: float
    bytes: int
    end: int


class DrainedEvent(_Event):
    """The command was given all bytes that there were of a stream; at most four times a second.

    :ivar name: the stream, see :attr:`InputStream.id`
    :ivar bytes: all that it was given so far
    :ivar last: when it was given the last of them
    """

    event: Literal["drained"]
    name: str
    bytes: int
    last: float


class FedEvent(_Event):
    """How far a byte stream is; at most once a second while it moves, and when it does not.

    :ivar name: the stream, see :attr:`InputStream.id`
    :ivar bytes: all that the command was given so far
    :ivar last: when it was given the last of them; None: it was given none
    :ivar stalled: it was given nothing for a while
    """

    event: Literal["fed"]
    name: str
    bytes: int
    last: float | None = None
    stalled: bool = False
    waits: StreamWait | None = None


class CarriedEvent(_Event):
    """A file that CAPIO holds is read: told by the driver's side of the job that reads it, and by no `sfio-node`.

    :ivar path: in CAPIO
    :ivar bytes: that were read; None: it was opened, and is read
    :ivar first: when it was seen to be opened
    :ivar last: when it was seen to be closed
    """

    event: Literal["carried"] = "carried"
    path: str
    bytes: int | None = None
    first: float
    last: float | None = None


class GateEvent(_Event):
    """The command waits at a gate, and has for a while; or it does not any more."""

    event: Literal["gate"]
    waits: bool


class WarningEvent(_Event):
    """Something does not work here, and what is done instead.

    :ivar input: which one it is about, if it is about one
    :ivar port: the output that this is
    """

    event: Literal["warning"]
    message: str
    input: str | None = None
    port: str | None = None

    @property
    def is_without_gate(self) -> bool:
        """Whether calls of the job are not told: it gets whole files."""
        return self.message.startswith("no gate (")

    @property
    def is_without_mounts(self) -> bool:
        """Whether directories are not where `mounts` says."""
        return self.message.startswith("directories cannot be put at other places")


class Usage(_Told):
    """What the process tree of a job used: bytes, CPU seconds.

    :ivar wrapper_cpu: CPU seconds of `sfio-node` itself, which is not in the tree
    :ivar io: seconds during which at least one of its threads waited for a device, an estimate; None where it was not
        measured or cannot be known
    :ivar held: seconds in which one of its calls waited at a gate; None: it has none
    :ivar paused: seconds for which it was paused, to keep it to its limit; None: it has none
    :ivar ahead: the most bytes that it had moved before their time
    """

    rchar: int = 0
    wchar: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    user: float = 0.0
    system: float = 0.0
    wrapper_cpu: float = 0.0
    io: float | None = None
    held: float | None = None
    paused: float | None = None
    pauses: int | None = None
    ahead: int | None = None

    @property
    def cpu(self) -> float:
        """CPU seconds of the tree, and of what was done for it."""
        return self.user + self.system + self.wrapper_cpu


class ExitEvent(_Event):
    """The job has ended. Always the last event of a job."""

    event: Literal["exit"]
    code: int | None = None
    signal: int | None = None
    success: bool
    reason: Literal[
        "exited",
        "cancelled",
        "producer",
        "rewritten",
        "unstreamable",
        "outgrown",
        "overtime",
        "space",
        "driver",
        "lost",
        "error",
    ]
    input: str | None = None
    message: str | None = None
    started: float | None = None
    ended: float | None = None
    usage: Usage = Usage()

    @property
    def is_from_outside(self) -> bool:
        """Whether somebody else has ended it, as for want of memory: its command has no part in that."""
        # A shell ends so when what it runs is killed.
        codes = {128 + number for number in _KILLING}
        return self.reason in ("cancelled", "driver", "lost") or self.signal in _KILLING or self.code in codes

    @property
    def has_opened_again(self) -> bool:
        """Whether the node runtime has killed it because it has opened a byte stream twice."""
        return self.reason == "error" and "was opened again" in (self.message or "")

    @property
    def is_not_apart(self) -> bool:
        """Whether it has not started because it would not have been kept apart."""
        return self.reason == "error" and (self.message or "").startswith("it cannot be kept apart")


# What nobody sends to himself for a mistake; the kernel sends the last two for a limit of the user's.
_KILLING = frozenset({SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGXCPU, SIGXFSZ})

Event = Annotated[
    StartedEvent
    | OpenedEvent
    | ClosedEvent
    | CommittedEvent
    | CompleteEvent
    | ChangedEvent
    | UsedEvent
    | StreamEvent
    | HeldEvent
    | AskedEvent
    | PartEvent
    | PlacedEvent
    | ChunkEvent
    | EvictedEvent
    | MovedEvent
    | CoresEvent
    | PhaseEvent
    | DrainedEvent
    | FedEvent
    | CarriedEvent
    | GateEvent
    | WarningEvent
    | ExitEvent,
    Field(discriminator="event"),
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event, config=ConfigDict(defer_build=True))


#: The answers to requests.
Said = Annotated[SpecAnswer | PrintedEvent | ReturnedEvent, Field(discriminator="event")]
SAID: TypeAdapter[Said] = TypeAdapter(Said, config=ConfigDict(defer_build=True))


def parse_said(line: bytes) -> Said | None:
    """Read one line that `serve` prints. None: it is no answer to a request."""
    try:
        return SAID.validate_python(json.loads(line))
    except (RecursionError, ValueError):
        return None


def parse_event(line: bytes) -> Event:
    """Read one line of what `serve` prints.

    :raises ValueError: if it is no event
    """
    try:
        return EVENT.validate_python(json.loads(line))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def job_of(line: bytes) -> str | None:
    """The job that a line is about, though it is no event; None: it does not say."""
    try:
        found = json.loads(line)
    except (RecursionError, ValueError):
        return None
    job = found.get("job") if isinstance(found, dict) else None
    return job if isinstance(job, str) else None
