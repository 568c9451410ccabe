//! Messages of the readers of a window to its producer: the digests of the blocks that they have read.
//!
//! Each reader has a file of digests in a directory beside the events of the producer. The file is locked as long as
//! the reader goes on. A reader that comes when bytes are discarded already cannot begin.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use xxhash_rust::xxh3::xxh3_64;

use crate::protocol::verify::block;
use crate::sys::random::random;

/// The directory in that of the producer's job.
pub const DIRECTORY: &str = "window";
const DIGEST: u64 = 8;

/// The name of an output in names of files.
fn name_of(port: &str) -> String {
    format!("{:016x}", xxh3_64(port.as_bytes()))
}

/// Says that bytes of an output are discarded.
fn mark(directory: &Path, port: &str) -> PathBuf {
    directory.join(format!("{}.discarded", name_of(port)))
}

/// The side of a reader.
#[derive(Debug)]
pub struct Acknowledgements {
    file: Flock<File>,
    blocks: u64,
}

impl Acknowledgements {
    /// Begins to read an output of the producer with these events. None: the producer has no window.
    ///
    /// # Errors
    /// `AlreadyExists`, when bytes of the output are discarded already; or when the file cannot be made.
    pub fn begin(events: &Path, port: &str) -> io::Result<Option<Self>> {
        let directory = events.with_file_name(DIRECTORY);
        if !directory.is_dir() {
            return Ok(None);
        }
        let unique = u64::from_le_bytes(random()?);
        let new = directory.join(format!(".{unique:016x}"));
        let file = File::create_new(&new)?;
        let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| io::Error::from(error))?;
        fs::rename(&new, directory.join(format!("{}-{unique:016x}", name_of(port))))?;
        // In this order: the producer looks for readers when it has made the mark.
        if mark(&directory, port).exists() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(Some(Self { file, blocks: 0 }))
    }

    /// The bytes that were acknowledged.
    pub fn bytes(&self) -> u64 {
        self.blocks * block()
    }

    /// Acknowledges the blocks that end at `place` or before.
    ///
    /// # Arguments
    /// * `digests` - of all complete blocks from the first one
    pub fn add(&mut self, place: u64, digests: &[u64]) {
        let blocks = (place / block()).min(digests.len() as u64);
        if blocks > self.blocks {
            let new: Vec<u8> =
                digests[self.blocks as usize..blocks as usize].iter().flat_map(|digest| digest.to_le_bytes()).collect();
            // Without space nothing is discarded.
            if self.file.write_all_at(&new, self.blocks * DIGEST).is_ok() {
                self.blocks = blocks;
            }
        }
    }
}

/// The side of the producer: all readers of one output.
#[derive(Debug)]
pub struct Readers {
    directory: PathBuf,
    port: String,
    files: BTreeMap<OsString, File>,
}

impl Readers {
    /// The readers of an output of the job in `directory`.
    pub fn new(directory: &Path, port: &str) -> Self {
        Self { directory: directory.join(DIRECTORY), port: port.to_owned(), files: BTreeMap::new() }
    }

    /// Looks for new readers, and returns how many there are.
    pub fn look(&mut self) -> usize {
        let prefix = format!("{}-", name_of(&self.port));
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.as_bytes().starts_with(prefix.as_bytes()) && !self.files.contains_key(&name) {
                File::open(entry.path()).into_iter().for_each(|file| drop(self.files.insert(name.clone(), file)));
            }
        }
        self.files.len()
    }

    /// Lets no more readers begin, and returns how many there are.
    ///
    /// # Errors
    /// When that cannot be said.
    pub fn close(&mut self) -> io::Result<usize> {
        File::create(mark(&self.directory, &self.port))?;
        Ok(self.look())
    }

    /// The bytes that all readers have acknowledged. A multiple of a block.
    pub fn acknowledged(&self) -> u64 {
        let size = |file: &File| file.metadata().map_or(0, |found| found.len() / DIGEST * block());
        self.files.values().map(size).min().unwrap_or(0)
    }

    /// Whether all readers have read a block with this digest.
    ///
    /// # Errors
    /// When an acknowledgement cannot be read.
    pub fn agree(&self, number: u64, digest: u64) -> io::Result<bool> {
        for file in self.files.values() {
            let mut read = [0; DIGEST as usize];
            file.read_exact_at(&mut read, number * DIGEST)?;
            if u64::from_le_bytes(read) != digest {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of readers that do not go on: they have read enough, or have failed.
    pub fn ended(&self) -> usize {
        let is_free =
            |file: &File| file.try_clone().is_ok_and(|file| Flock::lock(file, FlockArg::LockSharedNonblock).is_ok());
        self.files.values().filter(|file| is_free(file)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1 << 20;

    #[test]
    fn the_slowest_reader_counts_and_late_ones_cannot_begin() {
        let job = tempfile::tempdir().unwrap();
        let events = job.path().join("events.jsonl");
        assert!(Acknowledgements::begin(&events, "a").unwrap().is_none(), "the producer has no window");
        fs::create_dir(job.path().join(DIRECTORY)).unwrap();
        let begin = |port: &str| Acknowledgements::begin(&events, port);
        let mut readers = Readers::new(job.path(), "a");
        assert_eq!((readers.look(), readers.acknowledged()), (0, 0));
        let _other = begin("b").unwrap().unwrap();
        let (mut one, mut two) = (begin("a").unwrap().unwrap(), begin("a").unwrap().unwrap());
        assert_eq!(readers.look(), 2);
        one.add(3 * BLOCK + 9, &[7, 8, 9]);
        two.add(2 * BLOCK - 1, &[7, 8, 9]);
        assert_eq!((one.bytes(), two.bytes(), readers.acknowledged()), (3 * BLOCK, BLOCK, BLOCK));
        two.add(9 * BLOCK, &[7, 5]);
        assert_eq!(readers.acknowledged(), 2 * BLOCK);
        let agree = |block, digest| readers.agree(block, digest).unwrap();
        assert_eq!((agree(0, 7), agree(0, 6), agree(1, 8)), (true, false, false));
        assert_eq!(readers.ended(), 0);
        drop(one);
        assert_eq!((readers.ended(), readers.acknowledged()), (1, 2 * BLOCK));
        assert_eq!(readers.close().unwrap(), 2);
        assert_eq!(begin("a").unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert!(begin("b").is_ok());
    }
}
