//! How many of its cores a job needs, from the accounts of its processes.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::resource::{getrusage, UsageWho};

use super::cores::{Cores, LOOK};
use crate::processes::snapshot::ProcessId;
use crate::processes::tree::{self, Process};
use crate::processes::usage::{duration, thread_cpu};

/// Looks become less frequent if they would take more than one part in this many of the time.
const THRIFT: u32 = 100;

/// Programs that let a daemon compute for them, so that their use of processors cannot be seen.
const CLIENTS: [&str; 4] = ["docker", "nerdctl", "podman", "systemd-run"];

/// Measures the need of a job. Times are durations since any fixed moment.
pub struct Demand {
    cores: Cores,
    looked: Duration,
    due: Duration,
    /// CPU time of all living processes, of children that they have waited for, and of the orphans.
    used: Duration,
    /// Time for which each process has waited for a processor.
    waited: BTreeMap<ProcessId, Duration>,
}

impl Demand {
    pub fn new(most: u32, now: Duration) -> Self {
        Self { cores: Cores::new(most, now), looked: now, due: now + LOOK, used: orphans(), waited: BTreeMap::new() }
    }

    /// Returns when to look next.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Measures what the job uses, and returns how many cores it needs if that has changed.
    ///
    /// # Arguments
    /// * `look` - returns all processes as they are now
    pub fn look(&mut self, now: Duration, look: impl FnOnce() -> Vec<Process>) -> Option<u32> {
        let before = thread_cpu();
        let processes = look();
        let passed = now.saturating_sub(self.looked).as_secs_f64();
        let wanted = (self.used(&processes) + self.waited(&processes)).as_secs_f64() / passed;
        let is_known = !tree::waits_for_device(&processes) && !processes.iter().any(is_client);
        let cost = thread_cpu().saturating_sub(before);
        (self.looked, self.due) = (now, now + LOOK.max(cost * THRIFT));
        self.cores.look(now, is_known.then_some(wanted))
    }

    /// Returns the CPU time since the last look.
    fn used(&mut self, processes: &[Process]) -> Duration {
        let used = processes.iter().map(|process| process.cpu).sum::<Duration>() + orphans();
        // The sum decreases when a process has ended that no process of the job has waited for.
        used.saturating_sub(std::mem::replace(&mut self.used, used))
    }

    /// Returns the time since the last look for which processes waited for processors. A starved process is not idle.
    fn waited(&mut self, processes: &[Process]) -> Duration {
        let waited: BTreeMap<_, _> = processes.iter().map(|process| (process.id, tree::waited(process))).collect();
        let before = std::mem::replace(&mut self.waited, waited);
        let since =
            |(id, now): (&ProcessId, &Duration)| now.saturating_sub(before.get(id).copied().unwrap_or_default());
        self.waited.iter().map(since).sum()
    }
}

/// Returns the CPU time of the processes that this process has waited for.
fn orphans() -> Duration {
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(Duration::ZERO, |used| duration(used.user_time()) + duration(used.system_time()))
}

fn is_client(process: &Process) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", process.id.pid)).unwrap_or_default();
    CLIENTS.contains(&name.trim_end())
}
