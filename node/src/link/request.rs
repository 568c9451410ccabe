//! The records in JSON: the request of a reader, and the failure that a sender reports.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::LinkError;
use crate::protocol::job::{name_of_job, Link};
use crate::protocol::json::{self, bytes};
use crate::protocol::messages::FirstBytes;
use crate::streams::origin::Failure;

/// A stream: one reader's one reading of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wanted {
    /// Chosen by the reader, the same in all of its connections.
    pub stream: String,
    /// The producer.
    #[serde(serialize_with = "bytes::serialize", deserialize_with = "name_of_job")]
    pub job: OsString,
    pub port: String,
    #[serde(with = "bytes")]
    pub path: PathBuf,
    /// A part of a file that the job has said, instead of a file that it writes.
    #[serde(default)]
    pub number: Option<u64>,
    /// The producer may discard what the reader has taken.
    #[serde(default)]
    pub window: bool,
}

impl Wanted {
    /// Returns a stream that has no name yet.
    pub fn of(link: &Link, port: &str, path: &Path, number: Option<u64>, window: bool) -> Self {
        let (stream, job) = (String::new(), link.job.clone());
        Self { stream, job, port: port.into(), path: path.into(), number, window }
    }

    #[cfg(test)]
    pub fn of_test() -> Self {
        let (stream, job, port, path) = ("s".into(), "j".into(), "p".into(), "/a".into());
        Self { stream, job, port, path, number: None, window: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub wanted: Wanted,
    /// Bytes that have arrived.
    pub offset: u64,
    /// No more are wanted, but what is still to be compared of them.
    #[serde(default)]
    pub part: bool,
}

fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, LinkError> {
    serde_json::from_slice(bytes).map_err(|error| LinkError::Broken(format!("a bad {what}: {error}")))
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        json::write(self).into_bytes()
    }

    /// # Errors
    /// When it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, LinkError> {
        decode("request", bytes)
    }
}

/// The request for an archive of a file or directory.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Archive {
    #[serde(with = "bytes")]
    path: PathBuf,
}

pub fn encode_archive(path: &Path) -> Vec<u8> {
    json::write(&Archive { path: path.to_owned() }).into_bytes()
}

/// # Errors
/// When it is no such request.
pub fn decode_archive(bytes: &[u8]) -> Result<PathBuf, LinkError> {
    decode("request for an archive", bytes).map(|Archive { path }| path)
}

pub fn encode_part(part: Option<&FirstBytes>) -> Vec<u8> {
    part.map_or("{}".into(), json::write).into_bytes()
}

/// # Errors
/// When it is none.
pub fn decode_part(bytes: &[u8]) -> Result<Option<FirstBytes>, LinkError> {
    if bytes == b"{}" {
        return Ok(None);
    }
    decode("part", bytes).map(Some)
}

pub fn encode_failure(failure: &Failure) -> Vec<u8> {
    json::write(failure).into_bytes()
}

/// Whatever it is, it is a failure.
pub fn decode_failure(bytes: &[u8]) -> Failure {
    serde_json::from_slice(bytes).unwrap_or_else(|_| Failure::Producer(String::new()))
}
