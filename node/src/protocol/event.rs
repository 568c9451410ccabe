//! The lines of `events.jsonl`, which tell what has happened.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::protocol::job::Input;
use crate::protocol::json::{self, optional_path, ByteString};
pub use crate::protocol::messages::{
    AskedEvent, Change, ChangedEvent, ChunkEvent, ClosedEvent, CommittedEvent, CompleteEvent, CoresEvent, EntryEvent,
    Event, EvictedEvent, ExitEvent, FedEvent, FirstBytes, GateEvent, HeldEvent, MovedEvent, OpenedEvent, PartEvent,
    PhaseEvent, Reason, StartedEvent, StreamEvent, StreamPart, StreamWait, Usage, UsedEvent, WarningEvent,
};
use crate::sys::file_id::file_id_of;
use crate::sys::{ownership, write_lock};

/// A burst of writes, from its first byte to its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    pub start: Duration,
    pub last: Duration,
    pub bytes: u64,
}

/// How a job was kept to its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Paused {
    /// Seconds.
    pub paused: f64,
    pub pauses: u64,
}

/// The name of the commit of a file in a directory. There may be many, and `serve` does not pass them on.
pub const ENTRY: &str = "entry";

/// The fields that a reader needs of an event of another process.
#[derive(Debug, Deserialize)]
pub struct Seen {
    pub event: String,
    pub port: Option<String>,
    #[serde(default, deserialize_with = "optional_path")]
    pub path: Option<PathBuf>,
    pub size: Option<u64>,
    pub closes: Option<u32>,
    pub discarded: Option<u64>,
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

    /// Whether the event names a job. `serve` adds the name when it passes an event on, and `exec` never does.
    pub fn names_job(&self) -> bool {
        self.job.is_some()
    }
}

impl<'a> StreamPart<'a> {
    /// The first bytes of the file `path`.
    pub fn of(path: &'a Path, first: FirstBytes) -> Self {
        Self { path: ByteString(path), first }
    }
}

impl PhaseEvent {
    /// # Arguments
    /// * `clock` - what the clock of the burst shows now
    pub fn of(burst: &Burst, clock: Duration) -> Self {
        let began = now() - clock.as_secs_f64();
        let [start, last] = [burst.start, burst.last].map(|time| began + time.as_secs_f64());
        Self { start, last, bytes: burst.bytes }
    }
}

/// Seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl<'a> Event<'a> {
    pub fn warning(message: impl Into<Cow<'a, str>>, input: Option<&'a Input>) -> Self {
        let (input, port) = input.map(|Input { name, port, .. }| (name.as_str(), port.as_str())).unzip();
        Self::Warning(WarningEvent { message: message.into(), input, port })
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
    file: File,
    /// The bytes that were written here, and their hash.
    written: u64,
    hash: Sha256,
}

/// Why a job fails in whose events others have written.
pub const FOREIGN: &str = "a program other than sfio-node has changed its events";

impl EventLog {
    /// # Errors
    /// When the file cannot be opened, or has events: of an earlier start, or of another process.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        // Before others can read the file, and lock it.
        if !write_lock::lock(&file)? || file.metadata()?.len() > 0 {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "it has events already"));
        }
        // `serve` has made RUN/jobs. Any user may have made the directory of the job.
        let _ = path.ancestors().nth(2).map(|jobs| ownership::share(path, jobs));
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

    /// Whether all bytes of the file were written here, and its path leads to this file.
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

    /// Writes the last event. No event follows.
    pub fn conclude(mut self, exit: ExitEvent) -> io::Result<()> {
        let torn = self.file.metadata().is_ok_and(|found| {
            let mut last = [b'\n'];
            let end = found.len();
            end > 0 && self.file.read_at(&mut last, end - 1).is_ok() && last != [b'\n']
        });
        if torn {
            // Another process has left a line without an end.
            self.file.write_all(b"\n")?;
        }
        self.append(&[Event::Exit(exit)])?;
        // Before the close: a process that hears of the close looks at the lock.
        Ok(write_lock::unlock(&self.file)?)
    }
}
