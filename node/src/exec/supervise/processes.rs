//! The processes of the job: looks at them, signals them, and waits for them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{getpgrp, gettid, Pid};

use super::state::Fact;
use crate::processes::open_files;
use crate::processes::snapshot::{ProcessId, ProcessState, Snapshot};
use crate::processes::tree::{self, Descendants, Process};
use crate::protocol::job::Job;
use crate::sys::file_id::{file_id, FileId};
use crate::sys::raw;

/// So many files are open at the same time while processes are sought.
const ROOM: usize = 3;

pub struct Processes {
    /// The main process of the command.
    pub main: Pid,
    main_ended: bool,
    orphans: u64,
    descendants: Descendants,
    /// Descriptors that can be done without: who finds nobody can end nobody.
    room: Vec<OwnedFd>,
    /// Descriptors of those that may have closed what is held: they tell how one ended, even when its parent was quicker
    /// than we.
    suspects: BTreeMap<ProcessId, OwnedFd>,
    /// The pipes or sockets that the command prints to. A file or a terminal is waited for by nobody.
    printed: HashSet<FileId>,
}

impl Processes {
    /// To be called in the thread that starts the command, before that.
    pub fn new(job: &Job) -> Self {
        let own = [(&job.command.stdout, "/proc/self/fd/1"), (&job.command.stderr, "/proc/self/fd/2")];
        let inherited = own.into_iter().filter(|(file, _)| file.is_none()).map(|(_, own)| Path::new(own));
        let awaited = |own: &&Path| {
            fs::metadata(own).is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
        };
        Self {
            main: Pid::from_raw(0),
            main_ended: false,
            orphans: 0,
            descendants: Descendants::new(),
            room: make_room(),
            suspects: BTreeMap::new(),
            printed: inherited.filter(awaited).filter_map(file_id).collect(),
        }
    }

    /// All of them, as they are now.
    pub fn look(&mut self) -> Vec<Process> {
        self.descendants.look()
    }

    /// The threads of all of them, and of this process: what the command waits for may be what that does.
    pub fn threads(&mut self) -> BTreeMap<ProcessId, ProcessState> {
        let mut threads = BTreeMap::new();
        let processes = self.look().into_iter().map(|process| process.id.pid).chain([Pid::this().as_raw()]);
        processes.for_each(|process| tree::add_threads(process, &mut threads));
        // This one has a processor now, and is told what it waited for before.
        let own = gettid().as_raw();
        threads.iter_mut().filter(|(id, _)| id.pid == own).for_each(|(_, vitals)| vitals.runnable = false);
        threads
    }

    /// What is to be known of `processes`, which were just looked at.
    pub fn snapshot(&mut self, mut processes: Vec<Process>) -> Snapshot {
        self.descendants.look_closer(&mut processes);
        let main = processes.iter().find(|process| process.id.pid == self.main.as_raw()).copied();
        let main = main.or_else(|| self.descendants.read(self.main.as_raw()));
        let main_exiting = self.main_ended || main.is_none_or(|process| process.vitals.exiting);
        Snapshot { processes: tree::vitals(&processes), orphans: self.orphans, main_exiting }
    }

    /// The same of the suspects alone, and of those among them that are gone and have ended badly.
    pub fn snapshot_of_suspects(&mut self, suspects: &BTreeSet<ProcessId>) -> Snapshot {
        let living = suspects.iter().filter_map(|id| self.descendants.read(id.pid));
        let living = living.filter(|process| suspects.contains(&process.id)).collect();
        let mut snapshot = self.snapshot(living);
        for (id, process) in &self.suspects {
            let status = raw::status_of_dead(process).unwrap_or(0);
            if status != 0 {
                snapshot.processes.insert(*id, ProcessState { exiting: true, status, ..ProcessState::default() });
            }
        }
        snapshot
    }

    /// Takes hold of the suspects, and of nobody else.
    pub fn hold(&mut self, suspects: &BTreeSet<ProcessId>) {
        self.suspects.retain(|id, _| suspects.contains(id));
        for id in suspects {
            if let Entry::Vacant(entry) = self.suspects.entry(*id) {
                raw::open_process(id.pid).map(|process| entry.insert(process));
            }
        }
    }

    /// Waits for those that have ended, up to the next fact.
    pub fn reap(&mut self) -> Option<Fact> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => return None,
                Ok(status) if status.pid() == Some(self.main) => {
                    self.main_ended = true;
                    return Some(Fact::MainEnded(status));
                }
                Ok(_) => self.orphans += 1,
                Err(_) => return Some(Fact::TreeEnded),
            }
        }
    }

    /// Whether one of `processes` holds what the command prints to.
    pub fn print(&self, processes: &[Process]) -> bool {
        open_files::holds_any(processes, &self.printed)
    }

    /// All of them, as they are now, also where nothing more can be opened.
    pub fn find(&mut self) -> Vec<Process> {
        self.room.clear();
        let processes = tree::descendants();
        self.room = make_room();
        processes
    }

    /// Signals all of them; `spare_group`: but for those in our own process group.
    pub fn signal(&mut self, signal: Signal, spare_group: bool) {
        let processes = self.find();
        tree::signal_all(processes.iter().filter(|process| !(spare_group && in_own_group(**process))), signal);
    }

    /// Signals the main process; `spare_group`: unless it is in our own process group.
    pub fn signal_main(&self, signal: Signal, spare_group: bool) {
        if !(spare_group && tree::read(self.main.as_raw()).is_some_and(in_own_group)) {
            let _ = kill(self.main, signal);
        }
    }
}

fn make_room() -> Vec<OwnedFd> {
    (0..ROOM).filter_map(|_| File::open("/dev/null").ok().map(OwnedFd::from)).collect()
}

fn in_own_group(process: Process) -> bool {
    process.group == getpgrp().as_raw()
}
