//! Cuts the content of a pipe, whose length is unknown until the end, from front to back.

use std::io::{self, ErrorKind, Read};
use std::mem;
use std::num::NonZeroU64;

use super::cuts::{Cuts, Strides};
use super::rule::{Cut, Record};
use super::scan::{compressed, HeaderScan, Records, START};
use super::told::{Told, BLOCK};

/// Reports all parts, in order.
///
/// # Errors
/// A message, if the input cannot be read, or cannot be cut in this way.
pub fn flow(mut input: impl Read, told: &mut Told) -> Result<(), String> {
    if matches!(told.rule.cut, Cut::Parts(_)) {
        return Err("is no regular file: without its size it cannot be cut into a number of parts".into());
    }
    let cannot_read = |error: io::Error| error.to_string();
    let mut buffer = vec![0; BLOCK];
    let mut count = read_start(&mut input, &mut buffer[..START]).map_err(cannot_read)?;
    if told.rule.is_text {
        let mut start = [0; START];
        start[..count].copy_from_slice(&buffer[..count]);
        if let Some(message) = compressed(start) {
            return Err(message.into());
        }
    }
    let mut flow = Flow::new(told);
    while count > 0 && !flow.told.ended {
        flow.block(&buffer[..count]);
        flow.told.waits();
        count = read(&mut input, &mut buffer).map_err(cannot_read)?;
    }
    flow.end();
    Ok(())
}

/// Fills the buffer, or reads to the end.
fn read_start(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(input, &mut buffer[filled..])? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

fn read(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The state between two blocks.
struct Flow<'t, 'a, 'b> {
    told: &'t mut Told<'a, 'b>,
    /// Bytes read so far.
    size: u64,
    header: Option<Header<'a>>,
    body: Option<Body<'a>>,
}

/// A header whose end is not known yet.
struct Header<'a> {
    scan: HeaderScan<'a>,
    /// The last bytes read, which may be behind the header.
    kept: Vec<u8>,
}

enum Body<'a> {
    Lines(Records<'a>, Cuts),
    Bytes(Strides, NonZeroU64),
}

impl<'t, 'a, 'b> Flow<'t, 'a, 'b> {
    fn new(told: &'t mut Told<'a, 'b>) -> Self {
        let header = Header { scan: HeaderScan::new(&told.rule.header), kept: Vec::new() };
        Self { told, size: 0, header: Some(header), body: None }
    }

    fn block(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        let Some(Header { scan, kept }) = &mut self.header else { return self.take(bytes) };
        scan.block(bytes);
        kept.extend_from_slice(bytes);
        let found = scan.found().filter(|length| *length <= self.size);
        let behind = self.size - found.unwrap_or(scan.earliest()).min(self.size);
        kept.drain(..kept.len().saturating_sub(behind as usize));
        if let Some(length) = found {
            let kept = mem::take(kept);
            self.begin(length, &kept);
        }
    }

    /// Begins with the body: the header has `length` bytes, and `behind` are the bytes read after it.
    fn begin(&mut self, length: u64, behind: &[u8]) {
        let rule = self.told.rule;
        (self.header, self.told.header) = (None, length);
        self.body = match rule.record {
            Record::Bytes(each) => Strides::new(each, rule.cut, length).map(|strides| Body::Bytes(strides, each)),
            _ => Records::new(&rule.record, length, true)
                .map(|records| Body::Lines(records, Cuts::new(rule.cut, length, 0))),
        };
        self.take(behind);
    }

    fn take(&mut self, bytes: &[u8]) {
        let told = &mut self.told;
        match &mut self.body {
            Some(Body::Lines(records, cuts)) => records.block(bytes, |start| told.record(cuts, start)),
            Some(Body::Bytes(strides, _)) => strides.grown(self.size, |start, end| told.found(start, end)),
            None => {}
        }
    }

    fn end(mut self) {
        if let Some(Header { scan, kept }) = self.header.take() {
            let length = scan.end(self.size);
            self.begin(length, &kept[kept.len() - (self.size - length) as usize..]);
        }
        let (told, size) = (self.told, self.size);
        match self.body {
            Some(Body::Lines(mut records, mut cuts)) => {
                records.end(|start| told.record(&mut cuts, start));
                cuts.end(size, |start, end| told.found(start, end));
            }
            Some(Body::Bytes(strides, each)) => {
                told.records = (size - told.header).div_ceil(each.get());
                strides.end(size, |start, end| told.found(start, end));
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::Rule;
    use super::super::told::Found;
    use super::super::walk::walk;
    use super::*;
    use crate::protocol::part::size;
    use crate::sys::test_random::Random;
    use std::fs::{self, File};

    /// Gives a text in blocks of random lengths.
    struct Blocks<'a> {
        text: &'a [u8],
        most: u64,
        random: Random,
    }

    impl Read for Blocks<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = 1 + self.random.below(self.most) as usize;
            let count = most.min(buffer.len()).min(self.text.len());
            let (block, rest) = self.text.split_at(count);
            buffer[..count].copy_from_slice(block);
            self.text = rest;
            Ok(count)
        }
    }

