//! Byte streams as a command finds them by name. A call that asks for more than bytes waits for the whole file.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::sys::file_id::FileId;
use crate::sys::threads::lock;

#[derive(Debug, Default)]
struct Stream {
    /// Identities of the FIFOs of the stream.
    fifos: Vec<FileId>,
    /// The directory in whose listing a FIFO appears, with a type that is not that of the file.
    directory: Option<FileId>,
    wanted: bool,
    whole: bool,
}

/// All byte streams of a job that have names, by the numbers of its inputs.
///
/// Threads that answer calls ask for whole files, and one thread provides them.
#[derive(Debug)]
pub struct Streams {
    streams: Mutex<Vec<Stream>>,
    /// Readable when a whole file is wanted.
    waker: EventFd,
}

impl Streams {
    /// # Arguments
    /// * `count` - the number of inputs of the job
    pub fn new(count: usize) -> nix::Result<Self> {
        let waker = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let streams = std::iter::repeat_with(Stream::default).take(count).collect();
        Ok(Self { streams: Mutex::new(streams), waker })
    }

    /// Adds a FIFO of a stream.
    ///
    /// # Arguments
    /// * `directory` - whose listing is to show the file in place of the FIFO, if any
    pub fn add(&self, number: usize, fifo: FileId, directory: Option<FileId>) {
        if let Some(stream) = lock(&self.streams).get_mut(number) {
            stream.fifos.push(fifo);
            stream.directory = directory.or(stream.directory);
        }
    }

    /// Whether a file is a stream whose whole file is missing. If so, the whole file is wanted from now on.
    pub fn want(&self, fifo: FileId) -> bool {
        self.want_where(|stream| stream.fifos.contains(&fifo))
    }

    /// The same for the streams of a directory.
    pub fn want_in(&self, directory: FileId) -> bool {
        self.want_where(|stream| stream.directory == Some(directory))
    }

    fn want_where(&self, concerned: impl Fn(&Stream) -> bool) -> bool {
        let mut wanted = false;
        for stream in lock(&self.streams).iter_mut().filter(|stream| !stream.whole && concerned(stream)) {
            stream.wanted = true;
            wanted = true;
        }
        if wanted {
            self.wake();
        }
        wanted
    }

    /// Wakes up the thread that feeds the streams.
    pub fn wake(&self) {
        // The counter overflows only after 2^64 calls without a reader.
        let _ = self.waker.write(1);
    }

    /// Says that the whole file of each stream is wanted.
    pub fn want_all(&self) {
        lock(&self.streams).iter_mut().for_each(|stream| stream.wanted |= !stream.fifos.is_empty());
    }

    /// Returns the numbers of streams whose whole file is wanted and missing.
    pub fn wanted(&self) -> Vec<usize> {
        let _ = self.waker.read();
        let streams = lock(&self.streams);
        let wanted = streams.iter().enumerate().filter(|(_, stream)| stream.wanted && !stream.whole);
        wanted.map(|(number, _)| number).collect()
    }

    /// Says that the whole file has taken the place of the stream.
    pub fn is_whole(&self, number: usize) {
        if let Some(stream) = lock(&self.streams).get_mut(number) {
            stream.whole = true;
        }
    }

    /// Whether the whole file of a stream is missing.
    pub fn are_open(&self) -> bool {
        lock(&self.streams).iter().any(|stream| !stream.whole && !stream.fifos.is_empty())
    }
}

impl AsFd for Streams {
    /// Readable when a whole file is wanted.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }
}
