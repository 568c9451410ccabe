//! The sending side of a connection: records, and signs of life.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::sendfile::sendfile;
use nix::sys::socket::{send, setsockopt, sockopt, MsgFlags};
use nix::sys::uio::pread;

use super::channel::{Channel, PIECE};
use super::frame::{record, take_record, Header, Kind, HEADER, LARGEST_DATA};
use crate::protocol::part::Ahead;
use crate::streams::source::Next;
use crate::sys::pipe;
use crate::sys::threads::STACK;

/// A reader that hears nothing for some time thinks that the connection is broken.
const SILENCE: Duration = Duration::from_secs(5);
/// Seconds of silence after which the kernel asks whether the other side is there.
const KEEP_IDLE: u32 = 60;
/// Between two looks whether the reader has to hear something.
const LOOK: Duration = Duration::from_secs(1);

/// The sending side of a connection, which never waits while it sends data.
pub struct Outlet {
    pub channel: Channel,
    /// The rest of a header.
    header: Vec<u8>,
    /// The rest of the payload of a record of data.
    pub left: u64,
    pub has_sent: bool,
    /// Received bytes of a record that is not complete.
    heard: Vec<u8>,
    /// The last word of the reader how many bytes it has taken, if that is news.
    pub taken: Option<u64>,
    /// When the reader has heard something.
    spoken: Instant,
}

impl Outlet {
    pub fn new(channel: Channel) -> Self {
        let stream = &channel.socket;
        // What cannot be set is noticed when the stream is used.
        let _ = stream.set_nonblocking(true);
        // A machine that is gone takes no leave, and may be waited for without a word.
        let _ = setsockopt(stream, sockopt::KeepAlive, &true);
        let _ = setsockopt(stream, sockopt::TcpKeepIdle, &KEEP_IDLE);
        Self {
            channel,
            header: Vec::new(),
            left: 0,
            has_sent: false,
            heard: Vec::new(),
            taken: None,
            spoken: Instant::now(),
        }
    }

    /// Takes what the reader has said by now; true: it wants no more.
    pub fn heed(&mut self) -> nix::Result<bool> {
        self.channel.hear(&mut self.heard)?;
        self.obey()
    }

    fn obey(&mut self) -> nix::Result<bool> {
        let broken = |_| Errno::EPIPE;
        while let Some((kind, payload)) = take_record(&mut self.heard).map_err(broken)? {
            match kind {
                Kind::Taken => self.taken = Some(u64::from_be_bytes(payload.try_into().map_err(|_| Errno::EPIPE)?)),
                Kind::Done => return Ok(true),
                _ => return Err(Errno::EPIPE),
            }
        }
        Ok(false)
    }

    /// Sends some of the bytes. Those that are final are not copied, if they need not be. Returns how many were sent.
    pub fn send(&mut self, next: Next) -> nix::Result<usize> {
        if !self.channel.is_plain() {
            return self.send_encrypted(next);
        }
        if self.left == 0 {
            self.left = next.length().min(LARGEST_DATA.into());
            self.header = Header { kind: Kind::Data, length: self.left as u32 }.bytes().to_vec();
            self.has_sent = true;
        }
        self.send_header()?;
        let (socket, left) = (&self.channel.socket, self.left as usize);
        let sent = match next {
            Next::Noted(bytes) => send(socket.as_raw_fd(), &bytes[..left.min(bytes.len())], MsgFlags::MSG_NOSIGNAL),
            Next::Final(file, place, _) => sendfile(socket, file, Some(&mut (place as i64)), left),
        }
        .map_err(|error| self.whose(error))?;
        self.left -= sent as u64;
        self.spoken = Instant::now();
        Ok(sent)
    }

    /// Sends some of the next bytes of a part.
    pub fn send_piece(&mut self, file: &File, ahead: &Ahead) -> nix::Result<usize> {
        match ahead {
            Ahead::Extent { offset, length } => self.send(Next::Final(file, *offset, *length)),
            Ahead::Text(text) => {
                self.has_sent = true;
                self.say(Kind::Data, text)?;
                self.spoken = Instant::now();
                Ok(text.len())
            }
        }
    }

