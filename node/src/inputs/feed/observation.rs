//! The times of a stream: when its bytes moved, how far it is, and how long reader and bytes have waited for each
//! other.

use std::time::{Duration, Instant};

use super::stalls::Stalls;
use crate::protocol::event::{now, StreamWait};

#[derive(Debug)]
pub struct Observation {
    /// When the first and the last bytes moved, in seconds since 1970.
    moved: Option<(f64, f64)>,
    progress: Progress,
    pub stalls: Stalls,
}

impl Observation {
    pub fn new() -> Self {
        let time = Instant::now();
        Self { moved: None, progress: Progress::new(time), stalls: Stalls::new(time) }
    }

    /// Bytes have moved now.
    pub fn moved(&mut self) {
        let time = now();
        self.moved = Some((self.moved.map_or(time, |(first, _)| first), time));
    }

    /// When the first and the last bytes moved.
    pub fn times(&self) -> Option<(f64, f64)> {
        self.moved
    }

    /// How far the stream is, when that is to be told.
    pub fn progress(&mut self, bytes: u64, waits: Option<StreamWait>) -> Option<State> {
        self.progress.tell(Instant::now(), bytes, waits)
    }
}

/// The shortest time between two events of the progress.
const BETWEEN_PROGRESS: Duration = Duration::from_secs(1);

/// A stream without new bytes for this time stands.
const STANDS: Duration = Duration::from_millis(800);
/// The shortest time before an event of a stream that stands, or moves again.
const SOON: Duration = Duration::from_millis(250);

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    pub bytes: u64,
    pub stalled: bool,
    pub waits: Option<StreamWait>,
}

/// The last event of the progress.
#[derive(Debug)]
struct Progress {
    time: Instant,
    told: State,
    /// The bytes, and the moment since when they are this many.
    since: (u64, Instant),
}

impl Progress {
    fn new(now: Instant) -> Self {
        Self { time: now, told: State { bytes: 0, stalled: false, waits: None }, since: (0, now) }
    }

    /// The state to report, if a report is due and the state has changed.
    fn tell(&mut self, now: Instant, bytes: u64, waits: Option<StreamWait>) -> Option<State> {
        if bytes != self.since.0 {
            self.since = (bytes, now);
        }
        let stalled = now.saturating_duration_since(self.since.1) >= STANDS;
        let between = if stalled || self.told.stalled { SOON } else { BETWEEN_PROGRESS };
        let moves = bytes != self.told.bytes;
        if now.saturating_duration_since(self.time) < between || !(moves || stalled) {
            return None;
        }
        let state = State { bytes, stalled, waits };
        if state == self.told {
            return None;
        }
        (self.time, self.told) = (now, state);
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_once_a_second_while_it_moves_and_at_once_when_it_stands() {
        let start = Instant::now();
        let mut progress = Progress::new(start);
        let mut tell =
            |milliseconds, bytes, waits| progress.tell(start + Duration::from_millis(milliseconds), bytes, Some(waits));
        let said = |bytes, stalled, waits| Some(State { bytes, stalled, waits: Some(waits) });
        assert_eq!(tell(100, 1, StreamWait::Reader), None);
        assert_eq!(tell(900, 5, StreamWait::Reader), None);
        assert_eq!(tell(1000, 6, StreamWait::Reader), said(6, false, StreamWait::Reader));
        assert_eq!(tell(1700, 7, StreamWait::Reader), None);
        assert_eq!(tell(2000, 7, StreamWait::Producer), said(7, false, StreamWait::Producer));
        assert_eq!(tell(2400, 7, StreamWait::Producer), None);
        assert_eq!(tell(2500, 7, StreamWait::Producer), said(7, true, StreamWait::Producer));
        assert_eq!(tell(2600, 7, StreamWait::Reader), None);
        assert_eq!(tell(2800, 7, StreamWait::Reader), said(7, true, StreamWait::Reader));
        assert_eq!(tell(9000, 7, StreamWait::Reader), None);
        assert_eq!(tell(9100, 8, StreamWait::Reader), said(8, false, StreamWait::Reader));
        assert_eq!(tell(9300, 9, StreamWait::Reader), None);
        assert_eq!(tell(9900, 9, StreamWait::Reader), None);
        assert_eq!(tell(10_100, 9, StreamWait::Reader), said(9, true, StreamWait::Reader));
    }
}
