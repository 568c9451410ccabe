//! Processes that outlive their job keep their filter, and their calls would fail if nobody answered them.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::os::unix::thread::JoinHandleExt;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::pthread::{pthread_kill, Pthread};
use nix::sys::signal::Signal;

use super::{has_callers, Desk, Gates};
use crate::program::own_program;
use crate::sys;
use crate::sys::seccomp::{self, Answer};

/// Interrupts a thread that waits for a call. Nobody sends it to this process for another reason.
const INTERRUPT: Signal = Signal::SIGIO;
/// A thread that does not come back for so long is stuck in a look at a file.
const PATIENCE: Duration = Duration::from_secs(1);
const TURN: Duration = Duration::from_micros(200);

impl Gates {
    /// Lets others answer the calls of processes that go on after this one: whatever they call, goes on.
    ///
    /// False: nobody can. No call is lost, and none is answered here from now on.
    pub fn hand_over(&mut self) -> bool {
        let Some(listener) = &self.listener else { return true };
        if !has_callers(listener) {
            return true;
        }
        let over = self.desk.leave() && listener.try_clone().and_then(start).is_ok();
        for id in self.desk.board.give_up() {
            seccomp::answer(listener, id, Answer::Continue);
        }
        over
    }
}

impl Desk {
    /// Stops to answer calls; each that was taken is answered. False: not all threads could be stopped.
    fn leave(&self) -> bool {
        self.left.store(true, Ordering::Relaxed);
        sys::let_interrupt(INTERRUPT);
        let deadline = Instant::now() + PATIENCE;
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
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

fn start(listener: OwnedFd) -> io::Result<()> {
    let mut command = own_program();
    command.arg("attend").env_clear().current_dir("/").process_group(0);
    command.stdin(Stdio::from(listener)).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// `sfio-node attend`: lets every call go on that is told at the standard input, as long as there is anybody to call.
pub fn attend() -> i32 {
    // It ends with those that it serves.
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM] {
        sys::ignore(signal);
    }
    let listener = io::stdin();
    loop {
        let mut descriptors = [PollFd::new(std::os::fd::AsFd::as_fd(&listener), PollFlags::POLLIN)];
        let _ = poll(&mut descriptors, PollTimeout::NONE);
        let found = descriptors[0].revents().unwrap_or(PollFlags::empty());
        if found.contains(PollFlags::POLLIN) {
            if let Ok(notice) = seccomp::receive(&listener) {
                seccomp::answer(&listener, notice.id, Answer::Continue);
            }
        } else if found.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
            return 0;
        }
    }
}
