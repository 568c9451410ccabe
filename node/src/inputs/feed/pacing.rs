//! When a stream may be fed next, and how much: the pauses of a replay, and the gathering of small writes.

use std::time::{Duration, Instant};

use super::stutter::Stutter;
use crate::protocol::job::{Access, Input};

/// A producer that writes little at a time wakes the feeder by each write, and the feeder the reader. When less than
/// `LITTLE` was fed, and nothing is left, the feeder lets bytes gather for this time.
/// On busy cores each wake costs both programs their caches.
const GATHER: Duration = Duration::from_millis(2);

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
    /// Present for a file that is fed as if it were being written.
    stutter: Option<Stutter>,
    /// The end of the time in which bytes gather.
    gathered: Instant,
}

impl Pacing {
    pub fn new(input: &Input) -> Self {
        Self { stutter: (input.access == Access::Replay).then(Stutter::new), gathered: Instant::now() }
    }

    /// Whether the file is fed as if it were being written.
    pub fn replays(&self) -> bool {
        self.stutter.is_some()
    }

    /// The moment when the stream may be fed again, if it waits for one.
    pub fn due(&self, need: Need) -> Option<Instant> {
        match need {
            Need::Gathering => Some(self.gathered),
            Need::Time => self.stutter.as_ref().map(|stutter| stutter.until),
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
    /// * `unread` - gives the bytes in the pipe
    /// * `has_more` - tells whether bytes are left to feed
    pub fn next(&mut self, unread: impl FnOnce() -> u64, has_more: impl FnOnce() -> bool) -> Option<u64> {
        let Some(stutter) = &mut self.stutter else { return Some(u64::MAX) };
        let (now, unread) = (Instant::now(), unread());
        // The end is given when the reader has taken all, so that it is known whether it has.
        if !has_more() && stutter.waits_for_reader(unread, now) {
            return None;
        }
        stutter.next(unread, now)
    }

    /// Takes how many bytes were fed.
    pub fn fed(&mut self, bytes: u64) {
        self.stutter.iter_mut().for_each(|stutter| stutter.fed(bytes));
    }
}
