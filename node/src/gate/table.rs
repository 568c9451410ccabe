//! The names that a command may not touch yet, and the calls that wait for them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::call::{Call, PathArgument};
use super::demand::{of_descriptor, Demand};
use super::listing::{encode, Entry};
use super::memory;
use super::net::{descriptors_of, Asked, Net};
use super::resolve::{find, locate, Caller};
use super::staging::Arrival;
use super::streams::Streams;
use super::syscalls::{changes, named, Named};
use crate::sys::file_id::{file_id, file_id_of, FileId};
use crate::sys::raw::seccomp::Answer;
use crate::sys::raw::stat::Snapshot;
use crate::sys::threads::lock;

/// A directory in which something is held.
#[derive(Debug)]
enum Held {
    /// Names that are not committed.
    Files(Vec<OsString>),
    /// A directory of a tree. Any name that does not exist may come.
    Tree { tree: usize, path: PathBuf, delivered: Option<Delivered> },
}

/// The view that a command gets of a directory whose listing delivers entries as they are committed.
#[derive(Debug)]
struct Delivered {
    entries: Vec<Entry>,
    /// Attributes that hide the arrivals from a program that compares them before and after a listing.
    snapshot: Snapshot,
}

/// A directory that is held, with all that is below it.
#[derive(Debug)]
struct Tree {
    complete: bool,
    /// A listing delivers entries as they are committed.
    delivers: bool,
}

const PASS: Option<Answer> = Some(Answer::Continue);

/// The decision about a call.
enum Course {
    Answered(Answer),
    Waits,
    /// The thread that feeds the streams answers the call.
    Handed,
}

/// Decides about calls, in several threads at once.
///
/// No lock is held while files are examined. An examination may need a process of this job, for example the server of a
/// FUSE mount, whose own calls are decided meanwhile.
#[derive(Debug)]
pub struct GateTable {
    state: Mutex<State>,
    streams: Arc<Streams>,
    pub net: Net,
    /// A timed poll of a stream counts as a demand for more: the job is a trial.
    is_trial: bool,
    /// A process may find other files at the same paths.
    elsewhere: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<FileId, Held>,
    trees: Vec<Tree>,
    /// Number of files and trees that are not committed.
    closed: usize,
    waiting: Vec<Call>,
    /// Number of arrivals.
    arrivals: u64,
    /// Since when at least one call waits.
    since: Option<Instant>,
    /// Time for which at least one call waited before.
    held: Duration,
}

impl State {
    /// Updates the times after a change of `waiting`.
    fn settle(&mut self) {
        if self.waiting.is_empty() {
            self.held += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        } else {
            self.since.get_or_insert_with(Instant::now);
        }
    }
}

impl GateTable {
    pub fn new(streams: Arc<Streams>, is_trial: bool) -> Self {
        let net = Net::new(Arc::clone(&streams));
        Self { state: Mutex::default(), streams, net, is_trial, elsewhere: AtomicBool::default() }
    }

    /// Holds a name in a directory.
    pub fn hold_file(&self, directory: FileId, name: &OsStr) {
        let mut state = lock(&self.state);
        state.closed += 1;
        let held = state.directories.entry(directory).or_insert_with(|| Held::Files(Vec::new()));
        if let Held::Files(names) = held {
            names.push(name.to_owned());
        }
    }

    /// Says that the name exists.
    pub fn open_file(&self, directory: FileId, name: &OsStr) {
        let mut state = lock(&self.state);
        state.closed -= 1;
        if let Some(Held::Files(names)) = state.directories.get_mut(&directory) {
            names.retain(|held| held != name);
            if names.is_empty() {
                state.directories.remove(&directory);
            }
        }
    }

    /// Holds a directory, and returns its number for other calls.
    ///
    /// # Arguments
    /// * `delivers` - a listing delivers entries as they come; otherwise it waits until all are there
    pub fn hold_tree(&self, delivers: bool) -> usize {
        let mut state = lock(&self.state);
        state.closed += 1;
        state.trees.push(Tree { complete: false, delivers });
        state.trees.len() - 1
    }

