//! Descriptors that each `exec` leaves with `serve`, as in systemd's file descriptor store, and its own state.
//!
//! - The write ends of byte streams. A FIFO, or a pipe, is at its end when its last write end is closed. The kernel closes
//!   those of a process that is killed. So `serve` has one, too, until the feeder says that the stream has ended, or until
//!   `serve` has ended the processes of the job. The death of a feeder is never the end of a stream.
//! - The inotify instance, to close it. The kernel takes some 10 ms to end an instance with watches, because it waits for
//!   an SRCU grace period. A process that has one cannot exit before. A thread of `serve` can wait.
//! - The beginning and the end of the job, and that its last event is written. The kernel names the sender, so that no job
//!   can say this for its `exec`.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixDatagram;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{setsockopt, sockopt, MsgFlags};

use crate::sys::fd_passing::{self, Received};
use crate::sys::threads::{lock, spawn};

/// A name of a job is a file name.
const LONGEST: usize = 512;
/// How long the sender of a descriptor that is to be closed may take to close its own.
const DELAY: Duration = Duration::from_millis(20);

/// In the place of the number of an input: `exec` begins, before its command; the command's tree has ended; here is a
/// descriptor to close; and the last event is written.
const BEGIN: u32 = u32::MAX;
const END: u32 = u32::MAX - 1;
const CLOSE: u32 = u32::MAX - 2;
const CONCLUDED: u32 = u32::MAX - 3;

/// The name of the socket in the run directory.
const SOCKET: &str = "descriptors";

/// The side of a job.
#[derive(Debug)]
pub struct Client {
    peer: UnixDatagram,
    job: OsString,
}

impl Client {
    /// # Errors
    /// When `serve` does not answer.
    pub fn new(run_directory: &File, job: &OsStr) -> io::Result<Self> {
        let peer = UnixDatagram::unbound()?;
        peer.connect(fd_passing::socket(run_directory, SOCKET))?;
        Ok(Self { peer, job: job.to_owned() })
    }

    /// Nothing of the job runs yet.
    pub fn begin(&self) {
        let _ = self.send(BEGIN, None, MsgFlags::empty());
    }

    /// Nothing of the job runs any more; its last event follows.
    pub fn end(&self) {
        let _ = self.send(END, None, MsgFlags::empty());
    }

    /// Says that the last event is written, and the events are closed.
    pub fn concluded(&self) {
        let _ = self.send(CONCLUDED, None, MsgFlags::empty());
    }

    /// Leaves the write end of a stream with `serve`; `number` is that of the input.
    pub fn keep(&self, number: u32, sink: &impl AsFd) -> nix::Result<()> {
        self.send(number, Some(sink.as_fd()), MsgFlags::empty())
    }

    /// The stream has ended.
    pub fn release(&self, number: u32) {
        // Where `serve` is gone, so is what it kept.
        let _ = self.send(number, None, MsgFlags::empty());
    }

    /// Leaves a descriptor that takes long to close. Where that is not possible the caller's own exit takes longer.
    pub fn close(&self, slow: &impl AsFd) {
        let _ = self.send(CLOSE, Some(slow.as_fd()), MsgFlags::MSG_DONTWAIT);
    }

    fn send(&self, number: u32, descriptor: Option<BorrowedFd>, flags: MsgFlags) -> nix::Result<()> {
        let message = [&number.to_ne_bytes(), self.job.as_bytes()].concat();
        fd_passing::send(&self.peer, &message, descriptor, flags)
    }
}

/// The descriptors and the state that a job has left.
#[derive(Debug, Default)]
struct Left {
    /// By the number of the input.
    sinks: Vec<(u32, OwnedFd)>,
    exec: Option<i32>,
    has_ended: bool,
    has_concluded: bool,
}

type Jobs = HashMap<OsString, Left>;

/// The side of `serve`.
#[derive(Clone, Debug)]
pub struct FdStore {
    own: Arc<UnixDatagram>,
    left: Arc<Mutex<Jobs>>,
    slow: Sender<OwnedFd>,
}

