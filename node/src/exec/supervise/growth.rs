//! Finds the bursts in which files grow that other jobs read meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bursts::{Bursts, LOOK};
use crate::protocol::event::Burst;
use crate::protocol::event::{now, Event, PhaseEvent};
use crate::protocol::job::Output;

/// The most files that are watched. More would take time that the job needs.
const MOST: usize = 64;

/// Watches files grow. Times are those of the job's clock.
pub struct Growth<'a> {
    outputs: &'a [Output],
    /// Files by output and path, until they are committed.
    files: BTreeMap<(usize, PathBuf), Bursts>,
    looked: Duration,
}

/// A burst of a file that has ended.
pub struct Ended {
    output: usize,
    path: PathBuf,
    burst: Burst,
    epoch: f64,
}

impl<'a> Growth<'a> {
    pub fn new(outputs: &'a [Output]) -> Self {
        Self { outputs, files: BTreeMap::new(), looked: Duration::ZERO }
    }

    /// Returns when to look next, or None without files.
    pub fn due(&self) -> Option<Duration> {
        (!self.files.is_empty()).then_some(self.looked + LOOK)
    }

    /// Adds a file that exists now.
    pub fn opened(&mut self, output: usize, path: &Path, now: Duration) {
        if self.outputs[output].phases && self.files.len() < MOST {
            let bursts = self.files.entry((output, path.to_owned())).or_default();
            bursts.look(size(path).unwrap_or(0), now);
        }
    }

    /// Removes a file that will not grow any more, and returns its last burst.
    pub fn committed(&mut self, output: usize, path: &Path, now: Duration) -> Option<Ended> {
        let mut bursts = self.files.remove(&(output, path.to_owned()))?;
        let burst = bursts.end(size(path)?, now)?;
        Some(Ended::new(output, path.to_owned(), burst, now))
    }

    /// Looks at all files, and returns the bursts that have ended.
    pub fn look(&mut self, now: Duration) -> Vec<Ended> {
        self.looked = now;
        let mut ended = Vec::new();
        self.files.retain(|(output, path), bursts| {
            let Some(size) = size(path) else { return false };
            ended.extend(bursts.look(size, now).map(|burst| Ended::new(*output, path.clone(), burst, now)));
            true
        });
        ended
    }
}

impl Ended {
    fn new(output: usize, path: PathBuf, burst: Burst, clock: Duration) -> Self {
        Self { output, path, burst, epoch: epoch(clock) }
    }

    pub fn event<'e>(&'e self, outputs: &'e [Output]) -> Event<'e> {
        let file = (outputs[self.output].port.as_str(), self.path.as_path());
        Event::Phase(PhaseEvent::of(&self.burst, self.epoch, Some(file)))
    }
}

/// Returns when the clock began that shows `clock` now, in seconds since the epoch.
pub fn epoch(clock: Duration) -> f64 {
    now() - clock.as_secs_f64()
}

/// Returns the size of a file, or None if the file is gone.
fn size(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|file| file.len())
}
