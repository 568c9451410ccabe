//! Keeps a job to its limit: pauses all of its processes when they have moved more than the limit allows.
//!
//! Programs need no change, system calls do not become slower, and no rights of root are needed. A running system call
//! continues during a pause. The bytes that it moves make the next pause longer.

use std::io;
use std::time::Duration;

use crate::limits::pace::Pace;
use crate::limits::pause::{Pause, LONGEST, LOOK_IN_PAUSE};
use crate::limits::writeback::WriteOut;
use crate::processes::io_counters::Moved;
use crate::processes::tree::Process;
use crate::processes::usage::{thread_cpu, THRIFT};
use crate::processes::watchdog::Watchdog;
use crate::protocol::event::Paused;
use crate::protocol::job::{Direction, Rate, RateLimit};

/// Times between two looks at the running processes. `LOOK` grows to `SELDOM_LOOK` while all work done here takes more
/// than one part in `THRIFT` of a core. Pauses then become fewer and longer.
const LOOK: Duration = Duration::from_millis(1);
const SELDOM_LOOK: Duration = Duration::from_millis(5);
/// The shortest pause. A shorter one is not worth its signals.
const SHORTEST: Duration = Duration::from_millis(2);
/// Time without I/O after which a job had nothing to move.
const SILENCE: Duration = Duration::from_millis(250);
/// Least time between two reports of the bytes moved, and time between two looks at a job without a limit.
const TELL: Duration = Duration::from_secs(2);
/// Reports are at least one part in this many of the expected bytes apart.
const STEPS: u64 = 10;

/// Pauses and continues the processes of a job. Times are durations since any fixed moment.
#[derive(Debug)]
pub struct Throttle {
    moved: Moved,
    debt: Debt,
    write_out: Option<WriteOut>,
    pause: Pause,
    looks: Looks,
    news: News,
    /// The job is being ended, or may not be looked into.
    slack: bool,
}

impl Throttle {
    pub fn new(limit: &RateLimit, guard: Option<Watchdog>, now: Duration) -> Self {
        let writes = limit.direction != Direction::Read;
        Self {
            moved: Moved::new(limit.direction, &limit.path),
            debt: Debt {
                rate: limit.rate,
                pace: limit.rate.map(|rate| Pace::new(rate, now)),
                expected: limit.expected.filter(|expected| *expected > 0),
                seen: 0,
                grown: now,
            },
            write_out: writes.then(|| WriteOut::start(&limit.path)).flatten(),
            pause: Pause::new(guard),
            looks: Looks { due: now, thrift: now, spent: thread_cpu() },
            news: News { step: (limit.expected.unwrap_or(0) / STEPS).max(1), said: 0, say: now + TELL },
            slack: false,
        }
    }

    /// When to look next. None: never.
    pub fn due(&self) -> Option<Duration> {
        (!self.slack).then_some(self.looks.due)
    }

    /// Keeps the job to another rate from now on. The next look is due at once.
    pub fn keep_to(&mut self, rate: Rate, now: Duration) {
        self.debt.keep_to(rate, now);
        self.looks.due = now;
    }

    /// Returns the bytes moved so far if a report is due.
    pub fn news(&mut self, now: Duration) -> Option<u64> {
        self.news.tell(self.debt.seen, now)
    }

    pub fn pauses(&self) -> bool {
        self.pause.is_on()
    }

    /// Returns for how long the processes have been paused by now.
    pub fn paused(&self, now: Duration) -> Duration {
        self.pause.by(now)
    }

