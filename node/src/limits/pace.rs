//! How far the bytes moved are ahead of their rate.
//!
//! Bytes are moved first and paid for by waiting afterwards, so that a piece may have any size. A delay caused by a
//! busy processor or device is made up for, as in TMIO (Tarraf et al., CLUSTER 2024).

use std::num::NonZeroU64;
use std::time::Duration;

/// The longest delay that is made up for, in seconds.
const LAG: f64 = 1.0;

/// Accounts for the bytes moved. Times are durations since any fixed moment.
#[derive(Debug)]
pub struct Pace {
    /// Bytes per second.
    rate: f64,
    mark: Duration,
    /// Seconds for which nothing more may be moved. Below 0: the delay that is made up for.
    debt: f64,
}

impl Pace {
    /// # Arguments
    /// * `rate` - bytes per second
    pub fn new(rate: NonZeroU64, now: Duration) -> Self {
        Self { rate: rate.get() as f64, mark: now, debt: 0.0 }
    }

    /// Continues at another rate. Bytes moved too early and bytes of a delay keep their number; their time is that of
    /// the new rate.
    pub fn change(&mut self, rate: NonZeroU64, now: Duration) {
        self.moved(0, now);
        let rate = rate.get() as f64;
        self.debt *= self.rate / rate;
        self.rate = rate;
    }

    /// Adds the bytes moved since the last call, and returns for how long nothing more may be moved.
    pub fn moved(&mut self, bytes: u64, now: Duration) -> Duration {
        self.debt -= now.saturating_sub(self.mark).as_secs_f64();
        self.mark = now;
        self.debt = self.debt.max(-LAG) + bytes as f64 / self.rate;
        Duration::try_from_secs_f64(self.debt.max(0.0)).unwrap_or(Duration::MAX)
    }

    /// Says that there was nothing to move until now: earlier delays are not made up for.
    pub fn idle(&mut self, now: Duration) {
        self.moved(0, now);
        self.debt = self.debt.max(0.0);
    }

    /// Limits the wait to the time of `bytes`.
    pub fn owe_at_most(&mut self, bytes: u64) {
        self.debt = self.debt.min(bytes as f64 / self.rate);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_random::Random;

    const RATE: u64 = 10_000_000;

    fn rate(bytes: u64) -> NonZeroU64 {
        bytes.try_into().unwrap()
    }

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Returns the bytes moved until `end` by a program that moves a `piece` whenever it may, checked each millisecond.
    /// The program cannot move any while `stalls` returns true.
    fn moved(piece: u64, end: u64, stalls: impl Fn(u64) -> bool) -> u64 {
        let (mut pace, mut until, mut total) = (Pace::new(rate(RATE), ms(0)), ms(0), 0);
        for now in 0..end {
            let may = ms(now) >= until && !stalls(now);
            let bytes = if may { piece } else { 0 };
            let pause = pace.moved(bytes, ms(now));
            if may {
                until = ms(now) + pause;
            }
            total += bytes;
        }
        total
    }

    #[test]
    fn a_stall_is_made_up_for_but_no_more_than_a_second_of_it() {
        let total = moved(50_000, 20_000, |now| now % 1000 < 200) as f64 / 2e8;
        assert!((0.99..1.01).contains(&total), "{total}");
        let mut pace = Pace::new(rate(RATE), ms(0));
        let pause = pace.moved(2 * RATE, ms(10_000));
        assert!((ms(999)..ms(1001)).contains(&pause), "{pause:?}");
    }

    #[test]
    fn where_there_was_nothing_to_move_nothing_is_made_up_for() {
        let mut pace = Pace::new(rate(RATE), ms(0));
        pace.idle(ms(5_000));
        assert_eq!(pace.moved(RATE, ms(5_000)), ms(1000));
        pace.idle(ms(5_400));
        // Bytes moved too early still count.
        assert_eq!(pace.moved(0, ms(5_600)), ms(400));
    }

    #[test]
    fn no_more_is_waited_for_than_is_owed() {
        let mut pace = Pace::new(rate(RATE), ms(0));
        pace.moved(2 * RATE, ms(0));
        pace.owe_at_most(RATE / 2);
        assert_eq!(pace.moved(0, ms(0)), ms(500));
        pace.owe_at_most(RATE);
        assert_eq!(pace.moved(0, ms(0)), ms(500));
        // A program that is late stays late.
        pace.moved(0, ms(900));
        pace.owe_at_most(0);
        assert_eq!(pace.moved(RATE, ms(900)), ms(600));
    }

    #[test]
    fn what_is_ahead_or_late_stays_it_at_another_rate() {
        let mut pace = Pace::new(rate(RATE), ms(0));
        assert_eq!(pace.moved(RATE, ms(0)), ms(1000));
        pace.change(rate(2 * RATE), ms(500));
        assert_eq!(pace.moved(0, ms(500)), ms(250));
        pace.change(rate(RATE / 2), ms(500));
        assert_eq!(pace.moved(0, ms(500)), ms(1000));
        // A delay of 0.2 s is 2 MB.
        let mut pace = Pace::new(rate(RATE), ms(0));
        pace.change(rate(100 * RATE), ms(200));
        assert_eq!(pace.moved(RATE / 5 + RATE, ms(200)), ms(10));
        // At a low rate it is a second at most.
        let mut pace = Pace::new(rate(RATE), ms(0));
        pace.change(rate(RATE / 100), ms(900));
        assert_eq!(pace.moved(RATE / 50, ms(900)), ms(1000));
        let mut pace = Pace::new(rate(u64::MAX), ms(0));
        pace.moved(u64::MAX, ms(0));
        pace.change(rate(1), ms(1));
        assert_eq!(pace.moved(u64::MAX, ms(1)), Duration::MAX);
    }

    /// A program moves pieces whenever it may, while the rate changes at random moments by any factor.
    ///
    /// In any time the program moves at most what the rates allow, a second of the rate at its beginning, and a piece.
    /// Each change delays the program by a moment at most.
    #[test]
    fn changes_grant_no_burst_and_lose_nothing() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut now_rate, stalls) = (1e6, seed % 2 == 1);
            let (mut pace, mut until) = (Pace::new(rate(now_rate as u64), ms(0)), ms(0));
            // Bytes moved minus the bytes that the rates allow, their upper limit, and the delay that is allowed.
            let (mut excess, mut most, mut late, mut largest) = (0.0, f64::MAX, 0.0, 0.0_f64);
            let mut stalled = 0;
            for now in 0..20_000 {
                if random.below(500) == 0 {
                    late += now_rate * 2e-3;
                    now_rate = 10_f64.powf(3.0 + random.below(6_000) as f64 / 1e3).floor();
                    pace.change(rate(now_rate as u64), ms(now));
                    until = ms(now) + pace.moved(0, ms(now));
                }
                most = f64::min(most, excess + now_rate * LAG);
                if stalls && random.below(2_000) == 0 {
                    stalled = now + random.below(5_000);
                }
                if ms(now) >= until && now >= stalled {
                    let piece = (now_rate * 2e-3) as u64 + random.below(1 << 20);
                    largest = largest.max(piece as f64);
                    until = ms(now) + pace.moved(piece, ms(now));
                    excess += piece as f64;
                }
                assert!(excess <= most + largest + 1.0, "{seed}: {excess} of {most} after {now} ms");
                assert!(stalls || excess >= -late - now_rate * 2e-3 - 1.0, "{seed}: {excess} after {now} ms");
                excess -= now_rate * 1e-3;
            }
        }
    }
}
