//! `sfio-node run`: runs a command as a job on a machine that shares the run directory with that of the driver.
//!
//! The job has a run directory of this machine and a `serve` of its own, as a job on the driver's machine has. Events
//! are mirrored into the shared run directory. The orders of the driver come from there.

mod driver;
mod local;
mod mirror;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{kill, Signal};
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;

use self::driver::{Driver, DriverState};
use self::local::Local;
use self::mirror::Mirror;
use crate::protocol::event::{now, ExitEvent, Reason};
use crate::protocol::limit_file::replace_limits;
use crate::sys::exit::{End, CANNOT_SET_UP, UNFINISHED};
use crate::sys::own_program::own_program;
use crate::sys::raw;
use crate::sys::remote_file;
use crate::sys::signals::{self, CANCELLING, DRIVER_NOTICE, SI_KERNEL};

/// How often the events are looked at, which come at once otherwise, but for those that `serve` does not print.
const TICK: Duration = Duration::from_millis(100);
/// Milliseconds in which a queue manager signals all processes of a job that it cancels: a command that takes its
/// signal for a reason to end well has not.
const GRACE: &str = "5";
/// How often the shared run directory is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Runs the job and ends this process as its `exec` has ended.
///
/// # Arguments
/// * `job` - its directory in the shared run directory
/// * `patience` - how long the driver may give no sign of life
pub fn run(job: &Path, command: &[OsString], patience: Duration) -> i32 {
    let opened = remote_file::open(job).and_then(|_| {
        let directory = job.canonicalize()?;
        Ok((Mirror::create(&directory.join("events.jsonl"))?, directory))
    });
    let (mut mirror, directory) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("sfio-node: run: job {}: {error}", job.display());
            return CANNOT_SET_UP;
        }
    };
    let mut driver = Driver::new(&directory, patience);
    if driver.look() != DriverState::Lives {
        mirror.conclude(ExitEvent { reason: Reason::Cancelled, ended: now(), ..ExitEvent::default() });
        return UNFINISHED;
    }
    match Run::start(&directory, command, &mut mirror, &mut driver) {
        Ok(run) => run.finish(),
        Err(message) => {
            eprintln!("sfio-node: run: {message}");
            let (code, reason) = (Some(CANNOT_SET_UP), Reason::Error);
            mirror.conclude(ExitEvent { code, reason, message: Some(message), ended: now(), ..ExitEvent::default() });
            CANNOT_SET_UP
        }
    }
}

struct Run<'a> {
    mirror: &'a mut Mirror,
    driver: &'a mut Driver,
    local: Local,
    exec: Child,
    signals: SignalFd,
    /// For the command, which does not run yet.
    early: Vec<Signal>,
}

impl<'a> Run<'a> {
    /// # Errors
    /// A message; nothing is left.
    fn start(
        shared: &Path,
        command: &[OsString],
        mirror: &'a mut Mirror,
        driver: &'a mut Driver,
    ) -> Result<Self, String> {
        let (signals, inherited) = signals::take().map_err(|error| format!("signals: {}", error.desc()))?;
        let local = Local::start(shared)?;
        mirror.follow(&local.job.join("events.jsonl"));
        // The job may have waited in a queue.
        pass_limits_on(driver, &local);
        let mut exec = own_program();
        exec.args(["exec", "--grace", GRACE, "--job"]).arg(&local.job).arg("--").args(command);
        raw::with_mask(&mut exec, inherited);
        let exec = exec.spawn().map_err(|error| format!("cannot run sfio-node exec: {error}"))?;
        Ok(Self { mirror, driver, local, exec, signals, early: Vec::new() })
    }

    /// Stays with the job until it has ended, and leaves nothing on this machine.
    fn finish(mut self) -> i32 {
        let status = self.supervise();
        self.mirror.settle();
        let Self { mirror, local, .. } = self;
        // When `exec` was killed, `serve` ends what is left of the job, and says so.
        local.close();
        mirror.pass_on();
        mirror.conclude(ExitEvent { reason: Reason::Lost, ended: now(), ..ExitEvent::default() });
        let failure = mirror.failure();
        if let Some(failure) = &failure {
            eprintln!("sfio-node: run: {failure}");
        }
        match status.signal().map(Signal::try_from) {
            Some(Ok(signal)) => End::Signal(signal).follow(),
            // A success that cannot be reported must not look like one.
            _ if status.success() && failure.is_some() => UNFINISHED,
            _ => End::Code(status.code().unwrap_or(UNFINISHED)).follow(),
        }
    }

    fn supervise(&mut self) -> ExitStatus {
        let mut look = Instant::now() + LOOK;
        loop {
            self.wait();
            self.mirror.pass_on();
            self.take_signals();
            if let Ok(Some(status)) = self.exec.try_wait() {
                return status;
            }
            if Instant::now() >= look {
                self.look();
                look = Instant::now() + LOOK;
            }
        }
    }

    fn wait(&mut self) {
        let news: Vec<BorrowedFd> = [self.signals.as_fd()].into_iter().chain(self.local.news()).collect();
        let mut descriptors: Vec<PollFd> = news.iter().map(|news| PollFd::new(*news, PollFlags::POLLIN)).collect();
        let _ = poll(&mut descriptors, PollTimeout::try_from(TICK).unwrap_or(PollTimeout::ZERO));
        if descriptors.get(1).is_some_and(|news| news.any() == Some(true)) {
            self.local.take_news();
        }
    }

    fn take_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            let Ok(signal) = Signal::try_from(info.ssi_signo as i32) else { continue };
            match signal {
                Signal::SIGCHLD | DRIVER_NOTICE => {}
                // The terminal has sent it to our whole process group.
                _ if info.ssi_code == SI_KERNEL => {}
                // A signal would end an `exec` that does not handle signals yet.
                _ if CANCELLING.contains(&signal) && !self.mirror.has_started() => self.cancel(),
                _ => self.early.push(signal),
            }
        }
        if self.mirror.has_started() {
            for signal in std::mem::take(&mut self.early) {
                self.send(signal);
            }
        }
    }

    fn look(&mut self) {
        match self.driver.look() {
            DriverState::Lives if self.mirror.failure().is_none() => {
                if pass_limits_on(self.driver, &self.local) {
                    self.send(DRIVER_NOTICE);
                }
            }
            DriverState::Gone => self.local.leave(),
            _ => self.cancel(),
        }
    }

    fn cancel(&self) {
        // `exec` finds the file when it comes to that, or is told to look for it.
        let signal = if self.local.cancel().is_ok() { DRIVER_NOTICE } else { Signal::SIGTERM };
        self.send(signal);
    }

    /// Sends a signal. The process was not waited for, so that its number is still its own.
    fn send(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.exec.id() as i32), signal);
    }
}

/// Copies the limits of the job, if they have changed.
fn pass_limits_on(driver: &mut Driver, local: &Local) -> bool {
    driver.limits().is_some_and(|limits| replace_limits(&local.job, &limits).is_ok())
}
