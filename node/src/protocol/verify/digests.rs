//! Digests of all bytes, block by block, so that it can be said where a file differs.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use xxhash_rust::xxh3::Xxh3Default;

use super::noted::{Difference, Noted};

/// Blocks get longer with their position, so that of a file of a terabyte 16 MiB are kept.
const SHORTEST: u64 = 4 << 10;
const LONGEST: u64 = 1 << 20;
/// Bytes that are read at once. They stay in the cache of a core.
const PIECE: u64 = 128 << 10;

#[derive(Default)]
pub struct Digests {
    blocks: Vec<Block>,
    /// The bytes after these blocks.
    open: Xxh3Default,
    noted: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Block {
    end: u64,
    digest: u64,
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

impl Noted for Digests {
    fn bytes(&self) -> u64 {
        self.noted
    }

    fn note(&mut self, file: &File, end: u64) -> io::Result<()> {
        self.buffer.resize(PIECE as usize, 0);
        while self.noted < end {
            let block_end = end_of(self.blocks.last().map_or(0, |block| block.end));
            let to = end.min(block_end).min(self.noted + PIECE);
            let piece = &mut self.buffer[..(to - self.noted) as usize];
            let read = read_there(file, piece, self.noted)?;
            if read == 0 {
                break;
            }
            self.open.update(&piece[..read]);
            self.noted += read as u64;
            if self.noted == block_end {
                self.blocks.push(Block { end: block_end, digest: self.open.digest() });
                self.open.reset();
            }
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        let mut digest = Xxh3Default::new();
        self.blocks.iter().for_each(|block| digest.update(&block.digest.to_le_bytes()));
        digest.update(&self.open.digest().to_le_bytes());
        digest.digest()
    }

    fn difference(&self, file: &File) -> Option<Difference> {
        let complete = self.blocks.iter().map(|block| (block.end, block.digest));
        first_difference(file, 0, complete.chain([(self.noted, self.open.digest())]))
    }
}

/// Reads bytes of a file as far as they are there. Returns how many; 0: none, or a signal has come.
pub fn read_there(file: &File, piece: &mut [u8], place: u64) -> io::Result<usize> {
    match file.read_at(piece, place) {
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
        result => result,
    }
}

/// Returns the first block, after `from`, whose bytes have another digest now.
///
/// # Arguments
/// * `blocks` - the end and the digest of each, one after the other
pub fn first_difference(
    file: &File,
    mut from: u64,
    blocks: impl IntoIterator<Item = (u64, u64)>,
) -> Option<Difference> {
    for (to, digest) in blocks {
        let mut found = Xxh3Default::new();
        if digest_range(file, from, to, &mut found).is_err() || found.digest() != digest {
            return Some(Difference { from, to });
        }
        from = to;
    }
    None
}

/// Adds some bytes of a file to a digest.
///
/// # Errors
/// When they cannot be read, or the file is shorter.
pub fn digest_range(file: &File, from: u64, to: u64, digest: &mut Xxh3Default) -> io::Result<()> {
    let mut buffer = vec![0; (to - from).min(PIECE) as usize];
    let mut position = from;
    while position < to {
        let piece = &mut buffer[..(to - position).min(PIECE) as usize];
        file.read_exact_at(piece, position)?;
        digest.update(piece);
        position += piece.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::verify::noted::note_in_pieces;

    fn noted(file: &File, size: u64, piece: usize) -> Digests {
        let mut digests = Digests::default();
        note_in_pieces(&mut digests, file, size, piece);
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
        digests.note(&file, 5100).unwrap();
        assert_eq!(digests.bytes(), 5000);
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
