//! What fields of inputs and of outputs have in common.

use std::path::PathBuf;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::protocol::json::{bytes, optional_path};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    File,
    Files,
    Directory,
}

/// Reads a path, in one form, so that it can be compared with others as a text.
pub fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    bytes::deserialize(deserializer).map(|path: PathBuf| path.components().collect())
}

/// The same, or null.
pub fn path_or_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(optional_path(deserializer)?.map(|path| path.components().collect()))
}

pub fn absolute_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let path = path(deserializer)?;
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(D::Error::custom("has to be an absolute path"))
    }
}
