//! Follows a file of lines while it grows.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::sys::{remote_file, write_lock};

/// Bytes of lines that one call returns, roughly. Bounds the memory of a reader that begins late.
const AT_ONCE: usize = 1 << 18;
/// Longer lines are cut after about this many bytes. No event is as long.
const LONGEST: usize = 1 << 20;
/// Time between two requests to show what another machine has written.
const REFRESH: Duration = Duration::from_millis(90);

/// Returns each complete line once. Keeps the beginning of a line until its newline arrives. The file need not exist
/// yet.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
    torn: Vec<u8>,
    /// Bytes that were read.
    read: u64,
    refreshed: Option<Instant>,
}

impl Follower {
    pub fn new(path: PathBuf) -> Self {
        Self { path, file: None, torn: Vec::new(), read: 0, refreshed: None }
    }

    /// Returns lines, without their newlines, that were completed since the last call. None if there are no more for
    /// now.
    pub fn lines(&mut self) -> Option<Vec<Vec<u8>>> {
        if self.file.is_none() {
            self.file = remote_file::open(&self.path).ok();
        }
        let file = self.file.as_mut()?;
        let now = Instant::now();
        if self.refreshed.is_none_or(|last| now >= last + REFRESH) {
            remote_file::refresh(file, &self.path);
            self.refreshed = Some(now);
        }
        // `read_to_end` would ask for the size first. Bytes that were read before an error stay in `torn`.
        let mut buffer = [0; 1 << 14];
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            self.torn.extend(&buffer[..count]);
            self.read += count as u64;
            if count < buffer.len() || (self.torn.len() >= AT_ONCE && self.torn.contains(&b'\n')) {
                break;
            }
            self.torn.truncate(LONGEST);
        }
        let end = self.torn.iter().rposition(|byte| *byte == b'\n')?;
        let rest = self.torn.split_off(end + 1);
        let complete = std::mem::replace(&mut self.torn, rest);
        Some(complete[..end].split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
    }

    /// Whether the file has become shorter, which never happens to a file of events. Always false on the file system of
    /// another machine, whose sizes may be old.
    pub fn is_cut(&self) -> bool {
        let is_shorter = |file: &File| file.metadata().is_ok_and(|found| found.len() < self.read);
        self.file.as_ref().is_some_and(|file| is_shorter(file) && !remote_file::is_remembered(file))
    }

    /// Whether the writer of the file has locked it. None while the file is not open.
    pub fn is_locked(&self) -> Option<bool> {
        write_lock::is_locked(self.file.as_ref()?).ok()
    }

    /// Whether the file is still written, or is not there yet. See `is_written`.
    pub fn is_written(&self) -> bool {
        self.file.as_ref().is_none_or(is_written)
    }

    /// Whether the file ends inside a line.
    pub fn is_torn(&self) -> bool {
        !self.torn.is_empty()
    }
}

/// Whether the `exec` that writes these events is alive. `exec` locks the file before it writes the first event.
pub fn is_written(events: &File) -> bool {
    let is_empty = events.metadata().is_ok_and(|found| found.len() == 0);
    is_empty || write_lock::is_locked(events).unwrap_or(true)
}
