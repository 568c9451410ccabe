//! A reader's first words, by which it is known before anything is kept for it.
//!
//! They are one record, which the kernel brings as a whole. Who knows the key says them, and each of them once: what was
//! heard on the way is of no use, and was already said.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{recv, MsgFlags};

use super::frame::{record, Header, Kind, HEADER, HELLO, MAGIC};
use super::secret::{Key, Nonce, Purpose, SIZE};
use super::Trouble;

const LENGTH: usize = HEADER + HELLO;
/// At least so many are remembered, and at most twice as many, of 32 bytes each.
const REMEMBERED: usize = 1 << 16;

/// What a reader that knows `key` says first.
pub fn words(key: &Key, nonce: &Nonce) -> Vec<u8> {
    record(Kind::Hello, &[&MAGIC[..], nonce, &key.proof(Purpose::Hello, &[nonce])].concat())
}

/// What has come of such words.
#[derive(Debug)]
pub struct Words {
    bytes: [u8; LENGTH],
    length: usize,
}

/// All of them: the nonce, and the proof.
#[derive(Debug)]
pub struct Hello([u8; 2 * SIZE]);

impl Words {
    pub fn new() -> Self {
        Self { bytes: [0; LENGTH], length: 0 }
    }

    /// Reads what has come of them, once, and nothing behind them; None: more has to come.
    ///
    /// # Errors
    /// When it is something else that was said, or the connection has ended.
    pub fn hear(&mut self, socket: &TcpStream) -> Result<Option<Hello>, Trouble> {
        match recv(socket.as_raw_fd(), &mut self.bytes[self.length..], MsgFlags::MSG_DONTWAIT) {
            Ok(0) => Err(std::io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(count) => self.take(count),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(None),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    fn take(&mut self, count: usize) -> Result<Option<Hello>, Trouble> {
        self.length += count;
        let header = Header { kind: Kind::Hello, length: HELLO as u32 }.bytes();
        if self.bytes[..self.length].iter().zip(header.iter().chain(&MAGIC)).any(|(heard, right)| heard != right) {
            return Err(Trouble::Broken("another protocol".into()));
        }
        Ok(if self.length < LENGTH { None } else { self.bytes.last_chunk().copied().map(Hello) })
    }
}

/// A reader that has known the key when it chose its nonce.
pub struct Known {
    pub key: Arc<Key>,
    pub nonce: Nonce,
}

/// Knows readers by their first words.
pub struct Guard {
    file: PathBuf,
    key: Option<Arc<Key>>,
    heard: Nonces,
}

impl Guard {
    /// `file`: where the key is, or will be.
    pub fn new(file: &Path) -> Self {
        Self { file: file.into(), key: None, heard: Nonces::default() }
    }

    /// # Errors
    /// Refused: they were said with another key. Broken: there is no key yet, or they were said before.
    pub fn know(&mut self, Hello(hello): &Hello) -> Result<Known, Trouble> {
        let (nonce, proof) = hello.split_first_chunk().ok_or_else(|| Trouble::Broken("too short".into()))?;
        let key = self.key()?;
        if !key.proves(Purpose::Hello, &[nonce], proof) {
            return Err(Trouble::Refused("another key".into()));
        }
        if !self.heard.add(*nonce, REMEMBERED) {
            return Err(Trouble::Broken("said before".into()));
        }
        Ok(Known { key, nonce: *nonce })
    }

    fn key(&mut self) -> Result<Arc<Key>, Trouble> {
        if let Some(key) = &self.key {
            return Ok(key.clone());
        }
        let key = Arc::new(Key::load(&self.file).map_err(Trouble::Broken)?);
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
    use std::io::Write;
    use std::net::TcpListener;

    fn key(digit: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        std::fs::write(&path, digit.repeat(2 * SIZE)).unwrap();
        (directory, path)
    }

    fn said(words: &[u8]) -> Result<Option<Hello>, Trouble> {
        let mut heard = Words::new();
        heard.bytes[..words.len()].copy_from_slice(words);
        heard.take(words.len())
    }

    fn hello(key: &Path, nonce: u8) -> Hello {
        said(&words(&Key::load(key).unwrap(), &[nonce; SIZE])).unwrap().unwrap()
    }

    #[test]
    fn words_come_in_pieces_and_nothing_behind_them_is_taken() {
        let (_directory, path) = key("a");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let socket = listener.accept().unwrap().0;
        let mut heard = Words::new();
        assert!(heard.hear(&socket).unwrap().is_none());
        let words = words(&Key::load(&path).unwrap(), &[1; SIZE]);
        reader.write_all(&words[..50]).unwrap();
        socket.peek(&mut [0]).unwrap();
        assert!(heard.hear(&socket).unwrap().is_none());
        reader.write_all(&[&words[50..], b"more"].concat()).unwrap();
        socket.peek(&mut [0]).unwrap();
        assert!(Guard::new(&path).know(&heard.hear(&socket).unwrap().unwrap()).is_ok());
        let mut rest = [0; 10];
        assert_eq!(socket.peek(&mut rest).unwrap(), 4);
    }

    #[test]
    fn other_words_are_known_at_once() {
        let right = words(&Key::load(&key("a").1).unwrap(), &[1; SIZE]);
        for index in 0..HEADER + MAGIC.len() {
            let mut wrong = right[..=index].to_vec();
            assert!(said(&wrong).unwrap().is_none());
            wrong[index] ^= 1;
            assert!(said(&wrong).is_err(), "{index}");
        }
    }

    #[test]
    fn a_reader_is_known_by_its_key_and_once() {
        let [(_one, ours), (_other, theirs)] = ["a", "b"].map(key);
        let mut guard = Guard::new(&ours);
        assert!(matches!(guard.know(&hello(&theirs, 1)), Err(Trouble::Refused(_))));
        assert_eq!(guard.know(&hello(&ours, 1)).unwrap().nonce, [1; SIZE]);
        assert!(matches!(guard.know(&hello(&ours, 1)), Err(Trouble::Broken(_))));
        assert!(guard.know(&hello(&ours, 2)).is_ok());
        let mut changed = hello(&ours, 3);
        changed.0[0] ^= 1;
        assert!(matches!(guard.know(&changed), Err(Trouble::Refused(_))));
    }

    #[test]
    fn a_key_may_come_later() {
        let (directory, path) = key("a");
        let hello = hello(&path, 1);
        let file = directory.path().join("later");
        let mut guard = Guard::new(&file);
        assert!(matches!(guard.know(&hello), Err(Trouble::Broken(_))));
        std::fs::rename(path, file).unwrap();
        assert!(guard.know(&hello).is_ok());
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
