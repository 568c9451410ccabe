//! When a stream may be fed next, and how much: its limit, the pauses of a replay, and the gathering of small writes.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use super::stutter::Stutter;
use crate::limits::pace::{at_once, Pace};
use crate::protocol::job::{Access, Input};

/// Practically forever, and small enough for an `Instant`.
const LONGEST: Duration = Duration::from_secs(1 << 32);
/// A producer that writes little at a time wakes the feeder by each write, and the feeder the reader. When less than
/// `LITTLE` was fed, and nothing is left, the feeder lets bytes gather for this time.
/// On busy cores each wake costs both programs their caches.
const GATHER: Duration = Duration::from_millis(2);
/// A link that has brought nothing for this time had nothing to bring.
const ON_ITS_WAY: Duration = Duration::from_millis(250);

/// The thing for which a feeder waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    Reader,
    Space,
    /// More space than there is: see `PAUSE` of the feeder.
    Pause,
    /// The moment that `Pacing` says.
    Time,
    /// More data that is likely written already: see `GATHER`.
    Gathering,
    /// More data, or word from the producer.
    Data,
}

#[derive(Debug)]
pub struct Pacing {
    /// Present for a stream with a limit.
    limiter: Option<Limiter>,
    /// Present for a file that is fed as if it were being written.
    stutter: Option<Stutter>,
    /// The time without bytes after which the origin has nothing to feed.
    patience: Duration,
    /// The end of the time in which bytes gather.
    gathered: Instant,
    /// The moment since when there is nothing to feed.
    dry: Option<Instant>,
}

impl Pacing {
    pub fn new(input: &Input) -> Self {
        Self {
            limiter: input.limit.map(Limiter::new),
            stutter: (input.access == Access::Replay).then(Stutter::new),
            patience: if matches!(input.access, Access::Link(_)) { ON_ITS_WAY } else { Duration::ZERO },
            gathered: Instant::now(),
            dry: None,
        }
    }

    /// Whether the file is fed as if it were being written.
    pub fn replays(&self) -> bool {
        self.stutter.is_some()
    }

    /// The moment when the stream may be fed again, if it waits for one.
    pub fn due(&self, need: Need) -> Option<Instant> {
        match need {
            Need::Gathering => Some(self.gathered),
            Need::Time => {
                let stutter = self.stutter.as_ref().map(|stutter| stutter.until);
                stutter.or(self.limiter.as_ref().map(|limiter| limiter.until))
            }
            _ => None,
        }
    }

    /// Lets bytes gather for a moment.
    pub fn gather(&mut self) {
        self.gathered = Instant::now() + GATHER;
    }

    /// The most bytes that may be fed now. None: the stream waits for its moment.
    ///
    /// # Arguments
    /// * `need` - what the stream has waited for until now
    /// * `unread` - gives the bytes in the pipe
    /// * `has_more` - tells whether bytes are left to feed
    pub fn next(&mut self, need: Need, unread: impl FnOnce() -> u64, has_more: impl FnOnce() -> bool) -> Option<u64> {
        let now = Instant::now();
        let mut most = u64::MAX;
        if let Some(limiter) = &mut self.limiter {
            if now < limiter.until {
                return None;
            }
            let dry = self.dry.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            if need == Need::Reader || (need == Need::Data && dry >= self.patience) {
                limiter.idle();
            }
            most = limiter.most;
        }
        let Some(stutter) = &mut self.stutter else { return Some(most) };
        let unread = unread();
        // The end is given when the reader has taken all, so that it is known whether it has.
        if !has_more() && stutter.waits_for_reader(unread, now) {
            return None;
        }
        stutter.next(unread, now).map(|piece| most.min(piece))
    }

    /// Takes how many bytes were fed.
    pub fn fed(&mut self, bytes: u64) {
        self.limiter.iter_mut().filter(|_| bytes > 0).for_each(|limiter| limiter.fed(bytes));
        self.stutter.iter_mut().for_each(|stutter| stutter.fed(bytes));
        self.dry = self.dry.filter(|_| bytes == 0);
    }

    /// There was nothing to feed.
    pub fn found_nothing(&mut self) {
        self.dry.get_or_insert_with(Instant::now);
    }

    /// Whether the limit makes the stream wait now.
    pub fn rests(&self) -> bool {
        self.limiter.as_ref().is_some_and(|limiter| Instant::now() < limiter.until)
    }
}

/// Feeds a stream with a limit a little at a time, so that the reader, and the link, see a steady stream.
#[derive(Debug)]
struct Limiter {
    pace: Pace,
    /// The first moment of the clock of `pace`.
    began: Instant,
    /// The most bytes at once.
    most: u64,
    until: Instant,
}

impl Limiter {
    /// # Arguments
    /// * `rate` - bytes per second
    fn new(rate: NonZeroU64) -> Self {
        let began = Instant::now();
        Self { pace: Pace::new(rate, Duration::ZERO), began, most: at_once(rate), until: began }
    }

    fn fed(&mut self, bytes: u64) {
        let now = Instant::now();
        self.until = now + self.pace.moved(bytes, now - self.began).min(LONGEST);
    }

    /// The stream had no bytes, or no reader.
    fn idle(&mut self) {
        self.pace.idle(self.began.elapsed());
    }
}
