//! One connection of one stream: sends what the producer writes as it grows, and how it ends.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::sendfile::sendfile;
use nix::sys::socket::{send, setsockopt, sockopt, MsgFlags};
use nix::sys::uio::pread;

use super::channel::{Channel, PIECE};
use super::frame::{read_header, record, Header, Kind, HEADER, LARGEST_DATA};
use super::notifier::{Notifier, Waker};
use super::request::{encode_failure, encode_part, Request};
use super::streams::Streams;
use crate::origin::{Failure, Origin, Step};
use crate::part::Ahead;
use crate::part_reader::PartReader;
use crate::parts::said_part;
use crate::pipe;
use crate::producer::Producer;
use crate::source::Source;

/// How often files are looked at that notify nobody, in milliseconds, and events while the reader is slow.
const TICK: u16 = 100;
const SLOW_TICK: u16 = 1000;
/// A reader that hears nothing for some time thinks that the connection is broken.
const SILENCE: Duration = Duration::from_secs(5);
/// Seconds of silence after which the kernel asks whether the other side is there.
const KEEP_IDLE: u32 = 60;
/// A record of which the beginning has come is complete after so long.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What all connections need.
pub struct Shared {
    jobs: PathBuf,
    notifier: Option<Notifier>,
    pub streams: Streams,
}

impl Shared {
    /// `jobs`: the directory of the directories of jobs.
    pub fn new(jobs: PathBuf) -> Self {
        // Without notices all that is lost is time.
        Self { jobs, notifier: Notifier::new().ok(), streams: Streams::default() }
    }
}

/// Serves a request, to the end of the stream or of the connection.
pub fn serve(shared: &Shared, channel: Channel, request: Request) {
    let wanted = &request.wanted;
    if let Some(number) = wanted.number {
        return serve_part(shared, channel, &request, number);
    }
    // Another attempt may find the former connection ended.
    let Ok(known) = shared.streams.take(wanted, &channel.socket) else { return };
    let mut source = known.unwrap_or_else(|| {
        let events = shared.jobs.join(&wanted.job).join("events.jsonl");
        Source::new(&wanted.path, Producer::of_file(&wanted.port, &wanted.path, events), wanted.verify)
    });
    let mut sender = Sender {
        outlet: Outlet::new(channel),
        waker: shared.notifier.as_ref().and_then(|notifier| notifier.waker().ok()),
    };
    let done = if !source.resume(request.offset) {
        // It was abandoned, and what was sent of it can no longer be compared with the file.
        sender.conclude(Kind::Failed, &encode_failure(&Failure::Producer("the stream was abandoned".into())))
    } else if request.part {
        sender.tell_part(&mut source)
    } else {
        sender.send_all(&mut source)
    };
    shared.streams.give_back(wanted, (done != Ok(true)).then_some(source));
}

/// Serves a part that a job has said. Nothing has to be kept of it: the file must not change.
fn serve_part(shared: &Shared, channel: Channel, request: &Request, number: u64) {
    let mut sender = Sender { outlet: Outlet::new(channel), waker: None };
    let wanted = &request.wanted;
    let said = said_part(&shared.jobs.join(&wanted.job).join("events.jsonl"), &wanted.port, number);
    let Some(mut part) = said.and_then(|part| PartReader::at(part, request.offset)) else {
        let message = format!("there is no part {number} of {} with so many bytes", wanted.port);
        let _ = sender.conclude(Kind::Failed, &encode_failure(&Failure::Producer(message)));
        return;
    };
    let _ = if request.part { sender.conclude(Kind::Part, &encode_part(None)) } else { sender.send_part(&mut part) };
}

struct Sender {
    outlet: Outlet,
    waker: Option<Waker>,
}

impl Sender {
    /// Returns whether the reader has seen how the stream ended, or wants no more of it: it said so.
    ///
    /// # Errors
    /// When the connection is broken.
    fn send_all(&mut self, source: &mut Source) -> nix::Result<bool> {
        let mut spoken = Instant::now();
        loop {
            source.read_events();
            match self.send_some(source) {
                Err(failure) => return self.fail(&failure),
                Ok(Step::Moved) => spoken = Instant::now(),
                Ok(Step::Full) => {
                    if self.wait_for(source, PollFlags::POLLIN | PollFlags::POLLOUT, SLOW_TICK)? {
                        return Ok(true);
                    }
                }
                Ok(Step::Unread) => return Err(Errno::EPIPE),
                // The file has become shorter than the record that was begun: another connection will see why.
                Ok(Step::Waiting | Step::Complete) if self.outlet.left > 0 => return Err(Errno::EPIPE),
                Ok(Step::Complete) => return self.conclude(Kind::Committed, &source.taken().to_be_bytes()),
                Ok(Step::Waiting) => {
                    if self.waker.as_ref().is_some_and(|waker| waker.watch(source)) {
                        // Watched only now: look once more at what was written in between.
                        continue;
                    }
                    if spoken.elapsed() >= SILENCE {
                        spoken = Instant::now();
                        self.outlet.keep_alive()?;
                    }
                    if self.wait_for(source, PollFlags::POLLIN, TICK)? {
                        return Ok(true);
                    }
                }
            }
        }
    }

