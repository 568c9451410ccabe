//! Messages between the driver and `sfio-node`.
//!
//! `scripts/protocol.py` writes this file from `node/protocol.yaml`, which says what each field means.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::protocol::json::{bytes, ByteString};
use crate::protocol::values::{
    absolute_path, absolute_paths, name_of_job, optional_absolute_path, optional_path, path, Digest, Extent, Json,
    Piece, Target,
};

/// The kind of an output or of a gated input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One file.
    File,
    /// A list of files.
    Files,
    /// A directory, whose files are its entries.
    Directory,
}

/// The rule that commits a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(clippy::enum_variant_names, reason = "the words are those of the hints")]
#[serde(rename_all = "snake_case")]
pub enum Committed {
    /// When the job has succeeded.
    OnTermination,
    /// When the file was closed `closes` times.
    OnClose,
    /// When all `file_deps` are committed.
    OnFile,
    /// When `n_files` entries are committed.
    OnNFiles,
}

/// How a gated directory is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A listing of the directory waits until the directory is complete.
    #[default]
    Update,
    /// A listing has the entries as they are committed.
    NoUpdate,
}

/// The bytes that count for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Bytes that are read.
    Read,
    /// Bytes that are written.
    Write,
    /// The larger of both.
    Both,
}

/// A change of a committed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// The file has other bytes.
    Written,
    /// The file is gone, or another one is in its place.
    Removed,
}

/// The cause why a stream waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamWait {
    /// The command has taken all that there is.
    Producer,
    /// The command has not taken what was fed.
    Reader,
    /// The command has not opened the stream.
    Opening,
}

/// Why a job has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// The command has ended by itself.
    Exited,
    /// The driver or a signal has ended the job.
    Cancelled,
    /// The producer of an input has failed.
    Producer { input: String },
    /// An input has changed after the command had read it.
    Rewritten { input: String },
    /// The command needs the file of an input that was a stream.
    Unstreamable { input: String },
    /// The file of an input has more than `most` bytes.
    Outgrown { input: String },
    /// The job has had all of its `seconds`.
    Overtime,
    /// Less than `spare` bytes are free.
    Space,
    /// `serve` is gone.
    Driver,
    /// `exec` was killed.
    Lost,
    /// The job could not be run or watched: `message` says why.
    #[default]
    Error,
}

/// The facts that tell a file from another one, and from itself after a write.
#[derive(Clone, Debug, PartialEq, Copy, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileIdentity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<u64>,
    pub inode: u64,
    pub size: u64,
    pub mtime: i64,
}

/// The first bytes of a file, as they were fed before the commit.
#[derive(Clone, Debug, PartialEq, Copy, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FirstBytes {
    pub bytes: u64,
    pub digest: Digest,
    #[serde(default)]
    pub whole: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
}

/// When a file is committed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutputRule {
    #[serde(default)]
    pub globs: Vec<ByteString<PathBuf>>,
    pub committed: Committed,
    pub closes: Option<NonZeroU64>,
    #[serde(default)]
    pub file_deps: Vec<ByteString<PathBuf>>,
    pub n_files: Option<NonZeroU64>,
}

/// Bytes that all readers have read are discarded, and the job is paused when a reader is too far behind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WindowSpec {
    pub size: NonZeroU64,
    pub readers: NonZeroU32,
    #[serde(default)]
    pub waits: bool,
}

/// An output whose files are watched.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchedOutput {
    pub port: String,
    #[serde(deserialize_with = "absolute_path")]
    pub root: PathBuf,
    #[serde(default)]
    pub globs: Vec<ByteString<PathBuf>>,
    pub kind: Kind,
    #[serde(default)]
    pub rules: Vec<OutputRule>,
    #[serde(default)]
    pub closes: bool,
    pub window: Option<WindowSpec>,
}

/// A producer on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub address: SocketAddr,
    #[serde(deserialize_with = "name_of_job")]
    pub job: OsString,
    #[serde(deserialize_with = "path")]
    pub certificate: PathBuf,
    #[serde(default)]
    pub tls: bool,
}

