//! Starts this program again.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// This program, also when its file has been replaced.
pub fn own_program() -> Command {
    let mut program = Command::new("/proc/self/exe");
    program.arg0("sfio-node");
    program
}
