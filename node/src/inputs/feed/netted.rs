//! The pipe of a stream under the net, and the file that takes its place.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::libc;

use crate::sys::file_id::{file_id, FileId};
use crate::sys::pipe::narrow;
use crate::sys::raw::bytes_in_pipe;

/// Flags of an opening that a file has, and a pipe must not have, or need not.
const FLAGS_OF_FILES: OFlag = OFlag::O_NONBLOCK.union(OFlag::O_NOATIME).union(OFlag::O_DIRECT);

/// The time for reporting a call and answering it.
const MOVE: Duration = Duration::from_micros(50);
/// To go elsewhere may take so long, and this part of the time since it was done first.
const MOVES_AT_ONCE: Duration = Duration::from_millis(50);
const SHARE_OF_MOVES: u32 = 10;

#[derive(Debug)]
pub struct Netted {
    /// The pipe, and none of its ends.
    pipe: OwnedFd,
    pub id: FileId,
    /// The flags with which the reader has opened the pipe.
    flags: OFlag,
    /// The file, where the readers are in it, and where the first was that got it.
    file: Option<(File, u64)>,
    /// When it was first read from another place, and how long that has taken in all.
    moved: Option<(Instant, Duration)>,
    /// An event has said that a call waits for the file.
    pub told: bool,
    /// The moment since when a process outside the job has the pipe.
    pub strangers: Option<Instant>,
}

impl Netted {
    pub fn new(sink: &OwnedFd) -> io::Result<Self> {
        let path = path_of(sink);
        let pipe = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(&path)?.into();
        let id = file_id(&path).ok_or(ErrorKind::NotFound)?;
        let flags = OFlag::empty();
        Ok(Self { pipe, id, flags, file: None, moved: None, told: false, strangers: None })
    }

    /// Where the reader was that got the file first.
    pub fn place(&self) -> Option<u64> {
        self.file.as_ref().map(|(_, place)| *place)
    }

    pub fn file(&self) -> Option<&File> {
        self.file.as_ref().map(|(file, _)| file)
    }

    /// Takes the file for readers that go on at `place`.
    pub fn begin_file(&mut self, mut file: File, place: u64) -> io::Result<()> {
        file.seek(SeekFrom::Start(place))?;
        fcntl(&file, FcntlArg::F_SETFL(self.flags))?;
        self.file = Some((file, place));
        Ok(())
    }

    /// Returns a reading end for a process that opens the FIFO with these flags.
    pub fn open(&mut self, flags: OFlag) -> io::Result<File> {
        let end = self.reading_end()?;
        fcntl(&end, FcntlArg::F_SETFL(OFlag::empty()))?;
        self.flags = flags & FLAGS_OF_FILES;
        Ok(end)
    }

    /// Whether the stream was read from several places.
    pub fn was_moved(&self) -> bool {
        self.moved.is_some()
    }

    /// Whether a reader that goes elsewhere once more loses little by that: one that reads each line by a block, and
    /// goes back to its end, is faster with the file.
    pub fn may_move(&self) -> bool {
        self.moved.is_none_or(|(since, spent)| spent <= MOVES_AT_ONCE + since.elapsed() / SHARE_OF_MOVES)
    }

    /// Empties the pipe, and keeps little in it from now on.
    pub fn go_elsewhere(&mut self, sink: &mut Option<OwnedFd>) -> io::Result<()> {
        let began = Instant::now();
        self.drain(sink)?;
        if self.moved.is_none() {
            sink.iter().for_each(narrow);
        }
        let (since, spent) = self.moved.unwrap_or((began, Duration::ZERO));
        self.moved = Some((since, spent + began.elapsed() + MOVE));
        Ok(())
    }

    fn reading_end(&self) -> io::Result<File> {
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path_of(&self.pipe))
    }

    /// The bytes that wait in the pipe when it has no writer any more.
    pub fn unread(&self) -> u64 {
        self.reading_end().map_or(0, bytes_in_pipe)
    }

    /// Empties the pipe, and leaves it with a writer; returns how many bytes were in it.
    pub fn drain(&self, sink: &mut Option<OwnedFd>) -> io::Result<u64> {
        let mut end = self.reading_end()?;
        if sink.is_none() {
            let writing = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path_of(&self.pipe))?;
            *sink = Some(writing.into());
        }
        let (mut count, mut buffer) = (0, vec![0; 1 << 16]);
        loop {
            match end.read(&mut buffer) {
                Ok(0) => return Ok(count),
                Ok(read) => count += read as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn path_of(end: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", end.as_raw_fd()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pipe::fifo_of_tests;

    #[test]
    fn who_goes_elsewhere_all_the_time_gets_the_file() {
        let (_from, to) = fifo_of_tests();
        let mut netted = Netted::new(&to).unwrap();
        let mut sink = Some(to);
        assert!(!netted.was_moved() && netted.may_move());
        netted.go_elsewhere(&mut sink).unwrap();
        assert!(netted.was_moved() && netted.may_move());
        let now = Instant::now();
        let long_ago = now.checked_sub(10 * MOVES_AT_ONCE * SHARE_OF_MOVES).unwrap_or(now);
        for (since, spent, expected) in [(now, 2, false), (long_ago, 9, true), (long_ago, 99, false)] {
            netted.moved = Some((since, spent * MOVES_AT_ONCE));
            assert_eq!(netted.may_move(), expected, "{spent}");
        }
    }
}
