//! Digests of all bytes of a file whose first blocks may be discarded, in blocks of one length.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::OnceLock;

use xxhash_rust::xxh3::Xxh3Default;

use super::digests::{first_difference, read_there};
use super::noted::{Difference, Noted};

/// The length of a block.
const BLOCK: u64 = 1 << 20;
/// The most bytes that are kept, and perhaps a block.
const KEPT: u64 = 1 << 20;
/// Another length, in tests with small files. A multiple of 4096.
const VARIABLE: &str = "SFIO_NODE_BLOCK";

/// Returns the length of a block.
pub fn block() -> u64 {
    static LENGTH: OnceLock<u64> = OnceLock::new();
    let given = || std::env::var(VARIABLE).ok()?.parse().ok().filter(|length| *length > 0);
    *LENGTH.get_or_init(|| given().unwrap_or(BLOCK))
}

#[derive(Default)]
pub struct Blocks {
    /// The bytes before are not compared. A multiple of a block.
    start: u64,
    /// The digests of complete blocks, from the first of the file.
    digests: Vec<u64>,
    /// The bytes after them.
    open: Xxh3Default,
    noted: u64,
    /// The bytes that were noted last, and their place.
    kept: Vec<u8>,
    place: u64,
}

impl Blocks {
    /// Notes the bytes from `start` on, which is a multiple of a block.
    pub fn starting_at(start: u64) -> Self {
        let digests = vec![0; (start / block()) as usize];
        Self { start, digests, noted: start, place: start, ..Self::default() }
    }

    fn compared(&self) -> &[u64] {
        &self.digests[(self.start / block()) as usize..]
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Blocks").field("noted", &self.noted).finish_non_exhaustive()
    }
}

impl Noted for Blocks {
    fn bytes(&self) -> u64 {
        self.noted
    }

    fn note(&mut self, file: &File, end: u64) -> io::Result<()> {
        self.place = self.noted;
        self.kept.clear();
        while self.noted < end {
            if self.kept.len() as u64 >= KEPT {
                self.place = self.noted;
                self.kept.clear();
            }
            let block_end = (self.noted / block() + 1) * block();
            let (from, to) = (self.kept.len(), end.min(block_end));
            self.kept.resize(from + (to - self.noted) as usize, 0);
            let read = read_there(file, &mut self.kept[from..], self.noted);
            self.kept.truncate(from + *read.as_ref().unwrap_or(&0));
            if read? == 0 {
                break;
            }
            self.open.update(&self.kept[from..]);
            self.noted += (self.kept.len() - from) as u64;
            if self.noted == block_end {
                self.digests.push(self.open.digest());
                self.open.reset();
            }
        }
        Ok(())
    }

    fn digest(&self) -> u64 {
        let mut digest = Xxh3Default::new();
        self.compared().iter().for_each(|block| digest.update(&block.to_le_bytes()));
        digest.update(&self.open.digest().to_le_bytes());
        digest.digest()
    }

    fn difference(&self, file: &File) -> Option<Difference> {
        let digests = self.compared().iter().copied().chain([self.open.digest()]);
        let ends = (1..).map(|number| (self.start + number * block()).min(self.noted));
        first_difference(file, self.start, ends.zip(digests))
    }

    fn kept(&self, place: u64) -> &[u8] {
        let offset = place.checked_sub(self.place).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| self.kept.get(offset..)).unwrap_or_default()
    }

    fn blocks(&self) -> &[u64] {
        &self.digests
    }

    fn compare_from(&mut self, start: u64) {
        self.start = start;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::protocol::verify::noted::note_in_pieces;

    #[test]
    fn what_is_discarded_is_not_compared_and_the_rest_is() {
        let file = tempfile::tempfile().unwrap();
        let size = 3 * BLOCK + 5;
        file.write_all_at(&vec![7; size as usize], 0).unwrap();
        let mut noted = Blocks::default();
        note_in_pieces(&mut noted, &file, size, 700_001);
        assert_eq!((noted.blocks().len(), noted.difference(&file)), (3, None));
        file.write_all_at(&[0; 9], 0).unwrap();
        assert_eq!(noted.difference(&file), Some(Difference { from: 0, to: BLOCK }));
        noted.compare_from(BLOCK);
        assert_eq!(noted.difference(&file), None);
        let mut again = Blocks::starting_at(BLOCK);
        again.note(&file, size).unwrap();
        assert_eq!(again.digest(), noted.digest());
        for (position, from, to) in [(BLOCK, BLOCK, 2 * BLOCK), (size - 1, 3 * BLOCK, size)] {
            file.write_all_at(&[8], position).unwrap();
            assert_eq!(noted.difference(&file), Some(Difference { from, to }));
            file.write_all_at(&[7], position).unwrap();
        }
    }

    #[test]
    fn the_last_bytes_are_kept() {
        let file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..3 * BLOCK).map(|place| (place / 999) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        let mut noted = Blocks::default();
        let mut place = 0;
        while place < content.len() {
            if noted.bytes() <= place as u64 {
                noted.note(&file, (place as u64 + 700_001).min(3 * BLOCK)).unwrap();
            }
            let kept = noted.kept(place as u64);
            let taken = kept.len().min(300_007);
            assert!(taken > 0 && kept[..taken] == content[place..place + taken]);
            place += taken;
        }
        assert!(noted.kept(0).is_empty() && noted.kept(3 * BLOCK).is_empty());
    }
}
