//! The write end of a stream's pipe, and the places where it is known.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use crate::gate::{Handler, Streams};
use crate::protocol::fd_store::Client;
use crate::sys::file_id::{file_id, FileId};
use crate::sys::pipe::{has_reader, has_space, widen};
use crate::sys::raw::bytes_in_pipe;

/// The places where a stream has to be known, by the number of its input.
#[derive(Clone, Debug)]
pub struct Registration {
    pub number: u32,
    /// Keeps a copy of the write end at `serve`, if it can.
    pub store: Option<Rc<Client>>,
    pub streams: Arc<Streams>,
    pub handler: Arc<Handler>,
}

impl Registration {
    pub fn add(&self, fifo: &Path) {
        let directory = fifo.parent().and_then(file_id);
        file_id(fifo).iter().for_each(|fifo| self.streams.add(self.number as usize, *fifo, directory));
    }

    pub fn add_to_net(&self, pipe: FileId, fifo: Option<&Path>) {
        let number = self.number as usize;
        self.streams.add(number, pipe, None);
        self.handler.table.net.add(number, pipe, fifo.and_then(Path::parent).and_then(file_id));
    }
}

#[derive(Debug)]
pub struct WriteEnd {
    /// Present until the reader is given the end.
    pub sink: Option<OwnedFd>,
    pub registration: Registration,
    /// The pipe has the size that was asked for.
    pub wide: bool,
}

impl WriteEnd {
    pub fn new(sink: OwnedFd, mut registration: Registration) -> Self {
        registration.store = registration.store.filter(|store| store.keep(registration.number, &sink).is_ok());
        // Refused beyond the system's limits; the pipe then stays smaller.
        let wide = widen(&sink);
        Self { sink: Some(sink), registration, wide }
    }

    pub fn has_reader(&self) -> bool {
        self.sink.as_ref().is_some_and(has_reader)
    }

    pub fn has_space(&self) -> bool {
        self.sink.as_ref().is_some_and(has_space)
    }

    /// Bytes in the pipe. None: the pipe has no write end here any more.
    pub fn unread(&self) -> Option<u64> {
        self.sink.as_ref().map(bytes_in_pipe)
    }

    /// Has `serve` keep a copy of the write end again.
    pub fn keep(&self) -> nix::Result<()> {
        match (&self.sink, &self.registration.store) {
            (Some(sink), Some(store)) => store.keep(self.registration.number, sink),
            _ => Ok(()),
        }
    }

    /// Gives the end of file, by dropping the write end and its copy.
    ///
    /// # Arguments
    /// * `guard` - the write end of the FIFO that takes the place
    pub fn end(&mut self, guard: Option<OwnedFd>) {
        self.sink = guard;
        if let Some(store) = &self.registration.store {
            store.release(self.registration.number);
        }
    }
}
