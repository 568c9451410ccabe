//! How far a sender may go by the word of the reader, and in what steps it goes there.
//!
//! The reader grants what it can take soon. The sender alone knows whether it has nothing to send or the network is
//! slow. So the sender keeps to the rate itself. Otherwise all that was granted would leave in one burst.

use std::num::NonZeroU64;
use std::time::Duration;

use super::error::LinkError;
use crate::limits::pace::{at_once, bytes_in, Pace};
use crate::protocol::job::Rate;

/// Bytes of the payload of the record.
pub const SIZE: usize = 16;
/// A grant reaches as far ahead as the rate moves in this time. A round trip takes less, so that the sender does not
/// wait for each grant.
const AHEAD: Duration = Duration::from_millis(500);
const LEAST_AHEAD: u64 = 256 << 10;
/// The next grant comes when one part in `PARTS` of a grant was used.
const PARTS: u64 = 8;
/// A late stream catches up by at most one part in `HASTE` more than the rate.
const HASTE: u64 = 4;
/// A late stream sends at most the bytes of this time at once.
const BURST: Duration = Duration::from_millis(50);

/// The grant of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The first byte of the stream that may not be sent.
    pub end: u64,
    pub rate: Rate,
}

impl Credit {
    pub fn encode(self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..8].copy_from_slice(&self.end.to_be_bytes());
        bytes[8..].copy_from_slice(&self.rate.map_or(0, |rate| rate.get()).to_be_bytes());
        bytes
    }

    /// # Errors
    /// When it has another size.
    pub fn decode(bytes: &[u8]) -> Result<Self, LinkError> {
        let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
        match (number(0), number(8)) {
            (Some(end), Some(rate)) if bytes.len() == SIZE => Ok(Self { end, rate: rate.try_into().ok() }),
            _ => Err(LinkError::Broken("a bad credit".into())),
        }
    }
}

/// The reader's side: what to grant next on a connection.
#[derive(Debug, Default)]
pub struct Grants {
    last: Option<Credit>,
}

impl Grants {
    /// Returns the credit to grant now, if it differs from the last one.
    ///
    /// # Arguments
    /// * `arrived` - bytes of the stream
    pub fn next(&mut self, arrived: u64, rate: Rate) -> Option<Credit> {
        let ahead = rate.map_or(u64::MAX, |rate| bytes_in(rate, AHEAD).max(LEAST_AHEAD));
        let credit = Credit { end: arrived.saturating_add(ahead), rate };
        let is_due = |last: Credit| credit.end.saturating_sub(last.end) > ahead / PARTS;
        self.last.is_none_or(is_due).then(|| *self.last.insert(credit))
    }
}

/// The sender's side.
#[derive(Debug)]
pub struct Allowance {
    /// The next byte of the stream.
    place: u64,
    end: u64,
    steps: Option<Steps>,
}

/// Why nothing may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The reader has granted no more.
    Credit,
    /// For so long.
    Time(Duration),
}

impl Allowance {
    /// Nothing is granted yet.
    ///
    /// # Arguments
    /// * `place` - the first byte that will be sent
    pub fn new(place: u64) -> Self {
        Self { place, end: 0, steps: None }
    }

    pub fn grant(&mut self, credit: Credit, now: Duration) {
        self.end = credit.end;
        if self.steps.as_ref().map(|steps| steps.rate) != credit.rate {
            self.steps = credit.rate.map(|rate| Steps::new(rate, now));
        }
    }

    /// How many bytes may be sent at once, at least one.
    pub fn most(&mut self, now: Duration) -> Result<u64, Hold> {
        let granted = self.end.saturating_sub(self.place);
        if granted == 0 {
            return Err(Hold::Credit);
        }
        let Some(steps) = &mut self.steps else { return Ok(granted) };
        steps.most(now).map(|most| most.min(granted)).map_err(Hold::Time)
    }

    pub fn sent(&mut self, bytes: u64, now: Duration) {
        self.place += bytes;
        if let Some(steps) = &mut self.steps {
            steps.sent(bytes, now);
        }
    }

    /// There was nothing to send until now.
    pub fn idle(&mut self, now: Duration) {
        if let Some(steps) = &mut self.steps {
            steps.mean.idle(now);
        }
    }
}

#[derive(Debug)]
struct Steps {
    rate: NonZeroU64,
    mean: Pace,
    /// Lets a lag be made up for, but not at once.
    peak: Pace,
    /// Bytes that are left of this step.
    left: u64,
    /// When the next one begins.
    next: Duration,
}

impl Steps {
    fn new(rate: NonZeroU64, now: Duration) -> Self {
        let peak = Pace::new(hasty(rate), now).with_lag(BURST);
        Self { rate, mean: Pace::new(rate, now), peak, left: 0, next: now }
    }

    fn most(&mut self, now: Duration) -> Result<u64, Duration> {
        if self.left == 0 {
            if now < self.next {
                return Err(self.next - now);
            }
            self.left = at_once(self.rate);
        }
        Ok(self.left)
    }

