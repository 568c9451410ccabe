//! Decides about processes that the main process leaves behind when it ends with success. Facts in, a fate out; no I/O,
//! no clock.
//!
//! StreamFlow waits until every process has closed the output of the command, and ignores processes that continue after
//! that. `exec` does the same, but first waits for two kinds of processes that are late because of `exec`. Some have
//! waited for a stream or at a gate, and some are just about to close an output, or to end.

use std::time::Duration;

/// How long a process may continue that has read a stream to its end, or has come through a gate, after the main
/// process ended. Also how long a stream may stand still because no process reads it.
const LATE: Duration = Duration::from_secs(10);
/// How long outputs that are still open may be written, as in `tool 2> >(tee log >&2)`, where the shell does not wait
/// for tee.
const MOMENT: Duration = Duration::from_secs(2);
/// Bounds of the pause between two looks, which is a tenth of the time since the main process ended.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(250);

/// The activity of the processes that are left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// A process holds the output of the command open.
    pub prints: bool,
    /// A process reads a stream that has not ended, or waits at a gate.
    pub reads: bool,
    /// Bytes streamed, and whether there are more than the readers take.
    pub streamed: u64,
    pub full: bool,
    /// A process has an output open for writing.
    pub writes: bool,
    /// A process ends just now: its use counts only when it has been waited for.
    pub exits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Wait,
    /// The processes go on without `exec`.
    Leave,
    /// The processes are ended, because their stream ends with `exec`.
    End,
}

#[derive(Debug, Default)]
pub struct Leftovers {
    began: Duration,
    due: Duration,
    streamed: u64,
    /// When bytes were last taken from a stream, or waited for.
    moved: Duration,
    /// When a process was last seen to read.
    read: Option<Duration>,
    /// Since when no process holds the output of the command open.
    closed: Option<Duration>,
}

impl Leftovers {
    /// Says that the main process has ended.
    pub fn begin(&mut self, now: Duration) {
        (self.began, self.due, self.moved) = (now, now, now);
    }

    /// Returns when to look next.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Decides what to do with the processes.
    ///
    /// # Arguments
    /// * `activity` - None: no process is left, but one that has ended was not waited for yet
    pub fn decide(&mut self, now: Duration, activity: Option<Activity>) -> Fate {
        let Some(seen) = activity else {
            self.due = now + SOONEST;
            return Fate::Wait;
        };
        self.due = now + ((now - self.began) / 10).clamp(SOONEST, LATEST);
        if seen.streamed != self.streamed || !seen.full {
            (self.streamed, self.moved) = (seen.streamed, now);
        }
        if seen.reads {
            self.read = Some(now);
        }
        if seen.prints {
            self.closed = None;
            return Fate::Wait;
        }
        let closed = *self.closed.get_or_insert(now);
        if seen.reads && now >= self.moved.max(closed) + LATE {
            return Fate::End;
        }
        let late = self.read.is_some_and(|last| seen.reads || now < last + LATE);
        if late || ((seen.writes || seen.exits) && now < closed + MOMENT) {
            Fate::Wait
        } else {
            Fate::Leave
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTS: Activity =
        Activity { prints: true, reads: false, streamed: 0, full: false, writes: false, exits: false };
    const DAEMON: Activity = Activity { prints: false, ..PRINTS };
    const WRITES: Activity = Activity { writes: true, ..DAEMON };
    const EXITS: Activity = Activity { exits: true, ..DAEMON };
    const READS: Activity = Activity { reads: true, ..DAEMON };
    const STUCK: Activity = Activity { full: true, streamed: 7, ..READS };

    /// Returns when the wait is over, and the fate.
    fn decided(course: &[(u64, Activity)]) -> Option<(u64, Fate)> {
        let mut leftovers = Leftovers::default();
        leftovers.begin(Duration::from_millis(5));
        (5..100_000).find_map(|now| {
            let time = Duration::from_millis(now);
            let (_, seen) = course.iter().rev().find(|(from, _)| *from <= now)?;
            if time < leftovers.due() {
                return None;
            }
            Some((now, leftovers.decide(time, Some(*seen)))).filter(|(_, fate)| *fate != Fate::Wait)
        })
    }

    #[test]
    fn fates() {
        type Case<'a> = (&'a str, &'a [(u64, Activity)], Option<(u64, Fate)>);
        let table: [Case; 10] = [
            ("goes on", &[(0, DAEMON)], Some((5, Fate::Leave))),
            ("prints for ever", &[(0, PRINTS)], None),
            ("becomes a daemon", &[(0, PRINTS), (1000, DAEMON)], Some((1000, Fate::Leave))),
            ("keeps an output open", &[(0, WRITES)], Some((2005, Fate::Leave))),
            ("closes an output", &[(0, WRITES), (1000, DAEMON)], Some((1000, Fate::Leave))),
            ("ends just now", &[(0, EXITS), (1000, DAEMON)], Some((1000, Fate::Leave))),
            ("cannot end", &[(0, EXITS)], Some((2005, Fate::Leave))),
            ("reads for long", &[(0, READS), (50_000, DAEMON)], Some((59_750, Fate::Leave))),
            ("never reads", &[(0, STUCK)], Some((10_005, Fate::End))),
            ("takes its time, and prints", &[(0, Activity { prints: true, ..STUCK }), (30_000, READS)], None),
        ];
        for (name, course, expected) in table {
            let found = decided(course);
            let close = |(at, fate): (u64, Fate)| {
                let wanted = expected.map(|(wanted, _)| wanted).unwrap_or_default();
                ((wanted..wanted + 260).contains(&at), fate)
            };
            assert_eq!(found.map(close), expected.map(|(_, fate)| (true, fate)), "{name}: {found:?}");
        }
    }
}
