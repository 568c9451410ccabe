//! Finds a rule by which a split may have cut a file, from the parts that it has written.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::rule::Rule;
use super::told::Found;
use super::walk::walk;
use crate::protocol::json::{self, ByteString};
use crate::protocol::part::{size, Piece};

/// Bytes that are compared at both ends of a part, and that show the format at the beginning of the file.
const END: u64 = 4 << 10;
/// The most bytes of a file that are read to test a rule. The first use of the rule compares the whole file.
const MOST: u64 = 256 << 20;
const MIB: u64 = 1 << 20;
/// The special formats come first, because "lines" fits many of their files, too.
const RECORDS: [&str; 7] = ["fastq", "fasta", "vcf", "sam", "csv", "lines", "bytes"];

/// A rule that gives the parts.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Proposal {
    records: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chunk: Option<u64>,
    /// A cut into as many parts of equal bytes gives the same parts.
    equal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Every(u64),
    Chunk(u64),
    Parts(u64),
}

/// The parts that a split has written.
pub struct Written<'a> {
    of: &'a Path,
    file: File,
    size: u64,
    directory: &'a Path,
    names: &'a OsStr,
    first: u64,
    /// Sizes of the parts.
    sizes: Vec<u64>,
    /// The first bytes of the file.
    head: Vec<u8>,
}

