//! Keeps a job to its limit: pauses all of its processes when they have moved more than the limit allows.
//!
//! No program has to know of the limit, no system call is slower, and no rights of root are needed. A call that is
//! under way goes on in the kernel; what the call moves meanwhile makes the next pause longer.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::limits::pace::Pace;
use crate::limits::writeback::WriteOut;
use crate::processes::io_counters::Moved;
use crate::processes::snapshot::ProcessId;
use crate::processes::tree::{self, Process};
use crate::processes::usage::thread_cpu;
use crate::processes::watchdog::Watchdog;
use crate::protocol::event::Paused;
use crate::protocol::job::{Direction, Rate, RateLimit};

/// The tree is looked at so often while it runs; less often, so that it is paused less often, and for longer, where all that is
/// done here would have taken more than one part of so many of the time: 1 percent of a core.
const LOOK: Duration = Duration::from_millis(1);
const SELDOM_LOOK: Duration = Duration::from_millis(5);
const THRIFT: u32 = 100;
/// The same while it is paused.
const LOOK_IN_PAUSE: Duration = Duration::from_millis(50);
/// A shorter pause is not worth its signals.
const SHORTEST: Duration = Duration::from_millis(2);
/// A longer one others might take for the end of the job.
const LONGEST: Duration = Duration::from_secs(5);
/// After such a silence a job had nothing to move.
const SILENCE: Duration = Duration::from_millis(250);
/// What was moved is told at most so often. A tree without a limit is looked at so often, too.
const TELL: Duration = Duration::from_secs(2);
/// Of the bytes that are expected, that is told after one part in so many.
const STEPS: u64 = 10;
/// When the processes are stopped, those that they have just started are sought so often.
const SEARCHES: usize = 3;

/// Times are durations since any fixed moment.
#[derive(Debug)]
pub struct Throttle {
    moved: Moved,
    seen: u64,
    /// When that became more.
    grown: Duration,
    rate: Rate,
    /// None: it has no limit, or nothing was seen since it has one.
    pace: Option<Pace>,
    write_out: Option<WriteOut>,
    guard: Option<Watchdog>,
    /// Those that are stopped by us. Who was stopped before is not ours.
    stopped: BTreeSet<ProcessId>,
    /// Since when the tree is paused.
    since: Option<Duration>,
    due: Duration,
    /// When all looks so far have taken their part of the time.
    thrift: Duration,
    /// The CPU time of the thread when it had looked last: what it needs from one look to the next is because of the looks.
    spent: Duration,
    /// Of pauses that are over.
    total: Duration,
    told: Paused,
    /// How many bytes it is expected to move, while it has moved less. What is left of them is owed, and waited for; who has
    /// moved all of them before they were looked at would be held for nothing.
    expected: Option<u64>,
    /// Bytes after which it is told how many were moved.
    step: u64,
    /// What was told of them, and when that is to be told again.
    said: u64,
    say: Duration,
    /// The job is being ended, or may not be looked into.
    slack: bool,
}

impl Throttle {
    pub fn new(limit: &RateLimit, guard: Option<Watchdog>, now: Duration) -> Self {
        let writes = limit.direction != Direction::Read;
        Self {
            moved: Moved::new(limit.direction, &limit.path),
            seen: 0,
            grown: now,
            rate: limit.rate,
            pace: limit.rate.map(|rate| Pace::new(rate, now)),
            write_out: writes.then(|| WriteOut::start(&limit.path)).flatten(),
            guard,
            stopped: BTreeSet::new(),
            since: None,
            due: now,
            thrift: now,
            spent: thread_cpu(),
            total: Duration::ZERO,
            told: Paused::default(),
            expected: limit.expected.filter(|expected| *expected > 0),
            step: (limit.expected.unwrap_or(0) / STEPS).max(1),
            said: 0,
            say: now + TELL,
            slack: false,
        }
    }

    /// When to look next.
    pub fn due(&self) -> Option<Duration> {
        (!self.slack).then_some(self.due)
    }

    /// Keeps the job to another rate from now on, beginning with a look at it that is due at once.
    pub fn keep_to(&mut self, rate: Rate, now: Duration) {
        match (&mut self.pace, rate) {
            (Some(pace), Some(rate)) => pace.change(rate, now),
            (pace, _) => *pace = None,
        }
        self.rate = rate;
        self.due = now;
    }

