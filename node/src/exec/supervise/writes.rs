//! Finds the bursts in which a job writes, by the counters of its processes.

use std::path::Path;
use std::time::Duration;

use super::bursts::{Bursts, LOOK};
use crate::processes::io_counters::Moved;
use crate::processes::tree::Process;
use crate::processes::usage::thread_cpu;
use crate::protocol::event::Burst;
use crate::protocol::job::Direction;

/// Looks become less frequent if they would take more than one part in this many of the time.
const THRIFT: u32 = 100;

/// Measures what a job writes. Times are durations since any fixed moment.
pub struct Writes {
    moved: Moved,
    bursts: Bursts,
    written: u64,
    due: Duration,
    /// When the share of the looks so far has fallen to one part in `THRIFT`.
    thrift: Duration,
}

impl Writes {
    /// # Arguments
    /// * `path` - any path on the storage
    pub fn new(path: &Path, now: Duration) -> Self {
        let moved = Moved::new(Direction::Write, path);
        Self { moved, bursts: Bursts::default(), written: 0, due: now + LOOK, thrift: now }
    }

    /// Returns when to look next.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Measures what the job has written, and returns the burst that has ended by now, if any.
    ///
    /// # Arguments
    /// * `look` - returns all processes as they are now, each after its parent
    pub fn look(&mut self, now: Duration, look: impl FnOnce() -> Vec<Process>) -> Option<Burst> {
        let before = thread_cpu();
        match self.moved.look(&look()) {
            Ok(written) => self.written = written.unwrap_or(self.written),
            // The processes may not be examined: what they write from now on is unknown.
            Err(_) => self.thrift = Duration::MAX,
        }
        self.thrift = self.thrift.saturating_add(thread_cpu().saturating_sub(before) * THRIFT);
        self.due = self.thrift.max(now + LOOK);
        self.bursts.look(self.written, now)
    }

    /// Returns the burst that is still open at the end of the job. Bytes written since the last look are unknown.
    pub fn end(&mut self, now: Duration) -> Option<Burst> {
        self.bursts.end(self.written, now)
    }
}
