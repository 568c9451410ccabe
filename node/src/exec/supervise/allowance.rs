//! Whether a job has had all the time that it was given.
//!
//! A job of the lowest priority may get no processor as long as others want it. Time in which a process of the job
//! waits for a processor does not count.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::processes::active_time::lived_since;
use crate::processes::snapshot::{ProcessId, ProcessState};

/// Time between two looks at the threads.
const LOOK: Duration = Duration::from_millis(500);

/// The time that a job was given, and has had. Times are durations since any fixed moment.
#[derive(Debug)]
pub struct Allowance {
    given: Duration,
    had: Duration,
    looked: Duration,
    threads: BTreeMap<ProcessId, ProcessState>,
}

impl Allowance {
    pub fn new(given: Duration, now: Duration) -> Self {
        Self { given, had: Duration::ZERO, looked: now, threads: BTreeMap::new() }
    }

    /// Returns when to look next.
    pub fn due(&self) -> Duration {
        self.looked + LOOK
    }

    /// Records the states of the job's threads, and returns whether the job has had all of its time.
    ///
    /// In a pipeline all threads wait when one waits for a processor. Therefore the thread with the least active time
    /// counts.
    pub fn look(&mut self, now: Duration, threads: BTreeMap<ProcessId, ProcessState>) -> bool {
        let passed = now.saturating_sub(self.looked);
        let had = threads.iter().filter_map(|(id, vitals)| Some(lived_since(self.threads.get(id)?, vitals, passed)));
        self.had += had.min().unwrap_or(passed);
        (self.looked, self.threads) = (now, threads);
        self.had >= self.given
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    /// Each thread by its number, whether it runs or wants to, and how long it has run and waited.
    fn threads(all: &[(i32, bool, u64, u64)]) -> BTreeMap<ProcessId, ProcessState> {
        let thread = |(number, runnable, ran, waited): &(i32, bool, u64, u64)| {
            let vitals =
                ProcessState { runnable: *runnable, turns: Some((ms(*ran), ms(*waited))), ..ProcessState::default() };
            (ProcessId { pid: *number, start: 1 }, vitals)
        };
        all.iter().map(thread).collect()
    }

    #[test]
    fn time_in_which_one_waits_for_a_processor_does_not_count() {
        let mut allowance = Allowance::new(ms(1_500), ms(0));
        let course = [
            ("nobody was seen before", 500, threads(&[(1, false, 0, 0), (2, true, 0, 0)]), 500),
            ("one runs, one sleeps", 1_000, threads(&[(1, false, 0, 0), (2, true, 500, 0)]), 1_000),
            ("one waits, and the other one for it", 9_000, threads(&[(1, false, 0, 0), (2, true, 510, 0)]), 1_010),
            ("it was told", 9_500, threads(&[(1, false, 0, 0), (2, false, 520, 8_480)]), 1_010),
            (
                "all sleep, a new one runs",
                9_900,
                threads(&[(1, false, 0, 0), (2, false, 520, 8_480), (3, true, 1, 0)]),
                1_410,
            ),
        ];
        for (what, now, threads, had) in course {
            assert!(!allowance.look(ms(now), threads), "{what}");
            assert_eq!(allowance.had.as_millis(), had, "{what}");
        }
        assert!(allowance.look(ms(9_990), BTreeMap::new()));
    }

    #[test]
    fn where_the_kernel_does_not_tell_all_time_counts() {
        let mut allowance = Allowance::new(ms(600), ms(0));
        let unknown =
            || [(ProcessId { pid: 1, start: 1 }, ProcessState { runnable: true, ..ProcessState::default() })].into();
        assert!(!allowance.look(ms(500), unknown()));
        assert!(allowance.look(ms(1_000), unknown()));
    }
}
