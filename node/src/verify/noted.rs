//! What is known of the bytes that were noted.

use std::fmt::Debug;
use std::fs::File;

use serde::{Deserialize, Serialize};

use super::digests::{Difference, Digests};
use super::samples::Samples;

/// How much of a stream is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    #[default]
    Full,
    /// Evenly spread blocks of what is large.
    Samples,
}

impl Verify {
    /// Nothing is noted yet.
    pub fn begin(self) -> Box<dyn Noted> {
        match self {
            Self::Full => Box::new(Digests::default()),
            Self::Samples => Box::new(Samples::new()),
        }
    }
}

/// What is known of the first bytes of a file.
pub trait Noted: Debug + Send {
    /// So many were noted.
    fn bytes(&self) -> u64;

    /// Notes the bytes of `file` up to `end` that follow those noted before.
    fn note(&mut self, file: &File, end: u64);

    /// Of all that is compared: the same for the same bytes, however they were noted.
    fn digest(&self) -> u64;

    /// Where `file` has other bytes than those that were noted, as far as they are compared. Reads them.
    fn difference(&self, file: &File) -> Option<Difference>;
}

/// Notes the first `bytes` of a file piece by piece.
#[cfg(test)]
pub fn note_in_pieces(noted: &mut dyn Noted, file: &File, bytes: u64, piece: usize) {
    (0..bytes).step_by(piece).skip(1).chain([bytes]).for_each(|end| noted.note(file, end));
}
