//! The orders and the signs of life of the driver, in the shared run directory.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::protocol::limit_file::LIMIT;
use crate::sys::remote_file;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverState {
    Lives,
    Cancels,
    /// The driver has ended, or nothing has been heard of it for too long.
    Gone,
}

#[derive(Debug)]
pub struct Driver {
    job: PathBuf,
    heartbeat: PathBuf,
    heartbeats: Heartbeats,
    /// The content of the limit file at the last look.
    limits: Vec<u8>,
    clock: Instant,
}

/// The heartbeats that were seen.
#[derive(Debug)]
struct Heartbeats {
    patience: Duration,
    last: Option<(Vec<u8>, Duration)>,
}

impl Heartbeats {
    /// Whether there is one. Without any heartbeat nothing is known, and the driver may live.
    fn is_there(&mut self, heartbeat: Option<Vec<u8>>, now: Duration) -> bool {
        match (&self.last, heartbeat) {
            (Some((last, since)), heartbeat) if heartbeat.as_ref().is_none_or(|new| new == last) => {
                now < *since + self.patience
            }
            (_, Some(new)) => {
                self.last = Some((new, now));
                true
            }
            (_, None) => true,
        }
    }
}

impl Driver {
    /// # Arguments
    /// * `job` - RUN/jobs/ID
    pub fn new(job: &Path, patience: Duration) -> Self {
        let heartbeat = job.ancestors().nth(2).unwrap_or(job).join("heartbeat");
        let heartbeats = Heartbeats { patience, last: None };
        Self { job: job.to_owned(), heartbeat, heartbeats, limits: Vec::new(), clock: Instant::now() }
    }

    /// The limits of the job, if they are others than at the last look.
    pub fn limits(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        remote_file::open(&self.job.join(LIMIT)).and_then(|mut file| file.read_to_end(&mut text)).ok()?;
        (text != self.limits).then(|| {
            self.limits.clone_from(&text);
            text
        })
    }

    pub fn look(&mut self) -> DriverState {
        if remote_file::is_missing(&self.job)
            || !self.heartbeats.is_there(fs::read(&self.heartbeat).ok(), self.clock.elapsed())
        {
            DriverState::Gone
        } else if remote_file::exists(&self.job.join("cancel")) {
            DriverState::Cancels
        } else {
            DriverState::Lives
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_has_to_change() {
        let mut heartbeats = Heartbeats { patience: Duration::from_secs(60), last: None };
        let mut at = |seconds, beat: Option<&str>| {
            heartbeats.is_there(beat.map(|beat| beat.into()), Duration::from_secs(seconds))
        };
        for (seconds, beat, expected) in [
            (0, None, true),
            (500, None, true),
            (501, Some("7"), true),
            (560, Some("7"), true),
            (561, Some("7"), false),
            (562, None, false),
            // Here it was the job that stood still, and the driver goes on.
            (563, Some("1"), true),
            (622, None, true),
            (623, None, false),
        ] {
            assert_eq!(at(seconds, beat), expected, "{seconds}");
        }
    }
}