    /// Looks at the processes, and pauses or continues them.
    ///
    /// # Arguments
    /// * `look` - returns all processes as they are now, each after its parent
    ///
    /// # Errors
    /// The error, if the processes may not be examined. The job is not paused any more then.
    pub fn look(&mut self, now: Duration, look: &mut impl FnMut() -> Vec<Process>) -> io::Result<()> {
        let mut processes = look();
        let mut found = self.moved.look(&processes);
        if matches!(found, Ok(None)) {
            processes = look();
            found = self.moved.look(&processes);
        }
        let bytes = found.inspect_err(|_| self.slacken(now))?.unwrap_or(self.debt.seen);
        let debt = self.debt.take(bytes, now, self.pauses());
        match self.pause.since {
            Some(since) if debt.is_zero() || now >= since + LONGEST => {
                if let Some(write_out) = &mut self.write_out {
                    write_out.begin(&processes, self.debt.seen, now);
                }
                self.let_go(now);
            }
            None if debt > SHORTEST => {
                self.pause.begin(now, processes, look);
            }
            // Others may have let a process go on.
            Some(_) => self.pause.stop(processes, look),
            None => {}
        }
        let earliest = self.looks.spend(now);
        self.looks.due = match self.pause.since {
            Some(since) => (now + debt.min(LOOK_IN_PAUSE)).min(since + LONGEST),
            None if self.debt.rate.is_none() => now + TELL,
            None => earliest,
        };
        Ok(())
    }

    fn let_go(&mut self, now: Duration) {
        self.pause.let_go(now);
        self.debt.grown = now;
    }

    /// Pauses the job no more.
    pub fn slacken(&mut self, now: Duration) {
        self.debt.grown = now;
        self.pause.end(now);
        self.slack = true;
    }

    /// How the job was kept to its limit.
    pub fn told(&self) -> Paused {
        self.pause.told()
    }
}

/// How far a job is ahead of its limit.
#[derive(Debug)]
struct Debt {
    rate: Rate,
    /// Present once a limit is set and a look has followed.
    pace: Option<Pace>,
    /// Bytes that the job is expected to move in all. None: unknown, or the job has moved more.
    ///
    /// The debt is never more than the rest of these bytes: a job that has moved all would be held for nothing.
    expected: Option<u64>,
    /// Bytes that were moved.
    seen: u64,
    /// When `seen` became more.
    grown: Duration,
}

impl Debt {
    fn keep_to(&mut self, rate: Rate, now: Duration) {
        match (&mut self.pace, rate) {
            (Some(pace), Some(rate)) => pace.change(rate, now),
            (pace, _) => *pace = None,
        }
        self.rate = rate;
    }

    /// Takes how many bytes were moved by now, and returns for how long nothing more is to be moved.
    fn take(&mut self, bytes: u64, now: Duration, paused: bool) -> Duration {
        let new = bytes.saturating_sub(self.seen);
        self.seen += new;
        let Some(pace) = &mut self.pace else {
            // Bytes that were moved without a limit do not count.
            self.pace = self.rate.map(|rate| Pace::new(rate, now));
            self.grown = now;
            return Duration::ZERO;
        };
        if new > 0 {
            self.grown = now;
        } else if !paused && now >= self.grown + SILENCE {
            pace.idle(now);
        }
        pace.moved(new, now);
        if let Some(expected) = self.expected {
            // After more bytes than expected it is unknown how many are still to come.
            pace.owe_at_most(expected.abs_diff(self.seen));
            self.expected = (self.seen < expected).then_some(expected);
        }
        pace.moved(0, now)
    }
}

/// When to look at the tree.
#[derive(Debug)]
struct Looks {
    due: Duration,
    /// When all looks so far have taken their part of the time.
    thrift: Duration,
    /// The CPU time of the thread at the last look. What it needs from one look to the next is because of the looks.
    spent: Duration,
}

impl Looks {
    /// Counts what a look has cost, and returns when to look next at a tree that runs.
    fn spend(&mut self, now: Duration) -> Duration {
        let spent = thread_cpu();
        self.thrift += spent.saturating_sub(self.spent) * THRIFT;
        self.spent = spent;
        self.thrift.clamp(now + LOOK, now + SELDOM_LOOK)
    }
}

/// Reports of the bytes that were moved.
#[derive(Debug)]
struct News {
    /// Bytes between two events.
    step: u64,
    /// Bytes that were told.
    said: u64,
    /// When to tell again.
    say: Duration,
}

impl News {
    fn tell(&mut self, seen: u64, now: Duration) -> Option<u64> {
        let due = now >= self.say && seen >= self.said.saturating_add(self.step);
        due.then(|| {
            (self.said, self.say) = (seen, now + TELL);
            seen
        })
    }
}
