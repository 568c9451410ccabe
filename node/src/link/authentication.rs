//! A reader's hello, by which it is authenticated before anything is kept for it.
//!
//! It is one record, which the kernel brings as a whole. Who knows the key can make one, and each counts once: what was
//! recorded on the way is of no use, because it was already received.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{recv, MsgFlags};

use super::error::LinkError;
use super::frame::{record, Header, Kind, HEADER, HELLO, MAGIC};
use super::secret::{Key, Nonce, Purpose, SIZE};

const LENGTH: usize = HEADER + HELLO;
/// At least so many are remembered, and at most twice as many, of 32 bytes each.
const REMEMBERED: usize = 1 << 16;

/// The first record of a reader that knows `key`.
pub fn hello(key: &Key, nonce: &Nonce) -> Vec<u8> {
    record(Kind::Hello, &[&MAGIC[..], nonce, &key.proof(Purpose::Hello, &[nonce])].concat())
}

/// What has come of a hello.
#[derive(Debug)]
pub struct HelloReader {
    bytes: [u8; LENGTH],
    length: usize,
}

/// A whole one: the nonce, and the proof.
#[derive(Debug)]
pub struct Hello([u8; 2 * SIZE]);

impl HelloReader {
    pub fn new() -> Self {
        Self { bytes: [0; LENGTH], length: 0 }
    }

