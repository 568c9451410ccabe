//! How a reader gets a stream, through all that may happen to its connections.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{fcntl, splice, FcntlArg, OFlag, SpliceFFlags};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::write;

use super::channel::Channel;
use super::error::LinkError;
use super::frame::{busy, read_header, read_payload, record, Kind};
use super::handshake;
use super::request::{decode_failure, decode_part, Request};
use crate::protocol::job::Link;
use crate::protocol::messages::FirstBytes;
use crate::protocol::verify::block;
use crate::streams::origin::Failure;
use crate::sys::pipe::{has_reader, has_space};
use crate::sys::threads::lock;

#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// After such a silence a connection is given up.
    pub quiet: Duration,
    /// After so long without any progress the stream is.
    pub patience: Duration,
    /// Between two attempts: the first pause, which is doubled until it is the longest.
    pub pauses: [Duration; 2],
}

pub const TIMES: Times = Times {
    quiet: Duration::from_secs(20),
    patience: Duration::from_secs(60),
    pauses: [Duration::from_millis(10), Duration::from_secs(2)],
};

/// Brings a stream into a pipe.
pub struct Fetcher {
    pub link: Link,
    pub request: Request,
    pub sink: OwnedFd,
    pub times: Times,
    pub orders: Arc<Orders>,
    /// The last connection has brought something, or waited for the command only.
    pub progress: bool,
    /// The bytes of a window that the sender knows to be read, by the last connection.
    pub acknowledged: u64,
}

/// The orders of the feeder, while the fetcher works.
#[derive(Debug)]
pub struct Orders {
    /// The feeder takes no more, and needs the part that is still to be compared.
    leaves: AtomicBool,
    /// The last connection, which may have nothing to say for some time.
    connection: Mutex<Option<TcpStream>>,
    /// The bytes that the command has read, of a window.
    taken: AtomicU64,
    /// Rings when there is something to say.
    bell: EventFd,
}

