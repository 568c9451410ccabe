//! The bursts in which a job writes.
//!
//! A burst ends when nothing was written for a while. Times are those of the job's clock.

use std::path::Path;
use std::time::Duration;

use crate::processes::io_counters::Moved;
use crate::processes::tree::Process;
use crate::processes::usage::{thread_cpu, THRIFT};
use crate::protocol::event::Burst;
use crate::protocol::job::Direction;

/// Time between two looks. A burst begins at most this time before it is seen.
const LOOK: Duration = Duration::from_millis(100);
/// Time without writes after which a burst has ended.
const SILENCE: Duration = Duration::from_millis(250);
/// The fewest bytes of a burst: fewer are not worth waiting for.
const LEAST: u64 = 1_000_000;
/// Number of bursts after which the silence that ends a burst doubles, so that neighbours become one burst.
const MANY: u64 = 1_000;

/// A burst that goes on.
#[derive(Debug)]
struct Open {
    start: Duration,
    last: Duration,
    from: u64,
}

#[derive(Debug, Default)]
struct Bursts {
    size: u64,
    open: Option<Open>,
    number: u64,
}

impl Bursts {
    /// Records the present size, and returns the burst that has ended by now, if any.
    fn look(&mut self, size: u64, now: Duration) -> Option<Burst> {
        let before = std::mem::replace(&mut self.size, size);
        if size < before {
            // The file was cut, and begins again.
            self.open = None;
        }
        if size > before {
            let open = self.open.get_or_insert(Open { start: now, last: now, from: before });
            open.last = now;
            return None;
        }
        let silence = SILENCE * 2_u32.saturating_pow((self.number / MANY).min(20) as u32);
        if self.open.as_ref().is_some_and(|open| now >= open.last + silence) {
            return self.close();
        }
        None
    }

    /// Returns the burst that is still open, at the end of the growth.
    fn end(&mut self, size: u64, now: Duration) -> Option<Burst> {
        self.look(size, now).or_else(|| self.close())
    }

    fn close(&mut self) -> Option<Burst> {
        let Open { start, last, from } = self.open.take()?;
        let bytes = self.size - from;
        (bytes >= LEAST).then(|| {
            self.number += 1;
            Burst { start, last, bytes }
        })
    }
}

/// Measures what a job writes.
pub struct Writes {
    moved: Moved,
    bursts: Bursts,
    written: u64,
    due: Duration,
    /// When the share of the looks so far has fallen to one part in `THRIFT`.
    thrift: Duration,
}

impl Writes {
    /// # Arguments
    /// * `path` - any path on the storage
    pub fn new(path: &Path, now: Duration) -> Self {
        let moved = Moved::new(Direction::Write, path);
        Self { moved, bursts: Bursts::default(), written: 0, due: now + LOOK, thrift: now }
    }

    /// Returns when to look next.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Measures what the job has written, and returns the burst that has ended by now, if any.
    ///
    /// # Arguments
    /// * `look` - returns all processes as they are now, each after its parent
    pub fn look(&mut self, now: Duration, look: impl FnOnce() -> Vec<Process>) -> Option<Burst> {
        let before = thread_cpu();
        match self.moved.look(&look()) {
            Ok(written) => self.written = written.unwrap_or(self.written),
            // The processes may not be examined: what they write from now on is unknown.
            Err(_) => self.thrift = Duration::MAX,
        }
        self.thrift = self.thrift.saturating_add(thread_cpu().saturating_sub(before) * THRIFT);
        self.due = self.thrift.max(now + LOOK);
        self.bursts.look(self.written, now)
    }

    /// Returns the burst that is still open at the end of the job. Bytes written since the last look are unknown.
    pub fn end(&mut self, now: Duration) -> Option<Burst> {
        self.bursts.end(self.written, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    /// Returns the bursts for these times and sizes, with a look each 100 ms until `end`.
    fn bursts(sizes: &[(u64, u64)], end: u64) -> Vec<Burst> {
        let (mut bursts, mut found) = (Bursts::default(), Vec::new());
        for now in (0..end).step_by(100) {
            let size = sizes.iter().filter(|(at, _)| *at <= now).map(|(_, size)| *size).next_back().unwrap_or(0);
            found.extend(bursts.look(size, ms(now)));
        }
        let size = sizes.last().map_or(0, |(_, size)| *size);
        found.extend(bursts.end(size, ms(end)));
        found
    }

    #[test]
    fn a_silence_ends_a_burst() {
        let found = bursts(&[(0, MB), (200, 3 * MB), (1000, 4 * MB), (1100, 5 * MB)], 1200);
        let first = Burst { start: ms(0), last: ms(200), bytes: 3 * MB };
        let second = Burst { start: ms(1000), last: ms(1100), bytes: 2 * MB };
        assert_eq!(found, [first, second]);
    }

    #[test]
    fn what_has_grown_since_the_last_look_counts_at_the_end() {
        let mut bursts = Bursts::default();
        assert_eq!(bursts.end(2 * MB, ms(70)).map(|burst| (burst.start, burst.bytes)), Some((ms(70), 2 * MB)));
        assert_eq!(bursts.end(2 * MB, ms(90)), None);
    }

    #[test]
    fn a_trickle_is_none() {
        let trickle: Vec<(u64, u64)> = (0..100).map(|n| (n * 1000, n * 10_000)).collect();
        assert_eq!(bursts(&trickle, 100_000), []);
        assert_eq!(bursts(&[(0, MB - 1), (1000, 2 * MB)], 2000)[0].bytes, MB + 1);
    }

    #[test]
    fn a_file_that_is_cut_begins_anew() {
        let found = bursts(&[(0, 5 * MB), (1000, 0), (1100, 2 * MB)], 2000);
        assert_eq!(found.iter().map(|burst| burst.bytes).collect::<Vec<_>>(), [5 * MB, 2 * MB]);
        // The cut comes while the file grows.
        assert_eq!(bursts(&[(0, 5 * MB), (100, MB), (200, 3 * MB)], 1000)[0].bytes, 2 * MB);
    }

    #[test]
    fn where_there_are_many_neighbours_are_one() {
        let sizes: Vec<(u64, u64)> = (0..3000).map(|n| (n * 500, (n + 1) * MB)).collect();
        let found = bursts(&sizes, 3000 * 500);
        // After a thousand bursts, silences of 0.4 s end none.
        assert_eq!((found.len(), found[1000].bytes), (1001, 2000 * MB));
    }
}
