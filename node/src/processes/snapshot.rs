//! The processes of a job at one moment, as plain data.

use std::collections::BTreeMap;
use std::time::Duration;

/// Identity of a process, which survives the reuse of its number.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId {
    pub pid: i32,
    /// Clock ticks between the boot and the start of the process.
    pub start: u64,
}

/// The state of a process, as `/proc/PID/stat` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessState {
    /// The process has the flag PF_EXITING, or is a zombie.
    pub exiting: bool,
    /// The process has one thread, which sleeps.
    pub resting: bool,
    /// The process is stopped or frozen, and does nothing until another process lets it continue.
    pub standing: bool,
    /// The process runs, or waits for a processor.
    pub runnable: bool,
    /// Times since the start for which the process ran and for which it waited for a processor. None: all time counts
    /// as active, because the kernel does not tell.
    pub turns: Option<(Duration, Duration)>,
    /// Wait status of an exiting process. 0 if it may not be read.
    pub status: i32,
    /// Page faults of children that were waited for. Increases with each such child, because every process has a fault.
    pub reaped_faults: u64,
}

/// The processes of a job at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub processes: BTreeMap<ProcessId, ProcessState>,
    /// Orphans of the tree that `exec` has waited for so far.
    pub orphans: u64,
    /// The main process is exiting or gone.
    pub main_exiting: bool,
}

impl Snapshot {
    /// Whether every process sleeps.
    pub fn are_asleep(&self) -> bool {
        self.processes.values().all(|vitals| vitals.resting)
    }

    /// Whether a process is stopped or frozen.
    pub fn stands(&self) -> bool {
        self.processes.values().any(|vitals| vitals.standing)
    }

    /// Whether a process died between `earlier` and now.
    pub fn deaths_since(&self, earlier: &Snapshot) -> bool {
        let reaped = |id: &ProcessId, vitals: &ProcessState| {
            vitals.reaped_faults > earlier.processes.get(id).map_or(0, |before| before.reaped_faults)
        };
        self.orphans != earlier.orphans
            || earlier.processes.keys().any(|id| !self.processes.contains_key(id))
            || self.processes.iter().any(|(id, vitals)| reaped(id, vitals))
    }
}
