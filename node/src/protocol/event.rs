//! The lines of `events.jsonl`, which tell what has happened.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::protocol::job::Input;
use crate::protocol::json::{self, bytes, optional_path, ByteString};
use crate::protocol::part::{Identity, Piece};
use crate::protocol::verify::{self, Part};
use crate::sys::file_id::file_id_of;
use crate::sys::ownership;

/// `again`: it was committed before; `at_end`: only because the job has succeeded.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event<'a> {
    Started(Started),
    Opened { port: &'a str, path: ByteString<&'a Path> },
    Closed { port: &'a str, path: ByteString<&'a Path>, closes: u32, again: bool },
    Committed { port: &'a str, path: ByteString<&'a Path>, size: u64, at_end: bool },
    Entry { port: &'a str, path: ByteString<&'a Path>, size: u64 },
    Complete { port: &'a str, at_end: bool },
    Changed { port: &'a str, path: ByteString<&'a Path>, how: &'a str },
    Stream(Stream<'a>),
    Held(Held<'a>),
    Asked { name: &'a str, call: Cow<'a, str> },
    Part(PartSaid<'a>),
    Placed(Placed<'a>),
    Chunk(Chunk),
    Evicted { bytes: u64 },
    Used(&'a Verdict),
    Moved { bytes: u64 },
    Cores { needed: u32 },
    Phase(Phase<'a>),
    Drained { name: &'a str, bytes: u64, last: f64 },
    Fed { name: &'a str, bytes: u64, last: Option<f64>, stalled: bool, waits: Option<WaitsFor> },
    Gate { waits: bool },
    Warning(Warning<'a>),
    Exit(Exit),
}

/// For whom or what a stream waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// The command has taken all that there is.
    Producer,
    /// The command has not taken what it was given.
    Reader,
    /// The command has not opened it.
    Opening,
    /// It was fed as fast as it may be.
    Rate,
}

/// The command runs; or a reader has its file.
#[derive(Debug, Serialize)]
pub struct Started {
    pub pid: i32,
    pub command_pid: i32,
    /// Of a reader: the bytes of its file that are in the page cache; None: that is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached: Option<u64>,
}

/// A byte stream has ended: the times of its first and its last byte, and what is still to be compared with the file.
#[derive(Debug, Serialize)]
pub struct Stream<'a> {
    pub name: &'a str,
    pub id: &'a str,
    pub bytes: u64,
    pub seconds: f64,
    pub first: f64,
    pub last: f64,
    /// For so many seconds the reader had been given all that there was.
    pub waited: f64,
    /// For so many it had not taken what it was given.
    pub behind: f64,
    /// So many bytes there were at most that it had not been given; none: over a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<StreamPart<'a>>,
}

#[derive(Debug, Serialize)]
pub struct StreamPart<'a> {
    pub path: ByteString<&'a Path>,
    #[serde(flatten)]
    pub part: Part,
}

/// A stream under the net ends: for this call, after so many bytes, the command gets the file.
#[derive(Debug, Serialize)]
pub struct Held<'a> {
    pub name: &'a str,
    pub call: Cow<'a, str>,
    pub bytes: u64,
}

/// A split has said where a part is.
#[derive(Debug, Serialize)]
pub struct PartSaid<'a> {
    pub port: &'a str,
    pub number: u64,
    pub name: ByteString<&'a OsStr>,
    pub size: u64,
    /// The file that is cut.
    pub path: ByteString<&'a Path>,
    pub identity: &'a Identity,
    pub pieces: &'a [Piece],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<verify::Digest>,
}

/// What has grown, from its first byte to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// From 0.
    pub number: u64,
    pub start: Duration,
    pub last: Duration,
    pub bytes: u64,
    /// The size at its end.
    pub end: u64,
}

/// A burst has ended, of a file that grows.
#[derive(Debug, Serialize)]
pub struct Phase<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<ByteString<&'a Path>>,
    pub number: u64,
    /// When its first byte was there, and its last one.
    pub start: f64,
    pub last: f64,
    pub bytes: u64,
    /// Bytes of the file at its end.
    pub end: u64,
}

/// How a file was read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Of the input that the file is, or is in.
    pub name: String,
    #[serde(with = "bytes")]
    pub path: PathBuf,
    /// Openings for reading.
    pub opens: u32,
    /// It was read from front to back only, in order.
    pub sequential: bool,
    /// Why not, if it was not.
    pub reasons: Vec<&'static str>,
    /// Seconds since the epoch, of the first and the last opening.
    pub first: f64,
    pub last: f64,
    /// When it was first opened, or asked for more than its data by its path.
    pub touched: f64,
    /// When it was last seen to be read; it was not read later. None: nobody has looked.
    pub read: Option<f64>,
    /// Then the job had not written anything yet.
    pub whole: bool,
    /// It is a directory.
    pub directory: bool,
}

/// A part is there as a file.
#[derive(Debug, Serialize)]
pub struct Placed<'a> {
    pub name: &'a str,
    pub bytes: u64,
    /// `memory` or `disk`.
    #[serde(rename = "where")]
    pub place: &'a str,
    pub seconds: f64,
}

/// A chunk of a file was brought into the page cache.
#[derive(Debug, Default, Serialize)]
pub struct Chunk {
    pub chunk: u64,
    pub bytes: u64,
    /// Those that were there before, and are there now; None: that is not told.
    pub cached: Option<u64>,
    pub resident: Option<u64>,
    pub seconds: f64,
    /// Calls that have read.
    pub requests: u64,
}

#[derive(Debug, Serialize)]
pub struct Warning<'a> {
    message: Cow<'a, str>,
    #[serde(flatten)]
    about: Option<About<'a>>,
}