    /// Adds an arrival in a tree: an entry of a directory, or a directory, which may be the root.
    pub fn arrive(&self, tree: usize, arrival: Arrival) {
        match arrival {
            Arrival::Directory { path, own } => {
                let (found, snapshot) = (file_id(&path), Snapshot::of(&path));
                let mut state = lock(&self.state);
                let delivers = state.trees[tree].delivers;
                let delivered =
                    snapshot.ok().filter(|_| delivers).map(|snapshot| Delivered { entries: own.to_vec(), snapshot });
                found.map(|found| state.directories.insert(found, Held::Tree { tree, path, delivered }));
            }
            Arrival::Entry { directory, entry } => {
                if let Some(Held::Tree { delivered: Some(it), .. }) = lock(&self.state).directories.get_mut(&directory)
                {
                    it.entries.push(entry);
                }
            }
        }
    }

    /// Says that all of a tree exists.
    pub fn complete_tree(&self, number: usize) {
        let mut state = lock(&self.state);
        state.closed -= 1;
        state.trees[number].complete = true;
        if !state.trees[number].delivers {
            state.directories.retain(|_, held| !matches!(held, Held::Tree { tree, .. } if *tree == number));
        }
    }

    /// Whether nothing is held any more.
    pub fn is_open(&self) -> bool {
        lock(&self.state).closed == 0 && !self.streams.are_open() && !self.net.is_live()
    }

    /// Returns the answer to a call. None: the call was kept to wait, or is answered by the thread that feeds the
    /// streams.
    pub fn ask(&self, call: Call) -> Option<Answer> {
        if call.native && named(call.number) == Some(Named::Elsewhere) {
            self.elsewhere.store(true, Ordering::Relaxed);
        }
        loop {
            let seen = lock(&self.state).arrivals;
            match self.decide(&call) {
                Course::Answered(answer) => return Some(answer),
                Course::Handed => return None,
                Course::Waits => {}
            }
            let mut state = lock(&self.state);
            // Otherwise the call may need just what has come meanwhile.
            if state.arrivals == seen {
                state.waiting.push(call);
                state.settle();
                return None;
            }
        }
    }

    /// Answers the waiting calls that can be answered after something has come. Only one thread may call this.
    pub fn release(&self, is_waiting: impl Fn(&Call) -> bool, answer: impl Fn(&Call, Answer)) {
        let waiting = {
            let mut state = lock(&self.state);
            state.arrivals += 1;
            std::mem::take(&mut state.waiting)
        };
        let mut held = Vec::new();
        for call in waiting {
            // A call that a signal has interrupted comes again. To decide it would take what is for the new one.
            if !is_waiting(&call) {
                continue;
            }
            match self.decide(&call) {
                Course::Answered(decided) => answer(&call, decided),
                Course::Waits => held.push(call),
                Course::Handed => {}
            }
        }
        let mut state = lock(&self.state);
        state.waiting.append(&mut held);
        state.settle();
    }

    /// Forgets calls that were interrupted.
    pub fn prune(&self, is_waiting: impl Fn(u64) -> bool) {
        let mut state = lock(&self.state);
        state.waiting.retain(|call| is_waiting(call.id));
        state.settle();
    }

    /// Forgets all waiting calls, and returns them.
    pub fn give_up(&self) -> Vec<Call> {
        let mut state = lock(&self.state);
        let mut calls = std::mem::take(&mut state.waiting);
        state.settle();
        drop(state);
        calls.extend(self.net.take().iter().map(|asked| asked.call));
        calls
    }

    /// Returns for how long at least one call has waited at a gate.
    pub fn held(&self) -> Duration {
        let state = lock(&self.state);
        state.held + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns since when at least one call has waited at a gate, or None if none waits.
    pub fn held_since(&self) -> Option<Instant> {
        lock(&self.state).since
    }

    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting.len() + self.net.waiting()
    }

