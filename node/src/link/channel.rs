//! A connection of a link: its socket, and TLS around what is said, or around the handshake only.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::errno::Errno;
use rustls::Connection;

use super::error::LinkError;
use super::frame::Timed;

/// Bytes that are encrypted, or decrypted, at once.
pub const PIECE: usize = 1 << 18;
/// Bytes that are heard at once.
const HEARD: usize = 512;
/// Bytes that are received at once. By itself rustls reads 4 KiB with each system call.
const RECEIVED: usize = 1 << 17;

pub struct Channel {
    pub socket: TcpStream,
    tls: Option<Box<Tls>>,
}

/// The state of TLS, and the bytes that were received and not decrypted.
struct Tls {
    connection: Connection,
    received: Received,
}

impl Channel {
    /// Agrees on the keys of TLS within `limit`. Both sides have shown their certificates then.
    ///
    /// # Arguments
    /// * `tls` - whether what follows is said inside TLS; else it is plain
    pub fn new(socket: TcpStream, mut connection: Connection, tls: bool, limit: Duration) -> Result<Self, LinkError> {
        // It never holds more than what is pushed when it is empty.
        connection.set_buffer_limit(None);
        let mut records = Records { transport: Timed::new(&socket, limit), left: 0 };
        while connection.is_handshaking() || connection.wants_write() {
            connection.complete_io(&mut records)?;
        }
        Ok(Self { socket, tls: tls.then(|| Box::new(Tls { connection, received: Received::default() })) })
    }

    #[cfg(test)]
    pub fn plain(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }

    pub fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Returns the bytes of both sides, over the socket as it is set.
    pub fn stream(&mut self) -> Stream<'_, &TcpStream> {
        Stream { tls: self.tls.as_deref_mut(), transport: &self.socket }
    }

    /// Returns the bytes of both sides, for an exchange that ends within `limit`.
    pub fn within(&mut self, limit: Duration) -> Stream<'_, Timed<'_>> {
        Stream { tls: self.tls.as_deref_mut(), transport: Timed::new(&self.socket, limit) }
    }

    /// Inside TLS: encrypts `bytes`, and sends of them what the socket takes, which is not to wait.
    ///
    /// # Errors
    /// EAGAIN, before anything is encrypted: the socket has not taken yet what was encrypted before. EPIPE: broken.
    pub fn push(&mut self, bytes: &[u8]) -> nix::Result<()> {
        self.flush_some()?;
        let Some(tls) = &mut self.tls else { return Err(Errno::EPIPE) };
        tls.connection.writer().write_all(bytes).map_err(|_| Errno::EPIPE)?;
        match self.flush_some() {
            Err(Errno::EAGAIN) => Ok(()),
            result => result,
        }
    }

    /// Sends as much of the encrypted bytes as the socket takes without waiting.
    ///
    /// # Errors
    /// As `push`.
    pub fn flush_some(&mut self) -> nix::Result<()> {
        self.stream().flush().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Errno::EAGAIN,
            _ => Errno::EPIPE,
        })
    }

    /// Adds the bytes that the socket has brought to `heard`. The socket must not wait.
    ///
    /// # Errors
    /// EPIPE: the other side is gone.
    pub fn hear(&mut self, heard: &mut Vec<u8>) -> nix::Result<()> {
        let Some(tls) = &mut self.tls else {
            let mut bytes = [0; HEARD];
            return match (&self.socket).read(&mut bytes) {
                Ok(0) => Err(Errno::EPIPE),
                Ok(count) => {
                    heard.extend(&bytes[..count]);
                    Ok(())
                }
                Err(error) => nothing_yet(&error),
            };
        };
        let Tls { connection, received } = &mut **tls;
        loop {
            match connection.read_tls(&mut Buffered { received, transport: &self.socket }) {
                Ok(0) => return Err(Errno::EPIPE),
                Ok(_) => {}
                Err(error) => nothing_yet(&error)?,
            }
            let unread = connection.process_new_packets().map_err(|_| Errno::EPIPE)?.plaintext_bytes_to_read();
            let before = heard.len();
            heard.resize(before + unread, 0);
            connection.reader().read_exact(&mut heard[before..]).map_err(|_| Errno::EPIPE)?;
            if received.is_empty() {
                return Ok(());
            }
        }
    }

    /// Whether bytes can be read without the socket.
    ///
    /// # Errors
    /// When they do not belong to this connection.
    pub fn has_unread(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(false) };
        while tls.connection.wants_read() && !tls.received.is_empty() {
            tls.connection.complete_io(&mut Buffered { received: &mut tls.received, transport: &self.socket })?;
        }
        Ok(!tls.connection.wants_read())
    }
}

/// Bytes that were received, in one piece of memory.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    place: usize,
    end: usize,
}

impl Received {
    fn is_empty(&self) -> bool {
        self.place == self.end
    }
}

/// A transport that is read in large pieces.
struct Buffered<'a, T> {
    received: &'a mut Received,
    transport: T,
}

impl<T: Read> Read for Buffered<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = &mut *self.received;
        if received.is_empty() {
            received.bytes.resize(RECEIVED, 0);
            (received.place, received.end) = (0, self.transport.read(&mut received.bytes)?);
        }
        let count = buffer.len().min(received.end - received.place);
        buffer[..count].copy_from_slice(&received.bytes[received.place..][..count]);
        received.place += count;
        Ok(count)
    }
}

impl<T: Write> Write for Buffered<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.transport.write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transport.flush()
    }
}

/// Reads one record of TLS at a time: what follows the handshake may be plain, and is left in the socket.
struct Records<T> {
    transport: T,
    /// Bytes of the record that have not come.
    left: usize,
}

impl<T: Read> Read for Records<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let Some(header) = buffer.first_chunk_mut::<5>() else { return Err(ErrorKind::InvalidInput.into()) };
            self.transport.read_exact(header)?;
            self.left = usize::from(u16::from_be_bytes([header[3], header[4]]));
            return Ok(header.len());
        }
        let most = self.left.min(buffer.len());
        let count = self.transport.read(&mut buffer[..most])?;
        self.left -= count;
        Ok(count)
    }
}

impl<T: Write> Write for Records<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transport.flush()
    }
}

fn nothing_yet(error: &io::Error) -> nix::Result<()> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
        _ => Err(Errno::EPIPE),
    }
}

/// The bytes of both sides, over a transport of their socket.
pub struct Stream<'a, T> {
    tls: Option<&'a mut Tls>,
    transport: T,
}

impl<T: Read + Write> Read for Stream<'_, T> {
    /// Reads as much as was received, and waits only when nothing was.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(Tls { connection, received }) = &mut self.tls else { return self.transport.read(buffer) };
        let mut count = 0;
        while count < buffer.len() {
            match connection.reader().read(&mut buffer[count..]) {
                Ok(0) => break,
                Ok(more) => count += more,
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                Err(_) if count > 0 && received.is_empty() => break,
                Err(_) => {
                    connection.complete_io(&mut Buffered { received, transport: &mut self.transport })?;
                }
            }
        }
        Ok(count)
    }
}

impl<T: Read + Write> Write for Stream<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.transport.write(bytes);
        }
        self.flush()?;
        let written = self.tls.as_mut().map_or(Ok(0), |tls| tls.connection.writer().write(bytes))?;
        self.flush()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(Tls { connection, .. }) = &mut self.tls else { return self.transport.flush() };
        while connection.wants_write() {
            match connection.write_tls(&mut self.transport) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
