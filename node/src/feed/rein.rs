//! A byte stream with a limit is fed a little at a time, so that the reader, and the link, see a steady stream.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use crate::pace::Pace;

/// So much is fed at once as it is in this time, within bounds.
const FED: Duration = Duration::from_millis(5);
const FED_AT_ONCE: [u64; 2] = [64 << 10, 1 << 20];

/// As good as for ever.
const LONGEST: Duration = Duration::from_secs(1 << 32);

/// When a stream may be fed again, and how much.
#[derive(Debug)]
pub struct Rein {
    pace: Pace,
    /// The first moment of its clock.
    began: Instant,
    /// At once.
    pub most: u64,
    pub until: Instant,
}

impl Rein {
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

/// What is fed at once.
fn at_once(rate: NonZeroU64) -> u64 {
    let bytes = u128::from(rate.get()) * FED.as_micros() / 1_000_000;
    let [least, most] = FED_AT_ONCE;
    u64::try_from(bytes).unwrap_or(u64::MAX).clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_much_at_once() {
        for (rate, fed) in [(1, 64 << 10), (50_000_000, 250_000), (u64::MAX, 1 << 20)] {
            let new = rate.try_into().unwrap();
            let mut changed = Rein::new(NonZeroU64::MIN);
            changed.change(new);
            assert_eq!((Rein::new(new).most, changed.most), (fed, fed), "{rate}");
        }
    }
}
