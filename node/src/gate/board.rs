//! What a command may not touch yet, and the calls that wait for it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::libc::{self, seccomp_notif};

use super::calls::{asks, named, Named};
use super::listing::{encode, Entry};
use super::memory;
use super::resolve::{find, identity, identity_of, locate, Base, Caller, Identity};
use super::streams::Streams;
use crate::sys::seccomp::Answer;

/// A directory in which something is held.
#[derive(Debug)]
enum Held {
    /// Names that are not committed.
    Files(Vec<OsString>),
    /// A directory of a tree: whatever is not there may come. With the entries that a listing delivers.
    Tree { tree: usize, path: PathBuf, entries: Vec<Entry> },
}

/// A directory that is held, with all that is below it.
#[derive(Debug)]
struct Tree {
    complete: bool,
    /// A listing delivers entries as they are committed.
    delivers: bool,
}

/// One call, as it came.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub id: u64,
    thread: u32,
    number: i64,
    arguments: [u64; 6],
}

const PASS: Option<Answer> = Some(Answer::Continue);

/// It may be asked by several threads at once. Nothing is locked while the file system is looked at: that may take a process
/// of the very job, as one that serves a FUSE mount, whose own calls are asked about meanwhile.
#[derive(Debug)]
pub struct Board {
    state: Mutex<State>,
    streams: Arc<Streams>,
    /// Somebody may find other files by the same paths.
    elsewhere: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    directories: HashMap<Identity, Held>,
    trees: Vec<Tree>,
    /// Files and trees that are not committed.
    closed: usize,
    waiting: Vec<Request>,
    /// How often something has come.
    arrivals: u64,
}

impl From<seccomp_notif> for Request {
    fn from(notice: seccomp_notif) -> Self {
        let data = notice.data;
        Self { id: notice.id, thread: notice.pid, number: i64::from(data.nr), arguments: data.args }
    }
}

