//! How `exec` and `run` end: with an exit code, or by the signal that ended the command.

use nix::sys::resource::{setrlimit, Resource};
use nix::sys::signal::{kill, SigSet, Signal};
use nix::unistd::Pid;

use crate::sys::raw;

/// Exit code of a job whose command was stopped before its end: EX_TEMPFAIL of sysexits.h.
pub const UNFINISHED: i32 = 75;
/// Exit codes as of env(1): the job cannot be set up, the command cannot be run, the command does not exist.
pub const CANNOT_SET_UP: i32 = 125;
pub const CANNOT_RUN: i32 = 126;
pub const NOT_FOUND: i32 = 127;

/// The way in which this process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Code(i32),
    Signal(Signal),
}

impl End {
    /// Ends this process by its signal, or returns the exit code.
    pub fn follow(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => {
                // A command that ends by such a signal has written its own core file.
                let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
                raw::set_default(signal);
                let _ = SigSet::from(signal).thread_unblock();
                let _ = kill(Pid::this(), signal);
                128 + signal as i32
            }
        }
    }
}
