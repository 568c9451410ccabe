//! Writes a part into a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{fcntl, splice, FcntlArg, OFlag, SpliceFFlags};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::unistd::pipe2;

use crate::streams::origin::{Failure, Origin, Step};
use crate::sys::pipe::{widen, PIPE_SIZE};

/// Milliseconds between two checks for an interruption.
const MOMENT: u16 = 50;

/// Why a part could not be written.
#[derive(Debug)]
pub enum Trouble {
    /// The part cannot be read.
    Read(Failure),
    /// The file cannot be written.
    Write(io::Error),
}

impl Trouble {
    pub fn failure(self, place: &Path) -> Failure {
        match self {
            Self::Read(failure) => failure,
            Self::Write(error) => Failure::Job(format!("cannot write {}: {error}", place.display())),
        }
    }
}

/// Waits for more bytes, or for `MOMENT`.
fn wait(origin: &dyn Origin) {
    let mut arrivals: Vec<PollFd> =
        origin.arrivals().into_iter().map(|arrivals| PollFd::new(arrivals, PollFlags::POLLIN)).collect();
    let _ = poll(&mut arrivals, PollTimeout::from(MOMENT));
}

/// A file that gets its bytes through a pipe. The kernel then reads as much at once as the pipe holds, and copies once.
/// With `sendfile` it reads 128 KiB at a time.
#[derive(Debug)]
pub struct PartWriter {
    file: File,
    pipe: File,
    sink: OwnedFd,
}

impl PartWriter {
    /// Makes the file, which must not exist, without write permission for later openings.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (pipe, sink) = pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&sink, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        widen(&sink);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o400).open(path)?;
        Ok(Self { file, pipe: pipe.into(), sink })
    }

    /// Writes a whole file. False if it was interrupted. No file is left then, or after a failure.
    ///
    /// # Arguments
    /// * `interrupted` - called repeatedly; true ends the work
    pub fn write(path: &Path, origin: &mut dyn Origin, interrupted: &mut dyn FnMut() -> bool) -> Result<bool, Trouble> {
        let mut writer = Self::create(path).map_err(Trouble::Write)?;
        let written = loop {
            if interrupted() {
                break Ok(false);
            }
            let before = origin.taken();
            match writer.write_some(origin) {
                Ok(true) => break Ok(true),
                Ok(false) if origin.taken() == before => wait(origin),
                Ok(false) => {}
                Err(trouble) => break Err(trouble),
            }
        };
        if !matches!(written, Ok(true)) {
            let _ = fs::remove_file(path);
        }
        written
    }

    /// Writes some bytes. Returns true if there are no more.
    pub fn write_some(&mut self, origin: &mut dyn Origin) -> Result<bool, Trouble> {
        origin.check().map_err(Trouble::Read)?;
        let before = origin.taken();
        if origin.take(&self.sink, u64::MAX).map_err(Trouble::Read)? == Step::Complete {
            return Ok(true);
        }
        self.drain(origin.taken() - before).map_err(Trouble::Write)?;
        Ok(false)
    }

    fn drain(&mut self, mut count: u64) -> io::Result<()> {
        while count > 0 {
            let most = count.min(PIPE_SIZE as u64) as usize;
            count -= match splice(&self.pipe, None, &self.file, None, most, SpliceFFlags::SPLICE_F_MOVE) {
                Err(Errno::EINTR) => 0,
                Err(Errno::EINVAL) => self.copy(most)? as u64,
                moved => moved? as u64,
            };
        }
        Ok(())
    }

    /// Copies bytes, for a file system that cannot splice.
    fn copy(&mut self, most: usize) -> io::Result<usize> {
        let mut buffer = vec![0; most.min(1 << 16)];
        let count = self.pipe.read(&mut buffer)?;
        self.file.write_all(&buffer[..count])?;
        Ok(count)
    }
}
