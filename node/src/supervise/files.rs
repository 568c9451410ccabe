//! What happens to the job's files, and what is announced of it.

use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};

use super::Supervisor;
use crate::commit::Fact;
use crate::event::Event;
use crate::hold::{Snapshot, Vitals};
use crate::outputs::{existing, Change};
use crate::sys;
use crate::tree::{self, Process};

impl Supervisor<'_> {
    pub(super) fn take_changes(&mut self, changes: Vec<Change>) {
        let processes = if changes.iter().any(Change::is_close) { self.processes.look() } else { Vec::new() };
        let mut closes: Vec<(PathBuf, bool)> = Vec::new();
        let mut placed: Vec<PathBuf> = Vec::new();
        let mut found: Vec<PathBuf> = Vec::new();
        for change in changes {
            match change {
                Change::Exists(path) => self.observe(&path, Fact::Exists),
                Change::Gone(path) => {
                    self.holder.forget(&path);
                    closes.retain(|(other, _)| !other.starts_with(&path));
                    self.observe(&path, Fact::Gone);
                }
                Change::Closed(path) => {
                    self.observe(&path, Fact::Exists);
                    closes.push((path, false));
                }
                Change::Placed(path) => {
                    self.observe(&path, Fact::Exists);
                    placed.push(path);
                }
                Change::Found(path) => {
                    self.observe(&path, Fact::Exists);
                    found.push(path);
                }
            }
        }
        if self.reason.is_some() || (closes.is_empty() && placed.is_empty() && found.is_empty()) {
            self.announce();
            return;
        }
        let unwritten = |path: &PathBuf| !tree::writes_any(&processes, &[path]);
        closes.extend(placed.into_iter().filter(unwritten).map(|path| (path, false)));
        closes.extend(found.into_iter().filter(unwritten).map(|path| (path, true)));
        let now = self.now();
        let snapshot = self.snapshot(processes);
        let accepted = self.holder.close(&closes, now, snapshot);
        self.accept(accepted);
        self.keep_hold_of_suspects();
    }

    pub(super) fn review(&mut self) {
        let now = self.now();
        if self.reason.is_some() || self.holder.next_review().is_none_or(|at| at > now) {
            return;
        }
        let suspects = self.holder.suspects();
        let living: Vec<Process> = suspects
            .iter()
            .filter_map(|id| self.processes.read(id.pid))
            .filter(|process| suspects.contains(&process.id))
            .collect();
        let mut snapshot = self.snapshot(living);
        for (id, process) in &self.suspects {
            let status = sys::status_of_dead(process).unwrap_or(0);
            if status != 0 {
                snapshot.processes.insert(*id, Vitals { exiting: true, status, ..Vitals::default() });
            }
        }
        let accepted = self.holder.review(now, &snapshot);
        self.accept(accepted);
        self.keep_hold_of_suspects();
    }

    /// A descriptor of a process tells how it ended, even when its parent was quicker than we.
    fn keep_hold_of_suspects(&mut self) {
        let suspects = self.holder.suspects();
        self.suspects.retain(|id, _| suspects.contains(id));
        for id in suspects {
            if let Entry::Vacant(place) = self.suspects.entry(*id) {
                if let Some(process) = sys::open_process(id.pid) {
                    place.insert(process);
                }
            }
        }
    }

    fn accept(&mut self, closed: Vec<PathBuf>) {
        self.close(closed);
        self.announce();
    }

    /// Closes that count. One of a file that is gone does not: what takes its place starts anew.
    fn close(&mut self, closed: Vec<PathBuf>) {
        let there: Vec<PathBuf> = closed.into_iter().filter(|path| path.exists()).collect();
        self.decisions.extend(self.tracker.observe_all(&there, Fact::Closed));
    }

    pub(super) fn snapshot(&mut self, mut processes: Vec<Process>) -> Snapshot {
        self.processes.look_closer(&mut processes);
        let main = processes.iter().find(|process| process.id.pid == self.main.as_raw()).copied();
        let main = main.or_else(|| self.processes.read(self.main.as_raw()));
        let main_exiting = self.status.is_some() || main.is_none_or(|process| process.vitals.exiting);
        Snapshot { processes: tree::vitals(&processes), orphans: self.orphans, main_exiting }
    }

    pub(super) fn observe(&mut self, path: &Path, fact: Fact) {
        self.decisions.extend(self.tracker.observe(path, fact));
    }

    /// Writes what was decided.
    pub(super) fn announce(&mut self) {
        let decisions = std::mem::take(&mut self.decisions);
        if self.job.observed.is_some() {
            self.beginning.note(&decisions);
        }
        let outputs = &self.job.outputs;
        let events: Vec<Event> = decisions.iter().flat_map(|decision| self.commits.events(outputs, decision)).collect();
        self.note(&events);
    }

    /// The job has succeeded: what was held counts, the rest is committed, and what was committed before is looked at.
    pub(super) fn commit_all(&mut self) {
        let released = self.holder.release();
        self.close(released);
        self.announce();
        let job = self.job;
        let mut commits = std::mem::take(&mut self.commits);
        self.note(&commits.end(&job.outputs));
        self.commits = commits;
        self.decisions.extend(self.tracker.finish(&existing(&job.outputs)));
        self.announce();
    }
}