    /// The same of a part.
    fn send_part(&mut self, part: &mut PartReader) -> nix::Result<bool> {
        loop {
            match part.take_by(|file, ahead| self.outlet.send_piece(file, ahead)) {
                Err(failure) => return self.fail(&failure),
                Ok(Step::Moved) => {}
                Ok(Step::Full) => {
                    if self.wait(PollFlags::POLLIN | PollFlags::POLLOUT, SLOW_TICK)? {
                        return Ok(true);
                    }
                }
                Ok(Step::Complete) => return self.conclude(Kind::Committed, &part.taken().to_be_bytes()),
                Ok(Step::Waiting | Step::Unread) => return Err(Errno::EPIPE),
            }
        }
    }

    /// The reader wants no more.
    fn tell_part(&mut self, source: &mut Source) -> nix::Result<bool> {
        source.read_events();
        match source.left_to_compare() {
            Ok(part) => self.conclude(Kind::Part, &encode_part(part.as_ref())),
            Err(failure) => self.conclude(Kind::Failed, &encode_failure(&failure)),
        }
    }

    fn send_some(&mut self, source: &mut Source) -> Result<Step, Failure> {
        source.check()?;
        if source.open()? {
            source.take_by(|file, offset, most| self.outlet.send(file, offset, most))
        } else {
            Ok(Step::Waiting)
        }
    }

    /// Waits for the reader, or for news of the file; true: the reader wants no more.
    fn wait_for(&mut self, source: &mut Source, events: PollFlags, milliseconds: u16) -> nix::Result<bool> {
        let done = self.wait(events, milliseconds);
        if self.waker.as_ref().is_some_and(Waker::was_woken) {
            source.growth_notice();
        }
        done
    }

    fn wait(&mut self, events: PollFlags, milliseconds: u16) -> nix::Result<bool> {
        let waker = self.waker.iter().map(|waker| PollFd::new(waker.as_fd(), PollFlags::POLLIN));
        let mut descriptors: Vec<PollFd> =
            std::iter::once(PollFd::new(self.outlet.channel.socket.as_fd(), events)).chain(waker).collect();
        let _ = poll(&mut descriptors, PollTimeout::from(milliseconds));
        let found = descriptors[0].revents().unwrap_or(PollFlags::empty());
        if found.difference(PollFlags::POLLOUT).is_empty() || !self.outlet.channel.has_word() {
            Ok(false)
        } else if self.outlet.is_dismissed(Some(LAST_WORD)) {
            Ok(true)
        } else {
            Err(Errno::EPIPE)
        }
    }

    /// A reader that is slow must not see this only after all that was sent: it shall come again.
    fn fail(&mut self, failure: &Failure) -> nix::Result<bool> {
        if self.outlet.has_sent {
            self.outlet.reset();
            return Err(Errno::EPIPE);
        }
        self.conclude(Kind::Failed, &encode_failure(failure))
    }

    /// Says how the stream ended, and waits until the reader has heard it.
    fn conclude(&mut self, kind: Kind, payload: &[u8]) -> nix::Result<bool> {
        self.outlet.say(kind, payload)?;
        Ok(self.outlet.is_dismissed(None))
    }
}

/// The sending side of a connection, which never waits while it sends data.
struct Outlet {
    channel: Channel,
    /// The rest of a header.
    header: Vec<u8>,
    /// The rest of the payload of a record of data.
    left: u64,
    has_sent: bool,
}

impl Outlet {
    fn new(channel: Channel) -> Self {
        let stream = &channel.socket;
        // What cannot be set is noticed when the stream is used.
        let _ = stream.set_nonblocking(true);
        // A machine that is gone takes no leave, and may be waited for without a word.
        let _ = setsockopt(stream, sockopt::KeepAlive, &true);
        let _ = setsockopt(stream, sockopt::TcpKeepIdle, &KEEP_IDLE);
        Self { channel, header: Vec::new(), left: 0, has_sent: false }
    }