impl<'a> Written<'a> {
    /// # Arguments
    /// * `directory` - of the parts
    /// * `names` - of the parts, as in a rule
    /// * `first` - number of the first part
    /// * `count` - number of parts
    ///
    /// # Errors
    /// A message that names the file, or what is wrong with the names.
    pub fn new(of: &'a Path, directory: &'a Path, names: &'a OsStr, first: u64, count: u64) -> Result<Self, String> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| format!("{}: {error}", path.display())
        };
        let file = File::open(of).map_err(at(of))?;
        let size = file.metadata().map_err(at(of))?.len();
        let mut head = vec![0; size.min(END) as usize];
        file.read_exact_at(&mut head, 0).map_err(at(of))?;
        let mut written = Self { of, file, size, directory, names, first, sizes: Vec::new(), head };
        let named = written.rule("lines", Cut::Parts(1), false)?;
        for number in 0..count {
            let path = directory.join(named.names.of(number));
            written.sizes.push(fs::metadata(&path).map_err(at(&path))?.len());
        }
        Ok(written)
    }

    /// Returns the first rule that gives the parts. None if they are not parts of the file, or no rule fits.
    ///
    /// # Errors
    /// A message that names the file that cannot be read.
    pub fn propose(&self) -> Result<Option<Proposal>, String> {
        let count = self.sizes.len() as u64;
        if count < 2 || self.size == 0 || self.header().is_none() {
            return Ok(None);
        }
        for records in RECORDS.into_iter().filter(|records| looks_like(records, &self.head)) {
            for cut in self.cuts(records)? {
                if !self.fits(records, cut)? {
                    continue;
                }
                let equal = matches!(cut, Cut::Parts(_)) || self.fits(records, Cut::Parts(count))?;
                let (every, parts, chunk) = match cut {
                    Cut::Every(number) => (Some(number), None, None),
                    Cut::Parts(number) => (None, Some(number), None),
                    Cut::Chunk(number) => (None, None, Some(number)),
                };
                return Ok(Some(Proposal { records, every, parts, chunk, equal }));
            }
        }
        Ok(None)
    }

    /// Returns the length of the header that each part repeats. None if no length makes the sizes add up.
    fn header(&self) -> Option<u64> {
        let more = self.sizes.iter().sum::<u64>().checked_sub(self.size)?;
        let others = self.sizes.len() as u64 - 1;
        (more % others == 0).then_some(more / others)
    }

    /// Returns the possible cuts, the most certain first.
    fn cuts(&self, records: &str) -> Result<Vec<Cut>, String> {
        let mut cuts = Vec::new();
        let first = self.path(0)?;
        if records != "bytes" && self.sizes[0] <= MOST {
            let rule = self.rule(records, Cut::Every(u64::MAX), true)?;
            let file = File::open(&first).map_err(|error| format!("{}: {error}", first.display()))?;
            // A compressed part has no records.
            cuts.extend(walk(&file, &first, &rule, &mut |_| true).ok().flatten().filter(|n| *n > 0).map(Cut::Every));
        }
        let header = self.header().unwrap_or(0);
        let longest = self.sizes.iter().max().map_or(0, |size| size - header.min(*size));
        if longest > MIB / 2 {
            cuts.push(Cut::Chunk(longest.div_ceil(MIB)));
        }
        cuts.push(Cut::Parts(self.sizes.len() as u64));
        Ok(cuts)
    }

    fn path(&self, number: u64) -> Result<PathBuf, String> {
        Ok(self.directory.join(self.rule("lines", Cut::Parts(1), false)?.names.of(number)))
    }

    fn rule(&self, records: &str, cut: Cut, count: bool) -> Result<Rule, String> {
        let (field, number) = match cut {
            Cut::Every(number) => ("every", number),
            Cut::Chunk(number) => ("chunk", number),
            Cut::Parts(number) => ("parts", number),
        };
        let (names, first) = (json::write(&ByteString(self.names)), self.first);
        let text =
            format!(r#"{{"records":"{records}","{field}":{number},"names":{names},"first":{first},"count":{count}}}"#);
        Rule::read(text.as_bytes())
    }

    /// Whether a rule gives parts of these sizes, with the same bytes at both ends.
    fn fits(&self, records: &str, cut: Cut) -> Result<bool, String> {
        // Some cuts are impossible, such as parts of equal bytes for records of several lines.
        let Ok(rule) = self.rule(records, cut, false) else { return Ok(false) };
        let (mut outcome, mut number, mut enough) = (Ok(true), 0, false);
        let walked = walk(&self.file, self.of, &rule, &mut |part| {
            if let Some(part) = part {
                outcome = self.is_like(&part, number);
                number += 1;
                let end = part.pieces.last().map_or(0, end_of);
                enough = end > MOST && number > 1;
            }
            matches!(outcome, Ok(true)) && !enough
        });
        // A compressed file has no records.
        Ok(walked.is_ok() && outcome? && (enough || number == self.sizes.len()))
    }

    fn is_like(&self, part: &Found, number: usize) -> Result<bool, String> {
        let length = size(&part.pieces);
        if self.sizes.get(number) != Some(&length) {
            return Ok(false);
        }
        let path = self.directory.join(&part.name);
        let compared = File::open(&path).and_then(|file| self.has_the_same_ends(&file, &part.pieces, length));
        compared.map_err(|error| format!("{}: {error}", path.display()))
    }

    fn has_the_same_ends(&self, part: &File, pieces: &[Piece], length: u64) -> io::Result<bool> {
        let mut at = 0;
        for piece in pieces {
            let Piece::Extent { offset, length: count } = *piece else { continue };
            for (from, until) in [(0, END.min(count)), (count.saturating_sub(END), count)] {
                let near = at < END || at + count + END > length;
                let (mut ours, mut theirs) = (vec![0; (until - from) as usize], vec![0; (until - from) as usize]);
                if near {
                    self.file.read_exact_at(&mut ours, offset + from)?;
                    part.read_exact_at(&mut theirs, at + from)?;
                }
                if ours != theirs {
                    return Ok(false);
                }
            }
            at += count;
        }
        Ok(true)
    }
}

fn end_of(piece: &Piece) -> u64 {
    match piece {
        Piece::Extent { offset, length } => offset + length,
        Piece::Text(_) => 0,
    }
}

