//! What a reader wants, and what a sender tells of a failure: the records that are JSON.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Trouble;
use crate::job::name_of_job;
use crate::json::{Json, Writer};
use crate::source::Failure;
use crate::verify::{Part, Verify};

/// A stream: one reader's one reading of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// Chosen by the reader, the same in all of its connections.
    pub stream: String,
    /// The producer.
    pub job: OsString,
    pub port: String,
    pub path: PathBuf,
    pub verify: Verify,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub wanted: Wanted,
    /// So many bytes have arrived.
    pub offset: u64,
    /// No more are wanted, but what is still to be compared of them.
    pub part: bool,
}

/// The most characters of the name of a stream.
const LONGEST_NAME: usize = 64;

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let Wanted { stream, job, port, path, verify } = &self.wanted;
        let mut writer = Writer::new();
        writer.text("stream", stream.as_bytes()).text("job", job.as_bytes()).text("port", port.as_bytes());
        writer.text("path", path.as_os_str().as_bytes()).plain("offset", self.offset);
        writer.text("verify", verify.name().as_bytes()).plain("part", self.part);
        writer.finish().into_bytes()
    }

    /// # Errors
    /// When it is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, Trouble> {
        let bad = |what: &str| Trouble::Broken(format!("a bad request: {what}"));
        let json = Json::parse(bytes).map_err(|message| bad(&message))?;
        let text = |name: &str| json.get(name).and_then(Json::text).ok_or_else(|| bad(name));
        let string = |name| text(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let path_of = |name| text(name).map(|bytes| Path::new(OsStr::from_bytes(bytes)));
        let offset = json.get("offset").and_then(Json::integer).and_then(|offset| u64::try_from(offset).ok());
        let wanted = Wanted {
            stream: string("stream")?,
            job: name_of_job(path_of("job")?).ok_or_else(|| bad("job"))?.to_owned(),
            port: string("port")?,
            path: path_of("path")?.to_owned(),
            verify: Verify::parse(text("verify")?).ok_or_else(|| bad("verify"))?,
        };
        if wanted.stream.len() > LONGEST_NAME {
            return Err(bad("stream"));
        }
        let part = json.get("part") == Some(&Json::Bool(true));
        Ok(Self { wanted, offset: offset.ok_or_else(|| bad("offset"))?, part })
    }
}

pub fn encode_failure(failure: &Failure) -> Vec<u8> {
    let (reason, message) = match failure {
        Failure::Rewritten(message) => ("rewritten", message),
        Failure::Producer(message) | Failure::Reopened(message) => ("producer", message),
    };
    Writer::new().text("reason", reason.as_bytes()).text("message", message.as_bytes()).finish().into_bytes()
}

pub fn encode_part(part: Option<&Part>) -> Vec<u8> {
    let mut writer = Writer::new();
    part.into_iter().for_each(|part| {
        part.write(&mut writer);
    });
    writer.finish().into_bytes()
}

/// # Errors
/// When it is none.
pub fn decode_part(bytes: &[u8]) -> Result<Option<Part>, Trouble> {
    let bad = || Trouble::Broken("a bad part".into());
    let json = Json::parse(bytes).map_err(|_| bad())?;
    if json.get("bytes").is_none() {
        return Ok(None);
    }
    Part::read(&json).map(Some).ok_or_else(bad)
}

/// Whatever it is, it is a failure.
pub fn decode_failure(bytes: &[u8]) -> Failure {
    let json = Json::parse(bytes).unwrap_or(Json::Null);
    let text = |name: &str| json.get(name).and_then(Json::text).unwrap_or_default();
    let message = String::from_utf8_lossy(text("message")).into_owned();
    if text("reason") == b"rewritten" {
        Failure::Rewritten(message)
    } else {
        Failure::Producer(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(job: &[u8], path: &[u8], offset: u64) -> Request {
        let (job, path) = (OsStr::from_bytes(job).to_owned(), OsStr::from_bytes(path).into());
        Request {
            wanted: Wanted { stream: "5f".into(), job, port: "out".into(), path, verify: Verify::Samples },
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
    fn parts_come_back() {
        for part in [None, Some(Part { bytes: 1 << 50, digest: 7, verify: Verify::Samples })] {
            assert_eq!(decode_part(&encode_part(part.as_ref())), Ok(part));
        }
        for text in ["", "{", r#"{"bytes":7}"#, r#"{"bytes":-7,"digest":"0","verify":"full"}"#] {
            assert!(decode_part(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn failures_come_back() {
        for failure in [Failure::Producer("it failed".into()), Failure::Rewritten("\"/a\" was cut".into())] {
            assert_eq!(decode_failure(&encode_failure(&failure)), failure);
        }
        for text in ["", "{", "{}"] {
            assert_eq!(decode_failure(text.as_bytes()), Failure::Producer(String::new()));
        }
    }
}
