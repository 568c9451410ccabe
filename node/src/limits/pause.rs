//! Pauses all processes of a job, so that nothing stays paused whatever is killed.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::processes::snapshot::ProcessId;
use crate::processes::tree::{self, Process};
use crate::processes::watchdog::Watchdog;
use crate::protocol::event::Paused;

/// The longest pause. Other programs could take the job for dead after a longer one.
pub const LONGEST: Duration = Duration::from_secs(5);
/// Longest time between two looks at the paused processes.
pub const LOOK_IN_PAUSE: Duration = Duration::from_millis(50);
/// How often newly started processes are searched for while the processes are being stopped.
const SEARCHES: usize = 3;

/// The processes that are stopped.
#[derive(Debug)]
pub struct Pause {
    /// Ends the processes if this one is killed.
    guard: Option<Watchdog>,
    /// Processes that were stopped here. Those that others have stopped are not among them.
    stopped: BTreeSet<ProcessId>,
    /// Since when the tree is paused.
    pub since: Option<Duration>,
    /// The time of pauses that are over.
    total: Duration,
    count: u64,
}

impl Pause {
    pub fn new(guard: Option<Watchdog>) -> Self {
        Self { guard, stopped: BTreeSet::new(), since: None, total: Duration::ZERO, count: 0 }
    }

    pub fn is_on(&self) -> bool {
        self.since.is_some()
    }

    /// How long the tree has been paused by now.
    pub fn by(&self, now: Duration) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }

    pub fn begin(&mut self, now: Duration, processes: Vec<Process>, look: &mut impl FnMut() -> Vec<Process>) {
        self.since = Some(now);
        self.count += 1;
        self.stop(processes, look);
    }

    /// Stops the processes that run.
    ///
    /// # Arguments
    /// * `look` - returns all processes as they are now
    pub fn stop(&mut self, mut processes: Vec<Process>, look: &mut impl FnMut() -> Vec<Process>) {
        for _ in 0..SEARCHES {
            let runs = |process: &&Process| {
                let stands = process.vitals.standing;
                !process.zombie && !stands && (self.stopped.contains(&process.id) || !is_about_to_stop(process.id))
            };
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

    pub fn let_go(&mut self, now: Duration) {
        self.total = self.by(now);
        self.since = None;
        for id in std::mem::take(&mut self.stopped) {
            if !tree::is_gone(id) {
                let _ = kill(Pid::from_raw(id.pid), Signal::SIGCONT);
            }
        }
    }

    /// Lets the processes go on, and pauses them no more.
    pub fn end(&mut self, now: Duration) {
        self.let_go(now);
        self.guard = None;
    }

    /// How often and how long the processes were paused.
    pub fn told(&self) -> Paused {
        Paused { paused: self.total.as_secs_f64(), pauses: self.count }
    }
}

/// Whether a process has not yet taken a signal that stops it. Letting it go on would take the signal away.
fn is_about_to_stop(id: ProcessId) -> bool {
    let pending = tree::value(id.pid, "status", "ShdPnd:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    pending.is_some_and(|pending| pending & (1 << (Signal::SIGSTOP as i32 - 1)) != 0)
}
