//! Files that `exec` and `read` hold in the run directory as long as their job lives.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};

use crate::protocol::event::{EventLog, ExitEvent, Reason};
use crate::protocol::fd_store::Client;
use crate::protocol::memory_directory;
use crate::sys::ownership::open_own;
use crate::sys::watch::Watcher;

/// How long a killed `serve` may hold its lock.
const LAST_MOMENT: Duration = Duration::from_millis(500);

pub struct Presence {
    /// The directory of the job.
    pub directory: PathBuf,
    run_directory: PathBuf,
    /// Where `serve` keeps descriptors for the job.
    pub store: Option<Rc<Client>>,
    /// Tells whether others of the run live.
    lock: Option<Flock<File>>,
}

impl Presence {
    /// Says that the job, given by its directory, begins.
    ///
    /// # Errors
    /// When there are no such events to write, it was started before, or another user could write in the run directory.
    pub fn begin(job: &Path) -> io::Result<(Self, EventLog)> {
        let directory = job.canonicalize()?;
        let run_directory = directory.ancestors().nth(2).unwrap_or(&directory).to_owned();
        let opened = open_own(&run_directory)?;
        let events = EventLog::open(&directory.join("events.jsonl"))?;
        let store = directory.file_name().and_then(|name| Client::new(&opened, name).ok()).map(Rc::new);
        let lock = Flock::lock(opened, FlockArg::LockSharedNonblock).ok();
        store.iter().for_each(|store| store.begin());
        Ok((Self { directory, run_directory, store, lock }, events))
    }

    /// Says that the job has ended.
    pub fn end<T: Clone + PartialEq>(self, events: EventLog, exit: ExitEvent, watcher: Option<Watcher<T>>) {
        let driver_gone = exit.reason == Reason::Driver;
        self.store.iter().for_each(|store| store.end());
        let _ = events.conclude(exit);
        self.store.iter().for_each(|store| store.concluded());
        if let (Some(mut watcher), Some(store)) = (watcher, &self.store) {
            watcher.forget(|_| true);
            store.close(&watcher);
        }
        if let (true, Some(lock)) = (driver_gone, &self.lock) {
            remove_abandoned(&self.run_directory, lock);
        }
    }
}

/// When `serve` was killed, the last of its jobs removes the run directory.
fn remove_abandoned(directory: &Path, lock: &Flock<File>) {
    // serve and each exec hold a shared lock as long as they live, and serve may take a moment to die.
    let deadline = Instant::now() + LAST_MOMENT;
    while directory.exists() && Instant::now() < deadline {
        if lock.relock(FlockArg::LockExclusiveNonblock).is_ok() {
            let _ = memory_directory::remove_run(directory);
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