    /// Encrypts and sends one record. The channel keeps the bytes that the socket does not take.
    fn send_encrypted(&mut self, next: Next) -> nix::Result<usize> {
        // Before the file is read: a socket that is full is asked again and again.
        self.channel.flush_some()?;
        let mut piece = vec![0; HEADER + next.length().min(PIECE as u64) as usize];
        let space = &mut piece[HEADER..];
        let length = match next {
            Next::Noted(bytes) => {
                space.copy_from_slice(&bytes[..space.len()]);
                space.len()
            }
            Next::Final(file, place, _) => pread(file, space, place as i64)?,
        };
        if length > 0 {
            piece[..HEADER].copy_from_slice(&Header { kind: Kind::Data, length: length as u32 }.bytes());
            self.has_sent = true;
            self.channel.push(&piece[..HEADER + length])?;
            self.spoken = Instant::now();
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
    pub fn keep_alive(&mut self) -> nix::Result<()> {
        if self.spoken.elapsed() < SILENCE {
            return Ok(());
        }
        self.spoken = Instant::now();
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

    /// Lets the reader hear that this side is there, which can send nothing yet.
    ///
    /// # Errors
    /// When the connection is broken, or the reader wants no more.
    pub fn stay(&mut self) -> nix::Result<()> {
        if self.heed()? {
            return Err(Errno::EPIPE);
        }
        self.keep_alive()
    }

    /// Does what may take long, and lets the reader hear in between that this side is there. No record of data may
    /// have begun.
    ///
    /// # Errors
    /// When the connection is broken. The work was done then, too.
    pub fn meanwhile<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> nix::Result<T> {
        let (tell, result) = mpsc::channel();
        thread::scope(|scope| {
            let worker = Builder::new().name("compare".into()).stack_size(STACK);
            worker.spawn_scoped(scope, move || tell.send(work())).map_err(|_| Errno::EPIPE)?;
            loop {
                match result.recv_timeout(LOOK) {
                    Ok(result) => return Ok(result),
                    Err(RecvTimeoutError::Timeout) => self.keep_alive()?,
                    Err(RecvTimeoutError::Disconnected) => return Err(Errno::EPIPE),
                }
            }
        })
    }

    /// Sends a record between those of data.
    pub fn say(&mut self, kind: Kind, payload: &[u8]) -> nix::Result<()> {
        let broken = |_| Errno::EPIPE;
        self.channel.socket.set_nonblocking(false).map_err(broken)?;
        self.channel.socket.set_write_timeout(None).map_err(broken)?;
        self.channel.stream().write_all(&record(kind, payload)).map_err(broken)?;
        self.channel.socket.set_nonblocking(true).map_err(broken)
    }

    /// Waits until the reader says that it is done. The orderly end of the connection says nothing: a machine on the
    /// way may have caused it.
    pub fn is_dismissed(&mut self) -> bool {
        let _ = self.channel.socket.set_nonblocking(false);
        let _ = self.channel.socket.set_read_timeout(None);
        loop {
            match self.heed() {
                Ok(false) => {}
                done => return done == Ok(true),
            }
        }
    }

    /// Ends the connection at once, and what the reader has not taken of it.
    pub fn reset(&self) {
        let now = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        let _ = setsockopt(&self.channel.socket, sockopt::Linger, &now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    use crate::link::frame::read_header;

    #[test]
    fn a_reader_hears_something_while_the_sender_works() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut outlet = Outlet::new(Channel::plain(listener.accept().unwrap().0));
        outlet.spoken = Instant::now().checked_sub(SILENCE).unwrap();
        let heard = outlet.meanwhile(|| read_header(&mut reader).unwrap().kind);
        assert_eq!(heard, Ok(Kind::Keepalive));
    }

    #[test]
    fn a_reader_that_waits_hears_something_until_it_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut outlet = Outlet::new(Channel::plain(listener.accept().unwrap().0));
        outlet.spoken = Instant::now().checked_sub(SILENCE).unwrap();
        assert_eq!(outlet.stay(), Ok(()));
        assert_eq!(read_header(&mut reader).unwrap().kind, Kind::Keepalive);
        drop(reader);
        while outlet.stay() == Ok(()) {}
    }
}
