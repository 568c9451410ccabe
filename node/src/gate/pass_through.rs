//! `sfio-node pass-through`: answers the calls of processes that outlive their job.
//!
//! Such processes keep the filter of the job, and without answers their calls would fail.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::Signal;

use crate::sys::own_program::own_program;
use crate::sys::raw;
use crate::sys::raw::seccomp::{self, Answer};

/// Starts a process that lets every call continue that is reported at `listener`.
pub fn start(listener: OwnedFd) -> io::Result<()> {
    let mut command = own_program();
    command.arg("pass-through").env_clear().current_dir("/").process_group(0);
    command.stdin(Stdio::from(listener)).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop)
}

/// Lets every call continue that is reported at the standard input, while there are processes that call.
pub fn pass_through() -> i32 {
    // This process ends with those that it serves.
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGTERM] {
        raw::ignore(signal);
    }
    let listener = io::stdin();
    loop {
        let mut descriptors = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
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
