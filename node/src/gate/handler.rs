//! The notification handler: threads that answer the calls of the command.

use std::borrow::Cow;
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
use super::descriptors::ALARMS;
use super::excerpts::Excerpts;
use super::observer::Observer;
use super::pass_through;
use super::privileges::Programs;
use super::table::GateTable;
use crate::sys::pipe;
use crate::sys::raw;
use crate::sys::raw::seccomp::{self, Answer};
use crate::sys::threads::{lock, spawn};

/// Interrupted calls are removed whenever the number of waiting calls is a multiple of this.
const CROWD: usize = 64;
/// All threads that answer calls are stuck if none has answered for this time.
const STUCK: Duration = Duration::from_millis(20);
/// Longest time between two checks for stuck threads while there are no calls.
const SELDOM: Duration = Duration::from_millis(160);
/// Interrupts a thread that waits for a call. The signal has no other use in this process.
const INTERRUPT: Signal = Signal::SIGIO;
/// A thread that does not stop within this time is stuck while it examines a file.
const PATIENCE: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub struct Handler {
    pub table: GateTable,
    pub observer: Option<Observer>,
    pub excerpts: Option<Excerpts>,
    pub programs: Programs,
    /// The first call that has set an alarm.
    pub alarm: OnceLock<Cow<'static, str>>,
    listener: OnceLock<OwnedFd>,
    /// Number of threads that wait for a call.
    idle: AtomicUsize,
    /// Number of calls that were handled.
    served: AtomicUsize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Set when another process takes over the answers.
    stopped: AtomicBool,
}

impl Handler {
    pub fn new(table: GateTable, observer: Option<Observer>, excerpts: Option<Excerpts>) -> Self {
        Self {
            table,
            observer,
            excerpts,
            programs: Programs::default(),
            alarm: OnceLock::new(),
            listener: OnceLock::new(),
            idle: AtomicUsize::new(0),
            served: AtomicUsize::new(0),
            threads: Mutex::default(),
            stopped: AtomicBool::new(false),
        }
    }

    /// Begins to answer the calls reported at `listener`, in threads that end with this process.
    /// The result says why threads may get stuck, if so.
    ///
    /// # Errors
    /// The error, if no thread can be started.
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

    /// Answers calls while there are processes that call.
    fn serve(&self, listener: &OwnedFd) {
        while !self.stopped.load(Ordering::Relaxed) {
            let call = match seccomp::receive(listener) {
                Ok(notice) => Call::from(notice),
                Err(Errno::EINTR) => continue,
                Err(Errno::ENOENT) if has_callers(listener) => continue,
                Err(_) => return,
            };
            self.idle.fetch_sub(1, Ordering::Relaxed);
            self.programs.note(&call);
            self.note_alarm(&call);
            match self.excerpts.as_ref().and_then(|own| own.answer(&call)).or_else(|| self.table.ask(call)) {
                Some(answer) => self.answer(listener, &call, answer),
                None if self.table.waiting() % CROWD == 0 => self.prune(listener),
                None => {}
            }
            self.served.fetch_add(1, Ordering::Relaxed);
            self.idle.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn note_alarm(&self, call: &Call) {
        if call.native && ALARMS.iter().any(|(number, _)| *number == call.number) {
            self.alarm.get_or_init(|| call.name());
        }
    }

    /// Starts one more thread whenever all threads that answer calls are stuck.
    ///
    /// To examine a file may need a process of this job, for example the server of a FUSE mount. The server may wait
    /// for the answer to a call of its own. Two threads from the start would make each call half as expensive again.
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

    /// Answers a call about a stream under the net. Without an answer, decides again as if there was no such stream.
    pub fn answer_of_net(&self, call: &Call, answer: Option<Answer>) {
        let Some(listener) = self.listener.get() else { return };
        if let Some(answer) = answer.or_else(|| self.table.ask(*call)) {
            self.answer(listener, call, answer);
        }
    }

    /// Gives an open file to the process of a call. See `seccomp::add_descriptor`.
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

    /// Continues the calls that waited for something that has come.
    pub fn release(&self) {
        let Some(listener) = self.listener.get() else { return };
        self.table.release(|call| self.is_waiting(call), |call, answer| self.answer(listener, call, answer));
    }

    /// Whether a call waits.
    pub fn holds_somebody(&self) -> bool {
        self.listener.get().iter().filter(|_| self.table.waiting() > 0).for_each(|listener| self.prune(listener));
        self.table.waiting() > 0
    }

    /// Whether a call has waited at a gate for at least `long`.
    pub fn has_held_for(&self, long: Duration) -> bool {
        let held = || self.table.held_since().is_some_and(|since| since.elapsed() >= long);
        if held() {
            self.listener.get().iter().for_each(|listener| self.prune(listener));
        }
        held()
    }

    /// Starts a process that answers the calls of processes that outlive this one, by letting them continue.
    ///
    /// Returns false if that is impossible. No call is lost, and none is answered here afterwards.
    pub fn hand_over(&self) -> bool {
        let Some(listener) = self.listener.get().filter(|listener| has_callers(listener)) else { return true };
        let over = self.stop() && listener.try_clone().and_then(pass_through::start).is_ok();
        for call in self.table.give_up() {
            seccomp::answer(listener, call.id, Answer::Continue);
        }
        over
    }

    /// Stops answering calls, after the answer to each that was taken. Returns false if a thread does not stop.
    fn stop(&self) -> bool {
        self.stopped.store(true, Ordering::Relaxed);
        raw::let_interrupt(INTERRUPT);
        let deadline = Instant::now() + PATIENCE;
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in &threads {
            // A thread that is about to wait is interrupted by the next signal.
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
