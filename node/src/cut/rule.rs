//! The rule of a cut: what a record is, how many records are a part, and how parts are named.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Formatter};
use std::num::NonZeroU64;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::protocol::json::{self, ByteString};
use crate::protocol::part::check_name;

/// The header, which stands once at the beginning of the file, and of each part.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Header {
    /// The first lines that begin with this text.
    Prefix(String),
    Lines(NonZeroU64),
    Bytes(u64),
}

/// A record, which is never cut.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Record {
    Lines(NonZeroU64),
    /// Begins with a line that begins with this text.
    Begin(String),
    Bytes(NonZeroU64),
}

/// The size of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The number of parts of equal bytes. A record belongs to the part in which it begins.
    Parts(NonZeroU64),
    /// The number of records in each part.
    Every(NonZeroU64),
    /// The most bytes of a part of whole records. A longer record is a part of its own.
    Chunk(NonZeroU64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub header: Header,
    pub record: Record,
    pub cut: Cut,
    pub names: Names,
    /// The number of records is reported.
    pub count: bool,
    /// Records or header consist of lines, which cannot be seen in a compressed file.
    pub is_text: bool,
}

impl Rule {
    /// Reads a rule from JSON.
    ///
    /// # Errors
    /// A message that names the field, and what is allowed.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        let Fields { records, parts, every, chunk, names, first, count } = json::read(text)?;
        let cut = match (parts, every, chunk) {
            (Some(parts), None, None) => Cut::Parts(parts),
            (None, Some(every), None) => Cut::Every(every),
            (None, None, Some(chunk)) => {
                let bytes = chunk.checked_mul(MIB).ok_or("chunk: has to be a number of MiB")?;
                Cut::Chunk(bytes)
            }
            _ => return Err("exactly one of \"parts\", \"every\" and \"chunk\"".into()),
        };
        let Records { header, record, name } = records;
        match (&record, cut) {
            (Record::Lines(lines), Cut::Parts(_)) if lines.get() > 1 => {
                return Err("parts: a place in the middle of the file does not tell where a record of several lines \
                            begins: use \"every\" or \"chunk\""
                    .into());
            }
            (_, Cut::Every(_)) if name.as_deref() == Some("bytes") => {
                return Err("every: there are no records in \"bytes\": use \"parts\" or \"chunk\"".into());
            }
            _ => {}
        }
        let is_text = !matches!(record, Record::Bytes(_)) || matches!(header, Header::Prefix(_) | Header::Lines(_));
        let names = Names::read(&names.0, first.unwrap_or(1)).map_err(|message| format!("names: {message}"))?;
        Ok(Self { header, record, cut, names, count, is_text })
    }
}

const MIB: NonZeroU64 = NonZeroU64::new(1 << 20).unwrap();

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    records: Records,
    parts: Option<NonZeroU64>,
    every: Option<NonZeroU64>,
    chunk: Option<NonZeroU64>,
    names: ByteString<OsString>,
    first: Option<u64>,
    #[serde(default)]
    count: bool,
}

struct Records {
    header: Header,
    record: Record,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Custom {
    header: Option<Header>,
    record: Record,
}

impl<'de> Deserialize<'de> for Records {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RecordsVisitor)
    }
}

struct RecordsVisitor;

impl<'de> Visitor<'de> for RecordsVisitor {
    type Value = Records;

