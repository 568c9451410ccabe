//! Attributes that this process inherits and changes for itself. Commands of jobs get them unchanged.

use std::process::Command;

use nix::sys::signal::Signal;
use nix::sys::stat::{umask, Mode};

use crate::sys::file_limit::FileLimit;
use crate::sys::raw;

/// Ctrl-C reaches the whole terminal, and cleaning up is what is left to do then.
const IGNORED: [Signal; 2] = [Signal::SIGINT, Signal::SIGHUP];

#[derive(Clone, Debug)]
pub struct Inherited {
    umask: Mode,
    /// The signals of `IGNORED` that the parent did not ignore.
    heeded: Vec<Signal>,
    files: FileLimit,
}

impl Inherited {
    /// Makes all files of this process the user's alone. Lets it open as many files as it may, and ignore signals during
    /// which it has to clean up.
    pub fn change() -> Self {
        let umask = umask(Mode::from_bits_truncate(0o077));
        let heeded = IGNORED.into_iter().filter(|signal| !raw::is_ignored(*signal)).collect();
        IGNORED.into_iter().for_each(raw::ignore);
        Self { umask, heeded, files: FileLimit::raise() }
    }

    /// Lets a command have what the parent gave, and lead a session of its own.
    pub fn hand_on(&self, command: &mut Command) {
        raw::lead_session(command, self.umask, self.heeded.clone(), self.files);
    }
}
