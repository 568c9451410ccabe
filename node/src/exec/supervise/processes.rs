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

/// Number of files that are open at the same time while processes are searched for.
const ROOM: usize = 3;

pub struct Processes {
    /// The main process of the command.
    pub main: Pid,
    main_ended: bool,
    orphans: u64,
    descendants: Descendants,
    /// Spare descriptors, closed before a search: a process that is not found cannot be ended.
    room: Vec<OwnedFd>,
    /// Descriptors of processes that may have closed a held file. A descriptor tells how its process ended, even if the
    /// parent has waited first.
    suspects: BTreeMap<ProcessId, OwnedFd>,
    /// The pipes or sockets to which the command prints. Nothing waits for the end of a file or a terminal.
    printed: HashSet<FileId>,
}

impl Processes {
    /// Must be called in the thread that starts the command, before that.
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

    /// Returns all processes as they are now.
    pub fn look(&mut self) -> Vec<Process> {
        self.descendants.look()
    }

    /// Returns the threads of all processes, and of this one: the command may wait for work of this process.
    pub fn threads(&mut self) -> BTreeMap<ProcessId, ProcessState> {
        let mut threads = BTreeMap::new();
        let processes = self.look().into_iter().map(|process| process.id.pid).chain([Pid::this().as_raw()]);
        processes.for_each(|process| tree::add_threads(process, &mut threads));
        // This thread has a processor now, and the kernel has counted all its waits.
        let own = gettid().as_raw();
        threads.iter_mut().filter(|(id, _)| id.pid == own).for_each(|(_, vitals)| vitals.runnable = false);
        threads
    }

    /// Makes a snapshot of `processes`, which were just read.
    pub fn snapshot(&mut self, mut processes: Vec<Process>) -> Snapshot {
        self.descendants.look_closer(&mut processes);
        let main = processes.iter().find(|process| process.id.pid == self.main.as_raw()).copied();
        let main = main.or_else(|| self.descendants.read(self.main.as_raw()));
        let main_exiting = self.main_ended || main.is_none_or(|process| process.vitals.exiting);
        Snapshot { processes: tree::vitals(&processes), orphans: self.orphans, main_exiting }
    }

    /// Makes a snapshot of the suspects only. Includes suspects that are gone and have failed.
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

    /// Holds descriptors of the suspects, and of no other processes.
    pub fn hold(&mut self, suspects: &BTreeSet<ProcessId>) {
        self.suspects.retain(|id, _| suspects.contains(id));
        for id in suspects {
            if let Entry::Vacant(entry) = self.suspects.entry(*id) {
                raw::open_process(id.pid).map(|process| entry.insert(process));
            }
        }
    }

    /// Waits for processes that have ended, up to the next fact.
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

    /// Whether one of `processes` holds the output of the command open.
    pub fn print(&self, processes: &[Process]) -> bool {
        open_files::holds_any(processes, &self.printed)
    }

    /// Returns all processes as they are now, even if no more files can be opened.
    pub fn find(&mut self) -> Vec<Process> {
        self.room.clear();
        let processes = tree::descendants();
        self.room = make_room();
        processes
    }

    /// Signals all processes; with `spare_group`, except those in our own process group.
    pub fn signal(&mut self, signal: Signal, spare_group: bool) {
        let processes = self.find();
        tree::signal_all(processes.iter().filter(|process| !(spare_group && in_own_group(**process))), signal);
    }

    /// Signals the main process; with `spare_group`, unless it is in our own process group.
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