    /// Returns which stream under the net a call is about, and what it demands.
    pub fn caught(&self, call: &Call) -> Option<(usize, Demand)> {
        self.net.find(call, self.elsewhere.load(Ordering::Relaxed))
    }

    fn decide(&self, call: &Call) -> Course {
        match self.caught(call) {
            Some((_, Demand::Answer(value))) => return Course::Answered(Answer::Value(value)),
            Some((_, Demand::Fail(error))) => return Course::Answered(Answer::Error(error)),
            Some((stream, demand)) => {
                self.net.ask(Asked { call: *call, stream, demand });
                return Course::Handed;
            }
            None => {}
        }
        // Calls of other architectures have other numbers, and wait until everything has come.
        let answer =
            if call.native { self.decide_by_name(call) } else { PASS.filter(|_| lock(&self.state).closed == 0) };
        answer.map_or(Course::Waits, Course::Answered)
    }

    /// Returns None if the call has to wait.
    fn decide_by_name(&self, call: &Call) -> Option<Answer> {
        if named(call.number) == Some(Named::Listing) {
            return self.list(call);
        }
        if let Some((place, _)) = of_descriptor(call.number, &call.arguments).filter(|(place, _)| place.is_polled()) {
            // Outside of trials the net reports the polls of its own streams only.
            if !self.is_trial {
                return PASS;
            }
            let polled = descriptors_of(call, place);
            let is_stream = |descriptor| file_id(call.open_file(descriptor)).is_some_and(|id| self.streams.want(id));
            return PASS.filter(|_| !polled.into_iter().any(is_stream));
        }
        if let Some(descriptor) = call.described() {
            return file_id(call.open_file(descriptor))
                .map_or(PASS, |directory| self.ask_of_directory(call, directory));
        }
        let Some(argument) = call.path().filter(|_| !self.is_open() || self.delivers()) else { return PASS };
        if call.made().is_some_and(|made| self.decide_by_path(call, made).is_none()) {
            return None;
        }
        self.decide_by_path(call, argument)
    }

    /// Returns None if the call has to wait for what one of its paths leads to.
    fn decide_by_path(&self, call: &Call, argument: PathArgument) -> Option<Answer> {
        // A process whose memory cannot be read finds no file that is not committed.
        let Some(path) = memory::read_path(call.thread, argument.address) else { return PASS };
        let caller = Caller { thread: call.thread, elsewhere: self.elsewhere.load(Ordering::Relaxed) };
        // A held name does not exist, unless it is a stream.
        if let Ok(found) = find(caller, argument.base, &path, argument.follow) {
            if found.is_dir() {
                return self.ask_of_directory(call, file_id_of(&found));
            }
            let waits = call.asks_for_more() && self.streams.want(file_id_of(&found));
            return PASS.filter(|_| !waits);
        }
        let concerned = |directory| lock(&self.state).directories.contains_key(&directory);
        match locate(caller, argument.base, &path, argument.follow, concerned) {
            Some((directory, name)) if self.is_held(directory, &name) => None,
            _ => PASS,
        }
    }

    fn is_held(&self, directory: FileId, name: &OsStr) -> bool {
        let path = {
            let state = lock(&self.state);
            match state.directories.get(&directory) {
                Some(Held::Files(names)) => return names.iter().any(|held| held == name),
                Some(Held::Tree { tree, path, .. }) if !state.trees[*tree].complete => path.join(name),
                Some(Held::Tree { .. }) | None => return false,
            }
        };
        path.symlink_metadata().is_err()
    }

    /// Whether a listing delivers entries as they are committed, or has delivered them.
    fn delivers(&self) -> bool {
        lock(&self.state).trees.iter().any(|tree| tree.delivers)
    }