    /// Sends at most so many bytes of `file` from `offset`, without copying them if it can, and returns how many.
    fn send(&mut self, file: &File, offset: &mut i64, most: u64) -> nix::Result<usize> {
        if !self.channel.is_plain() {
            return self.send_encrypted(file, *offset, most);
        }
        if self.left == 0 {
            let length = most.min(LARGEST_DATA.into());
            self.header = Header { kind: Kind::Data, length: length as u32 }.bytes().to_vec();
            self.left = length;
            self.has_sent = true;
        }
        self.send_header()?;
        let sent = sendfile(&self.channel.socket, file, Some(offset), self.left as usize)
            .map_err(|error| self.whose(error))?;
        self.left -= sent as u64;
        Ok(sent)
    }

    /// Sends some of what is next of a part.
    fn send_piece(&mut self, file: &File, ahead: &Ahead) -> nix::Result<usize> {
        match ahead {
            Ahead::Extent { offset, length } => self.send(file, &mut (*offset as i64), *length),
            Ahead::Text(text) => {
                self.has_sent = true;
                self.say(Kind::Data, text).map(|()| text.len())
            }
        }
    }

    /// A record at once, of which the channel keeps what the socket does not take.
    fn send_encrypted(&mut self, file: &File, offset: i64, most: u64) -> nix::Result<usize> {
        // Before the file is read: a socket that is full is asked again and again.
        self.channel.flush_some()?;
        let mut piece = vec![0; HEADER + most.min(PIECE as u64) as usize];
        let length = pread(file, &mut piece[HEADER..], offset)?;
        if length > 0 {
            piece[..HEADER].copy_from_slice(&Header { kind: Kind::Data, length: length as u32 }.bytes());
            self.has_sent = true;
            self.channel.push(&piece[..HEADER + length])?;
        }
        Ok(length)
    }

    fn send_header(&mut self) -> nix::Result<()> {
        let more = MsgFlags::from_bits_retain(nix::libc::MSG_MORE) | MsgFlags::MSG_NOSIGNAL;
        while !self.header.is_empty() {
            let sent = send(self.channel.socket.as_raw_fd(), &self.header, more).map_err(|error| self.whose(error))?;
            self.header.drain(..sent);
        }
        Ok(())
    }

    /// EPIPE where it is the connection that is broken, and not the file.
    fn whose(&self, error: Errno) -> Errno {
        if matches!(error, Errno::EAGAIN | Errno::EINTR) {
            return error;
        }
        if pipe::state(&self.channel.socket, PollFlags::empty()).is_empty() {
            error
        } else {
            Errno::EPIPE
        }
    }

    /// Where there is no space for it, the reader has enough to read.
    fn keep_alive(&mut self) -> nix::Result<()> {
        let record = record(Kind::Keepalive, b"");
        if !self.channel.is_plain() {
            return match self.channel.push(&record) {
                Err(Errno::EAGAIN) => Ok(()),
                result => result,
            };
        }
        match send(self.channel.socket.as_raw_fd(), &record, MsgFlags::MSG_NOSIGNAL) {
            Ok(sent) if sent == record.len() => Ok(()),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(()),
            _ => Err(Errno::EPIPE),
        }
    }

    /// Sends a record between those of data.
    fn say(&mut self, kind: Kind, payload: &[u8]) -> nix::Result<()> {
        let broken = |_| Errno::EPIPE;
        self.channel.socket.set_nonblocking(false).map_err(broken)?;
        self.channel.socket.set_write_timeout(None).map_err(broken)?;
        self.channel.stream().write_all(&record(kind, payload)).map_err(broken)?;
        self.channel.socket.set_nonblocking(true).map_err(broken)
    }

    /// Whether the reader says that it is done, within `limit`. That the connection was closed in good order says
    /// nothing: that may have been somebody on the way.
    fn is_dismissed(&mut self, limit: Option<Duration>) -> bool {
        let _ = self.channel.socket.set_nonblocking(false);
        let _ = self.channel.socket.set_read_timeout(limit);
        matches!(read_header(&mut self.channel.stream()), Ok(Header { kind: Kind::Done, .. }))
    }

    /// Ends the connection at once, and what the reader has not taken of it.
    fn reset(&self) {
        let now = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        let _ = setsockopt(&self.channel.socket, sockopt::Linger, &now);
    }
}
