//! The first bytes of a file, as they were fed. They are compared elsewhere, when the file is final.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use xxhash_rust::xxh3::Xxh3Default;

use super::blocks::{digest_range, Blocks};
use crate::protocol::messages::FirstBytes;
use crate::protocol::values::Digest;
use crate::sys::remote_file;

impl Digest {
    /// The digest of some places in a file, each an offset and a length. Reads them.
    ///
    /// # Errors
    /// When they cannot be read, or the file is shorter.
    pub fn of(file: &File, places: impl IntoIterator<Item = (u64, u64)>) -> io::Result<Self> {
        let mut digest = Xxh3Default::new();
        for (offset, length) in places {
            digest_range(file, offset, offset + length, &mut digest)?;
        }
        Ok(Self(digest.digest()))
    }
}

impl FirstBytes {
    /// Whether `file` begins with these bytes, or has no others, as far as they are compared. Reads them.
    pub fn is_of(&self, file: &File) -> io::Result<bool> {
        let size = file.metadata()?.len();
        if size < self.bytes || (self.whole && size > self.bytes) {
            return Ok(false);
        }
        let mut noted = Blocks::starting_at(self.start.unwrap_or(0));
        noted.note(file, self.bytes)?;
        Ok(noted.bytes() == self.bytes && Digest(noted.digest()) == self.digest)
    }
}

/// Exit codes of `sfio-node compare`.
const SAME: i32 = 0;
const DIFFERENT: i32 = 1;
const UNKNOWN: i32 = 2;

/// `sfio-node compare`: whether the file `path` begins with the bytes of `first`, a JSON text.
pub fn compare(path: &Path, first: &str) -> i32 {
    let wanted: FirstBytes = match serde_json::from_str(first) {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("sfio-node: {first}: has to be an object with bytes and digest: {error}");
            return UNKNOWN;
        }
    };
    let found = remote_file::open(path).and_then(|file| {
        remote_file::refresh(&file, path);
        wanted.is_of(&file)
    });
    match found {
        Ok(true) => SAME,
        Ok(false) => DIFFERENT,
        Err(error) if error.kind() == ErrorKind::NotFound => DIFFERENT,
        Err(error) => {
            eprintln!("sfio-node: {}: {error}", path.display());
            UNKNOWN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json;
    use std::os::unix::fs::FileExt;

    /// The first `bytes` of `file`, noted in pieces.
    fn part_of(file: &File, bytes: u64, piece: usize) -> FirstBytes {
        let mut noted = Blocks::default();
        noted.note_in_pieces(file, bytes, piece);
        FirstBytes { bytes, digest: Digest(noted.digest()), whole: false, start: None }
    }

    #[test]
    fn a_part_is_found_again_however_it_was_noted() {
        let file = tempfile::tempfile().unwrap();
        let size = 9 << 20;
        let content: Vec<u8> = (0..size).map(|position: u64| (position / 1000) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        for (bytes, piece) in [(0, 1), (1, 1), (4097, 100), (100_000, 65_537), (8 << 20, 1_000_003), (size, 1 << 20)] {
            let part = part_of(&file, bytes, piece);
            assert!(part.is_of(&file).unwrap(), "{part:?}");
            assert_eq!(serde_json::from_str::<FirstBytes>(&json::write(&part)).unwrap(), part);
        }
    }

    /// The program that notes and the one that compares may have other compilers or processors.
    #[test]
    fn a_digest_is_the_same_in_every_build() {
        let file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..100_000).map(|position: u32| (position % 251) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        assert_eq!(part_of(&file, 100_000, 4_000).digest, Digest(0x4a54_85f0_93b3_16ff));
    }

    /// A file system may tell a size before it has the bytes.
    #[test]
    fn bytes_that_are_not_there_yet_are_noted_later() {
        for mut noted in [Blocks::default(), Blocks::keeping()] {
            let file = tempfile::tempfile().unwrap();
            for there in [0, 5000, 5001, 30_000] {
                file.write_all_at(&vec![7; there], 0).unwrap();
                noted.note(&file, 40_000).unwrap();
                assert_eq!(noted.bytes(), there as u64);
            }
            assert_eq!(noted.difference(&file), None);
            file.write_all_at(&[8], 5000).unwrap();
            assert!(noted.difference(&file).is_some());
        }
    }

    #[test]
    fn another_byte_and_a_shorter_file_are_not_the_same() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        let part = part_of(&file, 9_000, 700);
        for (position, byte, same) in
            [(0, 8, false), (0, 7, true), (8_999, 8, false), (8_999, 7, true), (9_000, 8, true)]
        {
            file.write_all_at(&[byte], position).unwrap();
            assert_eq!(part.is_of(&file).unwrap(), same, "{position} {byte}");
        }
        let whole = FirstBytes { whole: true, ..part };
        assert!(!whole.is_of(&file).unwrap());
        file.set_len(9_000).unwrap();
        assert!(whole.is_of(&file).unwrap());
        file.set_len(8_999).unwrap();
        assert!(!part.is_of(&file).unwrap());
    }
}
