//! The signals that `exec` and `run` handle.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::sys::raw;

/// Signal by which `run` announces a message of the driver: a cancel file, or changed limits. Ignored by default.
pub const DRIVER_NOTICE: Signal = Signal::SIGURG;

/// `si_code` of a signal that the kernel sent, as for a key in the terminal.
pub const SI_KERNEL: i32 = 0x80;

/// Signals that cancel the job.
pub const CANCELLING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Signals that are only passed on to the command.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGQUIT,
    Signal::SIGCONT,
    Signal::SIGWINCH,
    Signal::SIGALRM,
    Signal::SIGXCPU,
];

/// Blocks the signals that are handled, and returns the mask before. Signals that this process ignores stay ignored.
pub fn take() -> nix::Result<(SignalFd, SigSet)> {
    // The kernel discards the exit status of children while SIGCHLD is ignored.
    raw::hear_of_ends();
    let taken = CANCELLING.into_iter().chain(PASSED_ON).filter(|signal| !raw::is_ignored(*signal));
    let handled: SigSet = taken.chain([Signal::SIGCHLD, DRIVER_NOTICE]).collect();
    let inherited = handled.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    Ok((SignalFd::with_flags(&handled, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?, inherited))
}
