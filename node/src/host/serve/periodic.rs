//! Actions that are repeated while a connection lives.

use std::time::{Duration, Instant};

/// How often both sides of a connection are told that it is there, and what is printed then.
pub const ALIVE: Duration = Duration::from_secs(15);
pub const ALIVE_LINE: &str = "{\"event\":\"alive\"}\n";

/// Something that is due again and again.
#[derive(Debug)]
pub struct Periodic {
    period: Duration,
    pub due: Instant,
}

impl Periodic {
    pub fn new(period: Duration, due: Instant) -> Self {
        Self { period, due }
    }

    /// Whether it is due, which is asked once.
    pub fn take(&mut self, now: Instant) -> bool {
        let due = now >= self.due;
        if due {
            self.due = now + self.period;
        }
        due
    }
}