    /// Returns the answer to a call that names a directory. None if the call has to wait.
    /// Programs compare the attributes of a directory before and after they list it.
    fn ask_of_directory(&self, call: &Call, directory: FileId) -> Option<Answer> {
        let (path, snapshot) = {
            let state = lock(&self.state);
            match state.directories.get(&directory) {
                Some(Held::Tree { path, delivered: Some(delivered), .. }) => (path.clone(), delivered.snapshot.clone()),
                Some(Held::Tree { tree, .. }) if state.trees[*tree].complete => return PASS,
                Some(_) => return PASS.filter(|_| !changes(call.number, &call.arguments)),
                None => return PASS,
            }
        };
        let Some(address) = call.answer_address() else { return PASS };
        let answer = match call.number {
            libc::SYS_statx => snapshot.extended(&path, call.arguments[2], call.arguments[3]),
            _ => snapshot.plain(&path),
        };
        match answer.map(|answer| memory::write(call.thread, address, &answer)) {
            Ok(Ok(())) => Some(Answer::Value(0)),
            Ok(Err(Errno::EFAULT)) => Some(Answer::Error(Errno::EFAULT)),
            _ => PASS,
        }
    }

    fn list(&self, call: &Call) -> Option<Answer> {
        let descriptor = call.arguments[0] as i32;
        let Some(directory) = file_id(call.open_file(descriptor)) else { return PASS };
        // A listing tells the types of its entries.
        if self.streams.want_in(directory) {
            return None;
        }
        let state = lock(&self.state);
        let (tree, delivered) = match state.directories.get(&directory) {
            Some(Held::Tree { tree, delivered, .. }) => (&state.trees[*tree], delivered),
            // The held names have no entries yet.
            Some(Held::Files(_)) => return None,
            None => return PASS,
        };
        let Some(Delivered { entries, .. }) = delivered else { return PASS.filter(|_| tree.complete) };
        if call.number != libc::SYS_getdents64 {
            return Some(Answer::Error(Errno::ENOSYS));
        }
        match deliver(call, descriptor, entries) {
            Ok(0) if !tree.complete => None,
            Ok(count) => Some(Answer::Value(count as i64)),
            // If this process is not allowed to, the kernel lists the directory when it is complete.
            Err(error) if memory::is_refusal(error) => PASS.filter(|_| tree.complete),
            Err(error) => Some(Answer::Error(error)),
        }
    }
}

/// Gives a process the next entries of a directory.
/// The position is that of the open directory itself, so that processes which move or share it do so here, too.
fn deliver(call: &Call, descriptor: i32, entries: &[Entry]) -> nix::Result<usize> {
    let open = memory::borrow_descriptor(call.thread, descriptor)?;
    let capacity = call.arguments[2] as usize;
    let position = usize::try_from(nix::unistd::lseek(&open, 0, nix::unistd::Whence::SeekCur)?).unwrap_or(0);
    let (bytes, next) = encode(entries, position, capacity).ok_or(Errno::EINVAL)?;
    memory::write(call.thread, call.arguments[1], &bytes)?;
    nix::unistd::lseek(&open, next as i64, nix::unistd::Whence::SeekSet)?;
    Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn only_in_a_trial_a_timed_poll_of_a_stream_asks_for_more() {
        let (stream, _sink) = nix::unistd::pipe().unwrap();
        let polled = [libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let arguments = [polled.as_ptr() as u64, 1, 0, 0, 0, 0];
        let call = Call { id: 0, thread: std::process::id(), native: true, number: libc::SYS_ppoll, arguments };
        for is_trial in [true, false] {
            let streams = Arc::new(Streams::new(1).unwrap());
            streams.add(0, file_id(call.open_file(stream.as_raw_fd())).unwrap(), None);
            let table = GateTable::new(Arc::clone(&streams), is_trial);
            assert_eq!(table.decide_by_name(&call).is_none(), is_trial);
            assert_eq!(streams.wanted().is_empty(), !is_trial);
        }
    }
}