    fn expecting(&self, formatter: &mut Formatter) -> fmt::Result {
        formatter.write_str("bytes, lines, fastq, fasta, vcf, sam, csv, or an object with header and record")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Records, E> {
        let one = NonZeroU64::MIN;
        let prefix = |text: &str| Header::Prefix(text.into());
        let (header, record) = match name {
            "bytes" => (Header::Bytes(0), Record::Bytes(one)),
            "lines" => (Header::Bytes(0), Record::Lines(one)),
            "fastq" => (Header::Bytes(0), Record::Lines(one.saturating_add(3))),
            "fasta" => (Header::Bytes(0), Record::Begin(">".into())),
            "vcf" => (prefix("#"), Record::Lines(one)),
            "sam" => (prefix("@"), Record::Lines(one)),
            "csv" => (Header::Lines(one), Record::Lines(one)),
            _ => return Err(E::invalid_value(serde::de::Unexpected::Str(name), &self)),
        };
        Ok(Records { header, record, name: Some(name.into()) })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Records, A::Error> {
        let Custom { header, record } = Custom::deserialize(MapAccessDeserializer::new(map))?;
        let header = header.unwrap_or(Header::Bytes(0));
        let marks = [
            match &header {
                Header::Prefix(mark) => Some(mark),
                _ => None,
            },
            match &record {
                Record::Begin(mark) => Some(mark),
                _ => None,
            },
        ];
        if marks.into_iter().flatten().any(|mark| mark.is_empty() || mark.len() > LONGEST_MARK || mark.contains('\n')) {
            return Err(A::Error::custom(format!("a text has to have 1 to {LONGEST_MARK} bytes, and no line break")));
        }
        Ok(Records { header, record, name: None })
    }
}

const LONGEST_MARK: usize = 4096;

/// The names of parts: a text with a number in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    before: Vec<u8>,
    width: usize,
    after: Vec<u8>,
    first: u64,
}

impl Names {
    fn read(text: &OsStr, first: u64) -> Result<Self, String> {
        const ALLOWED: &str = "has to have one %d, or one %0Nd with a width N of 1 to 18, and no other %";
        let mut parts = text.as_bytes().split(|byte| *byte == b'%');
        let (Some(before), Some(rest), None) = (parts.next(), parts.next(), parts.next()) else {
            return Err(ALLOWED.into());
        };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let width = match &rest[..digits] {
            [] => 0,
            [b'0', width @ ..] => std::str::from_utf8(width).ok().and_then(|width| width.parse().ok()).unwrap_or(0),
            _ => 0,
        };
        let after =
            rest[digits..].strip_prefix(b"d").filter(|_| if digits > 0 { (1..=18).contains(&width) } else { true });
        let names = Self { before: before.into(), width, after: after.ok_or(ALLOWED)?.into(), first };
        check_name(names.of(u64::MAX - first).as_bytes()).map_err(|message| message.replace("path", "it"))?;
        Ok(names)
    }

    /// Returns the name of a part.
    ///
    /// # Arguments
    /// * `number` - counted from 0
    pub fn of(&self, number: u64) -> OsString {
        let digits = format!("{:0width$}", number.saturating_add(self.first), width = self.width);
        OsString::from_vec([&self.before, digits.as_bytes(), &self.after].concat())
    }

    /// Whether a part may have this name.
    pub fn matches(&self, name: &OsStr) -> bool {
        let rest = name.as_bytes().strip_prefix(self.before.as_slice());
        let digits = rest.and_then(|rest| rest.strip_suffix(self.after.as_slice()));
        digits.is_some_and(|digits| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(records: &str, more: &str) -> Result<Rule, String> {
        Rule::read(format!(r#"{{"records": {records}, {more}}}"#).as_bytes())
    }

    #[test]
    fn mistakes_are_named() {
        for (records, more, word) in [
            (r#""lines""#, r#""names": "%d""#, "exactly one of"),
            (r#""lines""#, r#""names": "%d", "parts": 2, "every": 2"#, "exactly one of"),
            (r#""lines""#, r#""names": "%d", "parts": 0"#, "parts: invalid value: integer `0`, expected a nonzero"),
            (r#""lines""#, r#""parts": 2"#, "missing field `names`"),
            (r#""lines""#, r#""names": "%d", "parts": 2, "part": 1"#, "part: unknown field"),
            (r#""fastq""#, r#""names": "%d", "parts": 2"#, "parts: a place in the middle of the file does not tell"),
            (r#""bytes""#, r#""names": "%d", "every": 2"#, "every: there are no records in \"bytes\""),
            (
                r#""bam""#,
                r#""names": "%d", "every": 2"#,
                "records: invalid value: string \"bam\", expected bytes, lines,",
            ),
            ("7", r#""names": "%d", "every": 2"#, "records: invalid type: integer `7`, expected bytes, lines,"),
            (r#"{"header": {"lines": 1}}"#, r#""names": "%d", "every": 2"#, "missing field `record`"),
            (r#"{"record": {"begin": ""}}"#, r#""names": "%d", "every": 2"#, "a text has to have 1 to 4096 bytes"),
            (r#"{"record": {"line": 2}}"#, r#""names": "%d", "every": 2"#, "unknown variant `line`"),
        ] {
            let message = rule(records, more).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn names() {
        let names = |text: &str| Names::read(OsStr::new(text), 1);
        for (text, number, name) in [
            ("chunk-%04d.fq", 0, "chunk-0001.fq"),
            ("%d", 9, "10"),
            ("a%02db", 99, "a100b"),
            ("part%018d", 0, "part000000000000000001"),
        ] {
            let names = names(text).unwrap();
            assert_eq!(names.of(number), name);
            assert!(names.matches(OsStr::new(name)) && !names.matches(OsStr::new("x")));
        }
        for text in
            ["a", "%s", "%d%d", "%", "%4d", "%00d", "%019d", "%d%", "d/%d", "%0d", &format!("{}%d", "x".repeat(250))]
        {
            assert!(names(text).is_err(), "{text}");
        }
    }
}
