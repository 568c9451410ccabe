//! Lets the kernel write at the rate at which a limited job is: it would collect pages and write them when it likes, and
//! who syncs meanwhile would wait for all of them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::time::Duration;

use nix::fcntl::OFlag;

use crate::tree::Process;
use crate::{sys, threads};

/// At most so often.
const LEAST: Duration = Duration::from_millis(50);

/// A thread, because the kernel makes it wait where the queue of the device is full.
#[derive(Debug)]
pub struct WriteOut {
    /// Files below it.
    storage: PathBuf,
    files: SyncSender<Vec<File>>,
    due: Duration,
}

impl WriteOut {
    /// None: without one more thread.
    pub fn start(storage: &Path) -> Option<Self> {
        let (files, next) = sync_channel::<Vec<File>>(0);
        threads::spawn("write-out", move || next.iter().flatten().for_each(|file| sys::write_out(&file))).ok()?;
        Some(Self {
            storage: storage.canonicalize().unwrap_or_else(|_| storage.to_owned()),
            files,
            due: Duration::ZERO,
        })
    }

    /// Begins to write what `processes` have open for writing, unless it was begun just now or is still going on.
    pub fn begin(&mut self, processes: &[Process], now: Duration) {
        if now >= self.due {
            self.due = now + LEAST;
            let _ = self.files.try_send(processes.iter().flat_map(|process| self.written(process.id.pid)).collect());
        }
    }

    fn written(&self, pid: i32) -> Vec<File> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|entry| self.open(&entry.path())).collect()
    }

    /// Opens the file of a descriptor that is open for writing. Anything but a file might not bear to be opened.
    fn open(&self, descriptor: &Path) -> Option<File> {
        // Its own permissions tell how it was opened.
        let writes = fs::symlink_metadata(descriptor).ok()?.mode() & 0o200 != 0;
        let is_here = || fs::read_link(descriptor).is_ok_and(|path| path.starts_with(&self.storage));
        let is_file = || fs::metadata(descriptor).is_ok_and(|found| found.is_file());
        let open = || OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(descriptor).ok();
        (writes && is_here() && is_file()).then(open)?
    }
}
