//! Reads a part from its file, once, from the front.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::task::Poll;

use nix::errno::Errno;

use crate::protocol::messages::FirstBytes;
use crate::protocol::part::{Ahead, Cursor, Identity, Part};
use crate::protocol::results;
use crate::streams::announced_parts::digest_of;
use crate::streams::origin::{Failure, Origin, Step};
use crate::streams::part_writer::{PartWriter, Trouble};
use crate::sys::pipe::move_bytes;
use crate::sys::remote_file;

/// Bytes of a whole file that are made before the other streams get their turn.
const TURN: u64 = 64 << 20;

/// The bytes of a part. The file must not change before all of them were taken.
#[derive(Debug)]
pub struct PartReader {
    part: Part,
    file: Option<File>,
    cursor: Cursor,
    failure: Option<Failure>,
    /// The whole part on its way into a file.
    whole: Option<Whole>,
}

#[derive(Debug)]
struct Whole {
    reader: Box<PartReader>,
    writer: PartWriter,
}

impl PartReader {
    pub fn new(part: Part) -> Self {
        Self { part, file: None, cursor: Cursor::default(), failure: None, whole: None }
    }

    /// Returns a reader that continues at `offset`, or None if the part has fewer bytes.
    pub fn at(part: Part, offset: u64) -> Option<Self> {
        let mut reader = Self::new(part);
        while reader.cursor.taken() < offset {
            let left = offset - reader.cursor.taken();
            let next = reader.cursor.ahead(&reader.part.pieces)?.length();
            reader.cursor.advance(&reader.part.pieces, left.min(next));
        }
        Some(reader)
    }

    /// Returns the number of bytes that were not taken yet.
    fn left(&self) -> u64 {
        self.part.size() - self.cursor.taken()
    }

    fn rewritten(&self, how: &str) -> Failure {
        Failure::Rewritten(format!("{} {how}", self.part.file.display()))
    }

    fn cannot_read(&self, error: &io::Error) -> Failure {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => self.rewritten("is gone"),
            _ => Failure::Job(format!("cannot read {}: {error}", self.part.file.display())),
        }
    }

    /// Opens the file, and checks that it is the one that was cut.
    fn begin(&mut self) -> Result<(), Failure> {
        if self.file.is_none() {
            self.file = Some(remote_file::open(&self.part.file).map_err(|error| self.cannot_read(&error))?);
            self.compare()?;
        }
        Ok(())
    }

    /// Checks that the open file, and the file at its path, are still the one that was cut.
    fn compare(&self) -> Result<(), Failure> {
        let Some(file) = &self.file else { return Ok(()) };
        remote_file::refresh(file, &self.part.file);
        for found in [file.metadata(), fs::metadata(&self.part.file)] {
            let now = Identity::of(&found.map_err(|error| self.cannot_read(&error))?);
            if let Some(how) = self.part.difference(&now) {
                return Err(self.rewritten(how));
            }
        }
        Ok(())
    }

    /// Checks, after the last byte was taken, that the file still has the bytes that were cut.
    fn compare_all(&self) -> Result<(), Failure> {
        self.compare()?;
        let (Some(file), Some(digest)) = (&self.file, self.part.digest) else { return Ok(()) };
        match digest_of(file, &self.part.pieces) {
            Ok(now) if now == digest => Ok(()),
            Ok(_) => Err(self.rewritten("was written again where it was cut into parts")),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(self.rewritten("is shorter than when it was cut into parts"))
            }
            Err(error) => Err(self.cannot_read(&error)),
        }
    }

    /// Takes bytes by `transfer`, which gets the file and the next piece, and returns how many bytes it has moved.
    pub fn take_by(&mut self, transfer: impl FnOnce(&File, &Ahead) -> nix::Result<usize>) -> Result<Step, Failure> {
        let step = self.take_some(transfer);
        self.failure = step.as_ref().err().cloned();
        step
    }

    fn take_some(&mut self, transfer: impl FnOnce(&File, &Ahead) -> nix::Result<usize>) -> Result<Step, Failure> {
        self.begin()?;
        let Some(file) = &self.file else { return Ok(Step::Waiting) };
        let Some(ahead) = self.cursor.ahead(&self.part.pieces) else {
            return self.compare_all().map(|()| Step::Complete);
        };
        match transfer(file, &ahead) {
            Ok(0) => Err(self.rewritten("is shorter than when it was cut into parts")),
            Ok(count) => {
                self.cursor.advance(&self.part.pieces, count as u64);
                Ok(Step::Moved)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Step::Full),
            Err(Errno::EPIPE) => Ok(Step::Unread),
            Err(error) => Err(self.cannot_read(&error.into())),
        }
    }
}

impl Origin for PartReader {
    fn taken(&self) -> u64 {
        self.cursor.taken()
    }

