//! The source of the bytes of a stream, as its feeder sees it.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::task::Poll;

use serde::{Deserialize, Serialize};

use crate::protocol::event::Reason;
use crate::protocol::job::Rate;
use crate::protocol::verify::Part;
use crate::sys::watch::Watch;

/// Why a stream cannot go on to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", content = "message", rename_all = "lowercase")]
pub enum Failure {
    Producer(String),
    Rewritten(String),
    /// The job itself cannot go on, as when its command opens a stream a second time. On a link it is as if the producer had
    /// failed.
    #[serde(rename(serialize = "producer"))]
    Job(String),
    /// The command has to start again with the file: this cannot be done with a stream. Never on a link.
    #[serde(skip_deserializing, rename(serialize = "producer"))]
    Unstreamable(String),
    /// The file has more bytes than the command may get as a stream. Never on a link.
    #[serde(skip_deserializing, rename(serialize = "producer"))]
    Outgrown(String),
}

impl Failure {
    /// Why a job ends that has this input, and what is said of it.
    pub fn of_input(self, name: &str) -> (Reason, String) {
        let input = name.to_owned();
        match self {
            Self::Producer(message) => (Reason::Producer { input }, message),
            Self::Rewritten(message) => (Reason::Rewritten { input }, message),
            Self::Unstreamable(message) => (Reason::Unstreamable { input }, message),
            Self::Outgrown(message) => (Reason::Outgrown { input }, message),
            Self::Job(message) => (Reason::Error, format!("input {name}: {message}")),
        }
    }
}

/// What became of an attempt to take bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Some were taken, or there are some now.
    Moved,
    /// Who takes them has no space.
    Full,
    /// Nobody wants them any more.
    Unread,
    /// There are no more yet.
    Waiting,
    /// There are no more: the file is committed, or taken to be complete, and all of it was taken.
    Complete,
}

/// The bytes of a stream, which are taken once, in order, and the whole file that they are.
///
/// Its methods fail when the producer has failed, cannot be reached, or has changed what was taken.
pub trait Origin: Debug {
    /// Bytes that were taken.
    fn taken(&self) -> u64;

    /// The next byte is taken here, before or behind those that were taken; only where the producer's file is seen here.
    fn go_to(&mut self, _place: u64) {}

    fn has_more(&self) -> bool;

    /// Whether the file has all its bytes. Where nobody can tell, it is taken to have them.
    fn is_final(&self) -> bool {
        true
    }

    /// So many bytes there were at most that had not been taken; only where the producer's file is seen here.
    fn lag(&self) -> Option<u64> {
        None
    }

    /// What becomes readable when there is more; None: a notice tells it.
    fn arrivals(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Watches what the producer says. To be called until that is there.
    fn watch_events(&mut self, _watch: &mut Watch) {}

    /// Watches for more, once; false where it is watched for already, or cannot be. After true there may be more to take.
    fn watch_growth(&mut self, _watch: &mut Watch) -> bool {
        false
    }

    /// The notice has come.
    fn growth_notice(&mut self) {}

    /// The producer may have said something.
    fn read_events(&mut self) {}

    /// Takes no more than so many bytes per second from where they come, from now on.
    fn keep_to(&mut self, _rate: Rate) {}

    fn check(&self) -> Result<(), Failure>;

    /// False: there is nothing to take from yet.
    fn open(&mut self) -> Result<bool, Failure> {
        Ok(true)
    }

    /// Moves at most so many bytes into a pipe.
    fn take(&mut self, sink: &OwnedFd, most: u64) -> Result<Step, Failure>;

    /// All was taken of what is not committed yet: it is still to be compared.
    fn has_ended_early(&self) -> bool {
        false
    }

    /// Nothing will be taken any more.
    ///
    /// # Arguments
    /// * `asks` - what is still to be compared will be asked for
    fn close(&mut self, _asks: bool) {}

    /// What is still to be compared with the file, when that is final; pending: it is not known yet.
    fn part(&mut self) -> Poll<Result<Option<Part>, Failure>>;

    /// The whole file is wanted.
    fn want_whole(&mut self) {}

    /// Makes the whole file at `part`, for `place`, as far as it can be made now; says whether all of it is there.
    fn bring_whole(&mut self, part: &Path, place: &Path) -> Result<bool, Failure>;

    /// The whole file, when that is final; only where the producer's file is seen here.
    fn whole_file(&self) -> Result<Option<File>, Failure> {
        Ok(None)
    }

    /// What becomes readable when more of that can be made.
    fn whole_arrivals(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The command has succeeded: whether the file is to be left at `place`, where the FIFO still is, or the whole file.
    fn is_to_stay(&self, _place: &Path) -> bool {
        true
    }

    /// Leaves the file at `place`, where nothing is, if that costs nothing or has to be.
    fn leave_file(&self, _place: &Path) -> Result<(), Failure> {
        Ok(())
    }
}

pub fn cannot_place(place: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    |error| Failure::Producer(format!("cannot place {}: {error}", place.display()))
}
