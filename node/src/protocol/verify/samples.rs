//! Digests of some blocks: of all blocks of a small file, and of evenly spread ones of a large file. The beginning is
//! always among them, because most programs write a header again, or everything.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::{xxh3_64, Xxh3Default};

use super::digests::read_there;
use super::noted::{Difference, Noted};

const BLOCK: u64 = 16 << 10;
/// The number of blocks at which every second one is given up.
const LIMIT: usize = 256;

/// Digests of bytes of a file, as they were when they were noted.
pub struct Samples {
    /// Every `stride`-th block is compared.
    stride: u64,
    samples: Vec<Sample>,
    /// The bytes of the last one.
    open: Xxh3Default,
    noted: u64,
}

#[derive(Debug)]
struct Sample {
    block: u64,
    length: usize,
    digest: u64,
}

impl Samples {
    pub fn new() -> Self {
        Self { stride: 1, samples: Vec::new(), open: Xxh3Default::new(), noted: 0 }
    }

    /// Adds `bytes` to the last one, which is that of `block`.
    fn add(&mut self, block: u64, bytes: &[u8]) {
        if self.samples.last().is_none_or(|sample| sample.block != block) {
            if self.samples.len() == LIMIT {
                self.stride *= 2;
                self.samples.retain(|sample| sample.block % self.stride == 0);
            }
            self.samples.push(Sample { block, length: 0, digest: 0 });
            self.open.reset();
        }
        self.open.update(bytes);
        if let Some(last) = self.samples.last_mut() {
            last.length += bytes.len();
            last.digest = self.open.digest();
        }
    }
}

impl fmt::Debug for Samples {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Samples").field("noted", &self.noted).finish_non_exhaustive()
    }
}

impl Noted for Samples {
    fn bytes(&self) -> u64 {
        self.noted
    }

    fn note(&mut self, file: &File, end: u64) -> io::Result<()> {
        let mut buffer = [0; BLOCK as usize];
        while self.noted < end {
            let block = self.noted / BLOCK;
            let to = end.min((block + 1) * BLOCK);
            if block % self.stride == 0 {
                let part = &mut buffer[..(to - self.noted) as usize];
                let read = read_there(file, part, self.noted)?;
                if read == 0 {
                    break;
                }
                self.add(block, &part[..read]);
                self.noted += read as u64;
            } else {
                self.noted = to;
            }
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        let mut digest = Xxh3Default::new();
        digest.update(&[0]);
        self.samples.iter().for_each(|sample| digest.update(&sample.digest.to_le_bytes()));
        digest.digest()
    }

    fn difference(&self, file: &File) -> Option<Difference> {
        let mut buffer = [0; BLOCK as usize];
        let mut differs = |sample: &&Sample| {
            let bytes = &mut buffer[..sample.length];
            file.read_exact_at(bytes, sample.block * BLOCK).is_err() || xxh3_64(bytes) != sample.digest
        };
        let found = self.samples.iter().find(&mut differs);
        found.map(|sample| Difference { from: sample.block * BLOCK, to: sample.block * BLOCK + sample.length as u64 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::verify::noted::note_in_pieces;

    /// Whether a file of `size` bytes that was noted in `pieces` holds after the byte at `position` was written again.
    fn holds_after(size: u64, piece: u64, position: u64, byte: u8) -> bool {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&vec![7; size as usize], 0).unwrap();
        let mut samples = Samples::new();
        note_in_pieces(&mut samples, &file, size, piece as usize);
        assert!(samples.samples.len() <= LIMIT);
        file.write_all_at(&[byte], position).unwrap();
        samples.difference(&file).is_none()
    }

    #[test]
    fn a_small_file_is_compared_as_a_whole() {
        for (size, piece) in
            [(1, 1), (100, 7), (BLOCK, BLOCK), (BLOCK + 1, 100), (5 * BLOCK, 3 * BLOCK + 5), (4 << 20, 1 << 20)]
        {
            for position in [0, size / 2, size - 1] {
                assert!(holds_after(size, piece, position, 7), "{size} {piece} {position}");
                assert!(!holds_after(size, piece, position, 8), "{size} {piece} {position}");
            }
        }
    }

    #[test]
    fn of_a_large_file_blocks_are_compared() {
        let size = 20 << 20;
        for (position, same) in [(0, false), (BLOCK - 1, false), (8 * BLOCK, false), (8 * BLOCK + BLOCK, true)] {
            assert_eq!(holds_after(size, 1_000_003, position, 8), same, "{position}");
        }
    }

    #[test]
    fn a_file_that_was_cut_does_not_hold() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[7; 100], 0).unwrap();
        let mut samples = Samples::new();
        samples.note(&file, 100).unwrap();
        file.set_len(99).unwrap();
        assert!(samples.difference(&file).is_some());
        samples.note(&file, 200).unwrap();
        assert_eq!(samples.bytes(), 100);
        file.write_all_at(&[8; 200], 50).unwrap();
        assert!(samples.difference(&file).is_some());
    }
}
