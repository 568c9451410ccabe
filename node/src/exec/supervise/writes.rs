//! In which bursts a job writes itself, by the counters of its processes.

use std::path::Path;
use std::time::Duration;

use super::bursts::{Bursts, LOOK};
use crate::processes::io_counters::Moved;
use crate::processes::tree::Process;
use crate::processes::usage::thread_cpu;
use crate::protocol::event::Burst;
use crate::protocol::job::Direction;

/// It is looked at less often where that would have taken more than one part of so many of the time.
const THRIFT: u32 = 100;

/// Times are durations since any fixed moment.
pub struct Writes {
    moved: Moved,
    bursts: Bursts,
    written: u64,
    due: Duration,
    /// When all looks so far have taken their part of the time.
    thrift: Duration,
}

impl Writes {
    /// # Arguments
    /// * `path` - on the storage
    pub fn new(path: &Path, now: Duration) -> Self {
        let moved = Moved::new(Direction::Write, path);
        Self { moved, bursts: Bursts::default(), written: 0, due: now + LOOK, thrift: now }
    }

    /// When to look next.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Looks what the job has written.
    ///
    /// # Arguments
    /// * `look` - gives all processes as they are now, each after its parent
    pub fn look(&mut self, now: Duration, look: impl FnOnce() -> Vec<Process>) -> Option<Burst> {
        let before = thread_cpu();
        match self.moved.look(&look()) {
            Ok(written) => self.written = written.unwrap_or(self.written),
            // They may not be looked into: it is not known what is written from now on.
            Err(_) => self.thrift = Duration::MAX,
        }
        self.thrift = self.thrift.saturating_add(thread_cpu().saturating_sub(before) * THRIFT);
        self.due = self.thrift.max(now + LOOK);
        self.bursts.look(self.written, now)
    }

    /// The job has ended: the burst that it was in. What it has written since the last look is not known.
    pub fn end(&mut self, now: Duration) -> Option<Burst> {
        self.bursts.end(self.written, now)
    }
}
