//! The write ends of byte streams, kept twice: the end of a stream must not come from the death of who feeds it.
//!
//! A FIFO, or a pipe, is at its end when its last write end is closed, and the kernel closes those of a process that is
//! killed. So `serve` has one, too, until the feeder says that the stream has ended, or until `serve` itself has ended
//! the job's processes.
//!
//! By the same way each `exec` says that it begins, and that it ends its job. The kernel says who sends, so that no job can
//! say this for its `exec`.

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
use nix::sys::socket::{setsockopt, sockopt, MsgFlags};

use crate::rights::{self, Received};

/// The stack of the thread: it calls few functions.
const STACK: usize = 128 << 10;
/// A name of a job is a file name.
const LONGEST: usize = 512;

/// In the place of the number of an input: `exec` begins, before its command; and the command's tree has ended.
const BEGIN: u32 = u32::MAX;
const END: u32 = u32::MAX - 1;

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

    /// Nothing of the job runs yet.
    pub fn begin(&self) {
        let _ = self.send(BEGIN, None);
    }

    /// Nothing of the job runs any more; its last event follows.
    pub fn end(&self) {
        let _ = self.send(END, None);
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

/// What a job has left.
#[derive(Debug, Default)]
struct Left {
    /// By the number of the input.
    sinks: Vec<(u32, OwnedFd)>,
    exec: Option<i32>,
    has_ended: bool,
}

type Jobs = HashMap<OsString, Left>;

/// The write ends that jobs have left.
#[derive(Clone, Debug)]
pub struct Keeper {
    own: Arc<UnixDatagram>,
    kept: Arc<Mutex<Jobs>>,
}

impl Left {
    fn take(&mut self, number: u32, message: Received) {
        match (number, message.file) {
            // The first one is `exec`, because there is no other yet.
            (BEGIN, _) => self.exec = self.exec.or(message.sender),
            _ if self.exec.is_some() && self.exec != message.sender => {}
            (END, _) => self.has_ended = self.exec.is_some(),
            (_, Some(sink)) => self.sinks.push((number, sink)),
            (_, None) => self.sinks.retain(|(other, _)| *other != number),
        }
    }
}

impl Keeper {
    /// Keeps what is left here, in a thread that ends with this process: `serve` may wait for its driver.
    pub fn accept(run_directory: &File) -> io::Result<Self> {
        let own = Arc::new(UnixDatagram::bind(rights::socket(run_directory, SOCKET))?);
        setsockopt(&own, sockopt::PassCred, &true)?;
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

    /// Whether the `exec` of a job has ended it: what it has said before is here. Of one that has never said anything this
    /// is not known.
    pub fn has_ended(&self, job: &OsStr) -> Option<bool> {
        self.take_all().get(job).filter(|left| left.exec.is_some()).map(|left| left.has_ended)
    }

    fn take_all(&self) -> MutexGuard<'_, Jobs> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match self.receive() {
                Ok((number, job, message)) => kept.entry(job).or_default().take(number, message),
                // Not by one of ours.
                Err(Errno::EBADMSG) => {}
                Err(_) => return kept,
            }
        }
    }

    fn receive(&self) -> nix::Result<(u32, OsString, Received)> {
        let mut bytes = [0; LONGEST];
        let message = rights::receive(&*self.own, &mut bytes, MsgFlags::MSG_DONTWAIT)?;
        let (number, job) = bytes[..message.length].split_first_chunk().ok_or(Errno::EBADMSG)?;
        Ok((u32::from_ne_bytes(*number), OsString::from_vec(job.to_owned()), message))
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
            while keeper.take_all().get(OsStr::new("job")).is_none_or(|left| left.sinks.is_empty()) {
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

    #[test]
    fn only_exec_says_that_it_has_ended() {
        let said = |sender| Received { length: 0, file: None, sender };
        let mut left = Left::default();
        left.take(END, said(Some(8)));
        assert!(!left.has_ended);
        for (number, sender, ended) in [(BEGIN, 7, false), (BEGIN, 8, false), (END, 8, false), (END, 7, true)] {
            left.take(number, said(Some(sender)));
            assert_eq!((left.exec, left.has_ended), (Some(7), ended));
        }
        let directory = tempfile::tempdir().unwrap();
        let run = File::open(directory.path()).unwrap();
        let keeper = Keeper::accept(&run).unwrap();
        let (job, keep) = (OsStr::new("job"), Keep::new(&run, OsStr::new("job")).unwrap());
        assert_eq!(keeper.has_ended(job), None);
        keep.begin();
        assert_eq!(keeper.has_ended(job), Some(false));
        keep.end();
        assert_eq!(keeper.has_ended(job), Some(true));
        keeper.forget(job);
        assert_eq!(keeper.has_ended(job), None);
    }
}