/// A file that is fed to the command while its producer writes it. It has one of `events`, `link` and `replay`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InputStream {
    pub name: String,
    pub id: Option<String>,
    pub port: String,
    #[serde(deserialize_with = "path")]
    pub path: PathBuf,
    #[serde(default, deserialize_with = "optional_path")]
    pub named: Option<PathBuf>,
    #[serde(default)]
    pub lock: bool,
    #[serde(default, deserialize_with = "optional_path")]
    pub events: Option<PathBuf>,
    pub link: Option<Link>,
    #[serde(default)]
    pub replay: bool,
    pub target: Target,
    #[serde(default)]
    pub progress: bool,
    #[serde(default)]
    pub net: bool,
    #[serde(default)]
    pub pipe: u64,
    pub most: Option<u64>,
    pub closes: Option<NonZeroU32>,
    #[serde(default)]
    pub window: bool,
}

/// A part of a file, as a list of pieces.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePart {
    #[serde(deserialize_with = "absolute_path")]
    pub file: PathBuf,
    pub identity: FileIdentity,
    #[serde(default)]
    pub pieces: Vec<Piece>,
    pub digest: Option<Digest>,
}

/// A part of a file that is fed to the command, or is a file to the command.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartInput {
    pub name: String,
    pub port: String,
    pub part: FilePart,
    pub target: Target,
    pub link: Option<Link>,
    pub number: Option<u64>,
}

/// A file or directory that holds the command at its first use until the producer has committed it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatedInput {
    pub name: String,
    pub port: String,
    #[serde(deserialize_with = "path")]
    pub path: PathBuf,
    #[serde(default, deserialize_with = "optional_path")]
    pub named: Option<PathBuf>,
    #[serde(default)]
    pub lock: bool,
    #[serde(deserialize_with = "path")]
    pub events: PathBuf,
    #[serde(deserialize_with = "absolute_path")]
    pub target: PathBuf,
    pub kind: Kind,
    #[serde(default)]
    pub mode: Mode,
}

/// A file that the command cuts into parts. It announces the parts instead of writing them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionedInput {
    pub port: String,
    #[serde(deserialize_with = "absolute_path")]
    pub of: PathBuf,
    #[serde(deserialize_with = "absolute_path")]
    pub file: PathBuf,
    #[serde(default)]
    pub grows: bool,
}

/// A file or directory whose use by the command is told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservedInput {
    pub name: String,
    #[serde(deserialize_with = "absolute_path")]
    pub path: PathBuf,
}

/// How the command runs, and which exit codes are successes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommandSpec {
    #[serde(default = "command_spec_success_codes")]
    pub success_codes: Vec<i32>,
    #[serde(default, deserialize_with = "optional_path")]
    pub stdin: Option<PathBuf>,
    #[serde(default, deserialize_with = "optional_path")]
    pub stdout: Option<PathBuf>,
    #[serde(default, deserialize_with = "optional_path")]
    pub stderr: Option<PathBuf>,
    #[serde(default, deserialize_with = "absolute_paths")]
    pub directories: Vec<PathBuf>,
}

impl Default for CommandSpec {
    fn default() -> Self {
        Self {
            success_codes: command_spec_success_codes(),
            stdin: Default::default(),
            stdout: Default::default(),
            stderr: Default::default(),
            directories: Default::default(),
        }
    }
}

/// The measurements of the job that are told.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservationSpec {
    #[serde(default)]
    pub io: bool,
    pub cores: Option<NonZeroU32>,
    #[serde(default, deserialize_with = "optional_absolute_path")]
    pub writes: Option<PathBuf>,
    pub reads: Option<Vec<ObservedInput>>,
}

/// How fast the processes of the job may move bytes. They are paused when they are faster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub rate: Option<NonZeroU64>,
    pub direction: Direction,
    #[serde(deserialize_with = "absolute_path")]
    pub path: PathBuf,
    pub expected: Option<u64>,
}

/// A directory that the job finds at another path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    #[serde(deserialize_with = "absolute_path")]
    pub path: PathBuf,
    #[serde(deserialize_with = "absolute_path")]
    pub at: PathBuf,
}

/// A file with the first bytes of another one. `fstat` answers as for the other one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excerpt {
    pub name: String,
    #[serde(deserialize_with = "absolute_path")]
    pub path: PathBuf,
    #[serde(deserialize_with = "absolute_path")]
    pub of: PathBuf,
}

