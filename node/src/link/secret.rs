//! The key of a run, and how both sides show that they know it: HMAC-SHA256 (RFC 2104) over fresh nonces of both.

use std::fs;
use std::path::Path;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a key, of a nonce and of a proof.
pub const SIZE: usize = 32;

/// Bytes that the hash takes at once.
const BLOCK: usize = 64;

pub type Nonce = [u8; SIZE];

/// What a proof is for: none can be used in the place of another, and no side can send back what it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Hello,
    Reader,
    Sender,
}

/// Never shown, hence without Debug.
pub struct Key([u8; SIZE]);

impl Key {
    /// Reads a key: 64 hexadecimal digits, and perhaps the end of a line.
    ///
    /// # Errors
    /// A message that names the file, and nothing that is in it.
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = fs::read(path).map_err(|error| format!("the key {}: {error}", path.display()))?;
        let digits = text.strip_suffix(b"\n").unwrap_or(&text);
        parse(digits).map(Self).ok_or_else(|| format!("the key {}: has to be 64 hexadecimal digits", path.display()))
    }

    /// `nonces`: of the reader, and, but for a hello, of the sender.
    pub fn proof(&self, purpose: Purpose, nonces: &[&Nonce]) -> [u8; SIZE] {
        self.over(purpose, nonces).finalize().into_bytes().into()
    }

    /// Takes the same time whatever is wrong with `proof`.
    pub fn proves(&self, purpose: Purpose, nonces: &[&Nonce], proof: &[u8]) -> bool {
        self.over(purpose, nonces).verify_slice(proof).is_ok()
    }

    fn over(&self, purpose: Purpose, nonces: &[&Nonce]) -> Hmac<Sha256> {
        // A key that is shorter than a block of the hash is filled up with zeros, says the RFC.
        let mut block = [0; BLOCK];
        block[..SIZE].copy_from_slice(&self.0);
        let mut mac = <Hmac<Sha256> as Mac>::new(&block.into());
        mac.update(match purpose {
            Purpose::Hello => b"sfio link: hello",
            Purpose::Reader => b"sfio link: reader",
            Purpose::Sender => b"sfio link: sender",
        });
        nonces.iter().for_each(|nonce| mac.update(*nonce));
        mac
    }
}

fn parse(digits: &[u8]) -> Option<[u8; SIZE]> {
    let mut key = [0; SIZE];
    if digits.len() != 2 * SIZE {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(digits.chunks(2)) {
        let [high, low] = [pair[0], pair[1]].map(|digit| char::from(digit).to_digit(16));
        *byte = (high? * 16 + low?) as u8;
    }
    Some(key)
}

/// A file with the key that is made of these digits.
#[cfg(test)]
pub fn key_file(directory: &tempfile::TempDir, digit: &str) -> std::path::PathBuf {
    let path = directory.path().join(digit);
    fs::write(&path, digit.repeat(2 * SIZE)).unwrap();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Nonce = [1; SIZE];
    const TWO: Nonce = [2; SIZE];

    #[test]
    fn a_proof_is_of_one_key_one_purpose_and_its_nonces() {
        let key = Key([7; SIZE]);
        let proof = key.proof(Purpose::Reader, &[&ONE, &TWO]);
        assert!(key.proves(Purpose::Reader, &[&ONE, &TWO], &proof));
        let mut other = proof;
        other[31] ^= 1;
        for (key, purpose, nonces, proof) in [
            (&Key([8; SIZE]), Purpose::Reader, [&ONE, &TWO], &proof[..]),
            (&key, Purpose::Sender, [&ONE, &TWO], &proof[..]),
            (&key, Purpose::Hello, [&ONE, &TWO], &proof[..]),
            (&key, Purpose::Reader, [&ONE, &ONE], &proof[..]),
            (&key, Purpose::Reader, [&TWO, &TWO], &proof[..]),
            (&key, Purpose::Reader, [&TWO, &ONE], &proof[..]),
            (&key, Purpose::Reader, [&ONE, &TWO], &proof[..31]),
            (&key, Purpose::Reader, [&ONE, &TWO], &[]),
            (&key, Purpose::Reader, [&ONE, &TWO], &other[..]),
        ] {
            assert!(!key.proves(purpose, &nonces, proof));
        }
    }

    /// The second half is that of `hmac.new(bytes([7] * 32), b"sfio link: reader" + bytes([1] * 32 + [2] * 32), "sha256")` in Python.
    #[test]
    fn a_proof_is_hmac_sha256() {
        let proof = Key([7; SIZE]).proof(Purpose::Reader, &[&ONE, &TWO]);
        assert_eq!(
            proof[16..],
            [0x64, 0x3f, 0xbc, 0x97, 0x30, 0x8d, 0x1b, 0xb0, 0x7a, 0xcb, 0x50, 0x31, 0x1e, 0x9f, 0xfe, 0xd5]
        );
    }

    #[test]
    fn keys() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        assert!(Key::load(&path).is_err());
        let digits = "0123456789abcdefABCDEF".repeat(3)[..64].to_owned();
        for (text, good) in [
            (digits.clone(), true),
            (digits.clone() + "\n", true),
            (digits[..63].to_owned(), false),
            (digits.clone() + "0", false),
            (digits[..63].to_owned() + "g", false),
            (digits[..63].to_owned() + "+", false),
            (String::new(), false),
        ] {
            fs::write(&path, &text).unwrap();
            let loaded = Key::load(&path);
            assert_eq!(loaded.is_ok(), good, "{text}");
            if let Err(message) = loaded {
                assert!(text.is_empty() || !message.contains(&text[..8]), "{message}");
            }
        }
        assert_eq!(parse(digits.as_bytes()).unwrap()[..4], [0x01, 0x23, 0x45, 0x67]);
    }
}
