//! What this process has from its parent and changes for itself: the commands of jobs are to have it as it was.

use std::process::Command;

use nix::sys::signal::Signal;
use nix::sys::stat::{umask, Mode};

use crate::sys::raw;

/// Ctrl-C reaches the whole terminal, and cleaning up is what is left to do then.
const IGNORED: [Signal; 2] = [Signal::SIGINT, Signal::SIGHUP];

#[derive(Clone, Debug)]
pub struct Inherited {
    umask: Mode,
    /// Those of `IGNORED` that the parent did not ignore.
    heeded: Vec<Signal>,
}

impl Inherited {
    /// Makes all that this process makes the user's alone, also what others may see of the files that he makes himself; and
    /// lets it ignore what cleaning up survives.
    pub fn change() -> Self {
        let umask = umask(Mode::from_bits_truncate(0o077));
        let heeded = IGNORED.into_iter().filter(|signal| !raw::is_ignored(*signal)).collect();
        IGNORED.into_iter().for_each(raw::ignore);
        Self { umask, heeded }
    }

    /// Lets a command have what the parent gave, and lead a session of its own.
    pub fn hand_on(&self, command: &mut Command) {
        raw::lead_session(command, self.umask, self.heeded.clone());
    }
}
