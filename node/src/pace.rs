//! How far what is moved is ahead of its rate. Pure.
//!
//! Bytes are moved first, and their time is waited for afterwards, so that no piece has to be of a certain size. What was
//! late because somebody else had the processor, or the device, is made up for, as in TMIO (Tarraf et al., CLUSTER 2024).

use std::time::Duration;

/// So much of a lag is made up for, in seconds.
const LAG: f64 = 1.0;

/// Times are durations since any fixed moment.
#[derive(Debug)]
pub struct Pace {
    /// Bytes per second.
    rate: f64,
    mark: Duration,
    /// Seconds for which nothing more is to be moved; below 0: a lag.
    debt: f64,
}

impl Pace {
    /// # Arguments
    /// * `rate` - bytes per second, above 0
    pub fn new(rate: u64, now: Duration) -> Self {
        Self { rate: rate as f64, mark: now, debt: 0.0 }
    }

    /// Takes the bytes that were moved since the last call, and returns for how long nothing more is to be moved.
    pub fn moved(&mut self, bytes: u64, now: Duration) -> Duration {
        self.debt -= now.saturating_sub(self.mark).as_secs_f64();
        self.mark = now;
        self.debt = self.debt.max(-LAG) + bytes as f64 / self.rate;
        Duration::from_secs_f64(self.debt.max(0.0))
    }

    /// There was nothing to move until now: nothing of the lag is made up for.
    pub fn idle(&mut self, now: Duration) {
        self.moved(0, now);
        self.debt = self.debt.max(0.0);
    }

    /// The bytes that are moved before their time.
    pub fn ahead(&self) -> u64 {
        (self.debt.max(0.0) * self.rate) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 10_000_000;

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// The bytes moved until `end`, by one who moves `piece` whenever he may, and cannot while `stalls` says so, looked at each millisecond.
    fn moved(piece: u64, end: u64, stalls: impl Fn(u64) -> bool) -> u64 {
        let (mut pace, mut until, mut total) = (Pace::new(RATE, ms(0)), ms(0), 0);
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
    fn the_mean_is_the_rate() {
        for piece in [10_000, 65_536, 1_000_000, 30_000_000] {
            let total = moved(piece, 30_000, |_| false) as f64;
            let expected = RATE as f64 * 30.0;
            assert!((expected..expected + piece as f64 + 30_000.0).contains(&total), "{total} in pieces of {piece}");
        }
    }

    #[test]
    fn a_stall_is_made_up_for_but_no_more_than_a_second_of_it() {
        let total = moved(50_000, 20_000, |now| now % 1000 < 200) as f64 / 2e8;
        assert!((0.99..1.01).contains(&total), "{total}");
        let mut pace = Pace::new(RATE, ms(0));
        let pause = pace.moved(2 * RATE, ms(10_000));
        assert!((ms(999)..ms(1001)).contains(&pause), "{pause:?}");
    }

    #[test]
    fn where_there_was_nothing_to_move_nothing_is_made_up_for() {
        let mut pace = Pace::new(RATE, ms(0));
        pace.idle(ms(5_000));
        assert_eq!(pace.moved(RATE, ms(5_000)), ms(1000));
        assert_eq!(pace.ahead(), RATE);
        pace.idle(ms(5_400));
        // What was moved too early is not forgotten.
        assert_eq!(pace.moved(0, ms(5_600)), ms(400));
    }
}
