//! How fast a job may move its bytes, and its streams are fed.

use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::Deserialize;

use super::fields::absolute_path;

/// The bytes that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Read,
    Write,
    /// The larger of both.
    Both,
}

/// How fast a byte stream is fed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamLimit {
    /// Bytes per second.
    pub rate: NonZeroU64,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Bytes per second.
    pub rate: NonZeroU64,
    pub direction: Direction,
    /// The storage, or a directory on it.
    #[serde(deserialize_with = "absolute_path")]
    pub path: PathBuf,
}