impl Board {
    pub fn new(streams: Arc<Streams>) -> Self {
        Self { state: Mutex::default(), streams, elsewhere: AtomicBool::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a name in a directory.
    pub fn hold_file(&self, directory: Identity, name: &OsStr) {
        let mut state = self.state();
        state.closed += 1;
        match state.directories.entry(directory).or_insert_with(|| Held::Files(Vec::new())) {
            Held::Files(names) => names.push(name.to_owned()),
            Held::Tree { .. } => {}
        }
    }

    /// The name is there.
    pub fn open_file(&self, directory: Identity, name: &OsStr) {
        let mut state = self.state();
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
        let mut state = self.state();
        state.closed += 1;
        state.trees.push(Tree { complete: false, delivers });
        state.trees.len() - 1
    }

    /// A directory of a tree, the root or one below, is there, with what lists it and what is above it.
    pub fn add_directory(&self, tree: usize, path: &Path, own: [Entry; 2]) {
        if let Some(found) = identity(path) {
            self.state().directories.insert(found, Held::Tree { tree, path: path.to_owned(), entries: own.to_vec() });
        }
    }

    /// An entry of a directory of a tree is there.
    pub fn add_entry(&self, directory: Identity, entry: Entry) {
        if let Some(Held::Tree { entries, .. }) = self.state().directories.get_mut(&directory) {
            entries.push(entry);
        }
    }

    /// All of a tree is there.
    pub fn complete_tree(&self, number: usize) {
        let mut state = self.state();
        state.closed -= 1;
        state.trees[number].complete = true;
        if !state.trees[number].delivers {
            state.directories.retain(|_, held| !matches!(held, Held::Tree { tree, .. } if *tree == number));
        }
    }

    /// Whether nothing is held any more.
    pub fn is_open(&self) -> bool {
        self.state().closed == 0 && !self.streams.are_open()
    }

    /// What a call gets now; one that is to wait gets nothing, and is kept.
    ///
    /// # Arguments
    /// * `on_hold` - called before anybody can release it
    pub fn ask(&self, request: Request, on_hold: impl FnOnce()) -> Option<Answer> {
        if named(request.number) == Some(Named::Elsewhere) {
            self.elsewhere.store(true, Ordering::Relaxed);
        }
        loop {
            let seen = self.state().arrivals;
            if let Some(answer) = self.decide(&request) {
                return Some(answer);
            }
            let mut state = self.state();
            // Else it may be just what has come meanwhile.
            if state.arrivals == seen {
                on_hold();
                state.waiting.push(request);
                return None;
            }
        }
    }

    /// Something has come: those that waited and need not any more. For one thread, which tells of all that comes.
    pub fn released(&self) -> Vec<(u64, Answer)> {
        let waiting = {
            let mut state = self.state();
            state.arrivals += 1;
            std::mem::take(&mut state.waiting)
        };
        let (mut released, mut held) = (Vec::new(), Vec::new());
        for request in waiting {
            match self.decide(&request) {
                Some(answer) => released.push((request.id, answer)),
                None => held.push(request),
            }
        }
        self.state().waiting.append(&mut held);
        released
    }

    /// Forgets those that were interrupted.
    pub fn prune(&self, is_waiting: impl Fn(u64) -> bool) {
        self.state().waiting.retain(|request| is_waiting(request.id));
    }

    /// Forgets all that wait, and says which they are.
    pub fn give_up(&self) -> Vec<u64> {
        std::mem::take(&mut self.state().waiting).iter().map(|request| request.id).collect()
    }

    pub fn waiting(&self) -> usize {
        self.state().waiting.len()
    }

    /// None: it has to wait.
    fn decide(&self, request: &Request) -> Option<Answer> {
        let arguments = &request.arguments;
        let (base, path, follow) = match named(request.number) {
            Some(Named::Listing) => return self.list(request),
            _ if self.is_open() => return PASS,
            Some(Named::Path { path, follow }) => (Base::Working, path, follow),
            Some(Named::At { directory, path, follow }) => (Base::of(arguments[directory]), path, follow),
            Some(Named::Elsewhere) | None => return PASS,
        };
        // A process whose memory cannot be read finds no file that is not committed.
        let Some(path) = memory::read_path(request.thread, arguments[path]) else { return PASS };
        let elsewhere = self.elsewhere.load(Ordering::Relaxed);
        let (caller, follow) = (Caller { thread: request.thread, elsewhere }, follow.holds(arguments));
        // What is held is not there, unless it is a stream.
        if let Ok(found) = find(caller, base, &path, follow) {
            let waits = asks_for_more(request) && self.streams.want(identity_of(&found));
            return PASS.filter(|_| !waits);
        }
        let concerned = |directory| self.state().directories.contains_key(&directory);
        match locate(caller, base, &path, follow, concerned) {
            Some((directory, name)) if self.is_held(directory, &name) => None,
            _ => PASS,
        }
    }

    fn is_held(&self, directory: Identity, name: &OsStr) -> bool {
        let path = {
            let state = self.state();
            match state.directories.get(&directory) {
                Some(Held::Files(names)) => return names.iter().any(|held| held == name),
                Some(Held::Tree { tree, path, .. }) if !state.trees[*tree].complete => path.join(name),
                Some(Held::Tree { .. }) | None => return false,
            }
        };
        path.symlink_metadata().is_err()
    }

    fn list(&self, request: &Request) -> Option<Answer> {
        let descriptor = request.arguments[0] as i32;
        let open = PathBuf::from(format!("/proc/{}/fd/{descriptor}", request.thread));
        let Some(directory) = identity(&open) else { return PASS };
        let state = self.state();
        let (tree, entries) = match state.directories.get(&directory) {
            Some(Held::Tree { tree, entries, .. }) => (tree, entries),
            // What is held here has no entry yet.
            Some(Held::Files(_)) => return None,
            None => return PASS,
        };
        let tree = &state.trees[*tree];
        if !tree.delivers {
            return PASS.filter(|_| tree.complete);
        }
        if request.number != libc::SYS_getdents64 {
            return Some(Answer::Error(Errno::ENOSYS));
        }
        match deliver(request, descriptor, entries) {
            Ok(0) if !tree.complete => None,
            Ok(count) => Some(Answer::Value(count as i64)),
            // Where that is not allowed here, the kernel lists it when all is there.
            Err(error) if memory::is_refusal(error) => PASS.filter(|_| tree.complete),
            Err(error) => Some(Answer::Error(error)),
        }
    }
}

/// `openat2` has its flags in memory; what cannot be read may ask for anything.
fn asks_for_more(request: &Request) -> bool {
    if request.number != libc::SYS_openat2 {
        return asks(request.number, &request.arguments);
    }
    let mut flags = [0; 8];
    let known = memory::read(request.thread, request.arguments[2] as usize, &mut flags).is_ok();
    !known || asks(libc::SYS_openat, &[0, 0, u64::from_ne_bytes(flags), 0, 0, 0])
}

/// Gives a process the next entries of a directory. Its position is that of the open directory itself, so that
/// whatever moves it or shares it does so here.
fn deliver(request: &Request, descriptor: i32, entries: &[Entry]) -> nix::Result<usize> {
    let open = memory::borrow_descriptor(request.thread, descriptor)?;
    let capacity = request.arguments[2] as usize;
    let position = usize::try_from(nix::unistd::lseek(&open, 0, nix::unistd::Whence::SeekCur)?).unwrap_or(0);
    let (bytes, next) = encode(entries, position, capacity).ok_or(Errno::EINVAL)?;
    memory::write(request.thread, request.arguments[1], &bytes)?;
    nix::unistd::lseek(&open, next as i64, nix::unistd::Whence::SeekSet)?;
    Ok(bytes.len())
}

impl Base {
    pub fn of(argument: u64) -> Self {
        match argument as i32 {
            libc::AT_FDCWD => Self::Working,
            descriptor => Self::Descriptor(descriptor),
        }
    }
}
