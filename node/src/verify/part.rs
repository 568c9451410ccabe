//! What was noted of the first bytes of a file, as data: they are compared elsewhere, when the file is final.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

use super::{Noted, Verify};
use crate::fresh;
use crate::json::{Json, Writer};

/// The first bytes of a file, as they were when they were noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub bytes: u64,
    pub digest: u64,
    pub verify: Verify,
}

impl Part {
    /// As members of an object in JSON.
    pub fn write<'w>(&self, writer: &'w mut Writer) -> &'w mut Writer {
        let digest = format!("{:016x}", self.digest);
        writer
            .plain("bytes", self.bytes)
            .text("digest", digest.as_bytes())
            .text("verify", self.verify.name().as_bytes())
    }

    /// None: it is none.
    pub fn read(json: &Json) -> Option<Self> {
        let text = |name| json.get(name).and_then(Json::text);
        Some(Self {
            bytes: json.get("bytes")?.integer()?.try_into().ok()?,
            digest: u64::from_str_radix(std::str::from_utf8(text("digest")?).ok()?, 16).ok()?,
            verify: Verify::parse(text("verify")?)?,
        })
    }

    /// Whether `file` begins with these bytes, as far as they are compared. Reads them.
    pub fn is_of(&self, file: &File) -> io::Result<bool> {
        if file.metadata()?.len() < self.bytes {
            return Ok(false);
        }
        let mut noted = Noted::new(self.verify);
        noted.note(file, 0, self.bytes);
        Ok(noted.digest() == self.digest)
    }
}

/// Exit codes of `sfio-node compare`.
const SAME: i32 = 0;
const DIFFERENT: i32 = 1;
const UNKNOWN: i32 = 2;

/// `sfio-node compare`: whether the file `path` begins with the bytes of which `part` tells, in JSON.
pub fn compare(path: &Path, part: &str) -> i32 {
    let Some(part) = Json::parse(part.as_bytes()).ok().as_ref().and_then(Part::read) else {
        eprintln!("sfio-node: {part}: has to be an object with bytes, digest and verify");
        return UNKNOWN;
    };
    let found = fresh::open(path).and_then(|file| {
        fresh::refresh(&file, path);
        part.is_of(&file)
    });
    match found {
        Ok(true) => SAME,
        Ok(false) => DIFFERENT,
        Err(error) if error.kind() == ErrorKind::NotFound => DIFFERENT,
        Err(error) => {
            eprintln!("sfio-node: {}: {error}", path.display());
            UNKNOWN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// What is known of the first `bytes` of `file`, which were noted in pieces.
    fn part_of(file: &File, bytes: u64, piece: u64, verify: Verify) -> Part {
        let mut noted = Noted::new(verify);
        let mut start = 0;
        while start < bytes {
            let end = bytes.min(start + piece);
            noted.note(file, start, end);
            start = end;
        }
        Part { bytes, digest: noted.digest(), verify }
    }

    #[test]
    fn a_part_is_found_again_however_it_was_noted() {
        let file = tempfile::tempfile().unwrap();
        let size = 9 << 20;
        let content: Vec<u8> = (0..size).map(|place: u64| (place / 1000) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        for (_, verify) in Verify::NAMES {
            for (bytes, piece) in
                [(0, 1), (1, 1), (4097, 100), (100_000, 65_537), (8 << 20, 1_000_003), (size, 1 << 20)]
            {
                let part = part_of(&file, bytes, piece, verify);
                assert!(part.is_of(&file).unwrap(), "{part:?}");
                let mut writer = Writer::new();
                let text = part.write(&mut writer).finish();
                assert_eq!(Part::read(&Json::parse(text.as_bytes()).unwrap()), Some(part));
            }
        }
    }

    #[test]
    fn another_byte_and_a_shorter_file_are_not_the_same() {
        for (_, verify) in Verify::NAMES {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&[7; 10_000], 0).unwrap();
            let part = part_of(&file, 9_000, 700, verify);
            for (place, byte, same) in
                [(0, 8, false), (0, 7, true), (8_999, 8, false), (8_999, 7, true), (9_000, 8, true)]
            {
                file.write_all_at(&[byte], place).unwrap();
                assert_eq!(part.is_of(&file).unwrap(), same, "{place} {byte}");
            }
            file.set_len(8_999).unwrap();
            assert!(!part.is_of(&file).unwrap());
        }
    }
}
