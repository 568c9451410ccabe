//! JSON in which a string can be any bytes, as a path can.
//!
//! A byte that is not UTF-8 is written as the lone surrogate `\udc80`..`\udcff`, as Python's `surrogateescape` does
//! (PEP 383): `json.loads` and `os.fsencode` give the same bytes back.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Formatter};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::ser::{Serialize, Serializer};

/// A string that need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ByteString<T>(pub T);

impl<T: AsRef<OsStr>> Serialize for ByteString<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0.as_ref().as_bytes())
    }
}

impl<'de, T: From<OsString>> Deserialize<'de> for ByteString<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(Bytes).map(|bytes| Self(OsString::from_vec(bytes).into()))
    }
}

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut Formatter) -> fmt::Result {
        formatter.write_str("a string")
    }

    /// The parser gives lone surrogates as three bytes, as UTF-8 would have them if they were characters.
    fn visit_bytes<E: Error>(self, mut text: &[u8]) -> Result<Vec<u8>, E> {
        let mut bytes = Vec::with_capacity(text.len());
        loop {
            (text, _) = match text {
                [] => return Ok(bytes),
                [0xED, high @ (0xB2 | 0xB3), low @ 0x80..=0xBF, rest @ ..] => {
                    (rest, bytes.push(high << 6 | low & 0x3F))
                }
                [0xED, 0xA0..=0xBF, ..] => return Err(E::custom("a surrogate stands for no byte")),
                [byte, rest @ ..] => (rest, bytes.push(*byte)),
            }
        }
    }
}

/// For `#[serde(with)]` of a path, or of another string that need not be UTF-8.
pub mod bytes {
    use super::*;

    pub fn serialize<T: AsRef<OsStr>, S: Serializer>(text: &T, serializer: S) -> Result<S::Ok, S::Error> {
        ByteString(text).serialize(serializer)
    }

    pub fn deserialize<'de, T: From<OsString>, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        ByteString::deserialize(deserializer).map(|text| text.0)
    }
}

/// Reads a path or null.
pub fn optional_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<ByteString<_>>::deserialize(deserializer)?.map(|text| text.0))
}

/// Reads a value.
///
/// # Errors
/// A message that says where in the value the mistake is, and where in the text.
pub fn read<'de, T: Deserialize<'de>>(text: &'de [u8]) -> Result<T, String> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// Writes a value as one line, without its newline.
pub fn write(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    // What is written into memory, and has names that are strings, cannot fail.
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut text, Surrogates));
    debug_assert!(written.is_ok());
    String::from_utf8(text).unwrap_or_default()
}

/// Writes bytes as a string.
struct Surrogates;

impl serde_json::ser::Formatter for Surrogates {
    fn write_byte_array<W: ?Sized + Write>(&mut self, writer: &mut W, bytes: &[u8]) -> io::Result<()> {
        writer.write_all(b"\"")?;
        for chunk in bytes.utf8_chunks() {
            let quoted = serde_json::to_string(chunk.valid())?;
            writer.write_all(&quoted.as_bytes()[1..quoted.len() - 1])?;
            chunk.invalid().iter().try_for_each(|byte| write!(writer, "\\udc{byte:02x}"))?;
        }
        writer.write_all(b"\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_bytes(text: &[u8]) -> Result<Vec<u8>, String> {
        read::<ByteString<OsString>>(text).map(|text| text.0.into_vec())
    }

    #[test]
    fn every_name_survives() {
        for name in [
            &b"plain"[..],
            b"two words\n\t\"\\\x01\x7f/",
            "caf\u{e9} \u{1F9EC} \u{d7ff}\u{e000}".as_bytes(),
            b"\xff\x80a\xc3",
            b"\xed\xb2\x80\xed\xa0\x80\xed\xb3\xbf",
            &(0..=255).collect::<Vec<u8>>(),
        ] {
            let text = write(&ByteString(OsStr::from_bytes(name)));
            assert!(!text.contains('\n'));
            assert_eq!(read_bytes(text.as_bytes()).as_deref(), Ok(name), "{text}");
        }
        assert_eq!(write(&ByteString(OsStr::from_bytes(b"a\xffb\x80\n"))), r#""a\udcffb\udc80\n""#);
    }

    /// `json.dumps` writes all but ASCII as escapes.
    #[test]
    fn python_is_understood() {
        for (text, name) in [
            (r#""\u00e9\ud83e\uddec\/""#, "\u{e9}\u{1F9EC}/".as_bytes()),
            (r#""\udc80\udcbf\udcc0\udcff""#, b"\x80\xbf\xc0\xff"),
            (r#""\udcc3\u00a9""#, b"\xc3\xc2\xa9"),
            (r#""\udced\udcb2\udc80""#, b"\xed\xb2\x80"),
        ] {
            assert_eq!(read_bytes(text.as_bytes()).as_deref(), Ok(name), "{text}");
        }
    }

    #[test]
    fn mistakes_have_a_place() {
        for (text, message) in [
            ("\n \"a", "line 2 column 3"),
            ("\"a\" 2", "trailing characters at line 1 column 5"),
            (r#""\ud800x""#, "a surrogate stands for no byte"),
            (r#""\udc7f""#, "a surrogate stands for no byte"),
            (r#""\ud83e""#, "a surrogate stands for no byte"),
            ("7", "invalid type: integer `7`, expected a string"),
            ("[7]", "invalid type: sequence, expected a string"),
            ("", "line 1 column 0"),
        ] {
            let error = read_bytes(text.as_bytes()).unwrap_err();
            assert!(error.contains(message), "{text}: {error}");
        }
        assert!(read::<serde::de::IgnoredAny>("[".repeat(100_000).as_bytes()).is_err());
    }
}
