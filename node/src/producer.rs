//! What a consumer knows of its producer, from the events of the producer's job.

use std::path::{Path, PathBuf};

use nix::sys::inotify::AddWatchFlags;

use crate::event::{Seen, ENTRY, FOREIGN};
use crate::file_id::file_id;
use crate::follow::Follower;
use crate::job::{Gate, Kind};
use crate::watch::{Watch, ARRIVES};

/// How far the producer is with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Its events have not named the file.
    Silent,
    Writing,
    /// Committed with so many bytes, which is final.
    Committed(u64),
    /// It has ended without having committed the file.
    Failed(String),
}

#[derive(Debug)]
pub struct Producer {
    pub state: State,
    port: String,
    path: PathBuf,
    /// Of a directory: its files that were committed, and not taken yet.
    committed: Option<Vec<PathBuf>>,
    events: PathBuf,
    follower: Follower,
    watched: bool,
}

impl Producer {
    /// The producer of a file.
    pub fn of_file(port: &str, path: &Path, events: PathBuf) -> Self {
        Self::of(port, path, events, None)
    }

    /// The producer of a file or a directory, which is committed as a whole when the output is complete.
    pub fn of_gate(gate: &Gate) -> Self {
        let committed = (gate.kind == Kind::Directory).then(Vec::new);
        Self::of(&gate.port, &gate.path, gate.events.clone(), committed)
    }

    fn of(port: &str, path: &Path, events: PathBuf, committed: Option<Vec<PathBuf>>) -> Self {
        Self {
            state: State::Silent,
            port: port.to_owned(),
            path: path.to_owned(),
            committed,
            follower: Follower::new(events.clone()),
            events,
            watched: false,
        }
    }

    /// The files of a directory that were committed since the last call.
    pub fn take_committed(&mut self) -> Vec<PathBuf> {
        self.committed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Watches the events, or the nearest directory in which they will appear. To be called until they are there.
    pub fn watch(&mut self, watch: &mut Watch) {
        if self.watched {
            return;
        }
        self.watched = watch(&self.events, AddWatchFlags::IN_MODIFY).is_ok();
        if !self.watched {
            let mut above = self.events.ancestors().skip(1);
            let _ = above.any(|directory| watch(directory, ARRIVES).is_ok());
        }
    }

    /// They have to be set anew.
    pub fn watches_are_gone(&mut self) {
        self.watched = false;
    }

    /// Reads what is new.
    pub fn read(&mut self) {
        while let Some(lines) = self.follower.lines() {
            lines.iter().filter_map(|line| Seen::parse(line)).for_each(|seen| self.note(&seen));
        }
        if self.follower.is_cut() && !matches!(self.state, State::Committed(_)) {
            self.state = State::Failed(format!("{}: {FOREIGN}", self.path.display()));
        }
    }

    fn note(&mut self, seen: &Seen) {
        if matches!(self.state, State::Committed(_) | State::Failed(_)) {
            return;
        }
        if let Some(files) = &mut self.committed {
            if seen.port.as_ref() == Some(&self.port) {
                match seen.event.as_str() {
                    ENTRY => files.extend(seen.path.iter().filter(|path| path.starts_with(&self.path)).cloned()),
                    "complete" => self.state = State::Committed(0),
                    _ => {}
                }
                return;
            }
        }
        let ours = || {
            let names = |path: &PathBuf| same_file(path, &self.path);
            seen.port.as_ref() == Some(&self.port) && seen.path.as_ref().is_some_and(names)
        };
        match seen.event.as_str() {
            "opened" | "closed" if ours() => self.state = State::Writing,
            "committed" if ours() => self.state = State::Committed(seen.size.unwrap_or(0)),
            "exit" => {
                let how = if seen.success { "ended without committing" } else { "failed before committing" };
                self.state = State::Failed(format!("the producer {how} {}", self.path.display()));
            }
            _ => {}
        }
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    one == other || (one.file_name() == other.file_name() && file_id(one).is_some_and(|id| Some(id) == file_id(other)))
}