/// The input that a warning is about.
#[derive(Debug, Serialize)]
struct About<'a> {
    input: &'a str,
    port: &'a str,
}

/// Why a job has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "lowercase")]
pub enum Reason {
    /// The command has ended by itself.
    Exited,
    /// By its driver, or by a signal.
    Cancelled,
    /// The producer of an input has failed.
    Producer { input: String },
    /// An input was changed after it was read.
    Rewritten { input: String },
    /// It has to start again with the file of an input that was a stream.
    Unstreamable { input: String },
    /// It has to start again with the file of an input, which has more bytes than it may get as a stream.
    Outgrown { input: String },
    /// It has had all the time that it was given.
    Overtime,
    /// Too little space was left for others.
    Space,
    /// Its driver is gone.
    Driver,
    /// Its `exec` was killed.
    Lost,
    /// It could not be run, or watched.
    #[default]
    Error,
}

#[derive(Debug, Default, Serialize)]
pub struct Exit {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub success: bool,
    #[serde(flatten)]
    pub reason: Reason,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub started: Option<f64>,
    pub ended: f64,
    pub usage: Usage,
}

#[derive(Debug, Default, Serialize)]
pub struct Usage {
    pub rchar: u64,
    pub wchar: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub user: f64,
    pub system: f64,
    pub max_rss: u64,
    pub streamed: u64,
    /// Bytes of parts; None where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u64>,
    pub wrapper_cpu: f64,
    /// Seconds; None where it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<f64>,
    /// Seconds for which it has waited at a gate; None where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<f64>,
    /// None where the job has no limit.
    #[serde(flatten)]
    pub paused: Option<Paused>,
}

/// How a job was kept to its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Paused {
    /// Seconds.
    pub paused: f64,
    pub pauses: u64,
    /// The most bytes that were moved before their time.
    pub ahead: u64,
}

/// The name of the commit of a file in a directory. There may be many, and `serve` does not pass them on.
pub const ENTRY: &str = "entry";

/// What a reader needs of an event that somebody else has written.
#[derive(Debug, Deserialize)]
pub struct Seen {
    pub event: String,
    pub port: Option<String>,
    #[serde(default, deserialize_with = "optional_path")]
    pub path: Option<PathBuf>,
    pub size: Option<u64>,
    pub closes: Option<u32>,
    #[serde(default)]
    pub success: bool,
    pub pid: Option<i32>,
    job: Option<IgnoredAny>,
}

impl Seen {
    /// Reads a line; None when it is no event.
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// It names a job, as `serve` does when it passes an event on, and `exec` never.
    pub fn names_job(&self) -> bool {
        self.job.is_some()
    }
}

