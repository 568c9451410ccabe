//! The standard output, which the driver reads.

use std::io::{self, Stdout};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::PIPE_BUF;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

/// How long the driver may take nothing of the last lines.
pub const LAST_WORDS: Duration = Duration::from_secs(2);

/// Where is printed what happens.
#[derive(Debug)]
pub struct Output {
    stdout: Stdout,
    /// Bytes that the reader has not taken. A slow reader stops nothing but the printing.
    unsent: Vec<u8>,
    heard: bool,
}

impl Output {
    pub fn new() -> Self {
        Self { stdout: io::stdout(), unsent: Vec::new(), heard: true }
    }

    /// Whether the output is still open.
    pub fn is_heard(&self) -> bool {
        self.heard
    }

    /// Whether the reader has to take something first.
    pub fn is_full(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub fn print(&mut self, text: &str) {
        if text.is_empty() || !self.heard {
            return;
        }
        self.unsent.extend(text.as_bytes());
        self.flush(Duration::ZERO);
    }

    /// Prints what is left, as long as the reader takes something within `patience`.
    pub fn flush(&mut self, patience: Duration) {
        while self.heard && self.is_full() {
            let mut descriptors = [PollFd::new(self.stdout.as_fd(), PollFlags::POLLOUT)];
            let _ = poll(&mut descriptors, PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO));
            let state = descriptors[0].revents().unwrap_or(PollFlags::empty());
            self.look(state);
            if !self.heard || !state.contains(PollFlags::POLLOUT) {
                return;
            }
            // A pipe that has space takes `PIPE_BUF` bytes without waiting, pipe(7).
            let piece = &self.unsent[..self.unsent.len().min(PIPE_BUF)];
            match nix::unistd::write(&self.stdout, piece) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => self.heard = false,
            }
        }
    }

    /// Takes the state in which poll has found the standard output.
    pub fn look(&mut self, state: PollFlags) {
        self.heard &= !state.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL);
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stdout.as_fd()
    }
}
