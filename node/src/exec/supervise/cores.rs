//! How many of its cores a job needs, from what the job has recently used and waited for.
//!
//! A greater need is reported at once, a smaller one only when fewer cores were enough for a while.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use nix::sys::resource::{getrusage, UsageWho};

use crate::processes::snapshot::ProcessId;
use crate::processes::tree::{self, Process};
use crate::processes::usage::{duration, thread_cpu, THRIFT};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Time for which fewer cores must be enough.
const WHILE: Duration = Duration::from_secs(2);
/// Part of a core that counts as none: a job that only looks at a clock or writes a block now and then is waiting.
const SLACK: f64 = 0.25;

/// The need of a job. Times are durations since any fixed moment.
#[derive(Debug)]
struct Cores {
    most: u32,
    told: u32,
    /// The need in the time before each of these moments.
    recent: VecDeque<(Duration, u32)>,
}

impl Cores {
    /// Starts with the need of all `most` cores, until fewer were enough.
    fn new(most: u32, now: Duration) -> Self {
        Self { most, told: most, recent: VecDeque::from([(now, most)]) }
    }

    /// Records the need since the last look, and returns the number of cores needed if it has changed.
    ///
    /// # Arguments
    /// * `wanted` - mean number of processors that the job had or waited for; None: all its cores count as needed
    fn look(&mut self, now: Duration, wanted: Option<f64>) -> Option<u32> {
        // A job that waits for a device would wait longer beside other users of the device. (`as` turns negative
        // numbers into 0.)
        let needed = wanted.map_or(self.most, |wanted| ((wanted - SLACK).ceil() as u32).min(self.most));
        self.recent.push_back((now, needed));
        self.recent.retain(|(at, _)| *at + WHILE > now);
        let needed = self.recent.iter().map(|(_, needed)| *needed).max().unwrap_or(self.most);
        (std::mem::replace(&mut self.told, needed) != needed).then_some(needed)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_random::Random;

    /// Returns the reported needs, and after how many looks, of a job that wants this much before each look.
    fn told(most: u32, wanted: &[f64]) -> Vec<(usize, u32)> {
        let mut cores = Cores::new(most, Duration::ZERO);
        let look = |(index, wanted): (usize, &f64)| {
            let number = index + 1;
            Some((number, cores.look(LOOK * number as u32, Some(*wanted))?))
        };
        wanted.iter().enumerate().filter_map(look).collect()
    }

    #[test]
    fn who_waits_needs_none_after_a_while() {
        assert_eq!(told(1, &[0.0; 3]), []);
        assert_eq!(told(1, &[0.0; 20]), [(4, 0)]);
        assert_eq!(told(1, &[0.2; 20]), [(4, 0)]);
        assert_eq!(told(1, &[0.3; 20]), []);
        assert_eq!(told(4, &[1.1; 20]), [(4, 1)]);
        assert_eq!(told(4, &[1.3; 20]), [(4, 2)]);
        assert_eq!(told(4, &[9.0; 20]), []);
    }

    #[test]
    fn who_goes_on_needs_them_at_once() {
        let wanted = [vec![0.0; 7], vec![1.0], vec![0.0; 20]].concat();
        assert_eq!(told(1, &wanted), [(4, 0), (8, 1), (12, 0)]);
        let wanted = [vec![0.0; 7], vec![2.0, 4.0], vec![1.0; 20]].concat();
        assert_eq!(told(4, &wanted), [(4, 0), (8, 2), (9, 4), (13, 1)]);
    }

    #[test]
    fn who_waits_for_a_device_needs_all() {
        let mut cores = Cores::new(3, Duration::ZERO);
        assert_eq!((1..9).find_map(|number| cores.look(LOOK * number, Some(0.0))), Some(0));
        assert_eq!(cores.look(LOOK * 9, None), Some(3));
        assert_eq!((10..19).filter_map(|number| cores.look(LOOK * number, None)).next(), None);
    }

    #[test]
    fn it_is_never_less_than_what_was_wanted_lately() {
        let mut random = Random::new(7);
        for most in 1..6 {
            let (mut cores, mut told, mut now, mut news) = (Cores::new(most, Duration::ZERO), most, Duration::ZERO, 0);
            let mut wanted: Vec<(Duration, u32)> = vec![(now, most)];
            for _ in 0..500 {
                now += LOOK + Duration::from_millis(random.below(2000));
                let whole = random.below(u64::from(most) * 2) as u32 * u32::from(random.below(4) == 0);
                let found = cores.look(now, Some(f64::from(whole)));
                assert_ne!(found, Some(told));
                news += u32::from(found.is_some());
                told = found.unwrap_or(told);
                wanted.push((now, whole.min(most)));
                let lately = wanted.iter().filter(|(at, _)| *at + WHILE > now).map(|(_, wanted)| *wanted);
                assert_eq!(told, lately.max().unwrap());
            }
            assert!(news > 0);
        }
    }
}
