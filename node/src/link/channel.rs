//! A connection of a link: its socket, and TLS around what is said, or around the handshake only.

use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::errno::Errno;
use rustls::Connection;

use super::error::LinkError;
use super::frame::Timed;

/// Bytes that are encrypted at once.
pub const PIECE: usize = 1 << 18;
/// Bytes that are heard at once.
const HEARD: usize = 512;

pub struct Channel {
    pub socket: TcpStream,
    tls: Option<Box<Connection>>,
}

impl Channel {
    /// Agrees on the keys of TLS within `limit`. Both sides have shown their certificates then.
    ///
    /// # Arguments
    /// * `tls` - whether what follows is said inside TLS; else it is plain
    pub fn new(socket: TcpStream, mut connection: Connection, tls: bool, limit: Duration) -> Result<Self, LinkError> {
        // The buffer never holds more than what is pushed when the buffer is empty.
        connection.set_buffer_limit(None);
        let mut records = Records { transport: Timed::new(&socket, limit), left: 0 };
        while connection.is_handshaking() || connection.wants_write() {
            connection.complete_io(&mut records)?;
        }
        Ok(Self { socket, tls: tls.then(|| Box::new(connection)) })
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
        tls.writer().write_all(bytes).map_err(|_| Errno::EPIPE)?;
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
        match tls.read_tls(&mut &self.socket) {
            Ok(0) => return Err(Errno::EPIPE),
            Ok(_) => {}
            Err(error) => nothing_yet(&error)?,
        }
        let unread = tls.process_new_packets().map_err(|_| Errno::EPIPE)?.plaintext_bytes_to_read();
        let before = heard.len();
        heard.resize(before + unread, 0);
        tls.reader().read_exact(&mut heard[before..]).map_err(|_| Errno::EPIPE)
    }

    /// Whether bytes can be read without the socket.
    pub fn has_unread(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| !tls.wants_read())
    }

    /// Inside TLS: waits until bytes have come, and returns some of them, which stay until they are consumed.
    pub fn unread(&mut self) -> io::Result<&[u8]> {
        self.stream().fill()?;
        match self.tls.as_mut().map_or(Ok(&[][..]), |tls| tls.reader().into_first_chunk())? {
            [] => Err(ErrorKind::UnexpectedEof.into()),
            bytes => Ok(bytes),
        }
    }

    pub fn consume(&mut self, count: usize) {
        self.tls.iter_mut().for_each(|tls| tls.reader().consume(count));
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
    tls: Option<&'a mut Connection>,
    transport: T,
}

impl<T: Read + Write> Stream<'_, T> {
    /// Inside TLS: waits until there are bytes to read, or the end.
    fn fill(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_read() && tls.complete_io(&mut self.transport)? != (0, 0) {}
        Ok(())
    }
}

impl<T: Read + Write> Read for Stream<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fill()?;
        match &mut self.tls {
            Some(tls) => tls.reader().read(buffer),
            None => self.transport.read(buffer),
        }
    }
}

impl<T: Read + Write> Write for Stream<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return self.transport.write(bytes);
        }
        self.flush()?;
        let written = self.tls.as_mut().map_or(Ok(0), |tls| tls.writer().write(bytes))?;
        self.flush()?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return self.transport.flush() };
        while tls.wants_write() {
            match tls.write_tls(&mut self.transport) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
