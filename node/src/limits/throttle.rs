//! Keeps a job to its limit: pauses all of its processes when they have moved more than the limit allows.
//!
//! Programs need no change, system calls do not become slower, and no rights of root are needed. A running system call
//! continues during a pause. The bytes that it moves make the next pause longer.

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

/// Times between two looks at the running processes. `LOOK` grows to `SELDOM_LOOK` while all work done here takes more
/// than one part in `THRIFT` of a core. Pauses then become fewer and longer.
const LOOK: Duration = Duration::from_millis(1);
const SELDOM_LOOK: Duration = Duration::from_millis(5);
const THRIFT: u32 = 100;
/// Longest time between two looks at the paused processes.
const LOOK_IN_PAUSE: Duration = Duration::from_millis(50);
/// The shortest pause. A shorter one is not worth its signals.
const SHORTEST: Duration = Duration::from_millis(2);
/// The longest pause. Other programs could take the job for dead after a longer one.
const LONGEST: Duration = Duration::from_secs(5);
/// Time without I/O after which a job had nothing to move.
const SILENCE: Duration = Duration::from_millis(250);
/// Least time between two reports of the bytes moved, and time between two looks at a job without a limit.
const TELL: Duration = Duration::from_secs(2);
/// Reports are at least one part in this many of the expected bytes apart.
const STEPS: u64 = 10;
/// How often newly started processes are searched for while the processes are being stopped.
const SEARCHES: usize = 3;

/// Pauses and continues the processes of a job. Times are durations since any fixed moment.
#[derive(Debug)]
pub struct Throttle {
    moved: Moved,
    seen: u64,
    /// When `seen` has grown last.
    grown: Duration,
    rate: Rate,
    /// Without a pace nothing is paused: there is no limit, or no look since the limit was set.
    pace: Option<Pace>,
    write_out: Option<WriteOut>,
    guard: Option<Watchdog>,
    /// Processes that were stopped here. Processes that were stopped before are left alone.
    stopped: BTreeSet<ProcessId>,
    /// When the present pause began.
    since: Option<Duration>,
    due: Duration,
    /// When the share of the looks so far has fallen to one part in `THRIFT`.
    thrift: Duration,
    /// CPU time of this thread at its last look. What it has used since then is counted as the cost of looks.
    spent: Duration,
    /// Sum of the pauses that are over.
    total: Duration,
    told: Paused,
    /// Bytes that the job is expected to move in all. The job waits only for the time of the bytes that are left: a
    /// pause after the last byte would be of no use. None: a pause may be of any length, as the end is not known, or
    /// has passed.
    expected: Option<u64>,
    /// Bytes between two reports.
    step: u64,
    /// The bytes in the last report, and the earliest time of the next one.
    said: u64,
    say: Duration,
    /// The job is not paused any more: it is being ended, or may not be examined.
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

    /// Returns when to look next, or None if the job is not paused any more.
    pub fn due(&self) -> Option<Duration> {
        (!self.slack).then_some(self.due)
    }

    /// Keeps the job to another rate from now on. The next look is due at once.
    pub fn keep_to(&mut self, rate: Rate, now: Duration) {
        match (&mut self.pace, rate) {
            (Some(pace), Some(rate)) => pace.change(rate, now),
            (pace, _) => *pace = None,
        }
        self.rate = rate;
        self.due = now;
    }

    /// Returns the bytes moved so far if a report is due.
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

    /// Returns for how long the processes have been paused by now.
    pub fn paused(&self, now: Duration) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
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
            // Stops processes that others have continued, and new ones.
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

    /// Records the bytes moved by now, and returns for how long nothing more may be moved.
    fn take(&mut self, bytes: u64, now: Duration) -> Duration {
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
        } else if self.since.is_none() && now >= self.grown + SILENCE {
            pace.idle(now);
        }
        pace.moved(new, now);
        self.told.ahead = self.told.ahead.max(pace.ahead());
        if let Some(expected) = self.expected {
            // After more bytes than expected it is unknown how many are still to come.
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

    /// Continues the processes, and does not pause them any more.
    pub fn slacken(&mut self, now: Duration) {
        self.let_go(now);
        self.guard = None;
        self.slack = true;
    }

    /// Returns how the job was kept to its limit.
    pub fn told(&self) -> Paused {
        Paused { paused: self.total.as_secs_f64(), ..self.told }
    }
}