    fn flowed(text: &[u8], rule: &Rule, most: u64, seed: u64) -> Result<(Vec<Found>, u64), String> {
        let mut found = Vec::new();
        let mut tell = |part: Option<Found>| {
            found.extend(part);
            true
        };
        let mut told = Told::new(rule, &mut tell);
        flow(Blocks { text, most, random: Random::new(seed) }, &mut told)?;
        let records = told.records;
        Ok((found, records))
    }

    fn walked(text: &[u8], rule: &Rule) -> (Vec<Found>, u64) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("of");
        fs::write(&path, text).unwrap();
        let mut found = Vec::new();
        let records = walk(&File::open(&path).unwrap(), &path, rule, &mut |part| {
            found.extend(part);
            true
        });
        (found, records.unwrap().unwrap())
    }

    #[test]
    fn what_flows_is_cut_as_a_file_is() {
        let mut random = Random::new(7);
        for seed in 0..4_000 {
            let letters = [&b"ab\n"[..], b"a\n>#", b"##\n>\r", b"#\n"][random.below(4) as usize];
            let length = [0, 1, 15, 16, 17, 60, 400][random.below(7) as usize];
            let text: Vec<u8> = (0..length).map(|_| letters[random.below(letters.len() as u64) as usize]).collect();
            let header = [r###"{"prefix": "##"}"###, r#"{"lines": 2}"#, r#"{"bytes": 9}"#, r#"{"prefix": "a"}"#];
            let record = [r#"{"lines": 1}"#, r#"{"lines": 3}"#, r#"{"begin": ">"}"#, r#"{"bytes": 4}"#];
            let header = match random.below(5) {
                4 => String::new(),
                number => format!(r#""header": {}, "#, header[number as usize]),
            };
            let cut = match random.below(2) {
                0 => format!(r#""every": {}"#, 1 + random.below(4)),
                _ => r#""chunk": 1"#.into(),
            };
            let text_of_rule = format!(
                r#"{{"records": {{{header}"record": {}}}, {cut}, "names": "%d", "count": true}}"#,
                record[random.below(4) as usize]
            );
            let mut rule = Rule::read(text_of_rule.as_bytes()).unwrap();
            if let Cut::Chunk(most) = &mut rule.cut {
                *most = NonZeroU64::new(1 + random.below(30)).unwrap();
            }
            let most = 1 + random.below(50);
            assert_eq!(flowed(&text, &rule, most, seed).unwrap(), walked(&text, &rule), "{text_of_rule} {text:?}");
        }
    }

    #[test]
    fn a_part_is_told_when_the_next_one_begins() {
        let rule = Rule::read(br#"{"records": "fasta", "every": 1, "names": "%d"}"#).unwrap();
        let mut told_after = Vec::new();
        let mut told_sizes = Vec::new();
        let mut blocks = 0;
        let mut tell = |part: Option<Found>| {
            match part {
                Some(part) => {
                    told_sizes.push(size(&part.pieces));
                    told_after.push(blocks);
                }
                None => blocks += 1,
            }
            true
        };
        let mut told = Told::new(&rule, &mut tell);
        let mut flow = Flow::new(&mut told);
        for block in [&b">a\nAC"[..], b"GT\n", b">b", b"\nTT\n"] {
            flow.block(block);
            flow.told.waits();
        }
        flow.end();
        assert_eq!((told_sizes, told_after), (vec![8, 6], vec![2, 4]));
    }

    #[test]
    fn what_cannot_flow() {
        let parts = Rule::read(br#"{"records": "lines", "parts": 2, "names": "%d"}"#).unwrap();
        assert!(flowed(b"a\n", &parts, 9, 0).unwrap_err().contains("without its size"));
        let lines = Rule::read(br#"{"records": "lines", "every": 2, "names": "%d"}"#).unwrap();
        assert!(flowed(b"\x1f\x8b\x08\0", &lines, 1, 0).unwrap_err().contains("is compressed"));
    }
}
