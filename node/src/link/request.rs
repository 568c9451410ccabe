//! The records in JSON: the request of a reader, and the failure that a sender reports.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};

use super::error::LinkError;
use crate::protocol::job::name_of_job;
use crate::protocol::json::{self, bytes};
use crate::protocol::messages::FirstBytes;
use crate::streams::origin::Failure;

/// A stream: one reader's one reading of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wanted {
    /// Chosen by the reader, the same in all of its connections.
    #[serde(deserialize_with = "name_of_stream")]
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

#[cfg(test)]
impl Wanted {
    pub fn of_test() -> Self {
        let (stream, job, port, path) = ("s".into(), "j".into(), "p".into(), "/a".into());
        Self { stream, job, port, path, number: None, window: false }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Request {
    #[serde(flatten)]
    pub wanted: Wanted,
    /// Bytes that have arrived.
    pub offset: u64,
    /// No more are wanted, but what is still to be compared of them.
    pub part: bool,
}

/// The most characters of the name of a stream.
const LONGEST_NAME: usize = 64;

fn name_of_stream<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if name.len() > LONGEST_NAME {
        return Err(D::Error::custom("a name that is too long"));
    }
    Ok(name)
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
        #[derive(Deserialize)]
        struct Rest {
            offset: u64,
            #[serde(default)]
            part: bool,
        }
        // Read twice, because what serde flattens cannot have strings of bytes.
        let Rest { offset, part } = decode("request", bytes)?;
        Ok(Self { wanted: decode("request", bytes)?, offset, part })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn request(job: &[u8], path: &[u8], offset: u64) -> Request {
        let (job, path) = (OsStr::from_bytes(job).to_owned(), OsStr::from_bytes(path).into());
        Request {
            wanted: Wanted {
                stream: "5f".into(),
                job,
                port: "out".into(),
                path,
                number: (offset > 0).then_some(offset),
                window: true,
            },
            offset,
            part: offset > 0,
        }
    }

    #[test]
    fn requests_come_back() {
        for (job, path, offset) in
            [(&b"j"[..], &b"/a/b"[..], 0), (b"0.1 \xff\"", b"/\xfe/\n\\", 1 << 50), ("ä".as_bytes(), b"/", 7)]
        {
            let request = request(job, path, offset);
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
    }

    #[test]
    fn requests_that_lead_elsewhere_are_refused() {
        for job in [&b".."[..], b"../j", b"/j", b"a/b", b"", b"."] {
            assert!(Request::decode(&request(job, b"/a", 0).encode()).is_err(), "{job:?}");
        }
        let mut long = request(b"j", b"/a", 0);
        long.wanted.stream = "5".repeat(65);
        assert!(Request::decode(&long.encode()).is_err());
        for text in ["", "{}", "[]", r#"{"stream":"s","job":"j","port":"p","path":"/a","offset":-1}"#] {
            assert!(Request::decode(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn requests_for_archives_come_back() {
        for path in [&b"/a/b c"[..], b"/\xfe/\n\\"] {
            let path = Path::new(OsStr::from_bytes(path));
            assert_eq!(decode_archive(&encode_archive(path)), Ok(path.into()));
        }
        for text in ["", "{}", "[]", r#"{"path":7}"#, r#"{"path":"/a","job":"j"}"#] {
            assert!(decode_archive(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn parts_come_back() {
        for part in [
            None,
            Some(FirstBytes {
                bytes: 1 << 50,
                digest: crate::protocol::values::Digest(7),
                whole: false,
                start: Some(1 << 20),
            }),
        ] {
            assert_eq!(decode_part(&encode_part(part.as_ref())), Ok(part));
        }
        for text in ["", "{", r#"{"bytes":7}"#, r#"{"bytes":-7,"digest":"0"}"#] {
            assert!(decode_part(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn failures_come_back() {
        for failure in [Failure::Producer("it failed".into()), Failure::Rewritten("\"/a\" was cut".into())] {
            assert_eq!(decode_failure(&encode_failure(&failure)), failure);
        }
        let reopened = encode_failure(&Failure::Job("twice".into()));
        assert_eq!(decode_failure(&reopened), Failure::Producer("twice".into()));
        for text in ["", "{", "{}"] {
            assert_eq!(decode_failure(text.as_bytes()), Failure::Producer(String::new()));
        }
    }
}
