//! The time for which each process was able to run or to sleep.
//!
//! On a machine with more work than processors, a process that is ready to run may wait long for its turn.
//! The time of such a wait does not count.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::processes::snapshot::{ProcessId, ProcessState};

#[derive(Clone, Copy, Debug)]
struct Life {
    seen: Duration,
    vitals: ProcessState,
    lived: Duration,
}

/// The active time of each followed process: the time in which it slept or ran. Times are durations since any fixed
/// moment.
#[derive(Debug, Default)]
pub struct ActiveTimes(BTreeMap<ProcessId, Life>);

impl ActiveTimes {
    /// Records the present state of a process, and returns its active time since the first record.
    pub fn see(&mut self, id: ProcessId, vitals: &ProcessState, now: Duration) -> Duration {
        let first = Life { seen: now, vitals: *vitals, lived: Duration::ZERO };
        let life = self.0.entry(id).or_insert(first);
        let since = lived_since(&life.vitals, vitals, now.saturating_sub(life.seen));
        *life = Life { seen: now, vitals: *vitals, lived: life.lived + since };
        life.lived
    }

    pub fn lived(&self, id: &ProcessId) -> Duration {
        self.0.get(id).map_or(Duration::ZERO, |life| life.lived)
    }

    pub fn retain(&mut self, keep: impl Fn(&ProcessId) -> bool) {
        self.0.retain(|id, _| keep(id));
    }
}

/// Returns how much of the time between two states of a process it was active.
pub fn lived_since(before: &ProcessState, vitals: &ProcessState, passed: Duration) -> Duration {
    let Some((ran, waited)) = vitals.turns else { return passed };
    let (ran_before, waited_before) = before.turns.unwrap_or_default();
    if vitals.runnable {
        // The kernel counts a wait for a processor only when the wait has ended.
        passed.min(ran.saturating_sub(ran_before))
    } else {
        passed.saturating_sub(waited.saturating_sub(waited_before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ProcessId = ProcessId { pid: 1, start: 1 };

    fn vitals(runnable: bool, ran: u64, waited: u64) -> ProcessState {
        let turns = Some((Duration::from_millis(ran), Duration::from_millis(waited)));
        ProcessState { runnable, turns, ..ProcessState::default() }
    }

    #[test]
    fn who_waits_for_a_processor_does_not_live() {
        let mut lives = ActiveTimes::default();
        let course = [
            ("seen first", 100, vitals(true, 7, 3), 0),
            ("runs all the time", 110, vitals(true, 17, 3), 10),
            ("waits, which is not told yet", 150, vitals(true, 18, 3), 11),
            ("has run, and sleeps", 160, vitals(false, 20, 43), 11),
            ("sleeps", 200, vitals(false, 20, 43), 51),
            ("had to wait in between", 210, vitals(false, 21, 48), 56),
        ];
        for (what, now, vitals, lived) in course {
            assert_eq!(lives.see(ID, &vitals, Duration::from_millis(now)).as_millis(), lived, "{what}");
        }
        lives.retain(|_| false);
        assert_eq!(lives.lived(&ID), Duration::ZERO);
    }

    #[test]
    fn without_being_told_all_time_counts() {
        let mut lives = ActiveTimes::default();
        let busy = ProcessState { runnable: true, ..ProcessState::default() };
        lives.see(ID, &busy, Duration::ZERO);
        assert_eq!(lives.see(ID, &busy, Duration::from_millis(50)).as_millis(), 50);
    }
}
