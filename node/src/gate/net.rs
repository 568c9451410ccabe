//! The reader net: byte streams for a command that was never declared to read them.
//!
//! Plain reads of a pipe are not intercepted, because a pipe and a file behave alike there. For every other call this
//! module finds out whether it is about a stream. The thread that feeds the streams answers such calls, so that no
//! bytes are fed between two looks at a pipe.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nix::libc;

use super::call::Call;
use super::demand::{of_descriptor, of_path, Demand};
use super::descriptors::Place;
use super::memory;
use super::resolve::{find, Caller};
use super::streams::Streams;
use super::syscalls::{named, Named};
use crate::processes::open_files::descriptors;
use crate::sys::file_id::{file_id, file_id_of, FileId};
use crate::sys::raw::seccomp::Answer;
use crate::sys::threads::lock;

/// The most descriptors that are examined for one call.
const MOST: usize = 1 << 16;

/// A call about a stream, which is given by the number of its input.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub call: Call,
    pub stream: usize,
    pub demand: Demand,
}

/// The reply to a call about a stream.
#[derive(Debug)]
pub enum Reply {
    Answer(Answer),
    /// The call has to wait.
    Later,
    /// The file has taken the place of the stream: the call is decided without the net.
    Placed,
}

#[derive(Debug, Default)]
struct State {
    pipes: Vec<(FileId, usize)>,
    /// Directories in whose listings a FIFO appears.
    directories: Vec<(FileId, usize)>,
    asked: Vec<Asked>,
}

/// All byte streams of a job that are under the net.
#[derive(Debug)]
pub struct Net {
    state: Mutex<State>,
    live: AtomicBool,
    /// A process has the file of a stream, while others have its pipe.
    split: AtomicBool,
    streams: Arc<Streams>,
}

impl Net {
    pub fn new(streams: Arc<Streams>) -> Self {
        Self { state: Mutex::default(), live: AtomicBool::default(), split: AtomicBool::default(), streams }
    }

    /// Adds the pipe of a stream. `directory`: where the stream has a name.
    pub fn add(&self, number: usize, pipe: FileId, directory: Option<FileId>) {
        let mut state = lock(&self.state);
        state.pipes.push((pipe, number));
        state.directories.extend(directory.map(|directory| (directory, number)));
        self.live.store(true, Ordering::Relaxed);
    }

    /// Says that the file is at the path of the stream.
    pub fn is_placed(&self, number: usize) {
        lock(&self.state).directories.retain(|(_, other)| *other != number);
    }

    /// Says that a process has the file, while others may have the pipe.
    pub fn is_split(&self) {
        self.split.store(true, Ordering::Relaxed);
    }

    /// Says that no process has the pipe any more, or can open it.
    pub fn is_over(&self, number: usize) {
        let mut state = lock(&self.state);
        state.pipes.retain(|(_, other)| *other != number);
        self.live.store(!state.pipes.is_empty(), Ordering::Relaxed);
    }

    /// Whether a command may still find a stream.
    pub fn is_live(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }

    /// Passes a call to the thread that feeds the streams, which answers it.
    pub fn ask(&self, asked: Asked) {
        lock(&self.state).asked.push(asked);
        self.streams.wake();
    }

    /// Keeps a call, to be passed again.
    pub fn keep(&self, asked: Asked) {
        lock(&self.state).asked.push(asked);
    }

    /// Returns the calls that were passed, once.
    pub fn take(&self) -> Vec<Asked> {
        std::mem::take(&mut lock(&self.state).asked)
    }

    pub fn waiting(&self) -> usize {
        lock(&self.state).asked.len()
    }

    /// Returns the stream that a call is about, and the demand. None if there is no such stream, or a pipe behaves like
    /// a file.
    pub fn find(&self, call: &Call, elsewhere: bool) -> Option<(usize, Demand)> {
        if !self.is_live() {
            return None;
        }
        if !call.native || call.number == libc::SYS_io_setup {
            return self.unseen();
        }
        if let Some((place, demand)) = of_descriptor(call.number, &call.arguments) {
            let named = descriptors_of(call, place);
            return named.into_iter().find_map(|descriptor| self.opened(call, descriptor, demand));
        }
        match named(call.number)? {
            Named::Listing => self.listed(call),
            Named::Elsewhere => None,
            Named::Path { .. } | Named::At { .. } => self.inherited(call).or_else(|| self.called(call, elsewhere)),
        }
    }

    /// Returns the descriptors of a process that are a stream.
    pub fn held(&self, thread: u32, number: usize) -> Vec<i32> {
        let pipes =
            lock(&self.state).pipes.iter().filter(|(_, other)| *other == number).map(|(pipe, _)| *pipe).collect();
        descriptors(thread as i32, 0o400, &pipes).unwrap_or_default()
    }

    fn stream(&self, pipe: FileId) -> Option<usize> {
        lock(&self.state).pipes.iter().find(|(other, _)| *other == pipe).map(|(_, number)| *number)
    }

