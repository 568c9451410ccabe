//! The specification of a session, and the orders of its driver.

use std::ops::Range;

use crate::protocol::json;
use crate::protocol::messages::{SessionOrder, SessionSpec};
use crate::protocol::values::Extent;

const MOST_THREADS: u64 = 64;

/// Reads `session.json`.
///
/// # Errors
/// A message that names the field, and what is allowed.
pub fn read_session(text: &[u8]) -> Result<SessionSpec, String> {
    let session: SessionSpec = json::read(text)?;
    if !(1..=MOST_THREADS).contains(&session.threads) {
        return Err(format!("threads: has to be 1 to {MOST_THREADS}"));
    }
    Ok(session)
}

/// A line of `control.jsonl`.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    Read { chunk: u64, ranges: Vec<Range<u64>> },
    Drop(Vec<Range<u64>>),
    Watch(Vec<Range<u64>>),
    End,
}

impl Order {
    /// # Arguments
    /// * `size` - of the file
    ///
    /// # Errors
    /// What is wrong with the line.
    pub fn read(line: &[u8], size: u64) -> Result<Self, String> {
        let ranges =
            |extents: Vec<Extent>| extents.into_iter().map(|extent| range(extent, size)).collect::<Result<Vec<_>, _>>();
        let SessionOrder { read, drop, watch, end } = json::read(line)?;
        match (read, drop, watch, end) {
            (Some((chunk, extents)), None, None, false) => Ok(Self::Read { chunk, ranges: ranges(extents)? }),
            (None, Some(extents), None, false) => ranges(extents).map(Self::Drop),
            (None, None, Some(extents), false) => ranges(extents).map(Self::Watch),
            (None, None, None, true) => Ok(Self::End),
            _ => Err("has to have one of read, drop, watch and end".into()),
        }
    }
}

fn range((offset, length): Extent, size: u64) -> Result<Range<u64>, String> {
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
            (r#"{"end": false}"#, "has to have one of"),
            (r#"{"drop": [], "end": true}"#, "has to have one of"),
            (r#"{"stop": true}"#, "unknown field `stop`"),
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
            read_session(text.as_bytes())
        };
        let session = read("/a", "").unwrap();
        assert_eq!(session.threads, 4);
        for (file, more, word) in [
            ("a", "", "file: has to be an absolute path"),
            ("/a", r#", "threads": 0"#, "threads: has to be 1 to 64"),
            ("/a", r#", "x": 1"#, "unknown field `x`"),
        ] {
            let message = read(file, more).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }
}
