//! Cuts a file: reads all of it, or only the places where parts begin. A pipe is cut [as it flows](flow).

use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use super::cuts::{cut_bytes, Cuts};
use super::flow::flow;
use super::rule::{Cut, Record, Rule};
use super::scan::{compressed, HeaderScan, Records, START};
use super::told::{Tell, Told, BLOCK};

/// Bytes that are read at once where a part may begin.
const LOOK: usize = 64 << 10;
/// Least bytes of a part for a search of each beginning. With smaller parts it is faster to read the whole file.
const CLOSE: u64 = 1 << 20;

/// Reports all parts, in order, and returns the number of records, if the rule asks for it.
///
/// # Errors
/// A message that names the file.
pub fn walk(file: &File, path: &Path, rule: &Rule, tell: &mut Tell) -> Result<Option<u64>, String> {
    let at = |error: std::io::Error| format!("{}: {error}", path.display());
    let found = file.metadata().map_err(at)?;
    let mut told = Told::new(rule, tell);
    if found.file_type().is_fifo() {
        flow(file, &mut told).map_err(|error| format!("{}: {error}", path.display()))?;
    } else if found.is_file() {
        let mut walk = Walk { file, size: found.len(), told: &mut told };
        if rule.is_text {
            if let Some(message) = walk.compressed().map_err(at)? {
                return Err(format!("{}: {message}", path.display()));
            }
        }
        walk.told.header = walk.find_header().map_err(at)?;
        walk.cut().map_err(at)?;
    } else {
        return Err(format!("{}: is no regular file", path.display()));
    }
    Ok(rule.count.then_some(told.records))
}

struct Walk<'t, 'a, 'b> {
    file: &'t File,
    size: u64,
    told: &'t mut Told<'a, 'b>,
}

impl Walk<'_, '_, '_> {
    fn compressed(&self) -> std::io::Result<Option<&'static str>> {
        let mut start = [0; START];
        let length = self.size.min(START as u64) as usize;
        self.file.read_exact_at(&mut start[..length], 0)?;
        Ok(compressed(start))
    }

    fn find_header(&mut self) -> std::io::Result<u64> {
        let mut scan = HeaderScan::new(&self.told.rule.header);
        let (mut offset, mut buffer) = (0, vec![0; LOOK]);
        while offset < self.size && scan.found().is_none() {
            let count = read(self.file, &mut buffer, offset, self.size)?;
            scan.block(&buffer[..count]);
            offset += count as u64;
        }
        Ok(scan.end(self.size))
    }

    fn cut(&mut self) -> std::io::Result<()> {
        let Told { rule, header, .. } = *self.told;
        let size = self.size;
        if let Record::Bytes(each) = rule.record {
            cut_bytes(each, rule.cut, header, size, |start, end| self.told.found(start, end));
            self.told.records = (size - header).div_ceil(each.get());
            return Ok(());
        }
        match rule.cut {
            Cut::Parts(parts) if !rule.count && (size - header) / parts.get() >= CLOSE => self.look(),
            _ => self.read_all(),
        }
    }

    /// Reads the whole file from front to back.
    fn read_all(&mut self) -> std::io::Result<()> {
        let Told { rule, header, .. } = *self.told;
        let Some(mut records) = Records::new(&rule.record, header, true) else { return Ok(()) };
        let mut cuts = Cuts::new(rule.cut, header, self.size);
        let (mut offset, mut buffer) = (header, vec![0; BLOCK]);
        while offset < self.size && !self.told.ended {
            let count = read(self.file, &mut buffer, offset, self.size)?;
            records.block(&buffer[..count], |start| self.told.record(&mut cuts, start));
            offset += count as u64;
            self.told.waits();
        }
        records.end(|start| self.told.record(&mut cuts, start));
        cuts.end(self.size, |start, end| self.told.found(start, end));
        Ok(())
    }

    /// Reads only where parts may begin.
    fn look(&mut self) -> std::io::Result<()> {
        let Told { rule, header, .. } = *self.told;
        let mut cuts = Cuts::new(rule.cut, header, self.size);
        let mut buffer = vec![0; LOOK];
        while let Some(next) = cuts.next().filter(|_| !self.told.ended) {
            // A line begins at the target if the byte before it ends a line.
            let mut offset = cuts.target(next) - 1;
            let Some(mut records) = Records::new(&rule.record, offset, false) else { break };
            let mut begin = None;
            while begin.is_none() && offset < self.size {
                let count = read(self.file, &mut buffer, offset, self.size)?;
                records.block(&buffer[..count], |start| begin = begin.or(Some(start)));
                offset += count as u64;
            }
            records.end(|start| begin = begin.or(Some(start)));
            let Some(begin) = begin else { break };
            cuts.record(begin, |start, end| self.told.found(start, end));
            self.told.waits();
        }
        cuts.end(self.size, |start, end| self.told.found(start, end));
        Ok(())
    }
}

/// Reads available bytes, at least one, since `offset` is before the end.
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
    use super::super::told::Found;
    use super::*;
    use crate::sys::test_random::Random;
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
                let mut all = Vec::new();
                let mut tell = |part: Option<Found>| {
                    all.extend(part);
                    true
                };
                let directory = tempfile::tempdir().unwrap();
                let path = directory.path().join("of");
                fs::write(&path, &content).unwrap();
                let file = File::open(&path).unwrap();
                let mut told = Told::new(&rule, &mut tell);
                told.header = 15;
                let mut walk = Walk { file: &file, size: content.len() as u64, told: &mut told };
                walk.read_all().unwrap();
                assert_eq!(found, all, "{text}");
            }
        }
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
