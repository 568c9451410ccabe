//! What a command may not touch yet, and the calls that wait for it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;

use super::call::Call;
use super::demand::Demand;
use super::listing::{encode, Entry};
use super::memory;
use super::net::{Asked, Net};
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
    /// A directory of a tree: whatever is not there may come.
    Tree { tree: usize, path: PathBuf, delivered: Option<Delivered> },
}

/// What a command is told of a directory whose listing delivers entries as they are committed.
#[derive(Debug)]
struct Delivered {
    entries: Vec<Entry>,
    /// Whoever compares what the directory was before and after a listing finds no difference.
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

/// What becomes of a call now.
enum Course {
    Answered(Answer),
    Waits,
    /// Who feeds the streams answers it.
    Handed,
}

/// It may be asked by several threads at once. Nothing is locked while the file system is looked at: that may take a process
/// of the very job, as one that serves a FUSE mount, whose own calls are asked about meanwhile.
#[derive(Debug)]
pub struct GateTable {
    state: Mutex<State>,
    streams: Arc<Streams>,
    pub net: Net,
    /// Somebody may find other files by the same paths.
    elsewhere: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<FileId, Held>,
    trees: Vec<Tree>,
    /// Files and trees that are not committed.
    closed: usize,
    waiting: Vec<Call>,
    /// How often something has come.
    arrivals: u64,
    /// Since when there are some that wait.
    since: Option<Instant>,
    /// For how long there were some before.
    held: Duration,
}

impl State {
    /// There are others that wait, or none any more.
    fn settle(&mut self) {
        if self.waiting.is_empty() {
            self.held += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        } else {
            self.since.get_or_insert_with(Instant::now);
        }
    }
}

impl GateTable {
    pub fn new(streams: Arc<Streams>) -> Self {
        let net = Net::new(Arc::clone(&streams));
        Self { state: Mutex::default(), streams, net, elsewhere: AtomicBool::default() }
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

    /// The name is there.
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

    /// Holds a directory; its number is for the other calls.
    ///
    /// # Arguments
    /// * `delivers` - a listing delivers entries as they come; else it waits until all are there
    pub fn hold_tree(&self, delivers: bool) -> usize {
        let mut state = lock(&self.state);
        state.closed += 1;
        state.trees.push(Tree { complete: false, delivers });
        state.trees.len() - 1
    }

    /// Something has come into a tree: an entry of a directory, or a directory, the root or one below.
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

    /// All of a tree is there.
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

    /// What a call gets now; one that is to wait gets nothing, and is kept.
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
            // Else it may be just what has come meanwhile.
            if state.arrivals == seen {
                state.waiting.push(call);
                state.settle();
                return None;
            }
        }
    }

    /// Something has come: those that waited and need not any more. For one thread, which tells of all that comes.
    pub fn released(&self) -> Vec<(Call, Answer)> {
        let waiting = {
            let mut state = lock(&self.state);
            state.arrivals += 1;
            std::mem::take(&mut state.waiting)
        };
        let (mut released, mut held) = (Vec::new(), Vec::new());
        for call in waiting {
            match self.decide(&call) {
                Course::Answered(answer) => released.push((call, answer)),
                Course::Waits => held.push(call),
                Course::Handed => {}
            }
        }
        let mut state = lock(&self.state);
        state.waiting.append(&mut held);
        state.settle();
        drop(state);
        released
    }

    /// Forgets those that were interrupted.
    pub fn prune(&self, is_waiting: impl Fn(u64) -> bool) {
        let mut state = lock(&self.state);
        state.waiting.retain(|call| is_waiting(call.id));
        state.settle();
    }

    /// Forgets all that wait, and says which they are.
    pub fn give_up(&self) -> Vec<Call> {
        let mut state = lock(&self.state);
        let mut calls = std::mem::take(&mut state.waiting);
        state.settle();
        drop(state);
        calls.extend(self.net.take().iter().map(|asked| asked.call));
        calls
    }

    /// For how long at least one call has waited at a gate.
    pub fn held(&self) -> Duration {
        let state = lock(&self.state);
        state.held + state.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Since when at least one call waits at a gate; None: none does.
    pub fn held_since(&self) -> Option<Instant> {
        lock(&self.state).since
    }

    pub fn waiting(&self) -> usize {
        lock(&self.state).waiting.len() + self.net.waiting()
    }

    /// Which stream under the net a call is about, and what it wants of it.
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
        // The numbers of other calls are not those that are known here: what they ask for is all there, or they wait.
        let answer =
            if call.native { self.decide_by_name(call) } else { PASS.filter(|_| lock(&self.state).closed == 0) };
        answer.map_or(Course::Waits, Course::Answered)
    }

    /// None: it has to wait.
    fn decide_by_name(&self, call: &Call) -> Option<Answer> {
        if named(call.number) == Some(Named::Listing) {
            return self.list(call);
        }
        if let Some(descriptor) = call.described() {
            return file_id(open_file(call, descriptor))
                .map_or(PASS, |directory| self.ask_of_directory(call, directory));
        }
        let Some(argument) = call.path().filter(|_| !self.is_open() || self.delivers()) else { return PASS };
        // A process whose memory cannot be read finds no file that is not committed.
        let Some(path) = memory::read_path(call.thread, argument.address) else { return PASS };
        let caller = Caller { thread: call.thread, elsewhere: self.elsewhere.load(Ordering::Relaxed) };
        // What is held is not there, unless it is a stream.
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

    /// What a call gets that names a directory. Programs compare what it was before they have listed it, and after. None:
    /// it has to wait.
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
        let Some(directory) = file_id(open_file(call, descriptor)) else { return PASS };
        let state = lock(&self.state);
        let (tree, delivered) = match state.directories.get(&directory) {
            Some(Held::Tree { tree, delivered, .. }) => (&state.trees[*tree], delivered),
            // What is held here has no entry yet.
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
            // Where that is not allowed here, the kernel lists it when all is there.
            Err(error) if memory::is_refusal(error) => PASS.filter(|_| tree.complete),
            Err(error) => Some(Answer::Error(error)),
        }
    }
}

/// Where this process finds what another has open.
fn open_file(call: &Call, descriptor: i32) -> PathBuf {
    format!("/proc/{}/fd/{descriptor}", call.thread).into()
}

/// Gives a process the next entries of a directory. Its position is that of the open directory itself, so that
/// whatever moves it or shares it does so here.
fn deliver(call: &Call, descriptor: i32, entries: &[Entry]) -> nix::Result<usize> {
    let open = memory::borrow_descriptor(call.thread, descriptor)?;
    let capacity = call.arguments[2] as usize;
    let position = usize::try_from(nix::unistd::lseek(&open, 0, nix::unistd::Whence::SeekCur)?).unwrap_or(0);
    let (bytes, next) = encode(entries, position, capacity).ok_or(Errno::EINVAL)?;
    memory::write(call.thread, call.arguments[1], &bytes)?;
    nix::unistd::lseek(&open, next as i64, nix::unistd::Whence::SeekSet)?;
    Ok(bytes.len())
}