impl<'a> Phase<'a> {
    /// # Arguments
    /// * `epoch` - when its clock has begun, in seconds since the epoch
    /// * `file` - which one, of which output; None: the job has written, wherever
    pub fn of(burst: &Burst, epoch: f64, file: Option<(&'a str, &'a Path)>) -> Self {
        let Burst { number, start, last, bytes, end } = *burst;
        let [start, last] = [start, last].map(|time| epoch + time.as_secs_f64());
        let (port, path) = file.unzip();
        Self { port, path: path.map(ByteString), number, start, last, bytes, end }
    }
}

/// Seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl<'a> Event<'a> {
    pub fn warning(message: impl Into<Cow<'a, str>>, input: Option<&'a Input>) -> Self {
        let about = input.map(|Input { name, port, .. }| About { input: name, port });
        Self::Warning(Warning { message: message.into(), about })
    }

    /// The event's line, with its newline.
    pub fn line(&self) -> String {
        #[derive(Serialize)]
        struct Line<'a> {
            #[serde(flatten)]
            event: &'a Event<'a>,
            time: f64,
        }
        json::write(&Line { event: self, time: now() }) + "\n"
    }
}

/// The open `events.jsonl` of a job. That it is open for writing, and locked, says that the job's `exec` lives.
///
/// The job, which has the same user, can write into it, too. That cannot be prevented, but it is seen.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: Flock<File>,
    /// What was written here: so many bytes, with this hash.
    written: u64,
    hash: Sha256,
}

/// Why a job fails in whose events others have written.
pub const FOREIGN: &str = "a program other than sfio-node has changed its events";

