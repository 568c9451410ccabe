//! The first record of a reader, the ClientHello of TLS: it names the run before anything is kept or computed for the
//! reader.
//!
//! The name of the server in it follows from the certificate of the run, which only its members have: TLS 1.3
//! encrypts certificates. So a stranger is refused without a handshake. Only the handshake authenticates the reader.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{recv, send, MsgFlags};
use rustls::server::{Accepted, Acceptor};

use super::error::LinkError;
use super::tls::{name_of_run, NAME};

/// Bytes of the header of a TLS record.
const HEADER: usize = 5;
/// The most bytes of a ClientHello with its header. That of a reader has some 300.
const MOST: usize = 768;
/// How each begins: a handshake record, its version, its length, and the type of the message.
const BEGIN: [(usize, &[u8]); 4] = [(0, &[22]), (1, &[3]), (2, &[1, 3]), (HEADER, &[1])];
/// The alert that a server sends to a client that asks for another name: fatal, unrecognized_name (RFC 6066).
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The part of a ClientHello that has come.
#[derive(Debug)]
pub struct HelloReader {
    bytes: [u8; MOST],
    length: usize,
}

/// A whole ClientHello, which TLS goes on with.
pub struct Hello(Accepted);

impl std::fmt::Debug for Hello {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Hello").field(&self.0.client_hello().server_name()).finish()
    }
}

impl Hello {
    pub fn accepted(self) -> Accepted {
        self.0
    }
}

impl HelloReader {
    pub fn new() -> Self {
        Self { bytes: [0; MOST], length: 0 }
    }

    /// Reads what has come, without waiting, and nothing behind the record. None: more has to come.
    ///
    /// # Errors
    /// When something else has come, or the connection has ended.
    pub fn read(&mut self, socket: &TcpStream) -> Result<Option<Hello>, LinkError> {
        loop {
            let end = self.end().unwrap_or(HEADER);
            match recv(socket.as_raw_fd(), &mut self.bytes[self.length..end], MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
                Ok(count) => self.length += count,
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(None),
                Err(error) => return Err(std::io::Error::from(error).into()),
            }
            self.check()?;
            if self.end() == Some(self.length) {
                return self.parse().map(Some);
            }
        }
    }

    /// Where the record ends, once its header has come.
    fn end(&self) -> Option<usize> {
        (self.length >= HEADER).then(|| HEADER + usize::from(u16::from_be_bytes([self.bytes[3], self.bytes[4]])))
    }

    fn check(&self) -> Result<(), LinkError> {
        let wrong = |(at, allowed): &(usize, &[u8])| *at < self.length && !allowed.contains(&self.bytes[*at]);
        if BEGIN.iter().any(wrong) || self.end().is_some_and(|end| end > MOST || end <= HEADER) {
            return Err(LinkError::Broken("another protocol".into()));
        }
        Ok(())
    }

    fn parse(&self) -> Result<Hello, LinkError> {
        let (mut acceptor, mut bytes) = (Acceptor::default(), &self.bytes[..self.length]);
        while !bytes.is_empty() {
            acceptor.read_tls(&mut bytes)?;
        }
        let bad = || LinkError::Broken("no ClientHello".into());
        acceptor.accept().map_err(|_| bad())?.map(Hello).ok_or_else(bad)
    }
}

/// Admits readers that name the run.
pub struct Doorkeeper {
    certificate: PathBuf,
    name: Option<String>,
}

impl Doorkeeper {
    /// # Arguments
    /// * `certificate` - the file where the certificate of the run is, or will be
    pub fn new(certificate: &Path) -> Self {
        Self { certificate: certificate.into(), name: None }
    }

    /// Whether the reader names this run. One that names another run is told so, without waiting.
    ///
    /// # Errors
    /// Refused: it names another run. Broken: there is no certificate yet.
    pub fn admit(&mut self, socket: &TcpStream, hello: &Hello) -> Result<(), LinkError> {
        let name = match &self.name {
            Some(name) => name,
            None => self.name.insert(name_of_run(&self.certificate).map_err(LinkError::Broken)?),
        };
        let hello = hello.0.client_hello();
        if hello.server_name() == Some(name) {
            return Ok(());
        }
        if hello.server_name().is_some_and(|other| other.starts_with(NAME)) {
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let _ = send(socket.as_raw_fd(), &UNRECOGNIZED_NAME, flags);
        }
        Err(LinkError::Refused("another run".into()))
    }
}
