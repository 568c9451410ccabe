//! The processes of a job at one moment, as plain data.

use std::collections::BTreeMap;
use std::time::Duration;

/// Identity of a process that survives reuse of its number.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId {
    pub pid: i32,
    /// Clock ticks from boot to its start.
    pub start: u64,
}

/// What `/proc/PID/stat` says about a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessState {
    /// PF_EXITING, or a zombie.
    pub exiting: bool,
    /// One thread, and it sleeps.
    pub resting: bool,
    /// It is stopped, or frozen, and does nothing until somebody lets it go on.
    pub standing: bool,
    /// It runs, or waits for a processor.
    pub runnable: bool,
    /// How long it has run, and how long it has waited for a processor, since it began; None: the kernel does not tell.
    pub turns: Option<(Duration, Duration)>,
    /// Wait status of an exiting process; 0 also when it may not be read.
    pub status: i32,
    /// Page faults of children that were waited for: grows whenever one is, since nobody lives without a fault.
    pub reaped_faults: u64,
}

/// The job's processes at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub processes: BTreeMap<ProcessId, ProcessState>,
    /// How many orphans of the tree were reaped by the wrapper so far.
    pub orphans: u64,
    /// The main process is exiting or gone.
    pub main_exiting: bool,
}

impl Snapshot {
    /// Whether nobody does anything.
    pub fn are_asleep(&self) -> bool {
        self.processes.values().all(|vitals| vitals.resting)
    }

    /// Whether somebody is stopped or frozen.
    pub fn stands(&self) -> bool {
        self.processes.values().any(|vitals| vitals.standing)
    }

    /// Whether somebody died between `earlier` and now.
    pub fn deaths_since(&self, earlier: &Snapshot) -> bool {
        let reaped = |id: &ProcessId, vitals: &ProcessState| {
            vitals.reaped_faults > earlier.processes.get(id).map_or(0, |before| before.reaped_faults)
        };
        self.orphans != earlier.orphans
            || earlier.processes.keys().any(|id| !self.processes.contains_key(id))
            || self.processes.iter().any(|(id, vitals)| reaped(id, vitals))
    }
}
