//! The signals that `exec` and `run` take.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::sys::raw;

/// By this signal `run` says that the driver has said something: there is a cancel file, or the limits have changed. Whoever
/// does not know of it ignores it.
pub const DRIVER_NOTICE: Signal = Signal::SIGURG;

/// `si_code` of a signal that the kernel made, as the terminal's.
pub const SI_KERNEL: i32 = 0x80;

/// Signals that cancel the job.
pub const CANCELLING: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Signals that are passed to the command only.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGQUIT,
    Signal::SIGCONT,
    Signal::SIGWINCH,
    Signal::SIGALRM,
    Signal::SIGXCPU,
];

/// Blocks the signals that are handled, and returns the mask before. Those that this process was told to ignore stay ignored.
pub fn take() -> nix::Result<(SignalFd, SigSet)> {
    // Where it is ignored, nobody learns how a child ended.
    raw::hear_of_ends();
    let taken = CANCELLING.into_iter().chain(PASSED_ON).filter(|signal| !raw::is_ignored(*signal));
    let handled: SigSet = taken.chain([Signal::SIGCHLD, DRIVER_NOTICE]).collect();
    let inherited = handled.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
    Ok((SignalFd::with_flags(&handled, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?, inherited))
}
