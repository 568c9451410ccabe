//! Goes through a file that is cut, or only where it is cut.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::cuts::{cut_bytes, Cuts};
use super::rule::{Cut, Record, Rule};
use super::scan::{HeaderScan, Records};
use crate::part::Piece;

/// So much is read at once front to back; and where a place is looked for.
const BLOCK: usize = 1 << 20;
const LOOK: usize = 64 << 10;
/// Places that are closer are not looked for one by one: reading all is faster.
const CLOSE: u64 = 1 << 20;

/// A part, as it is said.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub name: OsString,
    pub pieces: Vec<Piece>,
}

/// What is told: a part, or, None, that it takes some time until the next one; false: no more is wanted.
type Tell<'a> = dyn FnMut(Option<Found>) -> bool + 'a;

/// Tells of all parts, in order, and returns how many records there are, if the rule wants to know it.
///
/// # Errors
/// A message that names the file.
pub fn walk(file: &File, path: &Path, rule: &Rule, tell: &mut Tell) -> Result<Option<u64>, String> {
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let found = file.metadata().map_err(at)?;
    if !found.is_file() {
        return Err(format!("{}: is no regular file", path.display()));
    }
    let mut walk = Walk { file, size: found.len(), rule, tell, header: 0, number: 0, records: 0, ended: false };
    if rule.is_text {
        if let Some(message) = walk.compressed().map_err(at)? {
            return Err(format!("{}: {message}", path.display()));
        }
    }
    walk.header = walk.find_header().map_err(at)?;
    walk.cut().map_err(at)?;
    Ok(rule.count.then_some(walk.records))
}

struct Walk<'a, 'b> {
    file: &'a File,
    size: u64,
    rule: &'a Rule,
    tell: &'a mut Tell<'b>,
    /// Its length.
    header: u64,
    /// Parts that were told.
    number: u64,
    /// That were found, where all is read.
    records: u64,
    ended: bool,
}

impl Walk<'_, '_> {
    /// Why there are no lines to be seen.
    fn compressed(&self) -> std::io::Result<Option<&'static str>> {
        let mut start = [0; 16];
        let length = self.size.min(16) as usize;
        self.file.read_exact_at(&mut start[..length], 0)?;
        // RFC 1952; a block of BGZF has an extra field "BC" (SAM specification, 4.1).
        let is_bgzf = start.starts_with(&[0x1f, 0x8b, 8]) && start[3] & 4 != 0 && &start[12..14] == b"BC";
        let magic: [&[u8]; 4] = [&[0x1f, 0x8b], b"BZh", &[0xfd, b'7', b'z', b'X', b'Z', 0], &[0x28, 0xb5, 0x2f, 0xfd]];
        Ok(match magic.iter().any(|magic| start.starts_with(magic)) {
            true if is_bgzf => Some("is compressed (BGZF), and cannot be cut into records: decompress it"),
            true => Some("is compressed, and cannot be cut into records: decompress it"),
            false => None,
        })
    }

    fn find_header(&mut self) -> std::io::Result<u64> {
        let mut scan = HeaderScan::new(&self.rule.header);
        let (mut offset, mut buffer) = (0, vec![0; LOOK]);
        while offset < self.size && scan.found().is_none() {
            let count = read(self.file, &mut buffer, offset, self.size)?;
            scan.block(&buffer[..count]);
            offset += count as u64;
        }
        Ok(scan.end(self.size))
    }

    fn cut(&mut self) -> std::io::Result<()> {
        let (cut, header, size) = (self.rule.cut, self.header, self.size);
        if let Record::Bytes(each) = self.rule.record {
            cut_bytes(each, cut, header, size, |start, end| self.found(start, end));
            self.records = (size - header).div_ceil(each.get());
            return Ok(());
        }
        match cut {
            Cut::Parts(parts) if !self.rule.count && (size - header) / parts.get() >= CLOSE => self.look(),
            _ => self.read_all(),
        }
    }

    fn found(&mut self, start: u64, end: u64) {
        let extents = [(0, self.header), (start, end - start)].map(|(offset, length)| Piece::Extent { offset, length });
        let pieces = extents.into_iter().filter(|piece| piece.length() > 0).collect();
        let found = Found { name: self.rule.names.of(self.number), pieces };
        self.number += 1;
        self.ended = self.ended || !(self.tell)(Some(found));
    }

    /// Reads front to back.
    fn read_all(&mut self) -> std::io::Result<()> {
        let Some(mut records) = Records::new(&self.rule.record, self.header, true) else { return Ok(()) };
        let mut cuts = Cuts::new(self.rule.cut, self.header, self.size);
        let (mut offset, mut buffer) = (self.header, vec![0; BLOCK]);
        let mut record = |walk: &mut Self, start: u64| {
            walk.records += 1;
            cuts.record(start, |start, end| walk.found(start, end));
        };
        while offset < self.size && !self.ended {
            let count = read(self.file, &mut buffer, offset, self.size)?;
            records.block(&buffer[..count], |start| record(self, start));
            offset += count as u64;
            self.ended = self.ended || !(self.tell)(None);
        }
        records.end(|start| record(self, start));
        cuts.end(|start, end| self.found(start, end));
        Ok(())
    }

    /// Reads where parts are to begin.
    fn look(&mut self) -> std::io::Result<()> {
        let mut cuts = Cuts::new(self.rule.cut, self.header, self.size);
        let mut buffer = vec![0; LOOK];
        while let Some(next) = cuts.next().filter(|_| !self.ended) {
            // A line begins there if the byte before it ends one.
            let mut offset = cuts.target(next) - 1;
            let Some(mut records) = Records::new(&self.rule.record, offset, false) else { break };
            let mut begin = None;
            while begin.is_none() && offset < self.size {
                let count = read(self.file, &mut buffer, offset, self.size)?;
                records.block(&buffer[..count], |start| begin = begin.or(Some(start)));
                offset += count as u64;
            }
            records.end(|start| begin = begin.or(Some(start)));
            let Some(begin) = begin else { break };
            cuts.record(begin, |start, end| self.found(start, end));
            self.ended = self.ended || !(self.tell)(None);
        }
        cuts.end(|start, end| self.found(start, end));
        Ok(())
    }
}

