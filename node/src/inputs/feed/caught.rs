//! A byte stream under the net: the command must not see that the stream is no file.
//!
//! A call that a pipe cannot answer waits until the file is final. Then the file takes the place of the pipe in the
//! calling process, at the same descriptors, where the reader was. Other processes that have inherited the pipe get
//! the same opening of the file at their next call that is caught.
//!
//! From then on the pipe is empty, and has a writer. A process that reads the pipe before its next caught call waits.
//! The feeder sees that, and the job has to start again with the file.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;

use super::netted::Netted;
use super::sharers::may_wait_for;
use super::{Feeder, Need};
use crate::gate::{descriptors_of, of_descriptor, target, Asked, Call, Demand, Handler, Reply};
use crate::processes::open_files::descriptors;
use crate::processes::tree::{self, Process};
use crate::protocol::event::{Event, HeldEvent};
use crate::streams::origin::Failure;
use crate::sys::pipe::has_reader;
use crate::sys::raw::seccomp::Answer;

/// Patience with a process outside the job that has the pipe.
const STRANGERS: Duration = Duration::from_secs(5);

/// There is no process that would have to hear it.
const GONE: Reply = Reply::Answer(Answer::Error(Errno::EINTR));

impl Feeder {
    /// Does what a call asks of this stream.
    ///
    /// # Errors
    /// When the job has to start again with the file, or there will be none.
    pub fn serve(&mut self, asked: &Asked, handler: &Handler) -> Result<Reply, Failure> {
        match asked.demand {
            Demand::Unseen => return Err(unseen(&asked.call)),
            Demand::Seek { .. } | Demand::File if self.is_a_pipe_yet() => return Ok(Reply::Answer(Answer::Continue)),
            Demand::Seek { offset, whence } if !self.is_split() => {
                let here = self.consumed();
                match target(offset, whence, here) {
                    Some(Ok(place)) if place == here => return Ok(at(place)),
                    Some(Ok(place)) if self.may_move() => return self.go_to(place),
                    Some(Err(error)) => return Ok(Reply::Answer(Answer::Error(error))),
                    _ => {}
                }
            }
            Demand::Open(flags) if self.is_unopened() => return self.open_for(&asked.call, flags, handler),
            _ => {}
        }
        if !self.bring_whole()? {
            return Ok(Reply::Later);
        }
        handler.table.net.is_placed(asked.stream);
        // A process that has asked by path finds the file there now.
        if handler.table.caught(&asked.call).is_none_or(|(stream, _)| stream != asked.stream) {
            return Ok(Reply::Placed);
        }
        self.replace(asked, handler)
    }

    /// Whether the command is known to be right with a pipe up to here.
    fn is_a_pipe_yet(&self) -> bool {
        self.input.net.is_some_and(|net| self.consumed() < net.pipe) && !self.is_split()
    }

    fn may_move(&self) -> bool {
        self.origin.can_go() && self.netted.as_ref().is_some_and(Netted::may_move)
    }

    /// The next byte that is read is that of another place. Whoever shares the pipe shares this, too, as that of a
    /// file.
    fn go_to(&mut self, place: u64) -> Result<Reply, Failure> {
        self.empty(Netted::go_elsewhere).map_err(cannot("be read from another place"))?;
        self.pipe.wide = false;
        self.origin.go_to(place);
        (self.ending.finished, self.need) = (false, Need::Space);
        Ok(at(place))
    }

    /// Empties the pipe, which has a writer then, also if its end was given; returns what `by` does.
    fn empty<T>(&mut self, by: impl FnOnce(&mut Netted, &mut Option<OwnedFd>) -> io::Result<T>) -> io::Result<T> {
        let ended = self.pipe.sink.is_none();
        let netted = self.netted.as_mut().ok_or(io::ErrorKind::NotFound)?;
        let emptied = by(netted, &mut self.pipe.sink)?;
        if ended {
            self.pipe.keep()?;
        }
        Ok(emptied)
    }

    /// Whether no process has the FIFO open for reading, and it can be read from its beginning.
    fn is_unopened(&self) -> bool {
        let unread = !self.ending.finished && !self.is_split() && self.consumed() == 0;
        unread && self.pipe.sink.as_ref().is_some_and(|sink| !has_reader(sink))
    }

    /// Opens the FIFO for the calling process. A later opening then sees that the FIFO is open.
    fn open_for(&mut self, call: &Call, flags: i32, handler: &Handler) -> Result<Reply, Failure> {
        let Some(netted) = &mut self.netted else { return Ok(Reply::Placed) };
        let flags = OFlag::from_bits_truncate(flags);
        let end = netted.open(flags).map_err(cannot("be opened"))?;
        Ok(match handler.give(call, &end, None, flags.contains(OFlag::O_CLOEXEC)) {
            Ok(descriptor) => Reply::Answer(Answer::Value(descriptor.into())),
            Err(Errno::ENOENT) => GONE,
            // As of a file: it may have no more.
            Err(error) => Reply::Answer(Answer::Error(error)),
        })
    }

