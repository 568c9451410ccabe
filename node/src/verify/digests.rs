//! Digests of all bytes, block by block, so that it can be said where a file differs.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::Xxh3Default;

/// Blocks get longer with their position, so that of a file of a terabyte 16 MiB are kept.
const SHORTEST: u64 = 4 << 10;
const LONGEST: u64 = 1 << 20;
/// So much is read at once: it stays in the cache of a core.
const PIECE: u64 = 128 << 10;

pub struct Digests {
    blocks: Vec<Block>,
    /// The bytes after these blocks, from `start` on.
    open: Box<Xxh3Default>,
    start: u64,
    noted: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Block {
    end: u64,
    digest: u64,
}

/// The first bytes that are not what they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub from: u64,
    pub to: u64,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "between byte {} and byte {}", self.from, self.to)
    }
}

/// Where a block ends that starts at `start`.
fn end_of(start: u64) -> u64 {
    start + (start / 64).next_power_of_two().clamp(SHORTEST, LONGEST)
}

impl fmt::Debug for Digests {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Digests").field("noted", &self.noted).finish_non_exhaustive()
    }
}

impl Digests {
    pub fn new() -> Self {
        Self { blocks: Vec::new(), open: Box::default(), start: 0, noted: 0, buffer: Vec::new() }
    }

    pub fn note(&mut self, file: &File, start: u64, end: u64) {
        debug_assert_eq!(start, self.noted);
        self.buffer.resize(PIECE as usize, 0);
        while self.noted < end {
            let block_end = end_of(self.start);
            let to = end.min(block_end).min(self.noted + PIECE);
            let piece = &mut self.buffer[..(to - self.noted) as usize];
            if file.read_exact_at(piece, self.noted).is_err() {
                // It was cut: what cannot be read is different from everything.
                piece.fill(0);
                self.open.update(b"cut");
            }
            self.open.update(piece);
            self.noted = to;
            if to == block_end {
                self.blocks.push(Block { end: to, digest: self.open.digest() });
                self.open.reset();
                self.start = to;
            }
        }
    }

    /// The same for the same bytes, however they were noted.
    pub fn digest(&self) -> u64 {
        let mut digest = Xxh3Default::new();
        self.blocks.iter().for_each(|block| digest.update(&block.digest.to_le_bytes()));
        digest.update(&self.open.digest().to_le_bytes());
        digest.digest()
    }

    pub fn difference(&self, file: &File) -> Option<Difference> {
        let mut buffer = vec![0; PIECE as usize];
        let last = Block { end: self.noted, digest: self.open.digest() };
        let mut from = 0;
        for Block { end, digest } in self.blocks.iter().chain([&last]) {
            if self.digest_of(file, from, *end, &mut buffer) != Some(*digest) {
                return Some(Difference { from, to: *end });
            }
            from = *end;
        }
        None
    }

    fn digest_of(&self, file: &File, from: u64, to: u64, buffer: &mut [u8]) -> Option<u64> {
        let mut digest = Xxh3Default::new();
        let mut position = from;
        while position < to {
            let piece = &mut buffer[..(to - position).min(PIECE) as usize];
            file.read_exact_at(piece, position).ok()?;
            digest.update(piece);
            position += piece.len() as u64;
        }
        Some(digest.digest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(file: &File, size: u64, piece: u64) -> Digests {
        let mut digests = Digests::new();
        let mut start = 0;
        while start < size {
            let end = size.min(start + piece);
            digests.note(file, start, end);
            start = end;
        }
        digests
    }

    #[test]
    fn one_byte_that_is_written_again_is_found_wherever_it_is() {
        let file = tempfile::tempfile().unwrap();
        for (size, piece) in
            [(0, 1), (1, 1), (100, 7), (4096, 4096), (4097, 100), (300_000, 65_537), (5 << 20, 1 << 20)]
        {
            file.set_len(0).unwrap();
            file.write_all_at(&vec![7; size as usize], 0).unwrap();
            let digests = noted(&file, size, piece);
            assert_eq!(digests.difference(&file), None, "{size} {piece}");
            for position in [0, size / 3, size.saturating_sub(1)].into_iter().filter(|&position| position < size) {
                file.write_all_at(&[8], position).unwrap();
                let found = digests.difference(&file).unwrap();
                assert!(
                    found.from <= position && position < found.to && found.to <= size,
                    "{size} {piece} {position} {found}"
                );
                file.write_all_at(&[7], position).unwrap();
            }
        }
    }

    #[test]
    fn what_was_not_noted_is_not_compared() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 10_000], 0).unwrap();
        let digests = noted(&file, 9_999, 5_000);
        file.write_all_at(&[8], 9_999).unwrap();
        assert_eq!(digests.difference(&file), None);
    }

    #[test]
    fn a_file_that_was_cut_differs() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 5000], 0).unwrap();
        let mut digests = noted(&file, 5000, 5000);
        file.set_len(4999).unwrap();
        assert_eq!(digests.difference(&file), Some(Difference { from: 4096, to: 5000 }));
        digests.note(&file, 5000, 5100);
        file.write_all_at(&[0; 200], 4900).unwrap();
        assert!(digests.difference(&file).is_some());
    }

    #[test]
    fn little_is_kept_of_a_large_file() {
        let (mut start, mut blocks) = (0, 0);
        while start < 1 << 40 {
            start = end_of(start);
            blocks += 1;
        }
        assert!(blocks < 1_100_000, "{blocks}");
    }
}
