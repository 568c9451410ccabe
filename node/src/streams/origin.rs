//! The source of the bytes of a stream, as its feeder sees it.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::task::Poll;

use serde::{Deserialize, Serialize};

use crate::protocol::event::Reason;
use crate::protocol::messages::FirstBytes;
use crate::sys::watch::Watch;

/// Why a stream cannot continue to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", content = "message", rename_all = "lowercase")]
pub enum Failure {
    Producer(String),
    Rewritten(String),
    /// The job itself cannot continue, for example because its command opens a stream a second time.
    /// A link reports this as a failure of the producer.
    #[serde(rename(serialize = "producer"))]
    Job(String),
    /// The command has to start again with the file, because it cannot work with a stream. Never on a link.
    #[serde(skip_deserializing, rename(serialize = "producer"))]
    Unstreamable(String),
    /// The file has more bytes than the command may get as a stream. Never on a link.
    #[serde(skip_deserializing, rename(serialize = "producer"))]
    Outgrown(String),
}

impl Failure {
    /// Returns why a job with the input `name` ends, and the message about it.
    pub fn of_input(self, name: &str) -> (Reason, String) {
        let input = name.to_owned();
        match self {
            Self::Producer(message) => (Reason::Producer { input }, message),
            Self::Rewritten(message) => (Reason::Rewritten { input }, message),
            Self::Unstreamable(message) => (Reason::Unstreamable { input }, message),
            Self::Outgrown(message) => (Reason::Outgrown { input }, message),
            Self::Job(message) => (Reason::Error, format!("input from {name}: {message}")),
        }
    }
}

/// The result of an attempt to take bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Some bytes were taken, or have become available.
    Moved,
    /// The receiver has no space.
    Full,
    /// The receiver has closed the stream.
    Unread,
    /// More bytes are not available yet.
    Waiting,
    /// All bytes were taken. The file is committed, or taken to be complete.
    Complete,
}

/// The bytes of a stream, which are taken once and in order, and the whole file that they form.
///
/// Methods fail when the producer has failed, cannot be reached, or has changed bytes that were taken.
pub trait Origin: Debug {
    /// Returns the number of bytes taken.
    fn taken(&self) -> u64;

    /// Whether `go_to` has an effect: the producer's file is visible here.
    fn can_go(&self) -> bool {
        false
    }

    /// Continues at `_place`, before or behind the bytes that were taken.
    fn go_to(&mut self, _place: u64) {}

    fn has_more(&self) -> bool;

    /// Tells the producer that the command has read all bytes before `_place`, if it has a window.
    fn acknowledge(&mut self, _place: u64) {}

    /// Whether the file has all its bytes. True where that is unknown.
    fn is_final(&self) -> bool {
        true
    }

    /// Returns a descriptor that becomes readable when there are more bytes. None: a notice of a watch announces them.
    fn arrivals(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Watches the events of the producer. Must be called until they exist.
    fn watch_events(&mut self, _watch: &mut Watch) {}

    /// Watches once for more bytes. False if they are watched for already, or cannot be. Take again after true.
    fn watch_growth(&mut self, _watch: &mut Watch) -> bool {
        false
    }

    /// Must be called when the notice of `watch_growth` has come.
    fn growth_notice(&mut self) {}

    /// Reads new events of the producer.
    fn read_events(&mut self) {}

    fn check(&self) -> Result<(), Failure>;

    /// Opens the source of the bytes. False if it does not exist yet.
    fn open(&mut self) -> Result<bool, Failure> {
        Ok(true)
    }

    /// Moves at most `most` bytes into a pipe.
    fn take(&mut self, sink: &OwnedFd, most: u64) -> Result<Step, Failure>;

    /// Whether all bytes were taken before the commit, so that they still have to be compared with the file.
    fn has_ended_early(&self) -> bool {
        false
    }

    /// Ends taking bytes.
    ///
    /// # Arguments
    /// * `asks` - whether `part` will be called, for what is still to be compared
    fn close(&mut self, _asks: bool) {}

    /// Returns what is still to be compared with the final file, if anything. Pending: ask again later.
    fn part(&mut self) -> Poll<Result<Option<FirstBytes>, Failure>>;

    /// Says that the whole file is needed.
    fn want_whole(&mut self) {}

    /// Makes the whole file at `part`, to be moved to `place`, as far as possible now. Returns whether it is complete.
    fn bring_whole(&mut self, part: &Path, place: &Path) -> Result<bool, Failure>;

    /// Returns the whole file when it is final, at its beginning. None before, and until it was brought where the
    /// producer's file is not visible.
    fn whole_file(&self) -> Result<Option<File>, Failure> {
        Ok(None)
    }

    /// Returns a descriptor that becomes readable when `bring_whole` can continue.
    fn whole_arrivals(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether a file has to replace the FIFO at `_place`, or stay there, after the command has succeeded.
    fn is_to_stay(&self, _place: &Path) -> bool {
        true
    }

    /// Puts the file at `_place`, which is empty. May do nothing where it would be a copy that is not needed.
    fn leave_file(&self, _place: &Path) -> Result<(), Failure> {
        Ok(())
    }
}

pub fn cannot_place(place: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    |error| Failure::Job(format!("cannot place {}: {error}", place.display()))
}
