//! Ties the jobs on this machine to their `serve`.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use crate::protocol::fd_store::FdStore;
use crate::sys::ownership;
use crate::sys::pipe::make_fifo;

pub struct Lifeline {
    /// The write end of the FIFO that tells each exec that this process lives.
    alive: Option<OwnedFd>,
    /// Tells the last exec whether it has to remove the run directory.
    _lock: Flock<File>,
    pub store: FdStore,
}

impl Lifeline {
    pub fn new(run_directory: &Path) -> io::Result<Self> {
        let lock = File::open(run_directory)?;
        let lock = Flock::lock(lock, FlockArg::LockSharedNonblock).map_err(|(_, error)| error)?;
        let store = FdStore::accept(&lock)?;
        let fifo = run_directory.join("alive");
        let alive = make_fifo(&fifo)?;
        // Readers of jobs here, such as another user in another container, try the FIFO before they read.
        ownership::share(&fifo, run_directory)?;
        Ok(Self { alive: Some(alive), _lock: lock, store })
    }

    /// Each exec sees the end of the FIFO and cancels its job.
    pub fn let_go(&mut self) {
        self.alive = None;
    }
}
