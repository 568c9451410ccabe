//! The knowledge of bytes that were noted.

use std::fmt::{self, Debug};
use std::fs::File;
use std::io;

/// The first bytes that are not what they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub from: u64,
    pub to: u64,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "between byte {} and byte {}", self.from, self.to)
    }
}

/// The knowledge of the first bytes of a file.
pub trait Noted: Debug + Send {
    /// The number of bytes that were noted.
    fn bytes(&self) -> u64;

    /// Notes the bytes of `file` up to `end` that follow those noted before, as far as they are there. A file system
    /// may tell a size before it has the bytes.
    ///
    /// # Errors
    /// When bytes cannot be read. Those before are noted.
    fn note(&mut self, file: &File, end: u64) -> io::Result<()>;

    /// The digest of all that is compared. It is the same for the same bytes, however they were noted.
    fn digest(&self) -> u64;

    /// Where `file` has other bytes than those that were noted, as far as they are compared. Reads them.
    fn difference(&self, file: &File) -> Option<Difference>;

    /// The bytes from `place` on that were noted last. Empty unless these are kept.
    fn kept(&self, _place: u64) -> &[u8] {
        &[]
    }

    /// The digests of the complete blocks of a window.
    fn blocks(&self) -> &[u64] {
        &[]
    }

    /// Compares the bytes of a window only from `start` on: the others are discarded.
    fn compare_from(&mut self, _start: u64) {}
}

/// Notes the first `bytes` of a file piece by piece.
#[cfg(test)]
pub fn note_in_pieces(noted: &mut dyn Noted, file: &File, bytes: u64, piece: usize) {
    (0..bytes).step_by(piece).skip(1).chain([bytes]).for_each(|end| noted.note(file, end).unwrap());
}
