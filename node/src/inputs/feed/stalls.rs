//! How long reader and bytes have waited for each other, while a stream was fed.
//!
//! A reader that has taken all bytes waits for more, or works on them. Only a look at its processes tells which. The
//! looks take a small part of the time at most.

use std::time::{Duration, Instant};

use crate::protocol::event::StreamWait;

/// A reader that has taken all is looked at after so long, and then after twice the time each time.
const SOONEST: Duration = Duration::from_millis(10);
pub const LATEST: Duration = Duration::from_millis(250);
/// Looks are less frequent where they would take more than one part in `THRIFT` of the time.
const THRIFT: u32 = 200;

/// The occupation of a reader that has taken all bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The reader waits for more.
    Waits,
    Works,
    /// The reader cannot be seen.
    Unseen,
}

/// A time in which a reader had taken all that there was.
#[derive(Debug)]
struct Drought {
    /// The occupation of the reader at the last look.
    doing: Option<Doing>,
    /// The time since then.
    open: Duration,
    due: Instant,
    pause: Duration,
}

#[derive(Debug)]
pub struct Stalls {
    /// Until this moment the waiting is accounted for.
    since: Instant,
    /// The reader, for more bytes: it had taken all that there was.
    pub reader: Duration,
    /// Bytes, for the reader: it had not taken what it was given before.
    pub bytes: Duration,
    drought: Option<Drought>,
    /// The earliest moment of the next look, by the cost of the last one.
    rests: Instant,
}

impl Stalls {
    pub fn new(now: Instant) -> Self {
        Self { since: now, reader: Duration::ZERO, bytes: Duration::ZERO, drought: None, rests: now }
    }

    /// Accounts the time until now to the side that was waited for.
    pub fn wait(&mut self, waits: Option<StreamWait>, now: Instant) {
        let passed = now.saturating_duration_since(std::mem::replace(&mut self.since, now));
        if waits != Some(StreamWait::Producer) {
            self.end();
        }
        match waits {
            Some(StreamWait::Producer) => {
                let due = now.checked_sub(passed).unwrap_or(now) + SOONEST;
                let new = || Drought { doing: None, open: Duration::ZERO, due, pause: SOONEST };
                self.drought.get_or_insert_with(new).open += passed;
            }
            Some(StreamWait::Reader) => self.bytes += passed,
            Some(StreamWait::Opening) | None => {}
        }
    }

    /// The stream was fed until now.
    ///
    /// # Arguments
    /// * `something` - whether bytes were fed
    pub fn fed(&mut self, something: bool, now: Instant) {
        self.since = now;
        if something {
            self.end();
        }
    }

    /// When to look at the reader. A reader that is known to wait, or has bytes left, needs no look.
    pub fn due(&self) -> Option<Instant> {
        let drought = self.drought.as_ref().filter(|drought| !matches!(drought.doing, Some(Doing::Waits)))?;
        Some(drought.due.max(self.rests))
    }

    /// Whether the reader has taken all bytes and asks for more, as far as can be seen.
    pub fn is_asked(&self) -> bool {
        matches!(self.drought, Some(Drought { doing: Some(Doing::Waits | Doing::Unseen), .. }))
    }

    /// The reader was looked at, at some cost.
    pub fn looked(&mut self, doing: Doing, now: Instant, cost: Duration) {
        self.rests = now + cost * THRIFT;
        let Some(drought) = &mut self.drought else { return };
        let open = std::mem::take(&mut drought.open);
        self.reader += match (drought.doing, doing) {
            (_, Doing::Works) => Duration::ZERO,
            // The reader has begun to wait in between.
            (Some(Doing::Works), _) => open / 2,
            _ => open,
        };
        drought.doing = Some(doing);
        drought.pause = (drought.pause * 2).min(LATEST);
        drought.due = now + drought.pause;
    }

    /// There is something for it again, or nothing any more.
    pub fn end(&mut self) {
        let Some(drought) = self.drought.take() else { return };
        self.reader += if drought.doing == Some(Doing::Works) { drought.open / 2 } else { drought.open };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_micros(50);

    struct Bench {
        now: Instant,
        stalls: Stalls,
    }

    impl Bench {
        fn new() -> Self {
            let now = Instant::now();
            Self { now, stalls: Stalls::new(now) }
        }

        fn pass(&mut self, milliseconds: u64, waits: StreamWait) {
            self.now += Duration::from_millis(milliseconds);
            self.stalls.wait(Some(waits), self.now);
            self.stalls.fed(false, self.now);
        }

        fn look(&mut self, doing: Doing) {
            self.stalls.looked(doing, self.now, COST);
        }

        fn due(&self) -> Option<u128> {
            self.stalls.due().map(|due| due.saturating_duration_since(self.now).as_millis())
        }

        fn waited(&self) -> u128 {
            self.stalls.reader.as_millis()
        }
    }

    #[test]
    fn who_works_on_what_it_has_does_not_wait() {
        let mut bench = Bench::new();
        bench.pass(10, StreamWait::Producer);
        assert_eq!(bench.due(), Some(0));
        bench.look(Doing::Works);
        assert_eq!(bench.due(), Some(20));
        bench.pass(20, StreamWait::Producer);
        bench.look(Doing::Works);
        bench.pass(40, StreamWait::Producer);
        bench.look(Doing::Waits);
        assert_eq!((bench.waited(), bench.due()), (20, None));
        bench.pass(300, StreamWait::Producer);
        bench.stalls.fed(true, bench.now);
        assert_eq!(bench.waited(), 320);
    }

    #[test]
    fn who_is_not_seen_waits() {
        let mut bench = Bench::new();
        bench.pass(10, StreamWait::Producer);
        bench.look(Doing::Unseen);
        bench.pass(90, StreamWait::Producer);
        bench.look(Doing::Unseen);
        bench.pass(5, StreamWait::Producer);
        bench.stalls.end();
        assert_eq!(bench.waited(), 105);
    }

    #[test]
    fn a_short_time_counts_without_a_look() {
        let mut bench = Bench::new();
        for _ in 0..10 {
            bench.pass(4, StreamWait::Producer);
            bench.stalls.fed(true, bench.now);
            assert_eq!(bench.due(), None);
        }
        bench.pass(7, StreamWait::Reader);
        bench.pass(7, StreamWait::Opening);
        assert_eq!((bench.waited(), bench.stalls.bytes.as_millis()), (40, 7));
    }

    #[test]
    fn what_costs_much_is_done_seldom() {
        let mut bench = Bench::new();
        bench.pass(10, StreamWait::Producer);
        bench.stalls.looked(Doing::Works, bench.now, Duration::from_millis(5));
        assert_eq!(bench.due(), Some(1000));
        bench.pass(100, StreamWait::Producer);
        bench.stalls.fed(true, bench.now);
        // The reader was last seen at work: half of the time counts as waiting.
        assert_eq!(bench.waited(), 50);
        bench.pass(10, StreamWait::Producer);
        assert_eq!(bench.due(), Some(890));
    }
}