/// Reads what is there, at least one byte before the end.
fn read(file: &File, buffer: &mut [u8], offset: u64, size: u64) -> std::io::Result<usize> {
    let most = buffer.len().min(usize::try_from(size - offset).unwrap_or(usize::MAX));
    loop {
        match file.read_at(&mut buffer[..most], offset) {
            Ok(0) => return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "it was cut meanwhile")),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_random::Random;
    use std::fs;

    fn rule(text: &str) -> Rule {
        Rule::read(text.as_bytes()).unwrap()
    }

    fn parts(content: &[u8], text: &str) -> Result<Vec<Found>, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("of");
        fs::write(&path, content).unwrap();
        let mut found = Vec::new();
        walk(&File::open(&path).unwrap(), &path, &rule(text), &mut |part| {
            found.extend(part);
            true
        })?;
        Ok(found)
    }

    #[test]
    fn places_that_are_looked_for_are_those_that_are_found_front_to_back() {
        let mut random = Random::new(1);
        let mut content = b"##header\n#more\n".to_vec();
        while content.len() < 9 << 20 {
            let length = [3, 100, 5_000, 2_500_000][(random.below(400) as usize).saturating_sub(396)];
            content.extend(
                format!("{}{}\n", ["", ">"][random.below(2) as usize], "x".repeat(random.below(length) as usize))
                    .as_bytes(),
            );
        }
        for records in [
            r##"{"header": {"prefix": "#"}, "record": {"lines": 1}}"##,
            r##"{"header": {"prefix": "#"}, "record": {"begin": ">"}}"##,
        ] {
            for count in 1..9 {
                let text = format!(r#"{{"records": {records}, "parts": {count}, "names": "%d"}}"#);
                let found = parts(&content, &text).unwrap();
                assert_eq!(found.len(), count);
                let rule = rule(&text);
                let mut told = Vec::new();
                let mut tell = |part: Option<Found>| {
                    told.extend(part);
                    true
                };
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("of");
                fs::write(&path, &content).unwrap();
                let file = File::open(&path).unwrap();
                let size = content.len() as u64;
                let mut walk = Walk {
                    file: &file,
                    size,
                    rule: &rule,
                    tell: &mut tell,
                    header: 15,
                    number: 0,
                    records: 0,
                    ended: false,
                };
                walk.read_all().unwrap();
                assert_eq!(found, told, "{text}");
            }
        }
    }

    #[test]
    fn parts_have_the_header_and_their_names() {
        let found = parts(b"#h\na\nb\nc\n", r##"{"records": "vcf", "every": 2, "names": "p%02d.vcf"}"##).unwrap();
        let extent = |offset, length| Piece::Extent { offset, length };
        assert_eq!(
            found,
            [
                Found { name: "p01.vcf".into(), pieces: vec![extent(0, 3), extent(3, 4)] },
                Found { name: "p02.vcf".into(), pieces: vec![extent(0, 3), extent(7, 2)] },
            ]
        );
        assert_eq!(parts(b"", r#"{"records": "lines", "every": 2, "names": "%d"}"#), Ok(vec![]));
        let empty = Found { name: "1".into(), pieces: vec![] };
        assert_eq!(parts(b"", r#"{"records": "lines", "parts": 1, "names": "%d"}"#), Ok(vec![empty]));
    }

    #[test]
    fn what_is_compressed_has_no_lines() {
        let bgzf = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0\x1b\0\x03\0";
        for content in [&b"\x1f\x8b\x08\0"[..], b"BZh9", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", bgzf] {
            let message = parts(content, r#"{"records": "vcf", "every": 2, "names": "%d"}"#).unwrap_err();
            assert!(message.contains("is compressed") && message.contains("decompress it"), "{message}");
            assert!(parts(content, r#"{"records": "bytes", "parts": 2, "names": "%d"}"#).is_ok());
        }
        assert!(parts(b"\x1f", r#"{"records": "vcf", "every": 2, "names": "%d"}"#).is_ok());
    }
}
