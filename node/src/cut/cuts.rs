//! Finds where parts begin from where records begin. No I/O.

use std::num::NonZeroU64;

use super::rule::Cut;

/// Turns the beginnings of records into those of parts.
#[derive(Debug)]
pub struct Cuts {
    cut: Cut,
    header: u64,
    size: u64,
    /// Where the first part begins that was not reported, and the last record in it.
    part: u64,
    record: u64,
    /// Records in the part; with a number of parts, the parts reported.
    count: u64,
}

impl Cuts {
    /// # Arguments
    /// * `header` - its length
    /// * `size` - of the file, if it is cut into a number of parts
    pub fn new(cut: Cut, header: u64, size: u64) -> Self {
        Self { cut, header, size, part: header, record: header, count: 0 }
    }

    /// Returns the earliest beginning of a part, counted from 0, if parts have equal bytes.
    pub fn target(&self, number: u64) -> u64 {
        let Cut::Parts(parts) = self.cut else { return self.header };
        let length = u128::from(self.size - self.header);
        self.header + (length * u128::from(number) / u128::from(parts.get())) as u64
    }

    /// Returns the part, counted from 1, whose beginning is looked for, if parts have equal bytes. None if all are
    /// known.
    pub fn next(&self) -> Option<u64> {
        let Cut::Parts(parts) = self.cut else { return None };
        (self.count + 1 < parts.get()).then_some(self.count + 1)
    }

    /// Takes the beginning of a record, after the one before, and reports the parts that end there.
    pub fn record(&mut self, start: u64, mut tell: impl FnMut(u64, u64)) {
        match self.cut {
            Cut::Parts(_) => {
                while self.next().is_some_and(|next| self.target(next) <= start) {
                    tell(self.part, start);
                    self.part = start;
                    self.count += 1;
                }
            }
            Cut::Every(every) => {
                if self.count == every.get() {
                    tell(self.part, start);
                    self.part = start;
                    self.count = 0;
                }
                self.count += 1;
            }
            Cut::Chunk(most) => {
                self.close(start, most, &mut tell);
                self.record = start;
            }
        }
    }

    /// Ends the part before its last record, if that record, which ends at `end`, does not fit.
    fn close(&mut self, end: u64, most: NonZeroU64, tell: &mut impl FnMut(u64, u64)) {
        if self.record > self.part && end - self.part > most.get() {
            tell(self.part, self.record);
            self.part = self.record;
        }
    }

    /// Reports the last parts of a file of `size` bytes, after its last record.
    pub fn end(mut self, size: u64, mut tell: impl FnMut(u64, u64)) {
        match self.cut {
            Cut::Parts(_) => {
                while self.next().is_some() {
                    tell(self.part, size);
                    self.part = size;
                    self.count += 1;
                }
                tell(self.part, size);
            }
            Cut::Chunk(most) => {
                self.close(size, most, &mut tell);
                if self.part < size {
                    tell(self.part, size);
                }
            }
            Cut::Every(_) => {
                if self.part < size {
                    tell(self.part, size);
                }
            }
        }
    }
}

/// Cuts records of `each` bytes, without reading the file.
pub fn cut_bytes(each: NonZeroU64, cut: Cut, header: u64, size: u64, mut tell: impl FnMut(u64, u64)) {
    let Some(mut strides) = Strides::new(each, cut, header) else {
        let mut cuts = Cuts::new(cut, header, size);
        while let Some(next) = cuts.next() {
            let records = (cuts.target(next) - header).div_ceil(each.get());
            cuts.record(header + records.saturating_mul(each.get()).min(size - header), &mut tell);
        }
        return cuts.end(size, tell);
    };
    strides.grown(size, &mut tell);
    strides.end(size, tell);
}

/// Parts of equal length, one after the other.
#[derive(Debug)]
pub struct Strides {
    step: u64,
    /// The most bytes of the last part, whose last record may be shorter than the others.
    most: u64,
    start: u64,
}

impl Strides {
    /// Returns None if the file is cut into a number of parts.
    pub fn new(each: NonZeroU64, cut: Cut, header: u64) -> Option<Self> {
        let each = each.get();
        let (step, most) = match cut {
            Cut::Every(every) => (each.saturating_mul(every.get()), 0),
            Cut::Chunk(most) => ((most.get() / each).max(1).saturating_mul(each), most.get()),
            Cut::Parts(_) => return None,
        };
        Some(Self { step, most, start: header })
    }