/// How a repeated run of a job is kept from doing harm.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RehearsalSpec {
    #[serde(default)]
    pub idle: bool,
    pub seconds: Option<NonZeroU32>,
    pub spare: Option<u64>,
    #[serde(default, deserialize_with = "absolute_paths")]
    pub scratch: Vec<PathBuf>,
    #[serde(default)]
    pub mounts: Vec<Mount>,
    #[serde(default)]
    pub excerpts: Vec<Excerpt>,
    #[serde(default)]
    pub confined: bool,
    #[serde(default)]
    pub apart: bool,
}

/// `job.json`: a job that `sfio-node exec` runs.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobSpec {
    pub name: String,
    #[serde(default)]
    pub command: CommandSpec,
    #[serde(default)]
    pub outputs: Vec<WatchedOutput>,
    #[serde(default)]
    pub streams: Vec<InputStream>,
    #[serde(default)]
    pub parts: Vec<PartInput>,
    #[serde(default)]
    pub gates: Vec<GatedInput>,
    pub split: Option<PartitionedInput>,
    #[serde(default)]
    pub observation: ObservationSpec,
    pub limit: Option<RateLimit>,
    pub rehearsal: Option<RehearsalSpec>,
}

/// `limit`: the limit of a job in place of the one in `job.json`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobLimits {
    pub rate: Option<NonZeroU64>,
}

/// A line of the standard input of `serve`, with one of `job`, `run`, `limit`, `cancel` and `alive`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub job: Option<ByteString<OsString>>,
    pub run: Option<ByteString<OsString>>,
    pub limit: Option<ByteString<OsString>>,
    pub cancel: Option<ByteString<OsString>>,
    pub alive: Option<u64>,
    pub spec: Option<Json>,
    pub command: Option<ByteString<OsString>>,
}

/// A line of `control.jsonl`, with one field.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionOrder {
    pub read: Option<(u64, Vec<Extent>)>,
    pub drop: Option<Vec<Extent>>,
    pub watch: Option<Vec<Extent>>,
    #[serde(default)]
    pub end: bool,
}

/// `session.json`: a file whose chunks `sfio-node read` brings into the page cache.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    #[serde(deserialize_with = "absolute_path")]
    pub file: PathBuf,
    pub identity: FileIdentity,
    #[serde(default = "session_spec_threads")]
    pub threads: u64,
}

/// The part of a file that a stream was fed before the commit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamPart<'a> {
    pub path: ByteString<&'a Path>,
    pub first: FirstBytes,
}

/// The resources that the process tree of a job has used.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct Usage {
    pub rchar: u64,
    pub wchar: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub user: f64,
    pub system: f64,
    pub max_rss: u64,
    pub streamed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u64>,
    pub wrapper_cpu: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pauses: Option<u64>,
}

/// The command runs, and all watches are armed. Of a read session, the file is open.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct StartedEvent {
    pub pid: i32,
    pub command_pid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
}

/// A file of an output exists. Of a directory, only its first file, if the job is not observed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OpenedEvent<'a> {
    pub port: &'a str,
    pub path: ByteString<&'a Path>,
}

/// A file was closed after writing, and this close counts for a rule.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClosedEvent<'a> {
    pub port: &'a str,
    pub path: ByteString<&'a Path>,
    pub closes: u32,
    pub again: bool,
}

/// The rule of a file holds. The event follows `opened`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CommittedEvent<'a> {
    pub port: &'a str,
    pub path: ByteString<&'a Path>,
    pub size: u64,
    pub at_end: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discarded: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha1: Option<Cow<'a, str>>,
}

/// A file of a directory is committed. `serve` does not print this event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryEvent<'a> {
    pub port: &'a str,
    pub path: ByteString<&'a Path>,
    pub size: u64,
}

/// An output as a whole is committed. The event follows those of its files.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CompleteEvent<'a> {
    pub port: &'a str,
    pub at_end: bool,
}

/// A file is not what it was at its commit. Told once for each file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedEvent<'a> {
    pub port: &'a str,
    pub path: ByteString<&'a Path>,
    pub how: Change,
}

/// How the command has used an observed file. Told before `exit`, for each file that was opened.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct UsedEvent {
    pub name: String,
    #[serde(with = "bytes")]
    pub path: PathBuf,
    pub opens: u32,
    pub sequential: bool,
    pub reasons: Vec<&'static str>,
    pub first: f64,
    pub last: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub touched: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<f64>,
    pub whole: bool,
    pub directory: bool,
}