    fn sent(&mut self, bytes: u64, now: Duration) {
        self.left = self.left.saturating_sub(bytes);
        self.wait_for(bytes, now);
    }

    fn wait_for(&mut self, bytes: u64, now: Duration) {
        self.next = now.saturating_add(self.mean.moved(bytes, now).max(self.peak.moved(bytes, now)));
    }
}

fn hasty(rate: NonZeroU64) -> NonZeroU64 {
    rate.saturating_add(rate.get() / HASTE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_random::Random;

    fn rate(bytes: u64) -> Rate {
        bytes.try_into().ok()
    }

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    #[test]
    fn credits_come_back() {
        for credit in [Credit { end: 0, rate: rate(1) }, Credit { end: u64::MAX, rate: None }] {
            assert_eq!(Credit::decode(&credit.encode()), Ok(credit));
        }
        for size in [0, 8, 15, 17, 24] {
            assert!(Credit::decode(&[0; 24][..size]).is_err(), "{size}");
        }
    }

    #[test]
    fn it_is_granted_ahead_and_again_before_that_is_used() {
        let mut grants = Grants::default();
        let ahead = 5_000_000;
        assert_eq!(grants.next(7, rate(10_000_000)), Some(Credit { end: 7 + ahead, rate: rate(10_000_000) }));
        assert_eq!(grants.next(7 + ahead / 8, rate(10_000_000)), None);
        assert!(grants.next(8 + ahead / 8, rate(10_000_000)).is_some());
        let mut grants = Grants::default();
        assert_eq!(grants.next(9, rate(1)), Some(Credit { end: 9 + LEAST_AHEAD, rate: rate(1) }));
        let mut grants = Grants::default();
        assert_eq!(grants.next(9, None), Some(Credit { end: u64::MAX, rate: None }));
        assert_eq!(grants.next(1 << 50, None), None);
        assert_eq!(Grants::default().next(u64::MAX, rate(7)).map(|credit| credit.end), Some(u64::MAX));
    }

    #[test]
    fn nothing_is_sent_before_it_is_granted_nor_beyond_it() {
        let mut allowance = Allowance::new(100);
        assert_eq!(allowance.most(ms(0)), Err(Hold::Credit));
        allowance.grant(Credit { end: 110, rate: None }, ms(0));
        assert_eq!(allowance.most(ms(0)), Ok(10));
        allowance.sent(10, ms(0));
        assert_eq!(allowance.most(ms(9)), Err(Hold::Credit));
        // Less than was sent already.
        allowance.grant(Credit { end: 50, rate: rate(1) }, ms(9));
        assert_eq!(allowance.most(ms(9)), Err(Hold::Credit));
        allowance.grant(Credit { end: u64::MAX, rate: None }, ms(9));
        assert_eq!(allowance.most(ms(9)), Ok(u64::MAX - 110));
    }

    /// A sender whose network stands still now and then: in no time it sends more than the hasty rate allows, 50 ms
    /// of it and a step; over all of it neither more nor less than the rate; and never beyond what was granted.
    #[test]
    fn no_burst_leaves_it_and_what_was_late_is_made_up_for() {
        const RATE: u64 = 40_000_000;
        for seed in 0..100 {
            let mut random = Random::new(seed);
            let (mut allowance, mut grants) = (Allowance::new(0), Grants::default());
            let (mut total, mut end, mut excess, mut least, mut stalled) = (0_u64, 0, 0.0, 0.0_f64, 0);
            for now in 0..10_000 {
                if let Some(credit) = grants.next(total, rate(RATE)) {
                    allowance.grant(credit, ms(now));
                    end = credit.end;
                }
                if now < 8_000 && random.below(1_000) == 0 {
                    stalled = now + random.below(200);
                }
                while let (Ok(most), false) = (allowance.most(ms(now)), now < stalled) {
                    let piece = 1 + random.below(most);
                    allowance.sent(piece, ms(now));
                    total += piece;
                    excess += piece as f64;
                    assert!(total <= end, "{seed}");
                }
                assert!(excess - least <= RATE as f64 * 0.0625 + 400_000.0, "{seed}: {} at {now}", excess - least);
                excess -= RATE as f64 * 1.25e-3;
                least = least.min(excess);
            }
            let mean = total as f64 / (RATE * 10) as f64;
            assert!((0.995..1.005).contains(&mean), "{seed}: {mean}");
        }
    }

    #[test]
    fn where_there_was_nothing_to_send_nothing_is_made_up_for() {
        let mut allowance = Allowance::new(0);
        allowance.grant(Credit { end: u64::MAX, rate: rate(10_000_000) }, ms(0));
        allowance.idle(ms(900));
        let (mut now, mut total) = (900, 0);
        while now < 1_900 {
            match allowance.most(ms(now)) {
                Ok(most) => {
                    allowance.sent(most, ms(now));
                    total += most;
                }
                Err(_) => now += 1,
            }
        }
        assert!((10_000_000..10_100_000).contains(&total), "{total}");
    }
}
