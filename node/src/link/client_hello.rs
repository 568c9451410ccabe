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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;
    use tempfile::tempdir;

    use crate::link::tls::{certificate_file, first_words};

    /// Both ends of a connection.
    fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (reader, listener.accept().unwrap().0)
    }

    fn read(hello: &mut HelloReader, socket: &TcpStream) -> Result<Option<Hello>, LinkError> {
        socket.peek(&mut [0]).unwrap();
        hello.read(socket)
    }

    /// Reads these words as a ClientHello.
    fn heard(words: &[u8]) -> Result<Option<Hello>, LinkError> {
        let (mut reader, socket) = connection();
        reader.write_all(words).unwrap();
        read(&mut HelloReader::new(), &socket)
    }

    #[test]
    fn a_hello_comes_in_pieces_and_nothing_behind_it_is_taken() {
        let directory = tempdir().unwrap();
        let words = first_words(&certificate_file(&directory, "a"));
        let (mut reader, socket) = connection();
        let mut hello = HelloReader::new();
        assert!(hello.read(&socket).unwrap().is_none());
        for piece in [&words[..3], &words[3..50]] {
            reader.write_all(piece).unwrap();
            assert!(read(&mut hello, &socket).unwrap().is_none());
        }
        reader.write_all(&[&words[50..], b"more"].concat()).unwrap();
        assert!(read(&mut hello, &socket).unwrap().is_some());
        assert_eq!(socket.peek(&mut [0; 10]).unwrap(), 4);
    }

    #[test]
    fn another_protocol_is_known_at_once() {
        let words = first_words(&certificate_file(&tempdir().unwrap(), "a"));
        assert!(words.len() < MOST / 2, "{}", words.len());
        for index in [0, 1, 2, 3, HEADER] {
            let mut wrong = words[..=index].to_vec();
            assert!(heard(&wrong).unwrap().is_none());
            wrong[index] ^= 8;
            assert!(heard(&[&wrong[..], &words[index + 1..=HEADER]].concat()).is_err(), "{index}");
        }
        let mut torn = words.clone();
        torn[HEADER + 38] = 0xff;
        assert!(heard(&torn).is_err());
        for length in [0, MOST as u16, u16::MAX] {
            let [high, low] = length.to_be_bytes();
            assert!(heard(&[22, 3, 1, high, low]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_reader_names_its_run() {
        let directory = tempdir().unwrap();
        let [ours, theirs] = ["a", "b"].map(|name| certificate_file(&directory, name));
        let hello = |of: &Path| heard(&first_words(of)).unwrap().unwrap();
        let (mut reader, socket) = connection();
        let mut doorkeeper = Doorkeeper::new(&ours);
        assert_eq!(doorkeeper.admit(&socket, &hello(&ours)), Ok(()));
        assert!(matches!(doorkeeper.admit(&socket, &hello(&theirs)), Err(LinkError::Refused(_))));
        let mut told = [0; UNRECOGNIZED_NAME.len()];
        std::io::Read::read_exact(&mut reader, &mut told).unwrap();
        assert_eq!(told, UNRECOGNIZED_NAME);
    }

    #[test]
    fn a_certificate_may_come_later() {
        let directory = tempdir().unwrap();
        let first = certificate_file(&directory, "a");
        let later = directory.path().join("later.pem");
        let (hello, (_reader, socket)) = (heard(&first_words(&first)).unwrap().unwrap(), connection());
        let mut doorkeeper = Doorkeeper::new(&later);
        assert!(matches!(doorkeeper.admit(&socket, &hello), Err(LinkError::Broken(_))));
        std::fs::rename(first, later).unwrap();
        assert_eq!(doorkeeper.admit(&socket, &hello), Ok(()));
    }
}
