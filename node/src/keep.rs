//! The write ends of byte streams, kept twice: the end of a stream must not come from the death of who feeds it.
//!
//! A FIFO, or a pipe, is at its end when its last write end is closed, and the kernel closes those of a process that is
//! killed. So `serve` has one, too, until the feeder says that the stream has ended, or until `serve` itself has ended
//! the job's processes.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::MsgFlags;

use crate::rights;

/// The stack of the thread: it calls few functions.
const STACK: usize = 128 << 10;
/// A name of a job is a file name.
const LONGEST: usize = 512;

/// The name of the socket in the run directory.
const SOCKET: &str = "kept";

/// Where a job leaves its write ends.
#[derive(Debug)]
pub struct Keep {
    peer: UnixDatagram,
    job: OsString,
}

impl Keep {
    /// # Errors
    /// When `serve` does not answer.
    pub fn new(run_directory: &File, job: &OsStr) -> io::Result<Self> {
        let peer = UnixDatagram::unbound()?;
        peer.connect(rights::socket(run_directory, SOCKET))?;
        Ok(Self { peer, job: job.to_owned() })
    }

    /// Leaves the write end of a stream with `serve`; `number` is that of the input.
    pub fn keep(&self, number: u32, sink: &impl AsFd) -> nix::Result<()> {
        self.send(number, Some(sink.as_fd()))
    }

    /// The stream has ended.
    pub fn release(&self, number: u32) {
        // Where `serve` is gone, so is what it kept.
        let _ = self.send(number, None);
    }

    fn send(&self, number: u32, sink: Option<BorrowedFd>) -> nix::Result<()> {
        let message = [&number.to_ne_bytes(), self.job.as_bytes()].concat();
        rights::send(&self.peer, &message, sink, MsgFlags::empty())
    }
}

/// By job, and by the number of the input.
type Sinks = HashMap<OsString, Vec<(u32, OwnedFd)>>;

/// The write ends that jobs have left.
#[derive(Clone, Debug)]
pub struct Keeper {
    own: Arc<UnixDatagram>,
    kept: Arc<Mutex<Sinks>>,
}

impl Keeper {
    /// Keeps what is left here, in a thread that ends with this process: `serve` may wait for its driver.
    pub fn accept(run_directory: &File) -> io::Result<Self> {
        let own = Arc::new(UnixDatagram::bind(rights::socket(run_directory, SOCKET))?);
        let keeper = Self { own, kept: Arc::default() };
        let thread = keeper.clone();
        let take_all = move || loop {
            let _ = poll(&mut [PollFd::new(thread.own.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
            drop(thread.take_all());
        };
        std::thread::Builder::new().name("keeper".into()).stack_size(STACK).spawn(take_all)?;
        Ok(keeper)
    }

    /// No process of the job is left.
    pub fn forget(&self, job: &OsStr) {
        // What it has sent is here, because it was sent before; it must not be kept after this.
        self.take_all().remove(job);
    }

    fn take_all(&self) -> MutexGuard<'_, Sinks> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok((number, job, sink)) = self.receive() {
            match sink {
                Some(sink) => kept.entry(job).or_default().push((number, sink)),
                None => {
                    if let Some(left) = kept.get_mut(&job) {
                        left.retain(|(other, _)| *other != number);
                    }
                }
            }
        }
        kept
    }

    fn receive(&self) -> nix::Result<(u32, OsString, Option<OwnedFd>)> {
        let mut bytes = [0; LONGEST];
        let (length, sink) = rights::receive(&*self.own, &mut bytes, MsgFlags::MSG_DONTWAIT)?;
        let (number, job) = bytes[..length].split_first_chunk().ok_or(Errno::EBADMSG)?;
        Ok((u32::from_ne_bytes(*number), OsString::from_vec(job.to_owned()), sink))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_stream_ends_when_both_let_go() {
        let directory = tempfile::tempdir().unwrap();
        let run = File::open(directory.path()).unwrap();
        let keeper = Keeper::accept(&run).unwrap();
        for released in [true, false] {
            let keep = Keep::new(&run, OsStr::new("job")).unwrap();
            let (reader, sink) = nix::unistd::pipe2(nix::fcntl::OFlag::O_NONBLOCK).unwrap();
            keep.keep(7, &sink).unwrap();
            drop(sink);
            let mut reader = File::from(reader);
            while keeper.take_all().get(OsStr::new("job")).is_none_or(Vec::is_empty) {
                std::thread::yield_now();
            }
            assert!(reader.read(&mut [0]).is_err(), "it looks like the end");
            if released {
                keep.release(7);
            } else {
                keeper.forget(OsStr::new("job"));
            }
            while reader.read(&mut [0]).is_err() {
                std::thread::yield_now();
            }
        }
    }
}
