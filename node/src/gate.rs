//! The gate: a command runs before what it reads is committed, and is held exactly where it touches it.
//!
//! Calls with a path are held by seccomp user notification. Safety does not depend on it: what is not committed is not at
//! the place where the command looks for it. An observed command, which may have gates, is delayed only.

mod attendance;
mod board;
mod calls;
mod entrance;
mod filter;
mod listing;
mod memory;
mod observer;
mod resolve;
mod staging;
mod streams;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::seccomp_notif;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

pub use self::attendance::attend;
use self::board::{Board, Request};
pub use self::entrance::{enter, Entered, Entrance};
pub use self::filter::Purpose;
use self::observer::{Call, Observer};
pub use self::resolve::identity;
use self::resolve::Identity;
use self::staging::{Arrival, Tree};
pub use self::streams::Streams;
use crate::job::{self, Job, Kind, Target};
use crate::observe::Verdict;
use crate::origin::Failure;
use crate::producer::{Producer, State};
use crate::sys::seccomp::{self, Answer};
use crate::tree::Process;
use crate::watch::Watcher;

/// So many calls may wait before those that were interrupted are looked for.
const CROWD: usize = 64;
/// All threads that answer calls are stuck when none was answered for so long.
const STUCK: Duration = Duration::from_millis(20);

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

/// All gated inputs of a job, and who answers the calls that are told.
#[derive(Debug)]
pub struct Gates {
    gates: Vec<Gate>,
    streams: Arc<Streams>,
    has_streams: bool,
    desk: Arc<Desk>,
    listener: Option<Arc<OwnedFd>>,
}

/// Where calls are answered.
#[derive(Debug)]
struct Desk {
    board: Board,
    observer: Option<Observer>,
    /// Threads that wait for a call.
    idle: AtomicUsize,
    /// Calls that were looked at.
    served: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Others answer calls from now on.
    left: AtomicBool,
}

impl Gates {
    /// Makes room for what will come.
    ///
    /// # Errors
    /// A message that names the input.
    pub fn new(job: &Job) -> Result<Self, String> {
        let streams = Streams::new(job.inputs.len()).map_err(|error| format!("eventfd: {}", error.desc()))?;
        let streams = Arc::new(streams);
        let has_streams = job.inputs.iter().any(|input| matches!(input.target, Target::Fifo(_)));
        let board = Board::new(Arc::clone(&streams));
        let mut gates = Vec::new();
        for spec in &job.gates {
            let place = stage(spec, &board)
                .map_err(|error| format!("input {}: cannot make {}: {error}", spec.name, spec.target.display()))?;
            gates.push(Gate { spec: spec.clone(), producer: Producer::of_gate(spec), place, open: false });
        }
        let desk = Desk {
            board,
            observer: Observer::of(job),
            idle: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            threads: Mutex::default(),
            left: AtomicBool::new(false),
        };
        Ok(Self { gates, streams, has_streams, desk: Arc::new(desk), listener: None })
    }

    /// What calls have to be told for. None: nothing.
    pub fn purpose(&self) -> Option<Purpose> {
        let (holds, observes) = (!self.gates.is_empty(), self.desk.observer.is_some());
        let purpose = Purpose { holds, streams: self.has_streams, observes };
        Some(purpose).filter(|purpose| purpose.may_hold() || purpose.observes)
    }

    /// Whether everything is committed.
    pub fn are_open(&self) -> bool {
        self.gates.iter().all(|gate| gate.open)
    }

    /// Whether somebody waits.
    pub fn hold_somebody(&self) -> bool {
        let listener = self.listener.iter().filter(|_| self.desk.board.waiting() > 0);
        listener.for_each(|listener| self.desk.board.prune(|id| seccomp::is_waiting(listener, id)));
        self.desk.board.waiting() > 0
    }

    /// The byte streams that a command finds by their names.
    pub fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Watches the producers' events. To be called until they are there.
    pub fn arm<T: Clone + PartialEq>(&mut self, watcher: &mut Watcher<T>, token: &T) {
        for gate in self.gates.iter_mut().filter(|gate| !gate.open) {
            gate.producer.watch(&mut |path, mask| watcher.watch(path, mask, token.clone()));
        }
    }

    /// Puts in place what has been committed, and lets those go on that waited for it.
    ///
    /// # Errors
    /// The name of the input, and why the command must not go on.
    pub fn advance(&mut self) -> Result<(), (String, Failure)> {
        let mut changed = false;
        for gate in self.gates.iter_mut().filter(|gate| !gate.open) {
            changed |= gate.advance(&self.desk.board).map_err(|failure| (gate.spec.name.clone(), failure))?;
        }
        if changed {
            self.release();
        }
        Ok(())
    }

    /// Something has come: lets those go on that waited for it.
    pub fn release(&self) {
        let Some(listener) = &self.listener else { return };
        for (id, answer) in self.desk.board.released() {
            self.desk.release(listener, id, answer);
        }
    }

    /// Answers the calls of the command from now on, in threads that end with this process.
    pub fn serve(&mut self, listener: OwnedFd) -> io::Result<()> {
        seccomp::wake_in_place(&listener);
        let listener = Arc::new(listener);
        serve_beside(&listener, &self.desk)?;
        let (own, desk) = (Arc::clone(&listener), Arc::clone(&self.desk));
        std::thread::Builder::new().name("relief".into()).stack_size(64 << 10).spawn(move || relieve(&own, &desk))?;
        self.listener = Some(listener);
        Ok(())
    }

