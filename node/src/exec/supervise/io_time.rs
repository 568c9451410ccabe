//! The time of a job in I/O, estimated from looks at single moments.
//!
//! The kernel has its own account (delay accounting), which is off unless the administrator turns it on. The account
//! leaves out waits for journals and for Lustre. The time of a process is lost when a parent within the job waits for
//! it.

use std::time::Duration;

use crate::processes::usage::THRIFT;

/// The longest mean time between two looks.
const LONGEST: Duration = Duration::from_millis(50);
/// The time between two looks is at most this part of the time since the first one, so that short jobs get enough
/// looks.
const PART: u32 = 8;
/// Fractions of multiples of the golden ratio are spread evenly and never repeat, so they do not keep step with any
/// job.
const GOLDEN: f64 = 0.618_033_988_749_895;

/// The sum of the times between looks. Each time counts by half for either of its two looks that found the job waiting.
#[derive(Debug)]
pub struct IoTime {
    first: Duration,
    last: Duration,
    waits: bool,
    total: Duration,
    looks: u32,
    due: Duration,
}

impl IoTime {
    /// Starts with the command, at `now`.
    pub fn new(now: Duration) -> Self {
        Self { first: now, last: now, waits: false, total: Duration::ZERO, looks: 0, due: now }
    }

    /// Returns when to look next.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Records a look, which has taken `cost` of CPU time.
    pub fn look(&mut self, now: Duration, waits: bool, cost: Duration) {
        self.advance(now, waits);
        self.looks += 1;
        let pause = ((now - self.first) / PART).min(LONGEST).max(cost * THRIFT);
        self.due = now + pause.mul_f64(0.5 + (f64::from(self.looks) * GOLDEN).fract());
    }

    /// Returns the time in I/O until `now`, when the job has ended: at most the time since the start.
    pub fn total(mut self, now: Duration) -> Duration {
        self.advance(now, false);
        self.total
    }

    fn advance(&mut self, now: Duration, waits: bool) {
        let passed = now.saturating_sub(self.last);
        self.total += passed * (u32::from(self.waits) + u32::from(waits)) / 2;
        (self.last, self.waits) = (now, waits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_micros(20);

    /// Returns the estimate for a job of length `end`, and the number of looks at the cost `cost`.
    fn estimate(end: Duration, cost: Duration, waits: impl Fn(Duration) -> bool) -> (Duration, u32) {
        let start = Duration::from_secs(7);
        let mut time = IoTime::new(start);
        while time.due() - start < end {
            let now = time.due();
            time.look(now, waits(now - start), cost);
        }
        let looks = time.looks;
        (time.total(start + end), looks)
    }

    fn within(found: Duration, low: f64, high: f64) -> bool {
        (low..=high).contains(&found.as_secs_f64())
    }

    #[test]
    fn always_and_never() {
        for milliseconds in [0, 1, 5, 40, 300, 10_000] {
            let end = Duration::from_millis(milliseconds);
            assert_eq!(estimate(end, COST, |_| false).0, Duration::ZERO);
            let (always, _) = estimate(end, COST, |_| true);
            assert!(always <= end && always + Duration::from_millis(40).min(end) >= end, "{always:?} of {end:?}");
        }
    }

    #[test]
    fn one_wait_among_others() {
        let during = |from: u64, to: u64| {
            move |now: Duration| now >= Duration::from_millis(from) && now < Duration::from_millis(to)
        };
        assert!(within(estimate(Duration::from_secs(2), COST, during(300, 900)).0, 0.52, 0.68));
        assert!(within(estimate(Duration::from_millis(30), COST, during(10, 20)).0, 0.005, 0.015));
        assert!(within(estimate(Duration::from_millis(30), COST, during(25, 30)).0, 0.002, 0.008));
    }

    /// Includes jobs with the period of the looks.
    #[test]
    fn a_job_with_a_rhythm() {
        for period in [3_000, 20_000, 25_000, 50_000, 100_000] {
            for share in [1, 3, 5, 9] {
                let waits = |now: Duration| now.as_micros() % period < period * share / 10;
                let (found, _) = estimate(Duration::from_secs(20), COST, waits);
                let right = 2.0 * share as f64;
                assert!(within(found, right - 1.2, right + 1.2), "{found:?} of {right} s, period {period}");
            }
        }
    }

    #[test]
    fn looking_is_cheap() {
        for (cost, milliseconds) in [(20, 100), (20, 10_000), (5_000, 10_000)] {
            let (cost, end) = (Duration::from_micros(cost), Duration::from_millis(milliseconds));
            let (_, looks) = estimate(end, cost, |_| true);
            assert!(looks >= 10 && cost * looks < end / 60, "{looks} looks in {end:?}");
        }
    }
}
