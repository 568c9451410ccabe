//! Digests of all bytes of a file, block by block, so that it can be said where a file differs. The first blocks may be
//! discarded.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use xxhash_rust::xxh3::{xxh3_64, Xxh3Default};

/// The length of a block. 8 MiB are kept of a file of a terabyte.
const BLOCK: u64 = 1 << 20;
/// The most bytes that are kept, and perhaps a block.
const KEPT: usize = 1 << 20;
/// Bytes that are read at once. They stay in the cache of a core.
const PIECE: u64 = 128 << 10;
/// Another length, in tests with small files. A multiple of 4096.
const VARIABLE: &str = "SFIO_NODE_BLOCK";

/// Returns the length of a block.
pub fn block() -> u64 {
    static LENGTH: OnceLock<u64> = OnceLock::new();
    let given = || std::env::var(VARIABLE).ok()?.parse().ok().filter(|length| *length > 0);
    *LENGTH.get_or_init(|| given().unwrap_or(BLOCK))
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

/// The knowledge of the first bytes of a file.
#[derive(Default)]
pub struct Blocks {
    /// The bytes before are not compared. A multiple of a block.
    start: u64,
    /// The digests of complete blocks, from the first of the file.
    digests: Vec<u64>,
    /// The bytes after them.
    open: Xxh3Default,
    noted: u64,
    /// The bytes that were noted last, with space behind them, their number, and their place.
    buffer: Vec<u8>,
    kept: usize,
    place: u64,
    keeps: bool,
}

impl Blocks {
    /// Notes the bytes from `start` on, which is a multiple of a block.
    pub fn starting_at(start: u64) -> Self {
        let digests = vec![0; (start / block()) as usize];
        Self { start, digests, noted: start, place: start, ..Self::default() }
    }

    /// Keeps the bytes that were noted last.
    pub fn keeping() -> Self {
        Self { keeps: true, ..Self::default() }
    }

    /// Keeps the bytes that will be noted last from now on.
    pub fn keep(&mut self) {
        self.keeps = true;
    }

    /// Frees the memory of the bytes that were kept.
    pub fn forget_kept(&mut self) {
        (self.buffer, self.kept) = (Vec::new(), 0);
    }

    fn compared(&self) -> &[u64] {
        &self.digests[(self.start / block()) as usize..]
    }

    /// The number of bytes that were noted.
    pub fn bytes(&self) -> u64 {
        self.noted
    }

    /// Notes the bytes of `file` up to `end` that follow those noted before, as far as they are there. A file system
    /// may tell a size before it has the bytes.
    ///
    /// # Errors
    /// When bytes cannot be read. Those before are noted.
    pub fn note(&mut self, file: &File, end: u64) -> io::Result<()> {
        (self.place, self.kept) = (self.noted, 0);
        while self.noted < end {
            if !self.keeps || self.kept >= KEPT {
                (self.place, self.kept) = (self.noted, 0);
            }
            let block_end = (self.noted / block() + 1) * block();
            let most = end.min(block_end).min(self.noted + PIECE) - self.noted;
            let space = self.kept + most as usize;
            self.buffer.resize(self.buffer.len().max(space), 0);
            let piece = &mut self.buffer[self.kept..space];
            let read = match file.read_at(piece, self.noted) {
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                result => result?,
            };
            if read == 0 {
                break;
            }
            self.open.update(&piece[..read]);
            (self.kept, self.noted) = (self.kept + read, self.noted + read as u64);
            if self.noted == block_end {
                self.digests.push(self.open.digest());
                self.open.reset();
            }
        }
        Ok(())
    }

    /// The digest of all that is compared. It is the same for the same bytes, however they were noted.
    pub fn digest(&self) -> u64 {
        let mut digest = Xxh3Default::new();
        self.compared().iter().for_each(|block| digest.update(&block.to_le_bytes()));
        digest.update(&self.open.digest().to_le_bytes());
        digest.digest()
    }

    /// Where `file` has other bytes than those that were noted, as far as they are compared. Reads them.
    pub fn difference(&self, file: &File) -> Option<Difference> {
        let mut from = self.start;
        for digest in self.compared().iter().copied().chain([self.open.digest()]) {
            let (to, mut found) = ((from + block()).min(self.noted), Xxh3Default::new());
            if digest_range(file, from, to, &mut found).is_err() || found.digest() != digest {
                return Some(Difference { from, to });
            }
            from = to;
        }
        None
    }

    /// The bytes from `place` on that were noted last. Empty unless these are kept.
    pub fn kept(&self, place: u64) -> &[u8] {
        let offset = place.checked_sub(self.place).and_then(|offset| usize::try_from(offset).ok());
        offset.and_then(|offset| self.buffer[..self.kept].get(offset..)).unwrap_or_default()
    }

    /// Keeps the bytes of the block around `place` once more, as they were noted. Reads them.
    ///
    /// # Errors
    /// When `file` has other bytes there.
    pub fn keep_again(&mut self, file: &File, place: u64) -> Result<(), Difference> {
        let number = place / block();
        let (from, to) = (number * block(), ((number + 1) * block()).min(self.noted));
        let digest = self.digests.get(number as usize).copied().unwrap_or_else(|| self.open.digest());
        (self.place, self.kept) = (from, 0);
        let length = (to - from) as usize;
        self.buffer.resize(self.buffer.len().max(length), 0);
        let bytes = &mut self.buffer[..length];
        if file.read_exact_at(bytes, from).is_err() || xxh3_64(bytes) != digest {
            return Err(Difference { from, to });
        }
        self.kept = length;
        Ok(())
    }

    /// The digests of the complete blocks.
    pub fn blocks(&self) -> &[u64] {
        &self.digests
    }

    /// Compares the bytes only from `start` on, which is a multiple of a block: the others are discarded.
    pub fn compare_from(&mut self, start: u64) {
        self.start = start;
    }

    /// Notes the first `bytes` of a file piece by piece.
    #[cfg(test)]
    pub fn note_in_pieces(&mut self, file: &File, bytes: u64, piece: usize) {
        (0..bytes).step_by(piece).skip(1).chain([bytes]).for_each(|end| self.note(file, end).unwrap());
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Blocks").field("noted", &self.noted).finish_non_exhaustive()
    }
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

    #[test]
    fn one_byte_that_is_written_again_is_found_wherever_it_is() {
        let file = tempfile::tempfile().unwrap();
        for (size, piece) in
            [(0, 1), (1, 1), (100, 7), (4096, 4096), (4097, 100), (300_000, 65_537), (5 << 20, 1 << 20)]
        {
            file.set_len(0).unwrap();
            file.write_all_at(&vec![7; size as usize], 0).unwrap();
            let mut noted = Blocks::default();
            noted.note_in_pieces(&file, size, piece);
            assert_eq!(noted.difference(&file), None, "{size} {piece}");
            for position in [0, size / 3, size.saturating_sub(1)].into_iter().filter(|&position| position < size) {
                file.write_all_at(&[8], position).unwrap();
                let found = noted.difference(&file).unwrap();
                assert!(
                    found.from <= position && position < found.to && found.to <= size,
                    "{size} {piece} {position} {found}"
                );
                file.write_all_at(&[7], position).unwrap();
            }
        }
    }

    #[test]
    fn what_was_not_noted_is_not_compared_and_a_file_that_was_cut_differs() {
        let file = tempfile::tempfile().unwrap();
        let size = BLOCK + 5000;
        file.write_all_at(&vec![7; size as usize], 0).unwrap();
        let mut noted = Blocks::default();
        noted.note_in_pieces(&file, size - 1, 500_000);
        file.write_all_at(&[8], size - 1).unwrap();
        assert_eq!(noted.difference(&file), None);
        file.set_len(size - 2).unwrap();
        assert_eq!(noted.difference(&file), Some(Difference { from: BLOCK, to: size - 1 }));
        noted.note(&file, size + 100).unwrap();
        assert_eq!(noted.bytes(), size - 1);
    }

    #[test]
    fn what_is_discarded_is_not_compared_and_the_rest_is() {
        let file = tempfile::tempfile().unwrap();
        let size = 3 * BLOCK + 5;
        file.write_all_at(&vec![7; size as usize], 0).unwrap();
        let mut noted = Blocks::default();
        noted.note_in_pieces(&file, size, 700_001);
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
        let mut noted = Blocks::keeping();
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

    #[test]
    fn bytes_are_kept_again_if_they_are_those_that_were_noted() {
        let file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..2 * BLOCK + 5000).map(|place| (place / 999) as u8).collect();
        file.write_all_at(&content, 0).unwrap();
        let mut noted = Blocks::keeping();
        noted.note_in_pieces(&file, 2 * BLOCK + 3000, 700_001);
        for (place, from, to) in
            [(9, 0, BLOCK), (BLOCK, BLOCK, 2 * BLOCK), (2 * BLOCK + 2999, 2 * BLOCK, 2 * BLOCK + 3000)]
        {
            assert_eq!(noted.keep_again(&file, place), Ok(()));
            assert_eq!(noted.kept(from), &content[from as usize..to as usize]);
            file.write_all_at(&[!content[place as usize]], place).unwrap();
            assert_eq!(noted.keep_again(&file, place), Err(Difference { from, to }));
            assert!(noted.kept(from).is_empty());
            file.write_all_at(&content, 0).unwrap();
        }
        noted.note(&file, 2 * BLOCK + 5000).unwrap();
        assert_eq!((noted.difference(&file), noted.kept(2 * BLOCK + 3000).len()), (None, 2000));
    }
}