/// A byte stream has ended well. It was read to its end, or the command wanted no more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamEvent<'a> {
    pub name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    pub bytes: u64,
    pub seconds: f64,
    pub first: f64,
    pub last: f64,
    pub waited: f64,
    pub behind: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<StreamPart<'a>>,
}

/// A stream under the net has met a call that it cannot serve. The command waits for the file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldEvent<'a> {
    pub name: &'a str,
    pub call: Cow<'a, str>,
    pub bytes: u64,
}

/// The command has told an excerpt from its file, or set an alarm in a trial. Told when the command ends.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AskedEvent<'a> {
    pub name: &'a str,
    pub call: Cow<'a, str>,
}

/// The command has announced a part of the file that it cuts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartEvent<'a> {
    pub port: &'a str,
    pub number: u64,
    pub name: ByteString<&'a OsStr>,
    pub size: u64,
    pub path: ByteString<&'a Path>,
    pub identity: &'a FileIdentity,
    pub pieces: &'a [Piece],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// A job with a limit has moved bytes in its direction. Told every 2 s at most.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct MovedEvent {
    pub bytes: u64,
}

/// A job needs another number of its cores than was told last. At first it needs all.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct CoresEvent {
    pub needed: u32,
}

/// A burst has ended, in which the job has written to the storage of `writes`.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct PhaseEvent {
    pub start: f64,
    pub last: f64,
    pub bytes: u64,
}

/// How far a stream is. Told once a second at most while it moves, and when it stalls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FedEvent<'a> {
    pub name: &'a str,
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<f64>,
    pub stalled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<StreamWait>,
}

/// The command has begun or ceased to wait at a gate. A wait is told after 0.8 s.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct GateEvent {
    pub waits: bool,
}

/// A read session has read a chunk.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct ChunkEvent {
    pub chunk: u64,
    pub bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resident: Option<u64>,
    pub seconds: f64,
    pub requests: u64,
}

/// The kernel has evicted pages that a read session had brought and watches.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct EvictedEvent {
    pub bytes: u64,
}

/// Something works less well than it should, and the message says what is done instead.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WarningEvent<'a> {
    pub message: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<&'a str>,
}

/// The job has ended. Always the last event of a job.
#[derive(Clone, Debug, PartialEq, Default, Serialize)]
pub struct ExitEvent {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub success: bool,
    #[serde(flatten)]
    pub reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<f64>,
    pub ended: f64,
    pub usage: Usage,
}

/// The first line that `serve` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename = "ready")]
pub struct ReadyEvent<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// The job of a request can be started.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename = "ready")]
pub struct MadeEvent<'a> {
    pub job: ByteString<&'a OsStr>,
}

/// The job of a request was not made.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename = "refused")]
pub struct RefusedEvent<'a> {
    pub job: ByteString<&'a OsStr>,
    pub message: &'a str,
}

/// The command of a job has printed something, on either stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename = "printed")]
pub struct PrintedEvent<'a> {
    pub job: ByteString<&'a OsStr>,
    pub text: ByteString<&'a OsStr>,
}

/// The command of a job has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename = "returned")]
pub struct ReturnedEvent<'a> {
    pub job: ByteString<&'a OsStr>,
    pub code: i32,
}

/// The output of `sfio-node identity`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundFile<'a> {
    pub path: ByteString<&'a Path>,
    pub identity: &'a FileIdentity,
}

/// A line of `events.jsonl`, without its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    Started(StartedEvent),
    Opened(OpenedEvent<'a>),
    Closed(ClosedEvent<'a>),
    Committed(CommittedEvent<'a>),
    Entry(EntryEvent<'a>),
    Complete(CompleteEvent<'a>),
    Changed(ChangedEvent<'a>),
    Used(UsedEvent),
    Stream(StreamEvent<'a>),
    Held(HeldEvent<'a>),
    Asked(AskedEvent<'a>),
    Part(PartEvent<'a>),
    Moved(MovedEvent),
    Cores(CoresEvent),
    Phase(PhaseEvent),
    Fed(FedEvent<'a>),
    Gate(GateEvent),
    Chunk(ChunkEvent),
    Evicted(EvictedEvent),
    Warning(WarningEvent<'a>),
    Exit(ExitEvent),
}

fn command_spec_success_codes() -> Vec<i32> {
    vec![0]
}

fn session_spec_threads() -> u64 {
    4
}
