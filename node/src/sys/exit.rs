//! How `exec` and `run` end: by an exit code, or by the signal that has ended the command.

use nix::sys::resource::{setrlimit, Resource};
use nix::sys::signal::{kill, SigSet, Signal};
use nix::unistd::Pid;

use crate::sys::raw;

/// Exit code of a job whose command could not go on to its end: EX_TEMPFAIL of sysexits.h.
pub const UNFINISHED: i32 = 75;
/// Exit codes of env(1): the job could not be set up; the command cannot be run; it does not exist.
pub const CANNOT_SET_UP: i32 = 125;
pub const CANNOT_RUN: i32 = 126;
pub const NOT_FOUND: i32 = 127;

/// How this process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Code(i32),
    Signal(Signal),
}

impl End {
    /// Ends this process by the signal, or gives the exit code to return.
    pub fn follow(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => {
                // The command has left a core file already, if it was to leave one.
                let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
                raw::set_default(signal);
                let _ = SigSet::from(signal).thread_unblock();
                let _ = kill(Pid::this(), signal);
                128 + signal as i32
            }
        }
    }
}
