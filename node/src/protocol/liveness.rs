//! The FIFO in the run directory that tells whether `serve` lives on this kernel: `serve` holds its write end.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signalfd::SignalFd;

use crate::protocol::messages::Reason;
use crate::sys::remote_file;
use crate::sys::signals::CANCELLING;

/// Opens the FIFO of a `serve` that lives; its end says that `serve` is gone.
///
/// # Errors
/// A message that names the FIFO.
pub fn open(run_directory: &Path) -> Result<File, String> {
    let path = run_directory.join("alive");
    let gone = |why: &str| format!("serve is gone: {}: {why}", path.display());
    let alive = remote_file::open(&path).map_err(|error| gone(&error.to_string()))?;
    if is_held(&alive) {
        Ok(alive)
    } else {
        Err(gone("nobody holds it"))
    }
}

/// Whether `serve` holds the FIFO. poll(2) reports a hang-up only if the writer was there after this end was opened.
pub fn is_held(alive: &File) -> bool {
    matches!(nix::unistd::read(alive, &mut [0]), Err(Errno::EAGAIN | Errno::EINTR))
}

/// Returns why a job without a running command has to end, if it has.
///
/// # Arguments
/// * `directory` - of the job
pub fn ending(directory: &Path, alive: &File, signals: &SignalFd) -> Option<Reason> {
    let signals = std::iter::from_fn(|| signals.read_signal().ok().flatten());
    let cancelling = CANCELLING.map(|signal| signal as u32);
    let signalled = signals.fold(false, |found, info| found | cancelling.contains(&info.ssi_signo));
    if signalled || directory.join("cancel").exists() {
        return Some(Reason::Cancelled);
    }
    (!is_held(alive)).then_some(Reason::Driver)
}

/// Whether there is certainly no `serve` on this kernel.
pub fn is_gone(run_directory: &Path) -> bool {
    match remote_file::open(&run_directory.join("alive")) {
        Ok(alive) => nix::unistd::read(&alive, &mut [0]) == Ok(0),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// `sfio-node reach --run`: whether the `serve` of a run directory lives on this kernel, and this user may see it.
pub fn reach(run_directory: &Path) -> i32 {
    match open(run_directory) {
        Ok(_) => 0,
        Err(message) => {
            eprintln!("sfio-node: {message}");
            1
        }
    }
}
