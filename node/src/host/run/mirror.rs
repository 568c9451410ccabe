//! The events of a job on this machine, written once more where the driver reads them.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::protocol::event::{Event, ExitEvent, Seen, FOREIGN};
use crate::sys::remote_file;
use crate::sys::tail::Follower;

/// How long the last events may fail to be written.
const LAST_WORDS: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// Each line appears there once, in order and complete, and none after an `exit`.
#[derive(Debug)]
pub struct Mirror {
    path: PathBuf,
    shared: File,
    /// Bytes that were written there.
    written: u64,
    source: Option<Follower>,
    /// Lines that are not written yet; the first may be written in part.
    unwritten: Vec<u8>,
    /// A line that is the last one if the job has ended and nothing follows.
    exit: Option<Vec<u8>>,
    started: bool,
    ended: bool,
    failure: Option<String>,
    /// The failure is for ever.
    broken: bool,
}

impl Mirror {
    /// Creates the events in the shared run directory, which says that the job has been started.
    ///
    /// # Errors
    /// When it cannot be made, or has events: a queue manager that starts a job again does not do so with its streams.
    pub fn create(path: &Path) -> io::Result<Self> {
        let shared = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        if shared.metadata()?.len() > 0 {
            return Err(io::Error::new(
                ErrorKind::AlreadyExists,
                "it was started before, and can be started only once",
            ));
        }
        Ok(Self {
            path: path.to_owned(),
            shared,
            written: 0,
            source: None,
            unwritten: Vec::new(),
            exit: None,
            started: false,
            ended: false,
            failure: None,
            broken: false,
        })
    }

    /// Says where the events come from; the file need not exist yet.
    pub fn follow(&mut self, events: &Path) {
        self.source = Some(Follower::new(events.to_owned()));
    }

    /// The command runs, or has been given up.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Why events are missing in the shared run directory.
    pub fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// Writes what has happened since the last call.
    pub fn pass_on(&mut self) {
        while let Some(lines) = self.source.as_mut().and_then(Follower::lines) {
            lines.iter().for_each(|line| self.take(line));
            self.write();
        }
        self.write();
    }

    /// The `exec` of the job has ended: writes what is left, its `exit` if there is one.
    pub fn settle(&mut self) {
        self.pass_on();
        if let Some(line) = self.exit.take() {
            self.add(&line);
            self.ended = true;
            self.write();
        }
    }

    /// The job has ended: writes what is left, and `exit` if the job has none.
    pub fn conclude(&mut self, exit: ExitEvent) {
        self.settle();
        if !self.ended {
            self.add(Event::Exit(exit).line().trim_end().as_bytes());
            (self.started, self.ended) = (true, true);
        }
        self.write();
        let deadline = Instant::now() + LAST_WORDS;
        while self.failure.is_some() && !self.broken && self.path.exists() && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
            self.write();
        }
    }

    fn take(&mut self, line: &[u8]) {
        if self.ended {
            return;
        }
        let event = Seen::parse(line).map(|seen| seen.event);
        // Another process has written an `exit` after which a line comes.
        self.exit = None;
        self.started |= matches!(event.as_deref(), Some("started" | "exit"));
        if event.as_deref() == Some("exit") {
            self.exit = Some(line.to_vec());
        } else {
            self.add(line);
        }
    }

    fn add(&mut self, line: &[u8]) {
        self.unwritten.extend(line);
        self.unwritten.push(b'\n');
    }

    fn write(&mut self) {
        if self.unwritten.is_empty() || self.broken {
            return;
        }
        if self.shared.metadata().is_ok_and(|found| found.len() != self.written) {
            self.failure = Some(format!("{}: {FOREIGN}", self.path.display()));
            self.broken = true;
            return;
        }
        self.failure = self.append().err().map(|error| format!("{}: {error}", self.path.display()));
        if self.unwritten.is_empty() && self.failure.is_some() {
            // What was lost on the way is unknown, and nothing may follow a gap.
            self.broken = true;
        }
    }

    fn append(&mut self) -> io::Result<()> {
        while !self.unwritten.is_empty() {
            match self.shared.write(&self.unwritten) {
                Ok(count) => {
                    self.unwritten.drain(..count);
                    self.written += count as u64;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        remote_file::publish(&self.shared)
    }
}
