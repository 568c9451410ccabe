//! How far a stream is, told while it goes on.

use std::time::{Duration, Instant};

use crate::event::WaitsFor;

/// It is told no sooner after it was told before.
const BETWEEN: Duration = Duration::from_secs(1);

/// What was told last.
#[derive(Debug)]
pub struct Progress {
    time: Instant,
    what: (u64, Option<WaitsFor>),
}

impl Progress {
    pub fn new(now: Instant) -> Self {
        Self { time: now, what: (0, None) }
    }

    pub fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.time) >= BETWEEN
    }

    /// Whether there is something to tell, which then is told.
    pub fn tell(&mut self, now: Instant, bytes: u64, waits: Option<WaitsFor>) -> bool {
        let is_new = self.is_due(now) && self.what != (bytes, waits);
        if is_new {
            *self = Self { time: now, what: (bytes, waits) };
        }
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_once_a_second_and_only_what_is_new() {
        let start = Instant::now();
        let at = |milliseconds| start + Duration::from_millis(milliseconds);
        let mut progress = Progress::new(start);
        assert!(!progress.tell(at(900), 5, None));
        assert!(progress.tell(at(1000), 5, Some(WaitsFor::Producer)));
        assert!(!progress.tell(at(1900), 6, Some(WaitsFor::Producer)));
        assert!(!progress.tell(at(5000), 5, Some(WaitsFor::Producer)));
        assert!(progress.tell(at(5100), 5, Some(WaitsFor::Reader)));
    }
}
