//! Where the bytes of a stream come from: the producer's file, or a link to the machine that has it.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::task::Poll;

use super::Wait;
use crate::job::{Access, Input};
use crate::link::Reader;
use crate::pipe::move_bytes;
use crate::source::{Failure, Source, Step};
use crate::verify::Part;
use crate::watch::Watcher;

#[derive(Debug)]
pub enum Origin {
    File(Box<Source>),
    Link(Reader),
}

impl Origin {
    /// # Errors
    /// When there can be no pipe or thread for the link.
    pub fn new(input: &Input) -> io::Result<Self> {
        match &input.access {
            Access::Events(events) => {
                let source = Source::new(&input.port, input.path.clone(), events.clone(), input.verify);
                Ok(Self::File(Box::new(source)))
            }
            Access::Link(link) => Reader::new(link, &input.port, &input.path, input.verify).map(Self::Link),
        }
    }

    pub fn taken(&self) -> u64 {
        match self {
            Self::File(source) => source.taken(),
            Self::Link(reader) => reader.taken(),
        }
    }

    pub fn has_more(&self) -> bool {
        match self {
            Self::File(source) => source.has_more(),
            Self::Link(reader) => reader.has_more(),
        }
    }

    /// What becomes readable when there is more, where no notice tells it.
    pub fn arrivals(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::File(_) => None,
            Self::Link(reader) => reader.arrivals(),
        }
    }

    pub fn watch_events<T: Clone + PartialEq>(&mut self, watcher: &mut Watcher<T>, token: &impl Fn(Wait) -> T) {
        if let Self::File(source) = self {
            source.watch_events(watcher, token(Wait::Events));
        }
    }

    /// As `Source::watch_growth`.
    pub fn watch_growth<T: Clone + PartialEq>(&mut self, watcher: &mut Watcher<T>, token: &impl Fn(Wait) -> T) -> bool {
        match self {
            Self::File(source) => source.watch_growth(watcher, token(Wait::Growth)),
            Self::Link(_) => false,
        }
    }

    pub fn growth_notice(&mut self) {
        if let Self::File(source) = self {
            source.growth_notice();
        }
    }

    pub fn read_events(&mut self) {
        if let Self::File(source) = self {
            source.read_events();
        }
    }

    /// # Errors
    /// When the producer has failed.
    pub fn check(&self) -> Result<(), Failure> {
        match self {
            Self::File(source) => source.check(),
            Self::Link(reader) => reader.check(),
        }
    }

    /// False: there is nothing to take from yet.
    pub fn open(&mut self) -> Result<bool, Failure> {
        match self {
            Self::File(source) => source.open(),
            Self::Link(_) => Ok(true),
        }
    }

    /// Moves bytes into a pipe.
    pub fn take(&mut self, sink: &OwnedFd) -> Result<Step, Failure> {
        match self {
            Self::File(source) => source.take(|file, offset, most| move_bytes(file, offset, most, sink)),
            Self::Link(reader) => reader.take(sink),
        }
    }

    /// Nothing will be taken any more.
    ///
    /// # Arguments
    /// * `asks` - what is still to be compared will be asked for
    pub fn close(&mut self, asks: bool) {
        if let Self::Link(reader) = self {
            reader.close(asks);
        }
    }

    /// As `Source::part`; pending: it is not known yet.
    pub fn part(&mut self) -> Poll<Result<Option<Part>, Failure>> {
        match self {
            Self::File(source) => {
                source.read_events();
                Poll::Ready(source.part())
            }
            Self::Link(reader) => reader.part(),
        }
    }
}
