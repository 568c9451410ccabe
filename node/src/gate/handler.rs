//! The notification handler: threads that answer the calls of the command.

use std::io;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::pthread::{pthread_kill, Pthread};
use nix::sys::signal::Signal;

use super::call::Call;
use super::excerpts::Excerpts;
use super::observer::Observer;
use super::pass_through;
use super::table::GateTable;
use crate::sys::pipe;
use crate::sys::raw;
use crate::sys::raw::seccomp::{self, Answer};
use crate::sys::threads::{lock, spawn};

/// So many calls may wait before those that were interrupted are looked for.
const CROWD: usize = 64;
/// All threads that answer calls are stuck when none was answered for so long.
const STUCK: Duration = Duration::from_millis(20);
/// It is looked for that less and less often while nobody calls.
const SELDOM: Duration = Duration::from_millis(160);
/// Interrupts a thread that waits for a call. Nobody sends it to this process for another reason.
const INTERRUPT: Signal = Signal::SIGIO;
/// A thread that does not come back for so long is stuck in a look at a file.
const PATIENCE: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub struct Handler {
    pub table: GateTable,
    pub observer: Option<Observer>,
    pub excerpts: Option<Excerpts>,
    listener: OnceLock<OwnedFd>,
    /// Threads that wait for a call.
    idle: AtomicUsize,
    /// Calls that were looked at.
    served: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Others answer calls from now on.
    stopped: AtomicBool,
}

impl Handler {
    pub fn new(table: GateTable, observer: Option<Observer>, excerpts: Option<Excerpts>) -> Self {
        Self {
            table,
            observer,
            excerpts,
            listener: OnceLock::new(),
            idle: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            threads: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Answers the calls that are told at `listener` from now on, in threads that end with this process. Returns why they may
    /// get stuck, if so.
    ///
    /// # Errors
    /// Why nobody answers them.
    pub fn start(self: &Arc<Self>, listener: OwnedFd) -> io::Result<Option<io::Error>> {
        seccomp::wake_in_place(&listener);
        let _ = self.listener.set(listener);
        self.start_thread()?;
        let own = Arc::clone(self);
        Ok(spawn("relief", move || own.relieve()).err())
    }

    fn start_thread(self: &Arc<Self>) -> io::Result<()> {
        let own = Arc::clone(self);
        self.idle.fetch_add(1, Ordering::Relaxed);
        let serve = move || own.listener.get().map_or((), |listener| own.serve(listener));
        lock(&self.threads).push(spawn("gate", serve)?);
        Ok(())
    }

    /// Answers calls as long as there is somebody to call.
    fn serve(&self, listener: &OwnedFd) {
        while !self.stopped.load(Ordering::Relaxed) {
            let call = match seccomp::receive(listener) {
                Ok(notice) => Call::from(notice),
                Err(Errno::EINTR) => continue,
                Err(Errno::ENOENT) if has_callers(listener) => continue,
                Err(_) => return,
            };
            self.idle.fetch_sub(1, Ordering::Relaxed);
            match self.excerpts.as_ref().and_then(|own| own.answer(&call)).or_else(|| self.table.ask(call)) {
                Some(answer) => self.answer(listener, &call, answer),
                None if self.table.waiting() % CROWD == 0 => self.prune(listener),
                None => {}
            }
            self.served.fetch_add(1, Ordering::Relaxed);
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets one more thread answer calls whenever all of them are stuck. To look at a file may take a process of this very
    /// job, as one that serves a FUSE mount, and that one may wait for the answer to a call of its own. Two threads from the
    /// start would cost half as much again for each call.
    fn relieve(self: Arc<Self>) {
        let (mut served, mut pause) = (self.served.load(Ordering::Relaxed), STUCK);
        while self.observer.is_some() || self.excerpts.is_some() || !self.table.is_open() {
            std::thread::sleep(pause);
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let before = std::mem::replace(&mut served, self.served.load(Ordering::Relaxed));
            let nobody_is_there = self.idle.load(Ordering::Relaxed) == 0;
            if served == before && nobody_is_there && self.start_thread().is_err() {
                return;
            }
            pause = if served == before && !nobody_is_there { SELDOM.min(2 * pause) } else { STUCK };
        }
    }

    fn answer(&self, listener: &OwnedFd, call: &Call, answer: Answer) {
        match &self.observer {
            Some(observer) => observer.answer(listener, call, answer),
            None => drop(seccomp::answer(listener, call.id, answer)),
        }
    }

    /// Answers a call, or lets it go on if it is about no stream under the net any more.
    pub fn answer_of_net(&self, call: &Call, answer: Option<Answer>) {
        let Some(listener) = self.listener.get() else { return };
        if let Some(answer) = answer.or_else(|| self.table.ask(*call)) {
            self.answer(listener, call, answer);
        }
    }

    /// Gives an open file to the process of a call: see `seccomp::add_descriptor`.
    pub fn give(&self, call: &Call, file: &impl AsFd, place: Option<RawFd>, close_on_exec: bool) -> nix::Result<RawFd> {
        let listener = self.listener.get().ok_or(Errno::ENOENT)?;
        seccomp::add_descriptor(listener, call.id, file, place, close_on_exec)
    }

    /// Whether a call still waits for its answer.
    pub fn is_waiting(&self, call: &Call) -> bool {
        self.listener.get().is_some_and(|listener| seccomp::is_waiting(listener, call.id))
    }

    fn prune(&self, listener: &OwnedFd) {
        self.table.prune(|id| seccomp::is_waiting(listener, id));
    }

    /// Something has come: lets those go on that waited for it.
    pub fn release(&self) {
        let Some(listener) = self.listener.get() else { return };
        for (call, answer) in self.table.released() {
            self.answer(listener, &call, answer);
        }
    }

    /// Whether somebody waits.
    pub fn holds_somebody(&self) -> bool {
        self.listener.get().iter().filter(|_| self.table.waiting() > 0).for_each(|listener| self.prune(listener));
        self.table.waiting() > 0
    }

    /// Whether somebody waits at a gate, and has for so long.
    pub fn has_held_for(&self, long: Duration) -> bool {
        let held = || self.table.held_since().is_some_and(|since| since.elapsed() >= long);
        if held() {
            self.listener.get().iter().for_each(|listener| self.prune(listener));
        }
        held()
    }

    /// Lets others answer the calls of processes that go on after this one: whatever they call, goes on.
    ///
    /// False: nobody can. No call is lost, and none is answered here from now on.
    pub fn hand_over(&self) -> bool {
        let Some(listener) = self.listener.get().filter(|listener| has_callers(listener)) else { return true };
        let over = self.stop() && listener.try_clone().and_then(pass_through::start).is_ok();
        for call in self.table.give_up() {
            seccomp::answer(listener, call.id, Answer::Continue);
        }
        over
    }

    /// Stops to answer calls; each that was taken is answered. False: not all threads could be stopped.
    fn stop(&self) -> bool {
        self.stopped.store(true, Ordering::Relaxed);
        raw::let_interrupt(INTERRUPT);
        let deadline = Instant::now() + PATIENCE;
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in &threads {
            // One that is about to wait is interrupted by the next signal.
            while !thread.is_finished() && Instant::now() < deadline {
                let _ = pthread_kill(thread.as_pthread_t() as Pthread, INTERRUPT);
                std::thread::sleep(TURN);
            }
        }
        threads.iter().all(|thread| thread.is_finished())
    }
}

fn has_callers(listener: &OwnedFd) -> bool {
    !pipe::state(listener, PollFlags::empty()).contains(PollFlags::POLLHUP)
}
