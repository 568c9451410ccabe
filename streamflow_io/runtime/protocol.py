"""Messages between the driver and `sfio-node`.

`scripts/protocol.py` writes this file from `node/protocol.yaml`, which says what each field means.
"""

from __future__ import annotations

from typing import Literal

from .values import ByteString, DriverMessage, Extent, Message, Path, Piece, Target

#: The kind of an output or of a gated input.
Kind = Literal["file", "files", "directory"]
#: The rule that commits a file.
Committed = Literal["on_termination", "on_close", "on_file", "on_n_files"]
#: How a gated directory is listed.
Mode = Literal["update", "no_update"]
#: The bytes that count for a limit.
Direction = Literal["read", "write", "both"]
#: A change of a committed file.
Change = Literal["written", "removed"]
#: The cause why a stream waits.
StreamWait = Literal["producer", "reader", "opening"]
#: Why a job has ended.
Reason = Literal[
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


class FileIdentity(Message, frozen=True, kw_only=True):
    """The facts that tell a file from another one, and from itself after a write."""

    device: int | None = None
    inode: int
    size: int
    mtime: int


class FirstBytes(Message, frozen=True, kw_only=True):
    """The first bytes of a file, as they were fed before the commit."""

    bytes: int
    digest: str
    whole: bool = False
    start: int | None = None


class OutputRule(DriverMessage, frozen=True, kw_only=True):
    """When a file is committed."""

    globs: tuple[ByteString, ...] = ()
    committed: Committed
    closes: int | None = None
    file_deps: tuple[ByteString, ...] = ()
    n_files: int | None = None


class WindowSpec(DriverMessage, frozen=True, kw_only=True):
    """Bytes that all readers have read are discarded, and the job is paused when a reader is too far behind."""

    size: int
    readers: int
    waits: bool = False


class WatchedOutput(DriverMessage, frozen=True, kw_only=True):
    """An output whose files are watched."""

    port: str
    root: Path
    globs: tuple[ByteString, ...] = ()
    kind: Kind
    rules: tuple[OutputRule, ...] = ()
    closes: bool = False
    window: WindowSpec | None = None


class Link(DriverMessage, frozen=True, kw_only=True):
    """A producer on another machine."""

    address: str
    job: ByteString
    certificate: Path
    tls: bool = False


class InputStream(DriverMessage, frozen=True, kw_only=True):
    """A file that is fed to the command while its producer writes it. It has one of `events`, `link` and `replay`."""

    name: str
    id: str | None = None
    port: str
    path: Path
    named: Path | None = None
    lock: bool = False
    events: Path | None = None
    link: Link | None = None
    replay: bool = False
    target: Target
    progress: bool = False
    net: bool = False
    pipe: int = 0
    most: int | None = None
    closes: int | None = None
    window: bool = False


class FilePart(DriverMessage, frozen=True, kw_only=True):
    """A part of a file, as a list of pieces."""

    file: Path
    identity: FileIdentity
    pieces: tuple[Piece, ...] = ()
    digest: str | None = None


class PartInput(DriverMessage, frozen=True, kw_only=True):
    """A part of a file that is fed to the command, or is a file to the command."""

    name: str
    port: str
    part: FilePart
    target: Target
    link: Link | None = None
    number: int | None = None


class GatedInput(DriverMessage, frozen=True, kw_only=True):
    """A file or directory that holds the command at its first use until the producer has committed it."""

    name: str
    port: str
    path: Path
    named: Path | None = None
    lock: bool = False
    events: Path
    target: Path
    kind: Kind
    mode: Mode = "update"


class PartitionedInput(DriverMessage, frozen=True, kw_only=True):
    """A file that the command cuts into parts. It announces the parts instead of writing them."""

    port: str
    of: Path
    file: Path
    grows: bool = False


class ObservedInput(DriverMessage, frozen=True, kw_only=True):
    """A file or directory whose use by the command is told."""

    name: str
    path: Path


class CommandSpec(DriverMessage, frozen=True, kw_only=True):
    """How the command runs, and which exit codes are successes."""

    success_codes: tuple[int, ...] = (0,)
    stdin: Path | None = None
    stdout: Path | None = None
    stderr: Path | None = None
    directories: tuple[Path, ...] = ()


class ObservationSpec(DriverMessage, frozen=True, kw_only=True):
    """The measurements of the job that are told."""

    io: bool = False
    cores: int | None = None
    writes: Path | None = None
    reads: tuple[ObservedInput, ...] | None = None


class RateLimit(DriverMessage, frozen=True, kw_only=True):
    """How fast the processes of the job may move bytes. They are paused when they are faster."""

    rate: int | None = None
    direction: Direction
    path: Path
    expected: int | None = None


class Mount(DriverMessage, frozen=True, kw_only=True):
    """A directory that the job finds at another path."""

    path: Path
    at: Path


class Excerpt(DriverMessage, frozen=True, kw_only=True):
    """A file with the first bytes of another one. `fstat` answers as for the other one."""

    name: str
    path: Path
    of: Path


class RehearsalSpec(DriverMessage, frozen=True, kw_only=True):
    """How a repeated run of a job is kept from doing harm."""

    idle: bool = False
    seconds: int | None = None
    spare: int | None = None
    scratch: tuple[Path, ...] = ()
    mounts: tuple[Mount, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    confined: bool = False
    apart: bool = False


class JobSpec(DriverMessage, frozen=True, kw_only=True):
    """`job.json`: a job that `sfio-node exec` runs."""

    name: str
    command: CommandSpec = CommandSpec()
    outputs: tuple[WatchedOutput, ...] = ()
    streams: tuple[InputStream, ...] = ()
    parts: tuple[PartInput, ...] = ()
    gates: tuple[GatedInput, ...] = ()
    split: PartitionedInput | None = None
    observation: ObservationSpec = ObservationSpec()
    limit: RateLimit | None = None
    rehearsal: RehearsalSpec | None = None


class JobLimits(DriverMessage, frozen=True, kw_only=True):
    """`limit`: the limit of a job in place of the one in `job.json`."""

    rate: int | None = None


class Request(DriverMessage, frozen=True, kw_only=True):
    """A line of the standard input of `serve`, with one of `job`, `run`, `limit`, `cancel` and `alive`."""

    job: ByteString | None = None
    run: ByteString | None = None
    limit: ByteString | None = None
    cancel: ByteString | None = None
    alive: int | None = None
    spec: object | None = None
    command: ByteString | None = None


class SessionOrder(DriverMessage, frozen=True, kw_only=True):
    """A line of `control.jsonl`, with one field."""

    read: tuple[int, tuple[Extent, ...]] | None = None
    drop: tuple[Extent, ...] | None = None
    watch: tuple[Extent, ...] | None = None
    end: bool = False


class SessionSpec(DriverMessage, frozen=True, kw_only=True):
    """`session.json`: a file whose chunks `sfio-node read` brings into the page cache."""

    file: Path
    identity: FileIdentity
    threads: int = 4


class StreamPart(Message, frozen=True, kw_only=True):
    """The part of a file that a stream was fed before the commit."""

    path: Path
    first: FirstBytes


class Usage(Message, frozen=True, kw_only=True):
    """The resources that the process tree of a job has used."""

    rchar: int = 0
    wchar: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    user: float = 0
    system: float = 0
    max_rss: int = 0
    streamed: int = 0
    parts: int | None = None
    wrapper_cpu: float = 0
    io: float | None = None
    held: float | None = None
    paused: float | None = None
    pauses: int | None = None


class JobEvent(Message, frozen=True, kw_only=True):
    """Something that has happened to a job."""

    job: str
    time: float


class StartedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="started"):
    """The command runs, and all watches are armed. Of a read session, the file is open."""

    pid: int
    command_pid: int = 0
    cached: int | None = None


class OpenedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="opened"):
    """A file of an output exists. Of a directory, only its first file, if the job is not observed."""

    port: str
    path: Path


class ClosedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="closed"):
    """A file was closed after writing, and this close counts for a rule."""

    port: str
    path: Path
    closes: int
    again: bool = False


class CommittedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="committed"):
    """The rule of a file holds. The event follows `opened`."""

    port: str
    path: Path
    size: int
    at_end: bool = False
    discarded: int | None = None
    sha1: str | None = None


class CompleteEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="complete"):
    """An output as a whole is committed. The event follows those of its files."""

    port: str
    at_end: bool = False


class ChangedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="changed"):
    """A file is not what it was at its commit. Told once for each file."""

    port: str
    path: Path
    how: Change


class UsedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="used"):
    """How the command has used an observed file. Told before `exit`, for each file that was opened."""

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


class StreamEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="stream"):
    """A byte stream has ended well. It was read to its end, or the command wanted no more."""

    name: str
    id: str | None = None
    bytes: int
    seconds: float
    first: float
    last: float
    waited: float
    behind: float
    part: StreamPart | None = None


class HeldEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="held"):
    """A stream under the net has met a call that it cannot serve. The command waits for the file."""

    name: str
    call: str
    bytes: int


class AskedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="asked"):
    """The command has told an excerpt from its file, or set an alarm in a trial. Told when the command ends."""

    name: str
    call: str


class PartEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="part"):
    """The command has announced a part of the file that it cuts."""

    port: str
    number: int = 0
    name: ByteString
    size: int
    path: Path
    identity: FileIdentity
    pieces: tuple[Piece, ...] = ()
    digest: str | None = None


class MovedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="moved"):
    """A job with a limit has moved bytes in its direction. Told every 2 s at most."""

    bytes: int


class CoresEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="cores"):
    """A job needs another number of its cores than was told last. At first it needs all."""

    needed: int


class PhaseEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="phase"):
    """A burst has ended, in which the job has written to the storage of `writes`."""

    start: float
    last: float
    bytes: int


class FedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="fed"):
    """How far a stream is. Told once a second at most while it moves, and when it stalls."""

    name: str
    bytes: int
    last: float | None = None
    stalled: bool = False
    waits: StreamWait | None = None


class GateEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="gate"):
    """The command has begun or ceased to wait at a gate. A wait is told after 0.8 s."""

    waits: bool


class ChunkEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="chunk"):
    """A read session has read a chunk."""

    chunk: int
    bytes: int
    cached: int | None = None
    resident: int | None = None
    seconds: float
    requests: int


class EvictedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="evicted"):
    """The kernel has evicted pages that a read session had brought and watches."""

    bytes: int


class CarriedEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="carried"):
    """A file that CAPIO holds is read. The side of the driver makes this event, and no `sfio-node` does."""

    path: str
    bytes: int | None = None
    first: float
    last: float | None = None


class WarningEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="warning"):
    """Something works less well than it should, and the message says what is done instead."""

    message: str
    input: str | None = None
    port: str | None = None


class ExitEvent(JobEvent, frozen=True, kw_only=True, tag_field="event", tag="exit"):
    """The job has ended. Always the last event of a job."""

    code: int | None = None
    signal: int | None = None
    success: bool
    reason: Reason
    input: str | None = None
    message: str | None = None
    started: float | None = None
    ended: float
    usage: Usage = Usage()


class ReadyEvent(Message, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The first line that `serve` prints."""

    address: str | None = None
    message: str | None = None
    uid: int | None = None
    pid: int | None = None


class MadeEvent(Message, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """The job of a request can be started."""

    job: ByteString


class RefusedEvent(Message, frozen=True, kw_only=True, tag_field="event", tag="refused"):
    """The job of a request was not made."""

    job: ByteString
    message: str


class PrintedEvent(Message, frozen=True, kw_only=True, tag_field="event", tag="printed"):
    """The command of a job has printed something, on either stream."""

    job: ByteString
    text: ByteString


class ReturnedEvent(Message, frozen=True, kw_only=True, tag_field="event", tag="returned"):
    """The command of a job has ended."""

    job: ByteString
    code: int


class FoundFile(Message, frozen=True, kw_only=True):
    """The output of `sfio-node identity`."""

    path: Path
    identity: FileIdentity


class Memory(Message, frozen=True, kw_only=True):
    """The output of `sfio-node memory`."""

    available: int | None = None
    limit: int | None = None
    why: str | None = None
    directory: Path | None = None
    space: int = 0
    free: int = 0
    held: tuple[int, ...] = ()


Event = (
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
    | MovedEvent
    | CoresEvent
    | PhaseEvent
    | FedEvent
    | GateEvent
    | ChunkEvent
    | EvictedEvent
    | CarriedEvent
    | WarningEvent
    | ExitEvent
)

#: The lines that only a conversing `serve` prints.
Said = MadeEvent | RefusedEvent | PrintedEvent | ReturnedEvent
