//! What is known of the bytes that were noted.

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

/// What is known of the bytes of a file that were noted.
#[derive(Debug)]
pub enum Noted {
    Full(Digests),
    Samples(Samples),
}

impl Noted {
    pub fn new(verify: Verify) -> Self {
        match verify {
            Verify::Full => Self::Full(Digests::new()),
            Verify::Samples => Self::Samples(Samples::new()),
        }
    }

    /// Notes the bytes from `start` to `end` of `file`, which follow those noted before.
    pub fn note(&mut self, file: &File, start: u64, end: u64) {
        match self {
            Self::Full(digests) => digests.note(file, start, end),
            Self::Samples(samples) => samples.note(file, start, end),
        }
    }

    /// Of all that is compared.
    pub fn digest(&self) -> u64 {
        match self {
            Self::Full(digests) => digests.digest(),
            Self::Samples(samples) => samples.digest(),
        }
    }

    /// Where `file` has other bytes than those that were noted, as far as they are compared. Reads them.
    pub fn difference(&self, file: &File) -> Option<Difference> {
        match self {
            Self::Full(digests) => digests.difference(file),
            Self::Samples(samples) => samples.difference(file),
        }
    }
}