impl EventLog {
    /// # Errors
    /// When it cannot be opened, or has events: then the job was started before, or somebody else has written them.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        // RUN/jobs, which `serve` has made; that of the job may be anybody's.
        let _ = path.ancestors().nth(2).map(|jobs| ownership::share(path, jobs));
        let file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        if file.metadata()?.len() > 0 {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "it has events already"));
        }
        Ok(Self { path: path.to_owned(), file, written: 0, hash: Sha256::new() })
    }

    /// Appends events in one write, so that a reader never sees them torn for long.
    pub fn append(&mut self, events: &[Event]) -> io::Result<()> {
        let text: String = events.iter().map(Event::line).collect();
        if text.is_empty() {
            return Ok(());
        }
        self.file.write_all(text.as_bytes())?;
        self.written += text.len() as u64;
        self.hash.update(text.as_bytes());
        Ok(())
    }

    /// Whether all that is in the file, as far as its size says, was written here. Costs next to nothing.
    pub fn is_ours(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() == self.written && found.nlink() > 0)
    }

    /// Whether all that is in the file was written here, byte for byte, and those who look for it find this file.
    pub fn is_intact(&self) -> bool {
        let identity = |found: io::Result<fs::Metadata>| found.ok().as_ref().map(file_id_of);
        let same = identity(self.file.metadata()) == identity(fs::symlink_metadata(&self.path));
        same && self.is_ours() && self.read_back().is_ok_and(|hash| hash == self.hash.clone().finalize()[..])
    }

    fn read_back(&self) -> io::Result<Vec<u8>> {
        let (mut hash, mut buffer, mut at) = (Sha256::new(), [0; 1 << 14], 0);
        while at < self.written {
            let count = self.file.read_at(&mut buffer, at)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            hash.update(&buffer[..count]);
            at += count as u64;
        }
        Ok(hash.finalize().to_vec())
    }

    /// The last event. When this returns nobody writes any more.
    pub fn conclude(mut self, exit: Exit) -> io::Result<()> {
        let torn = self.file.metadata().is_ok_and(|found| {
            let mut last = [b'\n'];
            let end = found.len();
            end > 0 && self.file.read_at(&mut last, end - 1).is_ok() && last != [b'\n']
        });
        if torn {
            // What somebody else has left.
            self.file.write_all(b"\n")?;
        }
        self.append(&[Event::Exit(exit)])?;
        // Before it is closed: who hears of the close looks whether it is locked.
        self.file.unlock().map(drop).map_err(|(_, error)| error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let path = ByteString(Path::new("/o/a b\n"));
        let text = Event::Committed { port: "p", path, size: 3, at_end: true }.line();
        let expected = r#"{"event":"committed","port":"p","path":"/o/a b\n","size":3,"at_end":true,"time":"#;
        assert!(text.starts_with(expected), "{text}");
        let seen = Seen::parse(text.as_bytes()).unwrap();
        assert_eq!((seen.event.as_str(), seen.path, seen.size), ("committed", Some("/o/a b\n".into()), Some(3)));
        let text = Event::Changed { port: "p", path: ByteString(Path::new("/o/a")), how: "removed" }.line();
        assert!(text.starts_with(r#"{"event":"changed","port":"p","path":"/o/a","how":"removed","time":"#), "{text}");
        let text = Event::warning("m", None).line();
        assert!(text.starts_with(r#"{"event":"warning","message":"m","time":"#), "{text}");
        let mut verdict = Verdict {
            name: "r".into(),
            path: "/i/r".into(),
            opens: 2,
            sequential: false,
            reasons: vec!["mapped", "opened again"],
            first: 1.5,
            last: 2.0,
            touched: 1.0,
            read: None,
            whole: false,
            directory: false,
        };
        for (sequential, reasons) in [(false, r#"["mapped","opened again"]"#), (true, "[]")] {
            verdict.sequential = sequential;
            let text = Event::Used(&verdict).line();
            let start = format!(r#"{{"event":"used","name":"r","path":"/i/r","opens":2,"sequential":{sequential},"#);
            let read = verdict.read.map_or("null", |_| "4.5");
            let times =
                format!(r#""first":1.5,"last":2.0,"touched":1.0,"read":{read},"whole":false,"directory":false,"#);
            let expected = format!(r#"{start}"reasons":{reasons},{times}"time":"#);
            assert!(text.starts_with(&expected), "{text}");
            verdict.reasons.clear();
            verdict.read = Some(4.5);
        }
        let exit = Exit { code: Some(0), success: true, reason: Reason::Exited, ..Exit::default() };
        let text = Event::Exit(exit).line();
        let start = r#"{"event":"exit","code":0,"success":true,"reason":"exited","started":null,"ended":0.0,"usage":{"rchar":0,"#;
        assert!(text.starts_with(start), "{text}");
        let exit = Exit { reason: Reason::Rewritten { input: "r".into() }, ..Exit::default() };
        assert!(Event::Exit(exit).line().contains(r#""success":false,"reason":"rewritten","input":"r","started""#));
        assert!(Seen::parse(text.as_bytes()).is_some_and(|seen| seen.success && !seen.names_job()));
        assert!(Seen::parse(b"{\"event\":\"exit\",\"job\":\"b\"}").is_some_and(|seen| seen.names_job()));
    }

    #[test]
    fn what_others_write_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let log = |number: u32| {
            let path = directory.path().join(number.to_string());
            let mut log = EventLog::open(&path).unwrap();
            log.append(&[Event::Complete { port: "a", at_end: false }]).unwrap();
            log.append(&[Event::Complete { port: "b", at_end: false }]).unwrap();
            assert!(log.is_ours() && log.is_intact());
            (log, path)
        };
        let write = |path: &Path| OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
        let cut = |path: &Path| OpenOptions::new().write(true).open(path).unwrap().set_len(3).unwrap();
        let remove = |path: &Path| fs::remove_file(path).unwrap();
        let replace = |path: &Path| fs::rename(path, path.with_extension("x")).and(fs::write(path, "")).unwrap();
        let rewrite = |path: &Path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(b"X", 1).unwrap();
        };
        type Attack = (fn(&Path), bool);
        let attacks: [Attack; 5] = [(write, false), (cut, false), (remove, false), (replace, true), (rewrite, true)];
        for (number, (attack, same_size)) in (0..).zip(attacks) {
            let (log, path) = log(number);
            attack(&path);
            assert_eq!((log.is_ours(), log.is_intact()), (same_size, false), "{number}");
            assert!(log.conclude(Exit::default()).is_ok());
        }
        let (log, path) = log(9);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"event\"").unwrap();
        log.conclude(Exit::default()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().last().unwrap().starts_with("{\"event\":\"exit\""), "{text}");
        assert_eq!(EventLog::open(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
}