    /// Puts the file in the place of the pipe, in the process that calls.
    fn replace(&mut self, asked: &Asked, handler: &Handler) -> Result<Reply, Failure> {
        let call = &asked.call;
        let chosen = to_replace(asked, handler)?;
        self.begin_file(handler)?;
        let Some(file) = self.netted.as_ref().and_then(|netted| netted.file()) else { return Ok(Reply::Later) };
        for descriptor in chosen {
            let flags = tree::value(call.thread, &format!("fdinfo/{descriptor}"), "flags:");
            let flags = flags.and_then(|flags| i32::from_str_radix(&flags, 8).ok()).unwrap_or(0);
            match handler.give(call, file, Some(descriptor), flags & libc::O_CLOEXEC != 0) {
                Ok(_) => {}
                Err(Errno::ENOENT) => return Ok(GONE),
                Err(error) => return Err(cannot("be replaced")(error.into())),
            }
        }
        Ok(Reply::Placed)
    }

    /// Opens the file where the reader is. Every byte is either in the pipe, from which it is taken here, or was read.
    fn begin_file(&mut self, handler: &Handler) -> Result<(), Failure> {
        if self.netted.as_ref().is_some_and(|netted| netted.file().is_some()) {
            return Ok(());
        }
        let Some(file) = self.origin.whole_file()? else { return Ok(()) };
        let fed = self.streamed();
        let begun = self.empty(|netted, sink| {
            let drained = netted.drain(sink)?;
            netted.begin_file(file, fed - drained)
        });
        begun.map_err(cannot("be replaced"))?;
        handler.table.net.is_split();
        self.leave();
        Ok(())
    }

    /// The event that a call waits for the file, the first time.
    pub fn hold(&mut self, call: &Call) -> Option<Event<'_>> {
        let bytes = self.consumed();
        let netted = self.netted.as_mut()?;
        let before = std::mem::replace(&mut netted.told, true);
        (!before).then(|| Event::Held(HeldEvent { name: &self.input.name, call: call.name(), bytes }))
    }

    /// The file that the command gets as its standard input, because it can be given no stream.
    pub fn stdin_file(&mut self) -> Option<BorrowedFd<'_>> {
        if self.fifo.is_none() {
            self.origin.want_whole();
            let file = self.origin.whole_file().ok().flatten()?;
            self.netted.as_mut()?.begin_file(file, 0).ok()?;
        }
        self.netted.as_ref()?.file().map(AsFd::as_fd)
    }

    /// Some have got the file, and others may have the pipe.
    pub fn is_split(&self) -> bool {
        self.pipe.sink.is_some() && self.netted.as_ref().is_some_and(|netted| netted.file().is_some())
    }

    /// Looks which processes still have the pipe. Returns whether none has.
    ///
    /// # Arguments
    /// * `processes` - of the job
    ///
    /// # Errors
    /// When a process waits for bytes of the pipe that the file would have given it.
    pub fn look_at_sharers(&mut self, processes: &[Process], paused: bool) -> Result<bool, Failure> {
        let Some(netted) = self.netted.as_mut() else { return Ok(true) };
        if !self.pipe.has_reader() {
            self.pipe.end(None);
            return Ok(true);
        }
        let pipe = HashSet::from([netted.id]);
        let mut shared = false;
        for pid in processes.iter().filter(|process| !process.zombie).map(|process| process.id.pid) {
            let held = descriptors(pid, 0o400, &pipe).unwrap_or_default();
            shared |= !held.is_empty();
            if !held.is_empty() && may_wait_for(pid, &held) {
                return Err(unstreamable("a process reads on where another one has asked for more than the bytes"));
            }
        }
        // A paused process may still be in the call in which it got the file.
        let since = netted.strangers.filter(|_| !shared && !paused).unwrap_or_else(Instant::now);
        netted.strangers = Some(since);
        if since.elapsed() > STRANGERS {
            return Err(unstreamable("a process outside the job has it open, and has asked for more than the bytes"));
        }
        Ok(false)
    }
}

fn at(place: u64) -> Reply {
    Reply::Answer(Answer::Value(place as i64))
}

fn unstreamable(why: &str) -> Failure {
    Failure::Unstreamable(format!("the command has to start again with the file: {why}"))
}

fn unseen(call: &Call) -> Failure {
    unstreamable(match call.native {
        true => "what a process does with its files cannot be seen",
        false => "what it does by calls of 32 bits is not known",
    })
}

fn cannot(what: &str) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| unstreamable(&format!("the stream cannot {what}: {error}"))
}

/// The descriptors that become the file: all of the process that are the pipe. Where other threads may close one of
/// them meanwhile, and open something else there, only those that the call itself is about.
fn to_replace(asked: &Asked, handler: &Handler) -> Result<Vec<i32>, Failure> {
    let call = &asked.call;
    let mut held = handler.table.net.held(call.thread, asked.stream);
    if tree::value(call.thread, "status", "Threads:").as_deref() != Some("1") {
        let own = of_descriptor(call.number, &call.arguments).map(|(place, _)| descriptors_of(call, place));
        held.retain(|descriptor| own.iter().flatten().any(|other| other == descriptor));
    }
    if held.is_empty() {
        return Err(unstreamable(
            "a process asks for more than the bytes of a stream that another process, or thread, has open",
        ));
    }
    Ok(held)
}