    /// The calls of the command are not told, or not understood.
    pub fn lose_sight(&self) {
        self.desk.observer.iter().for_each(Observer::lose_sight);
    }

    /// Looks how far the inputs have been read, if the command is observed.
    pub fn look(&self, processes: &[Process], written: bool) {
        self.desk.observer.iter().for_each(|observer| observer.look(processes, written));
    }

    /// How the inputs were read, when the command has ended.
    pub fn verdicts(&self) -> Vec<Verdict> {
        self.desk.observer.as_ref().map(Observer::verdicts).unwrap_or_default()
    }

    /// Removes what was put in place, unless it is whole, and the job has succeeded.
    pub fn clean_up(&mut self, success: bool) {
        for gate in self.gates.iter().filter(|gate| !(success && gate.open)) {
            let _ = staging::clear(&gate.spec.target);
        }
    }
}

fn stage(spec: &job::Gate, board: &Board) -> io::Result<Place> {
    staging::clear(&spec.target)?;
    if spec.kind == Kind::Directory && staging::same_file_system(&spec.path, &spec.target) {
        let (tree, root) = Tree::new(&spec.path, &spec.target, spec.delivers())?;
        let number = board.hold_tree(spec.delivers());
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

fn arrive(board: &Board, tree: usize, arrival: Arrival) {
    match arrival {
        Arrival::Directory { path, own } => board.add_directory(tree, &path, own),
        Arrival::Entry { directory, entry } => board.add_entry(directory, entry),
    }
}

impl Gate {
    /// Whether anything has come.
    fn advance(&mut self, board: &Board) -> Result<bool, Failure> {
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
        match &self.place {
            Place::Tree { number, .. } => {
                arrivals.into_iter().for_each(|arrival| arrive(board, *number, arrival));
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

fn serve_beside(listener: &Arc<OwnedFd>, desk: &Arc<Desk>) -> io::Result<()> {
    let (listener, own) = (Arc::clone(listener), Arc::clone(desk));
    desk.idle.fetch_add(1, Ordering::Relaxed);
    let thread = std::thread::Builder::new().name("gate".into()).stack_size(256 << 10);
    let thread = thread.spawn(move || serve(&listener, &own))?;
    desk.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    Ok(())
}

/// Answers calls as long as there is somebody to call.
fn serve(listener: &OwnedFd, desk: &Desk) {
    while !desk.left.load(Ordering::Relaxed) {
        let notice = match seccomp::receive(listener) {
            Ok(notice) => notice,
            Err(Errno::EINTR) => continue,
            Err(Errno::ENOENT) if has_callers(listener) => continue,
            Err(_) => return,
        };
        desk.idle.fetch_sub(1, Ordering::Relaxed);
        desk.serve(listener, notice);
        desk.served.fetch_add(1, Ordering::Relaxed);
        desk.idle.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lets one more thread answer calls whenever all of them are stuck. To look at a file may take a process of this very job, as
/// one that serves a FUSE mount, and that one may wait for the answer to a call of its own. Two threads from the start would
/// cost half as much again for each call.
fn relieve(listener: &Arc<OwnedFd>, desk: &Arc<Desk>) {
    let mut served = desk.served.load(Ordering::Relaxed);
    while desk.observer.is_some() || !desk.board.is_open() {
        std::thread::sleep(STUCK);
        if desk.left.load(Ordering::Relaxed) {
            return;
        }
        let before = std::mem::replace(&mut served, desk.served.load(Ordering::Relaxed));
        if served == before && desk.idle.load(Ordering::Relaxed) == 0 && serve_beside(listener, desk).is_err() {
            return;
        }
    }
}

impl Desk {
    fn serve(&self, listener: &OwnedFd, notice: seccomp_notif) {
        let (request, call) = (Request::from(notice), Call::from(notice));
        // The numbers of other calls are not those that the board knows.
        let answer =
            if call.is_native() { self.board.ask(request, || self.hold(call)) } else { Some(Answer::Continue) };
        if let Some(answer) = answer {
            self.answer(listener, request.id, Some(call), answer);
            return;
        }
        if self.board.waiting() % CROWD == 0 {
            let is_waiting = |id| seccomp::is_waiting(listener, id);
            self.board.prune(is_waiting);
            self.observer.iter().for_each(|observer| observer.prune(is_waiting));
        }
    }

    fn hold(&self, call: Call) {
        self.observer.iter().for_each(|observer| observer.hold(call));
    }

    /// Answers a call that has waited.
    fn release(&self, listener: &OwnedFd, id: u64, answer: Answer) {
        let call = self.observer.as_ref().and_then(|observer| observer.release(id));
        self.answer(listener, id, call, answer);
    }

    fn answer(&self, listener: &OwnedFd, id: u64, call: Option<Call>, answer: Answer) {
        match (&self.observer, call) {
            (Some(observer), Some(call)) => observer.answer(listener, &call, answer),
            _ => {
                seccomp::answer(listener, id, answer);
            }
        }
    }
}

fn has_callers(listener: &OwnedFd) -> bool {
    let mut descriptors = [PollFd::new(std::os::fd::AsFd::as_fd(listener), PollFlags::empty())];
    let _ = poll(&mut descriptors, PollTimeout::ZERO);
    !descriptors[0].revents().unwrap_or(PollFlags::empty()).contains(PollFlags::POLLHUP)
}
