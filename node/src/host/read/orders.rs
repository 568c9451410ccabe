//! The specification of a session, and the orders of its driver.

use std::ops::Range;
use std::path::PathBuf;

use serde::Deserialize;

use crate::protocol::json::{self, bytes};
use crate::protocol::part::Identity;

const MOST_THREADS: usize = 64;
const SMALLEST_REQUEST: u64 = 64 << 10;
const LARGEST_REQUEST: u64 = 16 << 20;

/// `session.json`.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Session {
    #[serde(with = "bytes")]
    pub file: PathBuf,
    pub identity: Identity,
    /// In bytes.
    #[serde(default = "request")]
    pub request: u64,
    #[serde(default = "threads")]
    pub threads: usize,
}

fn request() -> u64 {
    1 << 20
}

fn threads() -> usize {
    4
}

impl Session {
    /// # Errors
    /// A message that names the field, and what is allowed.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let session: Self = json::read(text)?;
        if !session.file.is_absolute() {
            return Err("file: has to be an absolute path".into());
        }
        if !(1..=MOST_THREADS).contains(&session.threads) {
            return Err(format!("threads: has to be 1 to {MOST_THREADS}"));
        }
        if !(SMALLEST_REQUEST..=LARGEST_REQUEST).contains(&session.request) {
            return Err(format!("request: has to be {SMALLEST_REQUEST} to {LARGEST_REQUEST} bytes"));
        }
        Ok(session)
    }
}

/// A line of `control.jsonl`.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    Read { chunk: u64, ranges: Vec<Range<u64>> },
    Drop(Vec<Range<u64>>),
    Watch(Vec<Range<u64>>),
    End,
}

type Extents = Vec<(u64, u64)>;

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Read(u64, Extents),
    Drop(Extents),
    Watch(Extents),
    End(bool),
}

impl Order {
    /// # Arguments
    /// * `size` - of the file
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn read(line: &[u8], size: u64) -> Result<Self, String> {
        type Ranges = Result<Vec<Range<u64>>, String>;
        let ranges = |extents: Extents| extents.into_iter().map(|extent| range(extent, size)).collect::<Ranges>();
        Ok(match json::read(line)? {
            Line::Read(chunk, extents) => Self::Read { chunk, ranges: ranges(extents)? },
            Line::Drop(extents) => Self::Drop(ranges(extents)?),
            Line::Watch(extents) => Self::Watch(ranges(extents)?),
            Line::End(true) => Self::End,
            Line::End(false) => return Err("end: has to be true".into()),
        })
    }
}

fn range((offset, length): (u64, u64), size: u64) -> Result<Range<u64>, String> {
    let end = offset.checked_add(length).filter(|end| *end <= size);
    let outside = || format!("extent [{offset}, {length}] is outside the file, which has {size} bytes");
    Ok(offset..end.ok_or_else(outside)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders() {
        for (line, order) in [
            (r#"{"read": [7, [[0, 5], [9, 1]]]}"#, Order::Read { chunk: 7, ranges: vec![0..5, 9..10] }),
            (r#"{"drop": []}"#, Order::Drop(vec![])),
            (r#"{"watch": [[2, 0], [1, 1]]}"#, Order::Watch(vec![2..2, 1..2])),
            (r#"{"end": true}"#, Order::End),
        ] {
            assert_eq!(Order::read(line.as_bytes(), 10), Ok(order));
        }
        for (line, word) in [
            (r#"{"read": [7, [[0, 11]]]}"#, "extent [0, 11] is outside the file, which has 10 bytes"),
            (r#"{"read": [7, [[18446744073709551615, 1]]]}"#, "is outside the file"),
            (r#"{"read": [7]}"#, "invalid length 1"),
            (r#"{"end": false}"#, "end: has to be true"),
            (r#"{"stop": true}"#, "unknown variant `stop`"),
            ("", "EOF"),
        ] {
            let message = Order::read(line.as_bytes(), 10).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn sessions() {
        let read = |file: &str, more: &str| {
            let text = format!(r#"{{"file": "{file}", "identity": {{"inode": 1, "size": 2, "mtime": 3}}{more}}}"#);
            Session::read(text.as_bytes())
        };
        let session = read("/a", "").unwrap();
        assert_eq!((session.request, session.threads), (1 << 20, 4));
        for (file, more, word) in [
            ("a", "", "file: has to be an absolute path"),
            ("/a", r#", "threads": 0"#, "threads: has to be 1 to 64"),
            ("/a", r#", "request": 1"#, "request: has to be 65536 to 16777216 bytes"),
            ("/a", r#", "x": 1"#, "unknown field `x`"),
        ] {
            let message = read(file, more).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }
}
