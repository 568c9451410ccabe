//! What the main process leaves behind when it ends with success.
//!
//! StreamFlow waits until everybody has closed what the command prints to, and whoever goes on after that is none of its
//! business. So it is here, but for those that are late because of us: who waited for a stream or at a gate, and who is
//! just about to close an output.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::ending::PATIENCE;
use super::Supervisor;
use crate::event::Event;
use crate::feed::{Feeder, Need};
use crate::job::Job;
use crate::outputs::existing;
use crate::tree::{self, Identity, Process};

/// How long those that have read a stream to its end, or have come through a gate, after the main process was gone may go
/// on; and how long a stream may stand still because nobody takes from it.
const LATE: Duration = Duration::from_secs(10);
/// How long outputs that are still open may be written, as in `tool 2> >(tee log >&2)`, where nobody waits for tee.
const MOMENT: Duration = Duration::from_secs(2);
/// They are looked at after a tenth of the time that they have taken already.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(250);

/// What those that are left do.
#[derive(Clone, Copy, Debug, Default)]
struct Sight {
    /// Hold what the command prints to.
    prints: bool,
    /// Read a stream that has not ended, or wait at a gate.
    reads: bool,
    /// Bytes streamed, and whether there are more than anybody takes.
    streamed: u64,
    full: bool,
    /// Have an output open for writing.
    writes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Wait,
    /// They go on without us.
    Leave,
    /// They cannot: their stream ends with us.
    End,
}

#[derive(Debug, Default)]
pub(super) struct Leftovers {
    /// The pipes or sockets that the command prints to. A file or a terminal is waited for by nobody.
    printed: HashSet<Identity>,
    began: Duration,
    due: Duration,
    streamed: u64,
    /// When bytes were last taken from a stream, or waited for.
    moved: Duration,
    /// When somebody was last seen to read.
    read: Option<Duration>,
    /// Since when nobody holds what the command prints to.
    closed: Option<Duration>,
}

impl Leftovers {
    pub(super) fn of(job: &Job) -> Self {
        let own = [(&job.stdout, "/proc/self/fd/1"), (&job.stderr, "/proc/self/fd/2")];
        let inherited = own.into_iter().filter(|(file, _)| file.is_none()).map(|(_, own)| Path::new(own));
        let awaited = |own: &&Path| {
            fs::metadata(own).is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
        };
        Self { printed: inherited.filter(awaited).filter_map(tree::identity).collect(), ..Self::default() }
    }

    /// The main process has ended.
    pub(super) fn begin(&mut self, now: Duration) {
        (self.began, self.due, self.moved) = (now, now, now);
    }

    /// When to look next.
    pub(super) fn due(&self) -> Duration {
        self.due
    }

    fn decide(&mut self, now: Duration, seen: Sight) -> Fate {
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
        if late || (seen.writes && now < closed + MOMENT) {
            Fate::Wait
        } else {
            Fate::Leave
        }
    }
}

impl Supervisor<'_> {
    pub(super) fn look_at_leftovers(&mut self, now: Duration) {
        if now < self.leftovers.due {
            return;
        }
        let processes: Vec<Process> = tree::descendants().into_iter().filter(|process| !process.zombie).collect();
        if processes.is_empty() {
            self.leftovers.due = now + SOONEST;
            return;
        }
        let seen = self.look_at(&processes);
        match self.leftovers.decide(now, seen) {
            Fate::Wait => {}
            Fate::Leave if self.gates.hand_over() => {
                // Who cancels a job may signal all of its processes, one after the other, and the command first.
                std::thread::sleep(self.surroundings.grace);
                self.take_signals();
                self.left = self.reason.is_none();
            }
            Fate::Leave | Fate::End => {
                let message = "processes that the command left running are ended: they cannot go on without sfio-node";
                self.note(&[Event::warning(message, None)]);
                self.signal_tree(Signal::SIGTERM, PATIENCE, false);
            }
        }
    }

    fn look_at(&self, processes: &[Process]) -> Sight {
        let read: Vec<&Feeder> = self.feeders.iter().filter(|feeder| feeder.is_read()).collect();
        let files = existing(&self.job.outputs);
        let paths: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
        Sight {
            prints: tree::holds_any(processes, &self.leftovers.printed),
            reads: !read.is_empty() || self.gates.hold_somebody(),
            streamed: read.iter().map(|feeder| feeder.streamed()).sum(),
            full: read.iter().any(|feeder| matches!(feeder.need, Need::Space | Need::Pause)),
            writes: tree::writes_any(processes, &paths),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTS: Sight = Sight { prints: true, reads: false, streamed: 0, full: false, writes: false };
    const DAEMON: Sight = Sight { prints: false, ..PRINTS };
    const WRITES: Sight = Sight { writes: true, ..DAEMON };
    const READS: Sight = Sight { reads: true, ..DAEMON };
    const STUCK: Sight = Sight { full: true, streamed: 7, ..READS };

    /// When it is decided not to wait any longer, and what.
    fn decided(course: &[(u64, Sight)]) -> Option<(u64, Fate)> {
        let mut leftovers = Leftovers::default();
        leftovers.begin(Duration::from_millis(5));
        (5..100_000).find_map(|now| {
            let time = Duration::from_millis(now);
            let (_, seen) = course.iter().rev().find(|(from, _)| *from <= now)?;
            if time < leftovers.due() {
                return None;
            }
            Some((now, leftovers.decide(time, *seen))).filter(|(_, fate)| *fate != Fate::Wait)
        })
    }

    #[test]
    fn fates() {
        type Case<'a> = (&'a str, &'a [(u64, Sight)], Option<(u64, Fate)>);
        let table: [Case; 8] = [
            ("goes on", &[(0, DAEMON)], Some((5, Fate::Leave))),
            ("prints for ever", &[(0, PRINTS)], None),
            ("becomes a daemon", &[(0, PRINTS), (1000, DAEMON)], Some((1000, Fate::Leave))),
            ("keeps an output open", &[(0, WRITES)], Some((2005, Fate::Leave))),
            ("closes an output", &[(0, WRITES), (1000, DAEMON)], Some((1000, Fate::Leave))),
            ("reads for long", &[(0, READS), (50_000, DAEMON)], Some((59_750, Fate::Leave))),
            ("never reads", &[(0, STUCK)], Some((10_005, Fate::End))),
            ("takes its time, and prints", &[(0, Sight { prints: true, ..STUCK }), (30_000, READS)], None),
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
