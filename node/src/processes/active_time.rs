//! How long each process has been able to go on.
//!
//! On a machine with more to do than it has processors, a process that is ready to run may wait long for its turn.
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

/// Of each process that is followed the time that it has slept or run. Times are durations since any fixed moment.
#[derive(Debug, Default)]
pub struct ActiveTimes(BTreeMap<ProcessId, Life>);

impl ActiveTimes {
    /// Takes what is seen of a process now, and returns how long it has lived since it was first seen.
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

/// How much of the time that has passed between two looks at a process it has lived on.
pub fn lived_since(before: &ProcessState, vitals: &ProcessState, passed: Duration) -> Duration {
    let Some((ran, waited)) = vitals.turns else { return passed };
    let (ran_before, waited_before) = before.turns.unwrap_or_default();
    if vitals.runnable {
        // How long it has been waiting by now is told only when it gets its turn.
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
