//! The values of fields that are more than a number or a text: paths, targets, pieces of files, digests.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Formatter};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use base64::prelude::{Engine, BASE64_STANDARD};
use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::protocol::json::{bytes, ByteString};

/// The most bytes of a piece that is a text.
const LONGEST_TEXT: usize = 1 << 16;

/// Reads a path, in one form, so that it can be compared with others as a text.
pub fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    bytes::deserialize(deserializer).map(plain)
}

/// Reads a path that may be missing.
pub fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<ByteString<_>>::deserialize(deserializer)?.map(|ByteString(path)| plain(path)))
}

/// Reads an absolute path.
pub fn absolute_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    AbsolutePath::deserialize(deserializer).map(|AbsolutePath(path)| path)
}

/// Reads an absolute path that may be missing.
pub fn optional_absolute_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(|AbsolutePath(path)| path))
}

/// Reads a list of absolute paths.
pub fn absolute_paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
    Ok(Vec::deserialize(deserializer)?.into_iter().map(|AbsolutePath(path)| path).collect())
}

struct AbsolutePath(PathBuf);

impl<'de> Deserialize<'de> for AbsolutePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let path = path(deserializer)?;
        if path.is_absolute() {
            Ok(Self(path))
        } else {
            Err(D::Error::custom("has to be an absolute path"))
        }
    }
}

fn plain(path: PathBuf) -> PathBuf {
    path.components().collect()
}

/// Whether a job's directory can have this name, among those of the other jobs.
pub fn is_name_of_job(name: &OsStr) -> bool {
    Path::new(name).file_name() == Some(name)
}

/// Reads the name of a job's directory.
pub fn name_of_job<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OsString, D::Error> {
    let name: OsString = bytes::deserialize(deserializer)?;
    if is_name_of_job(&name) {
        Ok(name)
    } else {
        Err(D::Error::custom("has to be the name of a job"))
    }
}

/// Where a command finds an input.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    Fifo(#[serde(deserialize_with = "path")] PathBuf),
    #[serde(deserialize_with = "only_true")]
    Stdin,
    /// A regular file, which is there before the command.
    File(#[serde(deserialize_with = "absolute_path")] PathBuf),
}

fn only_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    bool::deserialize(deserializer)?.then_some(()).ok_or_else(|| D::Error::custom("has to be true"))
}

/// Bytes per second. None sets no limit.
pub type Rate = Option<NonZeroU64>;

/// Bytes of a file, as offset and length.
pub type Extent = (u64, u64);

/// JSON as it came.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Json(pub Box<RawValue>);

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl Eq for Json {}

/// A digest of bytes, as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub u64);

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:016x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let digits = String::deserialize(deserializer)?;
        let bad = |_| D::Error::invalid_value(Unexpected::Str(&digits), &"hexadecimal digits");
        u64::from_str_radix(&digits, 16).map(Self).map_err(bad)
    }
}

/// Some bytes of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the file.
    Extent { offset: u64, length: u64 },
    /// Bytes that stand here.
    Text(Vec<u8>),
}

impl Piece {
    pub fn length(&self) -> u64 {
        match self {
            Self::Extent { length, .. } => *length,
            Self::Text(text) => text.len() as u64,
        }
    }
}

impl Serialize for Piece {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Extent { offset, length } => (offset, length).serialize(serializer),
            Self::Text(text) => serializer.serialize_str(&BASE64_STANDARD.encode(text)),
        }
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PieceVisitor)
    }
}

struct PieceVisitor;

impl<'de> Visitor<'de> for PieceVisitor {
    type Value = Piece;

    fn expecting(&self, formatter: &mut Formatter) -> fmt::Result {
        formatter.write_str("[OFFSET, LENGTH] or a text in base64")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<Piece, A::Error> {
        let (offset, length) = (values.next_element()?, values.next_element()?);
        match (offset, length, values.next_element::<u64>()?) {
            (Some(offset), Some(length), None) => Ok(Piece::Extent { offset, length }),
            _ => Err(A::Error::custom("an extent has to be [OFFSET, LENGTH]")),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Piece, E> {
        let text = BASE64_STANDARD.decode(text).map_err(|error| E::custom(format!("a text is no base64: {error}")))?;
        match text.len() {
            0 => Err(E::custom("a text is empty")),
            length if length > LONGEST_TEXT => {
                Err(E::custom(format!("a text has {length} bytes, and may have {LONGEST_TEXT}")))
            }
            _ => Ok(Piece::Text(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::json;

    fn pieces(text: &str) -> Result<Vec<Piece>, String> {
        json::read(text.as_bytes())
    }

    #[test]
    fn pieces_are_extents_and_texts() {
        let text = r#"[[0,5],"aGVsbG8K",[7,0]]"#;
        let expected = [
            Piece::Extent { offset: 0, length: 5 },
            Piece::Text(b"hello\n".into()),
            Piece::Extent { offset: 7, length: 0 },
        ];
        let found = pieces(text).unwrap();
        assert_eq!(found, expected);
        assert_eq!(json::write(&found), text);
        for (text, word) in [
            ("[[1]]", "has to be [OFFSET, LENGTH]"),
            ("[[1,2,3]]", "has to be [OFFSET, LENGTH]"),
            ("[[1,-2]]", "[0][1]: invalid value: integer `-2`, expected u64"),
            ("[[1,2.0]]", "invalid type"),
            ("[7]", "expected [OFFSET, LENGTH] or a text in base64"),
            ("[null]", "expected [OFFSET, LENGTH] or a text in base64"),
            (r#"["aGVsbG8"]"#, "a text is no base64"),
            (r#"["a b="]"#, "a text is no base64"),
            (r#"[""]"#, "a text is empty"),
        ] {
            let message = pieces(text).unwrap_err();
            assert!(message.contains(word), "{text}: {message}");
        }
        for (length, allowed) in [(LONGEST_TEXT, true), (LONGEST_TEXT + 1, false)] {
            let text = format!("[\"{}\"]", BASE64_STANDARD.encode(vec![0; length]));
            assert_eq!(pieces(&text).is_ok(), allowed, "{length}");
        }
    }
}
