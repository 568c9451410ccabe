//! What a command may not touch yet, and the calls that wait for it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::seccomp_notif;

use super::calls::{named, Named};
use super::listing::{encode, Entry};
use super::memory;
use super::resolve::{exists, identity, locate, Base, Caller, Identity};
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

#[derive(Debug, Default)]
pub struct Board {
    directories: HashMap<Identity, Held>,
    trees: Vec<Tree>,
    /// Files and trees that are not committed.
    closed: usize,
    waiting: Vec<Request>,
    /// Somebody may find other files by the same paths.
    elsewhere: bool,
}

impl From<seccomp_notif> for Request {
    fn from(notice: seccomp_notif) -> Self {
        let data = notice.data;
        Self { id: notice.id, thread: notice.pid, number: i64::from(data.nr), arguments: data.args }
    }
}

impl Board {
    /// Holds a name in a directory.
    pub fn hold_file(&mut self, directory: Identity, name: &OsStr) {
        self.closed += 1;
        match self.directories.entry(directory).or_insert_with(|| Held::Files(Vec::new())) {
            Held::Files(names) => names.push(name.to_owned()),
            Held::Tree { .. } => {}
        }
    }

    /// The name is there.
    pub fn open_file(&mut self, directory: Identity, name: &OsStr) {
        self.closed -= 1;
        if let Some(Held::Files(names)) = self.directories.get_mut(&directory) {
            names.retain(|held| held != name);
            if names.is_empty() {
                self.directories.remove(&directory);
            }
        }
    }

    /// Holds a directory; its number is for the other calls.
    ///
    /// # Arguments
    /// * `delivers` - a listing delivers entries as they come; else it waits until all are there
    pub fn hold_tree(&mut self, delivers: bool) -> usize {
        self.closed += 1;
        self.trees.push(Tree { complete: false, delivers });
        self.trees.len() - 1
    }

    /// A directory of a tree, the root or one below, is there, with what lists it and what is above it.
    pub fn add_directory(&mut self, tree: usize, path: &Path, own: [Entry; 2]) {
        if let Some(found) = identity(path) {
            self.directories.insert(found, Held::Tree { tree, path: path.to_owned(), entries: own.to_vec() });
        }
    }

    /// An entry of a directory of a tree is there.
    pub fn add_entry(&mut self, directory: Identity, entry: Entry) {
        if let Some(Held::Tree { entries, .. }) = self.directories.get_mut(&directory) {
            entries.push(entry);
        }
    }

    /// All of a tree is there.
    pub fn complete_tree(&mut self, number: usize) {
        self.closed -= 1;
        self.trees[number].complete = true;
        if !self.trees[number].delivers {
            self.directories.retain(|_, held| !matches!(held, Held::Tree { tree, .. } if *tree == number));
        }
    }

    /// Whether nothing is held any more.
    pub fn is_open(&self) -> bool {
        self.closed == 0
    }

    /// What a call gets now; one that is to wait gets nothing, and is kept.
    pub fn ask(&mut self, request: Request) -> Option<Answer> {
        self.elsewhere |= named(request.number) == Some(Named::Elsewhere);
        let answer = self.decide(&request);
        if answer.is_none() {
            self.waiting.push(request);
        }
        answer
    }

    /// Those that waited and need not any more, after something has come.
    pub fn released(&mut self) -> Vec<(u64, Answer)> {
        let mut released = Vec::new();
        for request in std::mem::take(&mut self.waiting) {
            match self.decide(&request) {
                Some(answer) => released.push((request.id, answer)),
                None => self.waiting.push(request),
            }
        }
        released
    }

    /// Forgets those that were interrupted.
    pub fn prune(&mut self, is_waiting: impl Fn(u64) -> bool) {
        self.waiting.retain(|request| is_waiting(request.id));
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
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
        let (caller, follow) = (Caller { thread: request.thread, elsewhere: self.elsewhere }, follow.holds(arguments));
        // What is held is not there.
        if exists(caller, base, &path, follow) {
            return PASS;
        }
        let concerned = |directory| self.directories.contains_key(&directory);
        match locate(caller, base, &path, follow, concerned) {
            Some((directory, name)) if self.is_held(directory, &name) => None,
            _ => PASS,
        }
    }

    fn is_held(&self, directory: Identity, name: &OsStr) -> bool {
        match self.directories.get(&directory) {
            Some(Held::Files(names)) => names.iter().any(|held| held == name),
            Some(Held::Tree { tree, path, .. }) => {
                !self.trees[*tree].complete && path.join(name).symlink_metadata().is_err()
            }
            None => false,
        }
    }

    fn list(&self, request: &Request) -> Option<Answer> {
        let descriptor = request.arguments[0] as i32;
        let open = PathBuf::from(format!("/proc/{}/fd/{descriptor}", request.thread));
        let held = identity(&open).and_then(|directory| self.directories.get(&directory));
        let (tree, entries) = match held {
            Some(Held::Tree { tree, entries, .. }) => (tree, entries),
            // What is held here has no entry yet.
            Some(Held::Files(_)) => return None,
            None => return PASS,
        };
        let tree = &self.trees[*tree];
        if !tree.delivers {
            return PASS.filter(|_| tree.complete);
        }
        if request.number != nix::libc::SYS_getdents64 {
            return Some(Answer::Error(Errno::ENOSYS));
        }
        match self.deliver(request, descriptor, entries) {
            Ok(0) if !tree.complete => None,
            Ok(count) => Some(Answer::Value(count as i64)),
            Err(error) => Some(Answer::Error(error)),
        }
    }

    /// Gives a process the next entries of a directory. Its position is that of the open directory itself, so that
    /// whatever moves it or shares it does so here.
    fn deliver(&self, request: &Request, descriptor: i32, entries: &[Entry]) -> nix::Result<usize> {
        let open = memory::borrow_descriptor(request.thread, descriptor)?;
        let capacity = request.arguments[2] as usize;
        let position = usize::try_from(nix::unistd::lseek(&open, 0, nix::unistd::Whence::SeekCur)?).unwrap_or(0);
        let (bytes, next) = encode(entries, position, capacity).ok_or(Errno::EINVAL)?;
        memory::write(request.thread, request.arguments[1], &bytes)?;
        nix::unistd::lseek(&open, next as i64, nix::unistd::Whence::SeekSet)?;
        Ok(bytes.len())
    }
}

impl Base {
    pub fn of(argument: u64) -> Self {
        match argument as i32 {
            nix::libc::AT_FDCWD => Self::Working,
            descriptor => Self::Descriptor(descriptor),
        }
    }
}