    /// How many bytes were moved so far, when that is to be told.
    pub fn news(&mut self, now: Duration) -> Option<u64> {
        let due = now >= self.say && self.seen >= self.said.saturating_add(self.step);
        due.then(|| {
            (self.said, self.say) = (self.seen, now + TELL);
            self.seen
        })
    }

    pub fn pauses(&self) -> bool {
        self.since.is_some()
    }

    /// How long the tree has been paused by now.
    pub fn paused(&self, now: Duration) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    /// Looks at the tree, and pauses it, or lets it go on.
    ///
    /// # Arguments
    /// * `look` - gives all processes as they are now, each after its parent
    ///
    /// # Errors
    /// When they may not be looked into: then the job is not kept to its limit any more.
    pub fn look(&mut self, now: Duration, look: &mut impl FnMut() -> Vec<Process>) -> io::Result<()> {
        let mut processes = look();
        let mut found = self.moved.look(&processes);
        if matches!(found, Ok(None)) {
            processes = look();
            found = self.moved.look(&processes);
        }
        let bytes = found.inspect_err(|_| self.slacken(now))?.unwrap_or(self.seen);
        let debt = self.take(bytes, now);
        match self.since {
            Some(since) if debt.is_zero() || now >= since + LONGEST => {
                if let Some(write_out) = &mut self.write_out {
                    write_out.begin(&processes, self.seen, now);
                }
                self.let_go(now);
            }
            None if debt > SHORTEST => {
                self.since = Some(now);
                self.told.pauses += 1;
                self.stop(processes, look);
            }
            // Those whom others let go on.
            Some(_) => self.stop(processes, look),
            None => {}
        }
        let spent = thread_cpu();
        self.thrift += spent.saturating_sub(self.spent) * THRIFT;
        self.spent = spent;
        self.due = match self.since {
            Some(since) => (now + debt.min(LOOK_IN_PAUSE)).min(since + LONGEST),
            None if self.rate.is_none() => now + TELL,
            None => self.thrift.clamp(now + LOOK, now + SELDOM_LOOK),
        };
        Ok(())
    }

    /// Takes how many bytes were moved by now, and returns for how long nothing more is to be moved.
    fn take(&mut self, bytes: u64, now: Duration) -> Duration {
        let new = bytes.saturating_sub(self.seen);
        self.seen += new;
        let Some(pace) = &mut self.pace else {
            // What was moved without a limit does not count.
            self.pace = self.rate.map(|rate| Pace::new(rate, now));
            self.grown = now;
            return Duration::ZERO;
        };
        if new > 0 {
            self.grown = now;
        } else if self.since.is_none() && now >= self.grown + SILENCE {
            pace.idle(now);
        }
        pace.moved(new, now);
        self.told.ahead = self.told.ahead.max(pace.ahead());
        if let Some(expected) = self.expected {
            // Of what is more than was expected nobody knows how much is still to come.
            pace.owe_at_most(expected.abs_diff(self.seen));
            self.expected = (self.seen < expected).then_some(expected);
        }
        pace.moved(0, now)
    }

    fn stop(&mut self, mut processes: Vec<Process>, look: &mut impl FnMut() -> Vec<Process>) {
        for _ in 0..SEARCHES {
            let runs = |process: &&Process| !process.zombie && !process.vitals.standing;
            let running: Vec<ProcessId> = processes.iter().filter(runs).map(|process| process.id).collect();
            let new = running.iter().any(|id| !self.stopped.contains(id));
            self.stopped.extend(&running);
            if let Some(guard) = &mut self.guard {
                guard.tell(self.stopped.iter());
            }
            for id in running {
                let _ = kill(Pid::from_raw(id.pid), Signal::SIGSTOP);
            }
            if !new {
                return;
            }
            processes = look();
        }
    }

    fn let_go(&mut self, now: Duration) {
        self.total = self.paused(now);
        self.grown = now;
        self.since = None;
        for id in std::mem::take(&mut self.stopped) {
            if !tree::is_gone(id) {
                let _ = kill(Pid::from_raw(id.pid), Signal::SIGCONT);
            }
        }
    }

    /// Pauses nobody any more.
    pub fn slacken(&mut self, now: Duration) {
        self.let_go(now);
        self.guard = None;
        self.slack = true;
    }

    /// How the job was kept to its limit.
    pub fn told(&self) -> Paused {
        Paused { paused: self.total.as_secs_f64(), ..self.told }
    }
}
