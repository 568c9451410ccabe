//! Finds where records begin. Blocks in, places out; no I/O. Recognizes compressed files by their first bytes.

use memchr::memchr;

use super::rule::{Header, Record};

/// Finds where lines begin, and their first bytes.
#[derive(Debug)]
pub struct Lines {
    /// Place of the next byte.
    offset: u64,
    /// Beginning of a line whose first bytes are not known yet.
    open: Option<u64>,
    head: Vec<u8>,
    /// Number of first bytes that are reported for a line.
    most: usize,
}

impl Lines {
    /// # Arguments
    /// * `offset` - where the first block begins
    /// * `begins` - a line begins there
    /// * `most` - first bytes to report for a line, with its newline; fewer if the line is shorter
    pub fn new(offset: u64, begins: bool, most: usize) -> Self {
        Self { offset, open: begins.then_some(offset), head: Vec::new(), most }
    }

    /// Takes a block, and reports where lines begin, and with which bytes.
    pub fn block(&mut self, mut bytes: &[u8], mut tell: impl FnMut(u64, &[u8])) {
        while !bytes.is_empty() {
            let newline = memchr(b'\n', bytes);
            let (line, rest) = bytes.split_at(newline.map_or(bytes.len(), |at| at + 1));
            if let Some(start) = self.open {
                let missing = self.most - self.head.len();
                let more = &line[..missing.min(line.len())];
                if missing > line.len() && newline.is_none() {
                    self.head.extend(more);
                } else {
                    if self.head.is_empty() {
                        tell(start, more);
                    } else {
                        self.head.extend(more);
                        tell(start, &self.head);
                        self.head.clear();
                    }
                    self.open = None;
                }
            }
            self.offset += line.len() as u64;
            if newline.is_some() {
                self.open = Some(self.offset);
            }
            bytes = rest;
        }
    }

    /// Reports the last line, after the last block.
    pub fn end(&mut self, mut tell: impl FnMut(u64, &[u8])) {
        if let Some(start) = self.open.take().filter(|_| !self.head.is_empty()) {
            tell(start, &self.head);
        }
    }
}

/// Finds the length of the header.
#[derive(Debug)]
pub struct HeaderScan<'r> {
    header: &'r Header,
    lines: Lines,
    count: u64,
    found: Option<u64>,
}

impl<'r> HeaderScan<'r> {
    pub fn new(header: &'r Header) -> Self {
        let most = if let Header::Prefix(prefix) = header { prefix.len() } else { 0 };
        let found = if let Header::Bytes(bytes) = header { Some(*bytes) } else { None };
        Self { header, lines: Lines::new(0, true, most), count: 0, found }
    }

    /// Returns the length of the header when it is known.
    pub fn found(&self) -> Option<u64> {
        self.found
    }

    /// Returns the earliest end of the header, while its length is unknown.
    pub fn earliest(&self) -> u64 {
        self.lines.open.unwrap_or(self.lines.offset)
    }

    pub fn block(&mut self, bytes: &[u8]) {
        let Self { header, lines, count, found } = self;
        lines.block(bytes, |start, head| see(header, count, found, start, head));
    }

    /// Returns the length of the header, after the end of a file of `size` bytes.
    pub fn end(mut self, size: u64) -> u64 {
        let Self { header, lines, count, found } = &mut self;
        lines.end(|start, head| see(header, count, found, start, head));
        self.found.unwrap_or(size).min(size)
    }
}

fn see(header: &Header, count: &mut u64, found: &mut Option<u64>, start: u64, head: &[u8]) {
    let belongs = match header {
        Header::Prefix(prefix) => head.starts_with(prefix.as_bytes()),
        Header::Lines(lines) => *count < lines.get(),
        Header::Bytes(_) => false,
    };
    *count += 1;
    if !belongs {
        found.get_or_insert(start);
    }
}

/// Finds where records of lines begin.
#[derive(Debug)]
pub struct Records<'r> {
    mark: Option<&'r [u8]>,
    /// Lines of a record.
    each: u64,
    count: u64,
    lines: Lines,
}

impl<'r> Records<'r> {
    /// Returns None for records with a number of bytes, which are not looked for.
    ///
    /// # Arguments
    /// * `offset` - where the first block begins
    /// * `begins` - a record begins there
    pub fn new(record: &'r Record, offset: u64, begins: bool) -> Option<Self> {
        let (mark, each) = match record {
            Record::Lines(lines) => (None, lines.get()),
            Record::Begin(mark) => (Some(mark.as_bytes()), 1),
            Record::Bytes(_) => return None,
        };
        let lines = Lines::new(offset, begins, mark.map_or(0, <[u8]>::len));
        Some(Self { mark, each, count: 0, lines })
    }

    pub fn block(&mut self, bytes: &[u8], mut tell: impl FnMut(u64)) {
        let Self { mark, each, count, lines } = self;
        lines.block(bytes, |start, head| {
            if begins(*mark, *each, count, head) {
                tell(start);
            }
        });
    }

    pub fn end(&mut self, mut tell: impl FnMut(u64)) {
        let Self { mark, each, count, lines } = self;
        lines.end(|start, head| {
            if begins(*mark, *each, count, head) {
                tell(start);
            }
        });
    }
}

fn begins(mark: Option<&[u8]>, each: u64, count: &mut u64, head: &[u8]) -> bool {
    let number = *count;
    *count += 1;
    match mark {
        // Bytes before the first mark belong to the first record.
        Some(mark) => head.starts_with(mark),
        None => number % each == 0,
    }
}

/// The first bytes of a file that are needed.
pub const START: usize = 16;

/// Returns why a file has no visible lines, if so.
///
/// # Arguments
/// * `start` - the first bytes of the file, with zeros behind its end
pub fn compressed(start: [u8; START]) -> Option<&'static str> {
    // RFC 1952; a block of BGZF has an extra field "BC" (SAM specification, 4.1).
    let is_bgzf = start.starts_with(&[0x1f, 0x8b, 8]) && start[3] & 4 != 0 && &start[12..14] == b"BC";
    let magic: [&[u8]; 4] = [&[0x1f, 0x8b], b"BZh", &[0xfd, b'7', b'z', b'X', b'Z', 0], &[0x28, 0xb5, 0x2f, 0xfd]];
    match magic.iter().any(|magic| start.starts_with(magic)) {
        true if is_bgzf => Some("is compressed (BGZF), and cannot be cut into records: decompress it"),
        true => Some("is compressed, and cannot be cut into records: decompress it"),
        false => None,
    }
}
