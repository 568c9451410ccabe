//! The whole file in the place of a stream, for a command that asks for more than its bytes.

use std::fs::{self, FileType, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{symlink, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::origin::Origin;
use crate::job::{Access, Input};
use crate::source::{Failure, Step};

/// What is brought from another machine.
#[derive(Debug)]
struct Copy {
    origin: Origin,
    file: OwnedFd,
}

/// On its way to the place of a stream.
#[derive(Debug)]
pub struct Whole {
    /// Where it is made.
    part: PathBuf,
    copy: Option<Copy>,
    /// It is in the place.
    pub there: bool,
}

impl Whole {
    pub fn of(fifo: &Path) -> Self {
        let mut part = fifo.as_os_str().to_owned();
        part.push(".sfio-whole");
        Self { part: part.into(), copy: None, there: false }
    }

    /// Brings what can be brought now, and says whether all of it is there.
    ///
    /// The file of a producer on this machine is there when it is committed. From another machine it is fetched from its first byte,
    /// whatever was streamed.
    ///
    /// # Errors
    /// When the producer has failed, or has changed the file since its commit.
    pub fn advance(&mut self, input: &Input, stream: &Origin, fifo: &Path) -> Result<bool, Failure> {
        if self.there {
            return Ok(true);
        }
        let at = |error: io::Error| Failure::Producer(format!("cannot place {}: {error}", fifo.display()));
        match stream {
            Origin::File(source) => {
                let Some(file) = source.whole()? else { return Ok(false) };
                let _ = fs::remove_file(&self.part);
                symlink(file, &self.part).map_err(at)?;
            }
            Origin::Link(_) => {
                if self.copy.is_none() {
                    self.copy =
                        Some(Copy { origin: Origin::new(input).map_err(at)?, file: make(&self.part).map_err(at)? });
                }
                if !self.copy.as_mut().map_or(Ok(true), Copy::take)? {
                    return Ok(false);
                }
                self.copy = None;
            }
        }
        self.place(fifo).map_err(at)?;
        self.there = true;
        Ok(true)
    }

    /// Where more is awaited from.
    pub fn arrivals(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.copy.as_ref()?.origin.arrivals()
    }

    /// A command may have removed its input, or have put something else there.
    fn place(&self, fifo: &Path) -> io::Result<()> {
        if is_fifo(fifo) {
            fs::rename(&self.part, fifo)
        } else {
            fs::remove_file(&self.part)
        }
    }

    /// Removes what is left of it, of a job that has failed.
    pub fn remove(&self, fifo: &Path, access: &Access) {
        let _ = fs::remove_file(&self.part);
        let is_ours = |kind: FileType| match access {
            Access::Events(_) => kind.is_symlink(),
            Access::Link(_) => kind.is_file(),
        };
        if fs::symlink_metadata(fifo).is_ok_and(|found| is_ours(found.file_type())) {
            let _ = fs::remove_file(fifo);
        }
    }
}

impl Copy {
    /// Takes what there is, and says whether that was the end.
    fn take(&mut self) -> Result<bool, Failure> {
        loop {
            match self.origin.take(&self.file)? {
                Step::Moved => {}
                Step::Complete => return Ok(true),
                Step::Full | Step::Waiting | Step::Unread => return Ok(false),
            }
        }
    }
}

fn make(part: &Path) -> io::Result<OwnedFd> {
    let _ = fs::remove_file(part);
    let options = OpenOptions::new().write(true).create_new(true).mode(0o644).to_owned();
    options.open(part).map(OwnedFd::from)
}

fn is_fifo(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}
