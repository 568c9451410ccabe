//! Makes the kernel write the files of a job at the rate of its limit.
//!
//! Otherwise the kernel collects pages and writes them at a time of its choice. A program that synchronizes then waits
//! for all of them.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::time::Duration;

use nix::fcntl::OFlag;

use crate::processes::tree::Process;
use crate::sys::raw;
use crate::sys::threads;

/// Least time between two beginnings of a write.
const LEAST: Duration = Duration::from_millis(50);
/// Bytes moved between two writes of files that processes write through memory.
/// A later change of a page that was written makes all of it dirty again: it counts again, and is written again. Large
/// pages (folios) have up to 2 MiB.
const APART: u64 = 48 << 20;
/// Time between two searches for such files.
const LOOK: Duration = Duration::from_secs(1);

/// Begins writes in a thread, because the kernel makes it wait while the queue of the device is full.
#[derive(Debug)]
pub struct WriteOut {
    /// Only files below this directory are written.
    storage: PathBuf,
    files: SyncSender<Vec<File>>,
    due: Duration,
    /// Inodes of files that processes write through memory, when to look them up again, and after how many bytes to
    /// write them.
    mapped: HashSet<u64>,
    look: Duration,
    mapped_due: u64,
}

impl WriteOut {
    /// Starts the thread, or returns None if no thread can be started.
    pub fn start(storage: &Path) -> Option<Self> {
        let (files, next) = sync_channel::<Vec<File>>(0);
        threads::spawn("write-out", move || next.iter().flatten().for_each(|file| raw::write_out(&file))).ok()?;
        Some(Self {
            storage: storage.canonicalize().unwrap_or_else(|_| storage.to_owned()),
            files,
            due: Duration::ZERO,
            mapped: HashSet::new(),
            look: Duration::ZERO,
            mapped_due: APART,
        })
    }

    /// Begins to write the files that `processes` have open for writing, after they have moved `moved` bytes in all.
    /// Does nothing if a write was begun just now or is still going on.
    pub fn begin(&mut self, processes: &[Process], moved: u64, now: Duration) {
        if now < self.due {
            return;
        }
        self.due = now + LEAST;
        if now >= self.look {
            self.look = now + LOOK;
            self.mapped = processes.iter().flat_map(|process| mapped(process.id.pid)).collect();
        }
        let all = moved >= self.mapped_due;
        let files = processes.iter().flat_map(|process| self.written(process.id.pid, all)).collect();
        if self.files.try_send(files).is_ok() && all {
            self.mapped_due = moved + APART;
        }
    }

    /// Opens the files that a process has open for writing; mapped files only if `all`.
    fn written(&self, pid: i32, all: bool) -> Vec<File> {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        descriptors.filter_map(|entry| self.open(&entry.path(), all)).collect()
    }

    /// Opens the file of a descriptor that is open for writing. Opening anything but a regular file could have effects.
    fn open(&self, descriptor: &Path, all: bool) -> Option<File> {
        // The permissions of the link tell how the file was opened.
        let writes = fs::symlink_metadata(descriptor).ok()?.mode() & 0o200 != 0;
        let is_here = || fs::read_link(descriptor).is_ok_and(|path| path.starts_with(&self.storage));
        let is_wanted = |found: Metadata| found.is_file() && (all || !self.mapped.contains(&found.ino()));
        let is_file = || fs::metadata(descriptor).is_ok_and(is_wanted);
        let open = || OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(descriptor).ok();
        (writes && is_here() && is_file()).then(open)?
    }
}

/// Returns the inodes of the files that a process can write through memory.
fn mapped(pid: i32) -> Vec<u64> {
    fs::read_to_string(format!("/proc/{pid}/maps"))
        .unwrap_or_default()
        .lines()
        .filter_map(shared_and_writable)
        .collect()
}

/// Returns the inode in a line of `maps`, proc(5), if the mapping is shared and writable.
fn shared_and_writable(line: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace();
    let permissions = words.nth(1)?.as_bytes();
    let inode = words.nth(2)?.parse().ok()?;
    (permissions.get(1) == Some(&b'w') && permissions.get(3) == Some(&b's') && inode != 0).then_some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_by_memory() {
        for (line, inode) in [
            ("7f2c4a000000-7f2c56800000 rw-s 00000000 fe:00 1321                       /a/out", Some(1321)),
            ("7f2c4a000000-7f2c56800000 r--s 00000000 fe:00 1321                       /a/source", None),
            ("7f2c4a000000-7f2c56800000 rw-p 00000000 fe:00 1321                       /a/private", None),
            ("7f2c4a000000-7f2c56800000 rw-s 00000000 00:05 77 /a name with (spaces) (deleted)", Some(77)),
            ("7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]", None),
            ("", None),
        ] {
            assert_eq!(shared_and_writable(line), inode, "{line}");
        }
    }

    #[test]
    fn what_is_mapped_is_written_out_less_often() {
        let directory = tempfile::tempdir().unwrap();
        let [plain, shared] = ["plain", "shared"].map(|name| File::create(directory.path().join(name)).unwrap());
        let [plain, shared_inode] = [&plain, &shared].map(|file| file.metadata().unwrap().ino());
        let (files, begun) = sync_channel(1);
        let storage = directory.path().canonicalize().unwrap();
        let (mapped, look) = (HashSet::from([shared_inode]), Duration::MAX);
        let mut write_out = WriteOut { storage, files, due: Duration::ZERO, mapped, look, mapped_due: APART };
        let own = [crate::processes::tree::read(std::process::id() as i32).unwrap()];
        let mut begin = |moved: u64, now: u64| {
            write_out.begin(&own, moved, Duration::from_millis(now));
            let begun = begun.try_recv().map(|files| files.iter().map(|file| file.metadata().unwrap().ino()).collect());
            begun.map(|mut inodes: Vec<u64>| {
                inodes.sort_unstable();
                inodes
            })
        };
        let mut both = vec![plain, shared_inode];
        both.sort_unstable();
        assert_eq!(begin(0, 0), Ok(vec![plain]));
        assert!(begin(APART, 49).is_err(), "it was begun just now");
        assert_eq!(begin(APART, 50), Ok(both.clone()));
        assert_eq!(begin(2 * APART - 1, 100), Ok(vec![plain]));
        assert_eq!(begin(2 * APART, 150), Ok(both));
    }
}
