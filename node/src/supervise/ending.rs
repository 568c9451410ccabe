//! How a job ends: by itself, by a signal, by its driver; and what is done about the rest of its tree.

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{kill, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::getpgrp;

use super::Supervisor;
use crate::event::Reason;
use crate::signals::{CANCELLING, CANCEL_NOTICE, SI_KERNEL};
use crate::tree::{self, Process};

/// From the first signal to SIGKILL, and the same when the driver is gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_WITHOUT_DRIVER: Duration = Duration::from_millis(500);
/// After this time a process that SIGKILL did not end is stuck in the kernel, and left alone.
const STUCK: Duration = Duration::from_secs(10);

/// The job's tree is being ended.
pub(super) struct Ending {
    kill_at: Duration,
    give_up_at: Duration,
}

impl Supervisor<'_> {
    pub(super) fn take_signals(&mut self) {
        while let Ok(Some(info)) = self.surroundings.signals.read_signal() {
            let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { continue };
            // The terminal has sent it to our whole process group already.
            let received = info.ssi_code == SI_KERNEL;
            match signal {
                Signal::SIGCHLD => {}
                CANCEL_NOTICE => self.look_for_cancel(),
                _ if CANCELLING.contains(&signal) => self.end(Reason::Cancelled, None, signal, received),
                _ => {
                    if self.status.is_none() && !(received && tree::read(self.main.as_raw()).is_some_and(in_own_group))
                    {
                        let _ = kill(self.main, signal);
                    }
                }
            }
        }
    }

    pub(super) fn look_at_driver(&mut self) {
        if self.reason.is_some() {
            return;
        }
        let [_, alive] = self.surroundings.descriptors();
        if !matches!(nix::unistd::read(alive, &mut [0]), Err(Errno::EAGAIN | Errno::EINTR)) {
            self.end(Reason::Driver, None, Signal::SIGTERM, false);
        } else if self.watcher.is_none() {
            self.look_for_cancel();
        }
    }

    pub(super) fn look_for_cancel(&mut self) {
        if self.reason.is_none() && self.surroundings.directory.join("cancel").exists() {
            self.end(Reason::Cancelled, None, Signal::SIGTERM, false);
        }
    }

    /// Begins to end the tree. The first reason stays.
    pub(super) fn end(&mut self, reason: Reason, message: Option<String>, signal: Signal, received: bool) {
        let patience = match reason {
            _ if signal == Signal::SIGKILL => Duration::ZERO,
            Reason::Driver => PATIENCE_WITHOUT_DRIVER,
            _ => PATIENCE,
        };
        if self.reason.is_none() {
            self.reason = Some(reason);
            self.message = message;
        }
        self.signal_tree(signal, patience, received);
    }

    pub(super) fn signal_tree(&mut self, signal: Signal, patience: Duration, received: bool) {
        let processes = tree::descendants();
        tree::signal_all(processes.iter().filter(|process| !(received && in_own_group(**process))), signal);
        let kill_at = self.now() + patience;
        let soonest = self.ending.as_ref().map_or(kill_at, |ending| ending.kill_at.min(kill_at));
        self.ending = Some(Ending { kill_at: soonest, give_up_at: soonest + STUCK });
    }

    pub(super) fn reap(&mut self) {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) => return,
                Ok(status) if status.pid() == Some(self.main) => {
                    self.status = Some(status);
                    self.leftovers.begin(self.now());
                }
                Ok(_) => self.orphans += 1,
                Err(_) => {
                    self.childless = true;
                    return;
                }
            }
        }
    }

    /// Kills who is left when the time has come. What the main process has left behind is ended when that has failed.
    pub(super) fn end_tree(&mut self) {
        if self.childless {
            return;
        }
        let now = self.now();
        match &self.ending {
            Some(ending) if now >= ending.give_up_at => self.childless = true,
            Some(ending) if now >= ending.kill_at => tree::signal_all(&tree::descendants(), Signal::SIGKILL),
            Some(_) => {}
            None if self.has_successful_code() => self.look_at_leftovers(now),
            None if self.status.is_some() => self.signal_tree(Signal::SIGTERM, PATIENCE, false),
            None => {}
        }
    }
}

fn in_own_group(process: Process) -> bool {
    process.group == getpgrp().as_raw()
}
