//! How many of its cores a job needs, by the accounts of its processes.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::resource::{getrusage, UsageWho};

use super::cores::{Cores, LOOK};
use crate::processes::snapshot::ProcessId;
use crate::processes::tree::{self, Process};
use crate::processes::usage::{duration, thread_cpu};

/// It is looked at less often where that would take more than one part of so many of the time.
const THRIFT: u32 = 100;

/// Programs that let a daemon compute for them: nobody sees here what they use.
const CLIENTS: [&str; 4] = ["docker", "nerdctl", "podman", "systemd-run"];

/// Times are durations since any fixed moment.
pub struct Demand {
    cores: Cores,
    looked: Duration,
    due: Duration,
    /// By all processes that live, those that they have waited for, and the orphans.
    used: Duration,
    /// How long each has waited for a processor.
    waited: BTreeMap<ProcessId, Duration>,
}

impl Demand {
    pub fn new(most: u32, now: Duration) -> Self {
        Self { cores: Cores::new(most, now), looked: now, due: now + LOOK, used: orphans(), waited: BTreeMap::new() }
    }

    /// When to look next.
    pub fn due(&self) -> Duration {
        self.due
    }

    /// Looks what the job uses; returns how many cores it needs, if that is news.
    ///
    /// # Arguments
    /// * `look` - gives all processes as they are now
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

    /// The time that they had processors since the last look.
    fn used(&mut self, processes: &[Process]) -> Duration {
        let used = processes.iter().map(|process| process.cpu).sum::<Duration>() + orphans();
        // It is less where somebody has ended and was waited for by nobody.
        used.saturating_sub(std::mem::replace(&mut self.used, used))
    }

    /// The time that they have waited for processors since the last look: who is starved is not idle.
    fn waited(&mut self, processes: &[Process]) -> Duration {
        let waited: BTreeMap<_, _> = processes.iter().map(|process| (process.id, tree::waited(process))).collect();
        let before = std::mem::replace(&mut self.waited, waited);
        let since =
            |(id, now): (&ProcessId, &Duration)| now.saturating_sub(before.get(id).copied().unwrap_or_default());
        self.waited.iter().map(since).sum()
    }
}

/// What those had used that this process has waited for.
fn orphans() -> Duration {
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map_or(Duration::ZERO, |used| duration(used.user_time()) + duration(used.system_time()))
}

fn is_client(process: &Process) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", process.id.pid)).unwrap_or_default();
    CLIENTS.contains(&name.trim_end())
}
