//! What ties the jobs on this machine to their `serve`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::fd_store::FdStore;

pub struct Lifeline {
    /// The write end of the FIFO that tells each exec that this process lives.
    alive: Option<File>,
    /// Tells the last exec whether it has to remove the run directory.
    _lock: Flock<File>,
    pub store: FdStore,
}

impl Lifeline {
    pub fn new(run_directory: &Path) -> io::Result<Self> {
        let lock = File::open(run_directory)?;
        let lock = Flock::lock(lock, FlockArg::LockSharedNonblock).map_err(|(_, error)| error)?;
        let store = FdStore::accept(&lock)?;
        let alive = run_directory.join("alive");
        mkfifo(&alive, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // A write end alone cannot be opened before there is a reader.
        let open = |read| OpenOptions::new().read(read).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&alive);
        let both = open(true)?;
        let alive = open(false)?;
        drop(both);
        Ok(Self { alive: Some(alive), _lock: lock, store })
    }

    /// Each exec sees the end of the FIFO and cancels its job.
    pub fn let_go(&mut self) {
        self.alive = None;
    }
}
