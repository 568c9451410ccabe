//! Pauses a job as long as a reader of its window is too far behind. Times are durations since any fixed moment.

use std::time::Duration;

use crate::limits::pause::{Pause, LONGEST, LOOK_IN_PAUSE};
use crate::processes::tree::Process;
use crate::processes::watchdog::Watchdog;
use crate::protocol::event::Paused;

/// Time between two looks whether a pause is wanted.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct Hold {
    pause: Pause,
    due: Duration,
    /// When to stop the processes again: others may have let a process go on.
    again: Duration,
    /// The job is being ended.
    slack: bool,
}

impl Hold {
    /// # Arguments
    /// * `guard` - ends the paused processes if this one is killed
    pub fn new(guard: Watchdog, now: Duration) -> Self {
        Self { pause: Pause::new(Some(guard)), due: now, again: now, slack: false }
    }

    /// When to look next. None: never.
    pub fn due(&self) -> Option<Duration> {
        (!self.slack).then_some(self.due)
    }

    pub fn pauses(&self) -> bool {
        self.pause.is_on()
    }

    /// Returns for how long the processes have been paused by now.
    pub fn paused(&self, now: Duration) -> Duration {
        self.pause.by(now)
    }

    /// Pauses the processes, or lets them go on.
    ///
    /// # Arguments
    /// * `wanted` - whether they are to be paused
    /// * `look` - returns all processes as they are now
    pub fn look(&mut self, now: Duration, wanted: bool, look: &mut impl FnMut() -> Vec<Process>) {
        if self.slack {
            return;
        }
        self.due = now + LOOK;
        match self.pause.since {
            Some(since) if !wanted || now >= since + LONGEST => {
                self.pause.let_go(now);
                // After the longest pause the job runs for a moment.
                self.again = if wanted { now + LOOK } else { now };
            }
            Some(_) if now >= self.again => {
                self.again = now + LOOK_IN_PAUSE;
                self.pause.stop(look(), look);
            }
            None if wanted && now >= self.again => {
                self.again = now + LOOK_IN_PAUSE;
                self.pause.begin(now, look(), look);
            }
            _ => {}
        }
    }

    /// Pauses the job no more.
    pub fn slacken(&mut self, now: Duration) {
        self.pause.end(now);
        self.slack = true;
    }

    /// How the job was paused.
    pub fn told(&self) -> Paused {
        self.pause.told()
    }
}