impl Left {
    fn take(&mut self, number: u32, message: Received) {
        match (number, message.file) {
            // The first one is `exec`, because there is no other yet.
            (BEGIN, _) => self.exec = self.exec.or(message.sender),
            _ if self.exec.is_some() && self.exec != message.sender => {}
            (END, _) => self.has_ended = self.exec.is_some(),
            (CONCLUDED, _) => self.has_concluded = self.exec.is_some(),
            (_, Some(sink)) => self.sinks.push((number, sink)),
            (_, None) => self.sinks.retain(|(other, _)| *other != number),
        }
    }
}

impl FdStore {
    /// Keeps what is left here, in threads that end with this process: `serve` may wait for its driver.
    pub fn accept(run_directory: &File) -> io::Result<Self> {
        let own = Arc::new(UnixDatagram::bind(fd_passing::socket(run_directory, SOCKET))?);
        setsockopt(&own, sockopt::PassCred, &true)?;
        let (slow, to_close) = channel();
        let store = Self { own, left: Arc::default(), slow };
        let own = store.clone();
        let take_all = move || loop {
            let _ = poll(&mut [PollFd::new(own.own.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
            drop(own.take_all());
        };
        spawn("store", take_all)?;
        spawn("close", move || close_all(&to_close))?;
        Ok(store)
    }

    /// No process of the job is left.
    pub fn forget(&self, job: &OsStr) {
        // What it has sent is here, because it was sent before; it must not be kept after this.
        self.take_all().remove(job);
    }

    /// Whether the `exec` of a job has ended it. None stands for an `exec` that has sent nothing.
    pub fn has_ended(&self, job: &OsStr) -> Option<bool> {
        self.take_all().get(job).filter(|left| left.exec.is_some()).map(|left| left.has_ended)
    }

    /// Whether the `exec` of a job has said that its last event is written.
    pub fn has_concluded(&self, job: &OsStr) -> bool {
        self.take_all().get(job).is_some_and(|left| left.has_concluded)
    }

    fn take_all(&self) -> MutexGuard<'_, Jobs> {
        let mut left = lock(&self.left);
        loop {
            match self.receive() {
                // The last close takes long, so that a thread does it that no process waits for.
                Ok((CLOSE, _, message)) => message.file.into_iter().for_each(|slow| drop(self.slow.send(slow))),
                // Of a job that is forgotten nothing is to be kept.
                Ok((CONCLUDED, job, message)) => {
                    if let Some(left) = left.get_mut(&job) {
                        left.take(CONCLUDED, message);
                    }
                }
                Ok((number, job, message)) => left.entry(job).or_default().take(number, message),
                // Not by one of ours.
                Err(Errno::EBADMSG) => {}
                Err(_) => return left,
            }
        }
    }

    fn receive(&self) -> nix::Result<(u32, OsString, Received)> {
        let mut bytes = [0; LONGEST];
        let message = fd_passing::receive(&*self.own, &mut bytes, MsgFlags::MSG_DONTWAIT)?;
        let (number, job) = bytes[..message.length].split_first_chunk().ok_or(Errno::EBADMSG)?;
        Ok((u32::from_ne_bytes(*number), OsString::from_vec(job.to_owned()), message))
    }
}

/// Closes what takes long, after those that have left it.
fn close_all(slow: &Receiver<OwnedFd>) {
    while let Ok(first) = slow.recv() {
        let all: Vec<OwnedFd> = std::iter::once(first).chain(slow.try_iter()).collect();
        std::thread::sleep(DELAY);
        drop(all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let store = FdStore::accept(&run).unwrap();
        let (job, client) = (OsStr::new("job"), Client::new(&run, OsStr::new("job")).unwrap());
        assert_eq!(store.has_ended(job), None);
        client.begin();
        assert_eq!(store.has_ended(job), Some(false));
        client.end();
        assert_eq!((store.has_ended(job), store.has_concluded(job)), (Some(true), false));
        client.concluded();
        assert!(store.has_concluded(job));
        store.forget(job);
        assert_eq!(store.has_ended(job), None);
    }
}
