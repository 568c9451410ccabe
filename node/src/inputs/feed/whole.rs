//! The whole file in the place of a stream, for a command that asks for more than its bytes.

use std::fs::{self, FileType};
use std::path::{Path, PathBuf};

use crate::protocol::job::Access;
use crate::streams::origin::{cannot_place, Failure, Origin};
use crate::sys::beside::beside;
use crate::sys::pipe::is_fifo;

/// On its way to the place of a stream.
#[derive(Debug)]
pub struct Whole {
    /// Where it is made.
    part: PathBuf,
    /// The whole file has replaced the FIFO.
    pub there: bool,
}

impl Whole {
    pub fn of(fifo: &Path) -> Self {
        Self { part: beside(fifo, "whole"), there: false }
    }

    /// Brings what can be brought now, and says whether all of it is there.
    ///
    /// # Errors
    /// When the producer has failed, or has changed the file since its commit.
    pub fn advance(&mut self, origin: &mut dyn Origin, fifo: &Path) -> Result<bool, Failure> {
        if !self.there && origin.bring_whole(&self.part, fifo)? {
            // A command may have removed its input, or have put something else there.
            let placed = if is_fifo(fifo) { fs::rename(&self.part, fifo) } else { fs::remove_file(&self.part) };
            placed.map_err(cannot_place(fifo))?;
            self.there = true;
        }
        Ok(self.there)
    }

    /// Removes what is left of it, of a job that has failed.
    pub fn remove(&self, fifo: &Path, access: &Access) {
        let _ = fs::remove_file(&self.part);
        let is_ours = |kind: FileType| match access {
            Access::Events(_) | Access::Replay => kind.is_symlink(),
            Access::Link(_) | Access::Part(_) => kind.is_file(),
        };
        if fs::symlink_metadata(fifo).is_ok_and(|found| is_ours(found.file_type())) {
            let _ = fs::remove_file(fifo);
        }
    }
}