    fn has_more(&self) -> bool {
        self.left() > 0
    }

    fn check(&self) -> Result<(), Failure> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    fn take(&mut self, sink: &OwnedFd, most: u64) -> Result<Step, Failure> {
        self.take_by(|file, ahead| match ahead {
            Ahead::Text(text) => nix::unistd::write(sink, &text[..text.len().min(most as usize)]),
            Ahead::Extent { offset, length } => move_bytes(file, &mut (*offset as i64), most.min(*length), sink),
        })
    }

    /// Compares at once. Nothing is left to be compared later, because the bytes were final when the file was cut.
    fn part(&mut self) -> Poll<Result<Option<FirstBytes>, Failure>> {
        Poll::Ready(self.check().and_then(|()| self.compare_all()).map(|()| None))
    }

    fn bring_whole(&mut self, part: &Path, place: &Path) -> Result<bool, Failure> {
        if self.whole.is_none() {
            let _ = fs::remove_file(part);
            let writer = PartWriter::create(part).map_err(|error| Trouble::Write(error).failure(place))?;
            self.whole = Some(Whole { reader: Box::new(Self::new(self.part.clone())), writer });
        }
        let Some(Whole { reader, writer }) = &mut self.whole else { return Ok(false) };
        let end = reader.taken() + TURN;
        while reader.taken() < end {
            if writer.write_some(&mut **reader).map_err(|trouble| trouble.failure(place))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether outputs refer to the place. The file is written only for such outputs.
    fn is_to_stay(&self, place: &Path) -> bool {
        results::refer_to(place)
    }

    fn leave_file(&self, place: &Path) -> Result<(), Failure> {
        let mut reader = Self::new(self.part.clone());
        PartWriter::write(place, &mut reader, &mut || false).map(drop).map_err(|trouble| trouble.failure(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::part::Piece;
    use crate::sys::pipe::fifo_of_tests;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// Writes a file of `size` bytes, and returns a part of it.
    fn part(directory: &Path, size: usize, pieces: Vec<Piece>) -> Part {
        let file = directory.join("file");
        fs::write(&file, content(size)).unwrap();
        let identity = Identity::of(&fs::metadata(&file).unwrap());
        Part { file, identity, pieces, digest: None }
    }

    fn content(size: usize) -> Vec<u8> {
        (0..size).map(|offset| (offset / 100) as u8).collect()
    }

    fn extent(offset: u64, length: u64) -> Piece {
        Piece::Extent { offset, length }
    }

    /// Returns the bytes that come out of a pipe, and the last step. Calls `between` once, after the first bytes.
    fn taken(reader: &mut PartReader, between: impl FnOnce()) -> (Vec<u8>, Result<Step, Failure>) {
        let (from, to) = fifo_of_tests();
        let (mut found, mut between) = (Vec::new(), Some(between));
        loop {
            let step = reader.take(&to, u64::MAX);
            if step != Ok(Step::Moved) {
                return (found, step);
            }
            let mut buffer = vec![0; 1 << 20];
            let count = nix::unistd::read(&from, &mut buffer).unwrap();
            found.extend(&buffer[..count]);
            between.take().into_iter().for_each(|between| between());
        }
    }

    #[test]
    fn a_part_of_a_file_that_grows_is_known_by_its_bytes() {
        let write_at = |file: &Path, offset: u64| {
            File::options().write(true).open(file).unwrap().write_all_at(b"?", offset).unwrap()
        };
        type Act<'a> = &'a dyn Fn(&Path);
        let table: [(Act, &str); 5] = [
            (&|file| File::options().append(true).open(file).unwrap().write_all(b"more").unwrap(), ""),
            (&|file| write_at(file, 5), ""),
            (&|file| write_at(file, 2_000_000), "was written again"),
            (&|file| File::options().write(true).open(file).unwrap().set_len(2_000_000).unwrap(), "is shorter"),
            (
                &|file| {
                    fs::copy(file, file.with_extension("x")).and(fs::rename(file.with_extension("x"), file)).unwrap()
                },
                "was replaced",
            ),
        ];
        for (act, word) in table {
            let directory = tempfile::tempdir().unwrap();
            let mut part = part(directory.path(), 3_000_000, vec![extent(10, 2_999_000), Piece::Text(b"x".to_vec())]);
            part.digest = digest_of(&File::open(&part.file).unwrap(), &part.pieces).ok();
            let file = part.file.clone();
            let (found, step) = taken(&mut PartReader::new(part), || act(&file));
            match &step {
                Ok(step) => assert!(word.is_empty() && *step == Step::Complete && found.len() == 2_999_001, "{word}"),
                Err(Failure::Rewritten(message)) if !word.is_empty() => assert!(message.contains(word), "{message}"),
                Err(failure) => panic!("{word}: {failure:?}"),
            }
        }
    }
}
