//! The gate: a command runs before what it reads is committed, and is held exactly where it touches it.
//!
//! Calls with a path are held by seccomp user notification. Safety does not depend on it: what is not committed is not at
//! the place where the command looks for it.

mod board;
mod calls;
mod entrance;
mod filter;
mod listing;
mod memory;
mod resolve;
mod staging;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use self::board::{Board, Request};
pub use self::entrance::{enter, Entered, Entrance};
use self::resolve::{identity, Identity};
use self::staging::{Arrival, Tree};
use crate::feed::Failure;
use crate::job::{self, Kind};
use crate::producer::{Producer, State};
use crate::sys::seccomp;
use crate::watch::Watcher;

/// So many calls may wait before those that were interrupted are looked for.
const CROWD: usize = 64;

#[derive(Debug)]
enum Place {
    /// A name that appears as a whole.
    Link {
        directory: Identity,
        name: OsString,
    },
    Tree {
        number: usize,
        tree: Tree,
    },
}

/// One input that is gated.
#[derive(Debug)]
struct Gate {
    spec: job::Gate,
    producer: Producer,
    place: Place,
    open: bool,
}

/// All gated inputs of a job, and who answers the calls that are held.
#[derive(Debug)]
pub struct Gates {
    gates: Vec<Gate>,
    board: Arc<Mutex<Board>>,
    listener: Option<Arc<OwnedFd>>,
}

impl Gates {
    /// Makes room for what will come.
    ///
    /// # Errors
    /// A message that names the input.
    pub fn new(specs: &[job::Gate]) -> Result<Self, String> {
        let mut board = Board::default();
        let mut gates = Vec::new();
        for spec in specs {
            let place = stage(spec, &mut board)
                .map_err(|error| format!("input {}: cannot make {}: {error}", spec.name, spec.target.display()))?;
            gates.push(Gate { spec: spec.clone(), producer: Producer::of_gate(spec), place, open: false });
        }
        Ok(Self { gates, board: Arc::new(Mutex::new(board)), listener: None })
    }

    pub fn is_empty(&self) -> bool {
        self.gates.is_empty()
    }

    /// Whether everything is committed.
    pub fn are_open(&self) -> bool {
        self.gates.iter().all(|gate| gate.open)
    }

    /// Watches the producers' events. To be called until they are there.
    pub fn arm<T: Clone + PartialEq>(&mut self, watcher: &mut Watcher<T>, token: &T) {
        for gate in self.gates.iter_mut().filter(|gate| !gate.open) {
            gate.producer.watch(watcher, token.clone());
        }
    }

    /// Puts in place what has been committed, and lets those go on that waited for it.
    ///
    /// # Errors
    /// The name of the input, and why the command must not go on.
    pub fn advance(&mut self) -> Result<(), (String, Failure)> {
        let mut changed = false;
        for gate in self.gates.iter_mut().filter(|gate| !gate.open) {
            changed |= gate.advance(&self.board).map_err(|failure| (gate.spec.name.clone(), failure))?;
        }
        if let (true, Some(listener)) = (changed, &self.listener) {
            for (id, answer) in lock(&self.board).released() {
                seccomp::answer(listener, id, answer);
            }
        }
        Ok(())
    }

    /// Answers the calls of the command from now on, in a thread that ends with this process.
    pub fn serve(&mut self, listener: OwnedFd) -> io::Result<()> {
        seccomp::wake_in_place(&listener);
        let listener = Arc::new(listener);
        let (board, own) = (Arc::clone(&self.board), Arc::clone(&listener));
        std::thread::Builder::new().name("gate".into()).stack_size(256 << 10).spawn(move || serve(&own, &board))?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Removes what was put in place, unless it is whole, and the job has succeeded.
    pub fn clean_up(&mut self, success: bool) {
        for gate in self.gates.iter().filter(|gate| !(success && gate.open)) {
            let _ = staging::clear(&gate.spec.target);
        }
    }
}

fn stage(spec: &job::Gate, board: &mut Board) -> io::Result<Place> {
    staging::clear(&spec.target)?;
    if spec.kind == Kind::Directory && staging::same_file_system(&spec.path, &spec.target) {
        let (tree, root) = Tree::new(&spec.path, &spec.target, spec.delivers)?;
        let number = board.hold_tree(spec.delivers);
        arrive(board, number, root);
        return Ok(Place::Tree { number, tree });
    }
    let above = spec.target.parent().and_then(identity);
    let (Some(directory), Some(name)) = (above, spec.target.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    };
    board.hold_file(directory, name);
    Ok(Place::Link { directory, name: name.to_owned() })
}

fn arrive(board: &mut Board, tree: usize, arrival: Arrival) {
    match arrival {
        Arrival::Directory { path, own } => board.add_directory(tree, &path, own),
        Arrival::Entry { directory, entry } => board.add_entry(directory, entry),
    }
}

fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Gate {
    /// Whether anything has come.
    fn advance(&mut self, board: &Mutex<Board>) -> Result<bool, Failure> {
        self.producer.read();
        let (target, path) = (&self.spec.target, &self.spec.path);
        let at = |error: io::Error| Failure::Producer(format!("cannot place {}: {error}", target.display()));
        let mut arrivals = Vec::new();
        let fresh = self.producer.take_committed();
        if let Place::Tree { tree, .. } = &self.place {
            for file in &fresh {
                arrivals.extend(tree.place(file.strip_prefix(path).unwrap_or(file)).map_err(at)?);
            }
        }
        let complete = match &self.producer.state {
            State::Committed(_) => true,
            State::Failed(message) => return Err(Failure::Producer(message.clone())),
            State::Silent | State::Writing => false,
        };
        match &self.place {
            Place::Tree { tree, .. } if complete => arrivals.extend(tree.complete().map_err(at)?),
            Place::Link { .. } if complete => symlink(path, target).map_err(at)?,
            _ => {}
        }
        let changed = complete || !fresh.is_empty();
        let mut board = lock(board);
        match &self.place {
            Place::Tree { number, .. } => {
                arrivals.into_iter().for_each(|arrival| arrive(&mut board, *number, arrival));
                if complete {
                    board.complete_tree(*number);
                }
            }
            Place::Link { directory, name } if complete => board.open_file(*directory, name),
            Place::Link { .. } => {}
        }
        self.open = complete;
        Ok(changed)
    }
}

/// Answers calls as long as there is somebody to call.
fn serve(listener: &OwnedFd, board: &Mutex<Board>) {
    loop {
        let notice = match seccomp::receive(listener) {
            Ok(notice) => notice,
            Err(Errno::EINTR) => continue,
            Err(Errno::ENOENT) if has_callers(listener) => continue,
            Err(_) => return,
        };
        let request = Request::from(notice);
        let mut board = lock(board);
        if let Some(answer) = board.ask(request) {
            drop(board);
            seccomp::answer(listener, request.id, answer);
        } else if board.waiting() % CROWD == 0 {
            board.prune(|id| seccomp::is_waiting(listener, id));
        }
    }
}

fn has_callers(listener: &OwnedFd) -> bool {
    let mut descriptors = [PollFd::new(std::os::fd::AsFd::as_fd(listener), PollFlags::empty())];
    let _ = poll(&mut descriptors, PollTimeout::ZERO);
    !descriptors[0].revents().unwrap_or(PollFlags::empty()).contains(PollFlags::POLLHUP)
}