    /// Reports the parts that are complete when the file has at least `size` bytes.
    pub fn grown(&mut self, size: u64, mut tell: impl FnMut(u64, u64)) {
        while size.saturating_sub(self.start) >= self.step.max(self.most.saturating_add(1)) {
            tell(self.start, self.start + self.step);
            self.start += self.step;
        }
    }

    /// Reports the last part. The file has `size` bytes, and `grown` was called with them.
    pub fn end(self, size: u64, mut tell: impl FnMut(u64, u64)) {
        if self.start < size {
            tell(self.start, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::rule::{Header, Record};
    use crate::cut::scan::{HeaderScan, Records};
    use crate::sys::test_random::Random;

    /// Returns the parts of a text that is read front to back in blocks of at most `most` bytes.
    fn parts(
        text: &[u8],
        header: &Header,
        record: &Record,
        cut: Cut,
        random: &mut Random,
        most: usize,
    ) -> Vec<Vec<u8>> {
        let mut scan = HeaderScan::new(header);
        let mut rest = text;
        while !rest.is_empty() && scan.found().is_none() {
            let (block, more) = rest.split_at(random.below(most as u64) as usize % rest.len() + 1);
            scan.block(block);
            rest = more;
        }
        let (length, size) = (scan.end(text.len() as u64), text.len() as u64);
        let mut found = Vec::new();
        let mut tell = |start: u64, end: u64| found.push((start, end));
        match Records::new(record, length, true) {
            None => {
                let Record::Bytes(each) = record else { unreachable!() };
                cut_bytes(*each, cut, length, size, tell);
            }
            Some(mut records) => {
                let mut cuts = Cuts::new(cut, length, size);
                let mut rest = &text[length as usize..];
                while !rest.is_empty() {
                    let (block, more) = rest.split_at(random.below(most as u64) as usize % rest.len() + 1);
                    records.block(block, |start| cuts.record(start, &mut tell));
                    rest = more;
                }
                records.end(|start| cuts.record(start, &mut tell));
                cuts.end(size, tell);
            }
        }
        // Each byte of the body is in one part, in order.
        let mut at = length;
        for (start, end) in &found {
            assert_eq!(*start, at);
            assert!(end >= start);
            at = *end;
        }
        assert!(at == size || (found.is_empty() && length == size));
        let header = &text[..length as usize];
        found.iter().map(|(start, end)| [header, &text[*start as usize..*end as usize]].concat()).collect()
    }

    fn n(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    /// Returns the records of a text, in the simplest way.
    fn records(text: &[u8], record: &Record) -> Vec<Vec<u8>> {
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let mut found: Vec<Vec<u8>> = Vec::new();
        match record {
            Record::Lines(each) => found.extend(lines.chunks(each.get() as usize).map(<[_]>::concat)),
            Record::Bytes(each) => found.extend(text.chunks(each.get() as usize).map(<[u8]>::to_vec)),
            Record::Begin(mark) => {
                for line in lines {
                    match found.last_mut() {
                        Some(last) if !line.starts_with(mark.as_bytes()) => last.extend(line),
                        _ => found.push(line.to_vec()),
                    }
                }
                // Bytes before the first mark belong to the first record.
                if found.len() > 1 && !found[0].starts_with(mark.as_bytes()) {
                    let junk = found.remove(0);
                    found[0].splice(0..0, junk);
                }
            }
        }
        found
    }

    fn text(random: &mut Random) -> Vec<u8> {
        let length = [0, 1, 7, 40, 300][random.below(5) as usize];
        let letters = [&b"ab\n"[..], b"a\n>#", b">>\n#\r", b"\n", b"abcd\xff\0>#@\r\n"][random.below(5) as usize];
        (0..random.below(length + 1)).map(|_| letters[random.below(letters.len() as u64) as usize]).collect()
    }

    /// Returns the parts of a text, in the simplest way.
    fn simple_parts(text: &[u8], records: Vec<Vec<u8>>, cut: Cut) -> Vec<Vec<u8>> {
        match cut {
            Cut::Every(every) => records.chunks(every.get() as usize).map(<[Vec<u8>]>::concat).collect(),
            Cut::Parts(count) => {
                let (mut parts, mut start) = (vec![Vec::new(); count.get() as usize], 0);
                for record in records {
                    // The part in which the record begins: the last one that does not begin later.
                    let begins = |part: &u64| text.len() as u64 * part / count <= start;
                    let part = (0..count.get()).rev().find(begins).unwrap_or(0);
                    start += record.len() as u64;
                    parts[part as usize].extend(record);
                }
                parts
            }
            Cut::Chunk(chunk) => {
                let mut parts: Vec<Vec<u8>> = Vec::new();
                for record in records {
                    match parts.last_mut() {
                        Some(last) if (last.len() + record.len()) as u64 <= chunk.get() => last.extend(record),
                        _ => parts.push(record),
                    }
                }
                parts
            }
        }
    }

    #[test]
    fn any_cut_in_any_blocks() {
        let mut random = Random::new(1);
        for _ in 0..15_000 {
            let text = text(&mut random);
            let cut = match random.below(3) {
                0 => Cut::Every(n(1 + random.below(5))),
                1 => Cut::Parts(n(1 + random.below(9))),
                _ => Cut::Chunk(n(1 + random.below(40))),
            };
            let record = match random.below(4) {
                0 => Record::Lines(n(1)),
                // Equal bytes need one line for each record.
                1 if !matches!(cut, Cut::Parts(_)) => Record::Lines(n(1 + random.below(4))),
                2 => Record::Begin([">", ">>", "a\r"][random.below(3) as usize].into()),
                _ => Record::Bytes(n(1 + random.below(5))),
            };
            // Bytes before the first mark belong to the first record only where records are counted.
            let has_more = matches!(&record, Record::Begin(mark) if !text.starts_with(mark.as_bytes()));
            if has_more && !matches!(cut, Cut::Every(_)) {
                continue;
            }
            let most = 1 + random.below(50) as usize;
            let found = parts(&text, &Header::Bytes(0), &record, cut, &mut random, most);
            assert_eq!(found, simple_parts(&text, records(&text, &record), cut), "{record:?} {cut:?} of {text:?}");
        }
    }

    #[test]
    fn headers() {
        let mut random = Random::new(4);
        let lines = Record::Lines(n(1));
        let prefix = Header::Prefix("##".into());
        for (text, header, expected) in [
            (&b"##a\n##b\nc\n##d\ne\n"[..], &prefix, &["##a\n##b\nc\n##d\n", "##a\n##b\ne\n"][..]),
            (b"##a\n##b\n", &prefix, &[]),
            (b"##a\n##", &prefix, &[]),
            (b"##a\n#", &prefix, &["##a\n#"]),
            (b"", &prefix, &[]),
            (b"c\n##a\n", &prefix, &["c\n##a\n"]),
            (b"##a\n\nc", &prefix, &["##a\n\nc"]),
            (b"h\r\na\r\nb\r\nc", &Header::Lines(n(1)), &["h\r\na\r\nb\r\n", "h\r\nc"]),
            (b"h", &Header::Lines(n(1)), &[]),
            (b"h\n", &Header::Lines(n(2)), &[]),
            (b"hha\nb\nc\n", &Header::Bytes(2), &["hha\nb\n", "hhc\n"]),
            (b"h", &Header::Bytes(2), &[]),
        ] {
            for most in 1..9 {
                let found = parts(text, header, &lines, Cut::Every(n(2)), &mut random, most);
                let found: Vec<String> = found.into_iter().map(|part| String::from_utf8(part).unwrap()).collect();
                assert_eq!(found, expected, "{text:?}");
            }
        }
        let found = parts(b"##a\n", &prefix, &lines, Cut::Parts(n(3)), &mut random, 9);
        assert_eq!(found, vec![b"##a\n".to_vec(); 3], "a header only");
    }

    #[test]
    fn one_giant_record() {
        let mut random = Random::new(5);
        let giant = [&b">a\n"[..], &vec![b'x'; 100_000], b"\n>b\n"].concat();
        for cut in [Cut::Every(n(1)), Cut::Parts(n(2)), Cut::Chunk(n(10))] {
            let found = parts(&giant, &Header::Bytes(0), &Record::Begin(">".into()), cut, &mut random, 999);
            assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [100_004, 3], "{cut:?}");
        }
        let found = parts(&giant, &Header::Bytes(0), &Record::Begin(">".into()), Cut::Parts(n(5)), &mut random, 999);
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [100_004, 0, 0, 0, 3]);
    }
}
