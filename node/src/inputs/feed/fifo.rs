//! The FIFO through which a command reads: where it was made, how it is opened, and the whole file that may replace it.

use std::fs::symlink_metadata;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::sys::inotify::AddWatchFlags;

use super::openings::Openings;
use super::whole::Whole;
use crate::streams::origin::Failure;
use crate::sys::file_id::{file_id_of, FileId};
use crate::sys::pipe::guard_fifo;
use crate::sys::watch::Watcher;

/// The purpose of a watch that a feeder has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Growth,
    Fifo,
    /// The directory of a FIFO: the kernel merges a notice with an equal one before it, and those of the directory
    /// keep two openings apart.
    Beside,
    Events,
}

#[derive(Debug)]
pub struct Fifo {
    pub path: PathBuf,
    place: Place,
    pub openings: Openings,
    /// The whole file, once the command waits for it.
    pub whole: Option<Whole>,
}

impl Fifo {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), place: Place::of(path), openings: Openings::default(), whole: None }
    }

    /// Watches openings and closings; `token` makes the watcher's token.
    pub fn arm<T: Clone + PartialEq>(&mut self, watcher: &mut Watcher<T>, token: &impl Fn(Wait) -> T) {
        let mask = AddWatchFlags::IN_OPEN | AddWatchFlags::IN_CLOSE_NOWRITE;
        self.openings.told = watcher.watch(&self.path, mask, token(Wait::Fifo)).is_ok();
        let _ = self.path.parent().map(|above| watcher.watch(above, mask, token(Wait::Beside)));
    }

    /// Takes a notice of the watch.
    ///
    /// # Errors
    /// When the command has opened the FIFO a second time.
    pub fn notice(&mut self, mask: AddWatchFlags, has_consumed: bool, is_netted: bool) -> Result<(), Failure> {
        // A command that opens a stream under the net has asked for that before.
        if !self.openings.notice(mask) || is_netted {
            return Ok(());
        }
        if self.openings.are_several(&self.path) || (self.openings.is_again() && has_consumed) {
            return Err(self.reopened());
        }
        Ok(())
    }

    /// Whether nothing may be fed yet, because the command may only look at the FIFO.
    ///
    /// # Errors
    /// When two processes have opened the FIFO.
    pub fn may_be_a_look(&mut self) -> Result<bool, Failure> {
        if self.openings.may_be_a_look(&self.path) {
            return Ok(true);
        }
        if self.openings.are_uncounted_and_several(&self.path) {
            return Err(self.reopened());
        }
        Ok(false)
    }

    fn reopened(&self) -> Failure {
        Failure::Job(format!("{} was opened again: a byte stream can be read only once", self.path.display()))
    }

    /// Puts a FIFO that reports its openings in the place of this one, and returns its write end.
    pub fn guard<T: Clone + PartialEq>(
        &self,
        watcher: &mut Watcher<T>,
        token: &impl Fn(Wait) -> T,
    ) -> io::Result<OwnedFd> {
        guard_fifo(&self.path, |path| watcher.watch(path, AddWatchFlags::IN_OPEN, token(Wait::Fifo)))
    }

    /// Whether the whole file has replaced the FIFO.
    pub fn is_replaced(&self) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.there)
    }

    /// Fails when something else is in the place of a FIFO that the command has never opened.
    pub fn check_unopened(&self) -> Result<(), Failure> {
        if self.openings.were_any() || self.whole.is_some() || self.place.is_still(&self.path) {
            return Ok(());
        }
        let what = format!("no program has opened the stream {}", self.path.display());
        Err(Failure::Job(format!("{what}, and something else is in its place [SFIO-S027]")))
    }
}

/// The FIFO and its directory, as they were made.
#[derive(Debug)]
struct Place {
    fifo: Option<FileId>,
    directory: Option<FileId>,
}

impl Place {
    fn of(fifo: &Path) -> Self {
        Self { fifo: id(fifo).unwrap_or_default(), directory: directory(fifo) }
    }

    /// Whether the FIFO is where it was made. A FIFO that the command has removed counts as there.
    fn is_still(&self, fifo: &Path) -> bool {
        self.directory == directory(fifo) && id(fifo).is_ok_and(|found| found.is_none() || found == self.fifo)
    }
}

fn directory(fifo: &Path) -> Option<FileId> {
    fifo.parent().and_then(|directory| id(directory).ok().flatten())
}

/// Identifies the file at a path, without following a symbolic link. None: no file is there.
fn id(path: &Path) -> io::Result<Option<FileId>> {
    match symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(|found| Some(file_id_of(&found))),
    }
}
