//! A byte stream with a limit is fed a little at a time, so that the reader, and the link, see a steady stream.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use crate::limits::pace::{at_once, Pace};

/// As good as for ever.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// When a stream may be fed again, and how much.
#[derive(Debug)]
pub struct Limiter {
    pace: Pace,
    /// The first moment of its clock.
    began: Instant,
    /// At once.
    pub most: u64,
    pub until: Instant,
}

impl Limiter {
    /// # Arguments
    /// * `rate` - bytes per second
    pub fn new(rate: NonZeroU64) -> Self {
        let began = Instant::now();
        Self { pace: Pace::new(rate, Duration::ZERO), began, most: at_once(rate), until: began }
    }

    /// Feeds at another rate from now on.
    pub fn change(&mut self, rate: NonZeroU64) {
        self.pace.change(rate, self.began.elapsed());
        self.most = at_once(rate);
        self.fed(0);
    }

    pub fn fed(&mut self, bytes: u64) {
        let now = Instant::now();
        self.until = now + self.pace.moved(bytes, now - self.began).min(LONGEST);
    }

    /// There was nothing to feed, or nobody who reads.
    pub fn idle(&mut self) {
        self.pace.idle(self.began.elapsed());
    }
}