/// Whether a file with this beginning may have these records.
fn looks_like(records: &str, head: &[u8]) -> bool {
    let third = head.split(|byte| *byte == b'\n').nth(2).and_then(|line| line.first());
    let is_fastq = head.first() == Some(&b'@') && third == Some(&b'+');
    match records {
        "fastq" => is_fastq,
        "fasta" => head.first() == Some(&b'>'),
        "vcf" => head.first() == Some(&b'#'),
        "sam" => head.first() == Some(&b'@') && !is_fastq,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the proposal for a file and its parts.
    fn proposed(content: &str, parts: &[&str]) -> Option<Proposal> {
        let directory = tempfile::tempdir().unwrap();
        let of = directory.path().join("of");
        fs::write(&of, content).unwrap();
        for (number, part) in parts.iter().enumerate() {
            fs::write(directory.path().join(format!("part-{number:02}.txt")), part).unwrap();
        }
        let names = OsStr::new("part-%02d.txt");
        Written::new(&of, directory.path(), names, 0, parts.len() as u64).unwrap().propose().unwrap()
    }

    fn every(records: &'static str, every: u64, equal: bool) -> Option<Proposal> {
        Some(Proposal { records, every: Some(every), parts: None, chunk: None, equal })
    }

    #[test]
    fn what_splits_have_written() {
        let equal =
            |records, parts| Some(Proposal { records, every: None, parts: Some(parts), chunk: None, equal: true });
        let (one, two) = ("@r1\nACGT\n+\nIIII\n", "@read2\nAC\n+\nII\n");
        let header = "#CHROM\n#x\n";
        for (content, parts, found) in [
            ("a\nb\ncccccc\nd\n".into(), ["a\nb\n", "cccccc\nd\n"].map(String::from), every("lines", 2, false)),
            ("a\nb\nc\nd\n".into(), ["a\nb\n", "c\nd\n"].map(String::from), every("lines", 2, true)),
            ("a\nbbbb\nc\n".into(), ["a\nbbbb\n", "c\n"].map(String::from), every("lines", 2, true)),
            ("aaaaaaa\nb\nc\nd\n".into(), ["aaaaaaa\n", "b\nc\nd\n"].map(String::from), equal("lines", 2)),
            (format!("{one}{two}"), [one.into(), two.into()], every("fastq", 1, false)),
            (">a\nAC\nGT\n>b\nA\n".into(), [">a\nAC\nGT\n", ">b\nA\n"].map(String::from), every("fasta", 1, true)),
            (format!("{header}1\n2\n3\n"), [format!("{header}1\n2\n"), format!("{header}3\n")], every("vcf", 2, true)),
            ("n,m\n1,1\n22,4\n3,9\n".into(), ["n,m\n1,1\n", "n,m\n22,4\n3,9\n"].map(String::from), None),
            ("abcdef".into(), ["abc", "def"].map(String::from), equal("bytes", 2)),
        ] {
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            assert_eq!(proposed(&content, &parts), found, "{content}");
        }
    }

    #[test]
    fn what_is_no_split() {
        for parts in
            [&["a\nb\n"][..], &["a\n", "c\n"], &["a\n", "b\n", "c\n"], &["b\n", "a\n"], &["a\n", ""], &["", ""]]
        {
            assert_eq!(proposed("a\nb\n", parts), None, "{parts:?}");
        }
        assert_eq!(proposed("", &["", ""]), None);
        let missing = Written::new(Path::new("/none"), Path::new("/"), OsStr::new("%d"), 1, 2);
        assert!(missing.err().unwrap().starts_with("/none: "));
    }

    #[test]
    fn chunks_of_whole_lines() {
        let line = |length: usize| format!("{}\n", "x".repeat(length - 1));
        let (long, short) = (line(700_000), line(300_000));
        let content = format!("{long}{short}{long}{short}{short}");
        let parts = [format!("{long}{short}"), format!("{long}{short}"), short.clone()];
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        assert_eq!(proposed(&content, &parts), every("lines", 2, false));
        let content = format!("{short}{short}{short}{long}{short}{long}");
        let parts = [format!("{short}{short}{short}"), format!("{long}{short}"), long.clone()];
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let expected = Proposal { records: "lines", every: None, parts: None, chunk: Some(1), equal: true };
        assert_eq!(proposed(&content, &parts), Some(expected));
    }
}