    fn unseen(&self) -> Option<(usize, Demand)> {
        lock(&self.state).pipes.first().map(|(_, number)| (*number, Demand::Unseen))
    }

    fn opened(&self, call: &Call, descriptor: i32, demand: Demand) -> Option<(usize, Demand)> {
        match fs::metadata(call.open_file(descriptor)) {
            Ok(found) if found.file_type().is_fifo() => Some((self.stream(file_id_of(&found))?, demand)),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => self.unseen(),
            _ => None,
        }
    }

    fn listed(&self, call: &Call) -> Option<(usize, Demand)> {
        if lock(&self.state).directories.is_empty() {
            return None;
        }
        let listed = file_id(call.open_file(call.arguments[0] as i32))?;
        let state = lock(&self.state);
        state.directories.iter().find(|(directory, _)| *directory == listed).map(|(_, number)| (*number, Demand::Named))
    }

    /// Finds a stream that a process has open when it executes a program, while a stream is split.
    /// The process gets the file first, so that the program finds it open.
    fn inherited(&self, call: &Call) -> Option<(usize, Demand)> {
        let executes = matches!(call.number, libc::SYS_execve | libc::SYS_execveat);
        if !executes || !self.split.load(Ordering::Relaxed) {
            return None;
        }
        let mut numbers: Vec<usize> = lock(&self.state).pipes.iter().map(|(_, number)| *number).collect();
        numbers.retain(|number| !self.held(call.thread, *number).is_empty());
        numbers.first().map(|number| (*number, Demand::Execute))
    }

    fn called(&self, call: &Call, elsewhere: bool) -> Option<(usize, Demand)> {
        let (argument, demand) = (call.path()?, of_path(call)?);
        let Some(path) = memory::read_path(call.thread, argument.address) else {
            return if memory::is_forbidden(call.thread, argument.address) { self.unseen() } else { None };
        };
        // The link to a pipe in `/proc` has another text than the link to a file.
        let follow = argument.follow || path.windows(3).any(|part| part == b"fd/");
        let found = find(Caller { thread: call.thread, elsewhere }, argument.base, &path, follow).ok()?;
        if found.file_type().is_fifo() {
            Some((self.stream(file_id_of(&found))?, demand))
        } else {
            None
        }
    }
}

/// Returns the descriptors that a call is about.
pub fn descriptors_of(call: &Call, place: Place) -> Vec<i32> {
    let [first, second, ..] = call.arguments;
    match place {
        Place::Argument(number) => vec![call.arguments[number] as i32],
        Place::Watched => vec![call.arguments[2] as i32],
        Place::Polled => {
            let mut entries = vec![0; (second as usize).min(MOST) * size_of::<libc::pollfd>()];
            let read = memory::read(call.thread, first as usize, &mut entries).unwrap_or(0);
            let entries = entries[..read].chunks_exact(size_of::<libc::pollfd>());
            // An entry without events only asks whether the descriptor is open, as programs in Rust do at their start.
            let looks = entries.filter(|entry| entry[4..6] != [0, 0]);
            looks.map(|entry| i32::from_ne_bytes([entry[0], entry[1], entry[2], entry[3]])).collect()
        }
        Place::Selected => {
            let mut words = vec![0; (first as usize).min(MOST).div_ceil(64) * 8];
            let read = memory::read(call.thread, second as usize, &mut words).unwrap_or(0);
            let is_set =
                |number: &i32| words[..read].get(byte_of(*number)).is_some_and(|byte| byte >> (number % 8) & 1 == 1);
            (0..(first as i32).min(MOST as i32)).filter(is_set).collect()
        }
    }
}

/// Returns the byte of a descriptor's bit in an `fd_set`, which has words of 64 bits.
fn byte_of(number: i32) -> usize {
    let byte = number as usize / 8;
    if cfg!(target_endian = "big") {
        byte ^ 7
    } else {
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn call(number: i64, arguments: [u64; 6]) -> Call {
        Call { id: 0, thread: std::process::id(), native: true, number, arguments }
    }

    #[test]
    fn descriptors_in_memory() {
        let polled = [(7, libc::POLLIN), (8, 0), (300, libc::POLLIN)];
        let polled = polled.map(|(fd, events)| libc::pollfd { fd, events, revents: 0 });
        let asks = call(libc::SYS_ppoll, [polled.as_ptr() as u64, 3, 0, 0, 0, 0]);
        assert_eq!(descriptors_of(&asks, Place::Polled), [7, 300]);
        let mut set = nix::sys::select::FdSet::new();
        let (one, other) = nix::unistd::pipe().unwrap();
        set.insert(std::os::fd::AsFd::as_fd(&one));
        let asks = call(libc::SYS_pselect6, [1000, &raw const set as u64, 0, 0, 0, 0]);
        assert_eq!(descriptors_of(&asks, Place::Selected), [one.as_raw_fd()]);
        drop(other);
        let nowhere = call(libc::SYS_ppoll, [16, 2, 0, 0, 0, 0]);
        assert_eq!(descriptors_of(&nowhere, Place::Polled), [0_i32; 0]);
    }
}
