//! What a consumer knows of its producer, from the events of the producer's job.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::inotify::AddWatchFlags;

use crate::event::Seen;
use crate::follow::Follower;
use crate::job::Input;
use crate::watch::Watcher;

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
    events: PathBuf,
    follower: Follower,
    watched: bool,
}

impl Producer {
    pub fn new(input: &Input) -> Self {
        Self {
            state: State::Silent,
            port: input.port.clone(),
            path: input.path.clone(),
            events: input.events.clone(),
            follower: Follower::new(input.events.clone()),
            watched: false,
        }
    }

    /// Watches the events, or the nearest directory in which they will appear. To be called until they are there.
    pub fn watch<T: Clone + PartialEq>(&mut self, watcher: &mut Watcher<T>, token: T) {
        if self.watched {
            return;
        }
        self.watched = watcher.watch(&self.events, AddWatchFlags::IN_MODIFY, token.clone()).is_ok();
        if !self.watched {
            let appears = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
            let mut above = self.events.ancestors().skip(1);
            let _ = above.any(|directory| watcher.watch(directory, appears, token.clone()).is_ok());
        }
    }

    /// Reads what is new.
    pub fn read(&mut self) {
        for line in self.follower.lines() {
            if let Some(seen) = Seen::parse(&line) {
                self.note(&seen);
            }
        }
    }

    fn note(&mut self, seen: &Seen) {
        if matches!(self.state, State::Committed(_)) {
            return;
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
    let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    one == other
        || (one.file_name() == other.file_name() && identity(one).is_some_and(|found| Some(found) == identity(other)))
}
