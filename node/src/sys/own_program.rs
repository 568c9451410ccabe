//! Starts this program again.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Returns a command that starts this program, even after its file was replaced.
pub fn own_program() -> Command {
    let mut program = Command::new("/proc/self/exe");
    program.arg0("sfio-node");
    program
}