impl Orders {
    /// # Errors
    /// When there are too many open files.
    pub fn new() -> io::Result<Self> {
        let bell = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { leaves: AtomicBool::new(false), connection: Mutex::new(None), taken: AtomicU64::new(0), bell })
    }

    /// Says how many bytes the command has read. The sender learns of whole blocks.
    pub fn acknowledge(&self, place: u64) {
        let known = self.taken.fetch_max(place, Ordering::AcqRel);
        if place / block() > known / block() {
            let _ = self.bell.write(1);
        }
    }

    fn connected(&self, socket: &TcpStream) -> io::Result<()> {
        *lock(&self.connection) = Some(socket.try_clone()?);
        Ok(())
    }

    fn are_to_leave(&self) -> bool {
        self.leaves.load(Ordering::Acquire)
    }

    /// Before the pipe is closed, which says to the fetcher that nothing more is taken.
    pub fn leave(&self) {
        self.leaves.store(true, Ordering::Release);
    }

    /// After that.
    pub fn hurry(&self) {
        if let Some(socket) = &*lock(&self.connection) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// How a stream has ended: what is still to be compared with the file, if it was left.
pub type End = Result<Option<FirstBytes>, Failure>;

/// Why a connection has brought no end.
enum Interruption {
    Link(LinkError),
    /// The feeder takes no more.
    Unread,
}

impl<E: Into<LinkError>> From<E> for Interruption {
    fn from(error: E) -> Self {
        Self::Link(error.into())
    }
}

impl Fetcher {
    /// Fetches to the end, by as many connections as it takes.
    pub fn fetch(&mut self) -> End {
        let [shortest, longest] = self.times.pauses;
        let (mut pause, mut last_progress) = (shortest, Instant::now());
        loop {
            self.progress = false;
            let message = match self.connect_and_fetch() {
                Ok(end) => return end,
                Err(Interruption::Unread) if self.orders.are_to_leave() => {
                    // The connection was good until now, however long ago it began.
                    (pause, last_progress) = (shortest, Instant::now());
                    continue;
                }
                Err(Interruption::Unread) => return Ok(None),
                Err(Interruption::Link(LinkError::Refused(message))) => return Err(self.unreachable(&message)),
                Err(Interruption::Link(LinkError::Broken(message))) => message,
            };
            if self.progress {
                (pause, last_progress) = (shortest, Instant::now());
            }
            if last_progress.elapsed() >= self.times.patience {
                return Err(self.unreachable(&message));
            }
            thread::sleep(pause);
            pause = longest.min(2 * pause);
        }
    }

    fn unreachable(&self, message: &str) -> Failure {
        let (path, address) = (self.request.wanted.path.display(), self.link.address);
        Failure::Producer(format!("cannot read {path} from {address}: {message}"))
    }

    fn connect_and_fetch(&mut self) -> Result<End, Interruption> {
        self.request.part = !has_reader(&self.sink);
        if self.request.part && !self.orders.are_to_leave() {
            return Err(Interruption::Unread);
        }
        let mut channel = handshake::connect(&self.link.address, &self.link.certificate, self.link.tls)?;
        self.orders.connected(&channel.socket)?;
        // What the command has read is not to wait for the answer to what was said before.
        channel.socket.set_nodelay(true)?;
        handshake::say(&mut channel, Kind::Request, &self.request.encode())?;
        self.acknowledged = 0;
        channel.socket.set_read_timeout(Some(self.times.quiet))?;
        if !channel.is_plain() {
            // The pipe is written to as it is spliced into: what it takes, and no waiting but with an eye on the
            // socket.
            fcntl(&self.sink, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(io::Error::from)?;
        }
        let brought = self.bring(&mut channel);
        let left = matches!(brought, Err(Interruption::Unread)) && !self.orders.are_to_leave();
        if brought.is_ok() || left {
            let _ = channel.stream().write_all(&record(Kind::Done, b""));
        }
        brought
    }

    fn bring(&mut self, channel: &mut Channel) -> Result<End, Interruption> {
        loop {
            if !self.request.part && !has_reader(&self.sink) {
                return Err(Interruption::Unread);
            }
            self.acknowledge(channel)?;
            self.wait_for_word(channel)?;
            let header = read_header(&mut channel.stream())?;
            let mut payload = || read_payload(&mut channel.stream(), header);
            match header.kind {
                Kind::Data => self.receive(channel, header.length as usize)?,
                Kind::Keepalive => self.progress = true,
                Kind::Committed => return Ok(self.compare(&payload()?).map(|()| None)),
                Kind::Part if self.request.part => return Ok(Ok(decode_part(&payload()?)?)),
                Kind::Failed => return Ok(Err(decode_failure(&payload()?))),
                Kind::Busy => return Err(busy(&payload()?).into()),
                other => return Err(LinkError::Broken(format!("{other:?} came instead of data")).into()),
            }
        }
    }

    /// Says what the command has read of a window, if that is news.
    fn acknowledge(&mut self, channel: &mut Channel) -> Result<(), LinkError> {
        let taken = self.orders.taken.load(Ordering::Acquire);
        if self.request.part || taken / block() <= self.acknowledged / block() {
            return Ok(());
        }
        self.acknowledged = taken;
        handshake::say(channel, Kind::Taken, &taken.to_be_bytes())
    }

    fn compare(&self, size: &[u8]) -> Result<(), Failure> {
        if size == self.request.offset.to_be_bytes() {
            Ok(())
        } else {
            Err(self.unreachable(&format!("it was committed with another size than {}", self.request.offset)))
        }
    }

    /// Brings the payload of a record into the pipe.
    fn receive(&mut self, channel: &mut Channel, length: usize) -> Result<(), Interruption> {
        if channel.is_plain() {
            return self.move_payload(channel, length);
        }
        let mut left = length;
        while left > 0 {
            self.wait_for_word(channel)?;
            let bytes = channel.unread()?;
            match write(&self.sink, &bytes[..left.min(bytes.len())]) {
                Ok(count) => {
                    channel.consume(count);
                    left -= count;
                    self.request.offset += count as u64;
                    self.progress = true;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait_for_space(channel)?,
                Err(Errno::EPIPE) => return Err(Interruption::Unread),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    /// Moves the payload of a record from the socket into the pipe, without copying it.
    fn move_payload(&mut self, channel: &mut Channel, length: usize) -> Result<(), Interruption> {
        let mut left = length;
        while left > 0 {
            self.wait_for_space(channel)?;
            self.wait_for_word(channel)?;
            // The flag is for the pipe only: the socket is waited for, as long as its time limit says.
            match splice(&channel.socket, None, &self.sink, None, left, SpliceFFlags::SPLICE_F_NONBLOCK) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(moved) => {
                    left -= moved;
                    self.request.offset += moved as u64;
                    self.progress = true;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE) => return Err(Interruption::Unread),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(())
    }

    /// However slow the command is.
    fn wait_for_space(&mut self, channel: &mut Channel) -> Result<(), Interruption> {
        if has_space(&self.sink) {
            return Ok(());
        }
        // The command has to go on, not the fetcher.
        self.progress = true;
        loop {
            // A connection that was reset reports that also to a side that does not read.
            let wanted = [PollFlags::POLLOUT, PollFlags::empty(), PollFlags::POLLIN];
            let [sink, socket, bell] = self.poll(channel, wanted, PollTimeout::NONE);
            if sink.contains(PollFlags::POLLERR) {
                return Err(Interruption::Unread);
            }
            if !socket.is_empty() {
                return Err(LinkError::Broken("the connection was reset".into()).into());
            }
            self.answer(bell, channel)?;
            if sink.contains(PollFlags::POLLOUT) {
                return Ok(());
            }
        }
    }

    /// Waits until the sender has said something.
    fn wait_for_word(&mut self, channel: &mut Channel) -> Result<(), Interruption> {
        let deadline = Instant::now() + self.times.quiet;
        while !channel.has_unread() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            let wanted = [PollFlags::empty(), PollFlags::POLLIN, PollFlags::POLLIN];
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let [sink, socket, bell] = self.poll(channel, wanted, timeout);
            if sink.contains(PollFlags::POLLERR) {
                return Err(Interruption::Unread);
            }
            self.answer(bell, channel)?;
            if !socket.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Polls the pipe, the socket and the bell. Of a pipe that the feeder has left there is no news.
    fn poll(&self, channel: &Channel, wanted: [PollFlags; 3], timeout: PollTimeout) -> [PollFlags; 3] {
        let sink = if self.request.part { self.orders.bell.as_fd() } else { self.sink.as_fd() };
        let sources = [sink, channel.socket.as_fd(), self.orders.bell.as_fd()];
        let [sink, socket, bell] = sources.map(|source| PollFd::new(source, PollFlags::empty()));
        let mut descriptors = [sink, socket, bell];
        descriptors.iter_mut().zip(wanted).for_each(|(descriptor, events)| descriptor.set_events(events));
        let _ = poll(&mut descriptors, timeout);
        descriptors.each_ref().map(|found| found.revents().unwrap_or(PollFlags::empty()))
    }

    fn answer(&mut self, bell: PollFlags, channel: &mut Channel) -> Result<(), LinkError> {
        if !bell.is_empty() {
            let _ = self.orders.bell.read();
            self.acknowledge(channel)?;
        }
        Ok(())
    }
}
