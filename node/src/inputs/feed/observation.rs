//! The times of a stream: when its bytes moved, how far it is, and how long reader and bytes have waited for each
//! other.

use std::time::{Duration, Instant};

use super::progress::{Progress, State};
use super::stalls::Stalls;
use crate::protocol::event::{now, StreamWait};

/// The shortest time between two events that all was fed.
const BETWEEN: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub struct Observation {
    /// When the first and the last bytes moved, in seconds since 1970.
    moved: Option<(f64, f64)>,
    /// Bytes that were told when all was fed, and the moment when that may be told again.
    drained: (u64, Option<Instant>),
    progress: Progress,
    pub stalls: Stalls,
}

impl Observation {
    pub fn new() -> Self {
        let time = Instant::now();
        Self { moved: None, drained: (0, None), progress: Progress::new(time), stalls: Stalls::new(time) }
    }

    /// Bytes have moved now.
    pub fn moved(&mut self) {
        let time = now();
        self.moved = Some((self.moved.map_or(time, |(first, _)| first), time));
    }

    /// When the first and the last bytes moved.
    pub fn times(&self) -> Option<(f64, f64)> {
        self.moved
    }

    /// The moment when it may be told that all `bytes` were fed. None: at once, or that is told already.
    pub fn drained_due(&self, bytes: u64) -> Option<Instant> {
        self.drained.1.filter(|_| bytes > self.drained.0)
    }

    /// Whether it is to be told now that all `bytes` were fed.
    ///
    /// # Arguments
    /// * `complete` - nothing more will be fed
    pub fn drained(&mut self, bytes: u64, complete: bool) -> bool {
        let time = Instant::now();
        let early = !complete && self.drained.1.is_some_and(|next| time < next);
        if early || bytes <= self.drained.0 {
            return false;
        }
        self.drained = (bytes, Some(time + BETWEEN));
        true
    }

    /// How far the stream is, when that is to be told.
    pub fn progress(&mut self, bytes: u64, waits: Option<StreamWait>) -> Option<State> {
        self.progress.tell(Instant::now(), bytes, waits)
    }
}