    /// Reads what has come of it, once, and nothing behind it; None: more has to come.
    ///
    /// # Errors
    /// When it is something else that has come, or the connection has ended.
    pub fn read(&mut self, socket: &TcpStream) -> Result<Option<Hello>, LinkError> {
        match recv(socket.as_raw_fd(), &mut self.bytes[self.length..], MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(count) => self.take(count),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    fn take(&mut self, count: usize) -> Result<Option<Hello>, LinkError> {
        self.length += count;
        let header = Header { kind: Kind::Hello, length: HELLO as u32 }.bytes();
        if self.bytes[..self.length].iter().zip(header.iter().chain(&MAGIC)).any(|(received, right)| received != right)
        {
            return Err(LinkError::Broken("another protocol".into()));
        }
        Ok(if self.length < LENGTH { None } else { self.bytes.last_chunk().copied().map(Hello) })
    }
}

/// A reader that has known the key when it chose its nonce.
pub struct Authenticated {
    pub key: Arc<Key>,
    pub nonce: Nonce,
}

/// Authenticates readers by their hello.
pub struct Authenticator {
    file: PathBuf,
    key: Option<Arc<Key>>,
    received: Nonces,
}

impl Authenticator {
    /// `file`: where the key is, or will be.
    pub fn new(file: &Path) -> Self {
        Self { file: file.into(), key: None, received: Nonces::default() }
    }

    /// # Errors
    /// Refused: it was made with another key. Broken: there is no key yet, or it was received before.
    pub fn authenticate(&mut self, Hello(hello): &Hello) -> Result<Authenticated, LinkError> {
        let (nonce, proof) = hello.split_first_chunk().ok_or_else(|| LinkError::Broken("too short".into()))?;
        let key = self.key()?;
        if !key.proves(Purpose::Hello, &[nonce], proof) {
            return Err(LinkError::Refused("another key".into()));
        }
        if !self.received.add(*nonce, REMEMBERED) {
            return Err(LinkError::Broken("said before".into()));
        }
        Ok(Authenticated { key, nonce: *nonce })
    }

    fn key(&mut self) -> Result<Arc<Key>, LinkError> {
        if let Some(key) = &self.key {
            return Ok(key.clone());
        }
        let key = Arc::new(Key::load(&self.file).map_err(LinkError::Broken)?);
        Ok(self.key.insert(key).clone())
    }
}

/// Those of late: when there are too many, the older half is forgotten.
#[derive(Default)]
struct Nonces {
    recent: HashSet<Nonce>,
    older: HashSet<Nonce>,
}

impl Nonces {
    /// Whether it is a new one.
    fn add(&mut self, nonce: Nonce, most: usize) -> bool {
        if self.older.contains(&nonce) || self.recent.contains(&nonce) {
            return false;
        }
        if self.recent.len() >= most {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::secret::key_file;
    use std::io::Write;
    use std::net::TcpListener;
    use tempfile::tempdir;

    fn parsed(record: &[u8]) -> Result<Option<Hello>, LinkError> {
        let mut partial = HelloReader::new();
        partial.bytes[..record.len()].copy_from_slice(record);
        partial.take(record.len())
    }

    fn whole(key: &Path, nonce: u8) -> Hello {
        parsed(&hello(&Key::load(key).unwrap(), &[nonce; SIZE])).unwrap().unwrap()
    }

    #[test]
    fn a_hello_comes_in_pieces_and_nothing_behind_it_is_taken() {
        let directory = tempdir().unwrap();
        let path = key_file(&directory, "a");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        let mut partial = HelloReader::new();
        assert!(partial.read(&socket).unwrap().is_none());
        let record = hello(&Key::load(&path).unwrap(), &[1; SIZE]);
        reader.write_all(&record[..50]).unwrap();
        socket.peek(&mut [0]).unwrap();
        assert!(partial.read(&socket).unwrap().is_none());
        reader.write_all(&[&record[50..], b"more"].concat()).unwrap();
        socket.peek(&mut [0]).unwrap();
        assert!(Authenticator::new(&path).authenticate(&partial.read(&socket).unwrap().unwrap()).is_ok());
        let mut rest = [0; 10];
        assert_eq!(socket.peek(&mut rest).unwrap(), 4);
    }

    #[test]
    fn another_protocol_is_known_at_once() {
        let right = hello(&Key::load(&key_file(&tempdir().unwrap(), "a")).unwrap(), &[1; SIZE]);
        for index in 0..HEADER + MAGIC.len() {
            let mut wrong = right[..=index].to_vec();
            assert!(parsed(&wrong).unwrap().is_none());
            wrong[index] ^= 1;
            assert!(parsed(&wrong).is_err(), "{index}");
        }
    }

    #[test]
    fn a_reader_is_known_by_its_key_and_once() {
        let directory = tempdir().unwrap();
        let [ours, theirs] = ["a", "b"].map(|digit| key_file(&directory, digit));
        let mut authenticator = Authenticator::new(&ours);
        assert!(matches!(authenticator.authenticate(&whole(&theirs, 1)), Err(LinkError::Refused(_))));
        assert_eq!(authenticator.authenticate(&whole(&ours, 1)).unwrap().nonce, [1; SIZE]);
        assert!(matches!(authenticator.authenticate(&whole(&ours, 1)), Err(LinkError::Broken(_))));
        assert!(authenticator.authenticate(&whole(&ours, 2)).is_ok());
        let mut changed = whole(&ours, 3);
        changed.0[0] ^= 1;
        assert!(matches!(authenticator.authenticate(&changed), Err(LinkError::Refused(_))));
    }

    #[test]
    fn a_key_may_come_later() {
        let directory = tempdir().unwrap();
        let path = key_file(&directory, "a");
        let hello = whole(&path, 1);
        let file = directory.path().join("later");
        let mut authenticator = Authenticator::new(&file);
        assert!(matches!(authenticator.authenticate(&hello), Err(LinkError::Broken(_))));
        std::fs::rename(path, file).unwrap();
        assert!(authenticator.authenticate(&hello).is_ok());
    }

    #[test]
    fn the_older_half_is_forgotten() {
        let mut nonces = Nonces::default();
        let mut add = |number: u8| nonces.add([number; SIZE], 2);
        assert!([1, 2, 3, 4].into_iter().all(&mut add));
        assert!(![1, 2, 3, 4].into_iter().any(&mut add));
        assert!(add(5));
        assert!(add(1));
        assert!(!add(3));
    }
}
