//! Which files processes have open, from `/proc`.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::processes::tree::{self, Process};
use crate::sys::file_id::{file_id, FileId};
use crate::sys::raw;

/// The positions at which processes have each file open.
pub type Positions = HashMap<FileId, HashSet<u64>>;

/// Whether one of `processes` has one of `paths` open for writing. A process that may not be looked into might.
pub fn writes_any(processes: &[Process], paths: &[impl AsRef<Path>]) -> bool {
    let files: HashSet<FileId> = paths.iter().filter_map(file_id).collect();
    let open = |process: &Process| match descriptors(process.id.pid, 0o200, &files) {
        Ok(found) => !found.is_empty(),
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    };
    !files.is_empty() && processes.iter().filter(|process| !process.zombie).any(open)
}

/// Whether one of `processes` has one of `files` open for writing. One that may not be looked into is taken for one that has not.
pub fn holds_any(processes: &[Process], files: &HashSet<FileId>) -> bool {
    let open = |process: &Process| descriptors(process.id.pid, 0o200, files).is_ok_and(|found| !found.is_empty());
    !files.is_empty() && processes.iter().any(open)
}

/// Whether some of `processes` have `path` open for reading, and all of them sleep: they wait for what can be read.
pub fn wait_to_read(processes: &[Process], path: &Path) -> bool {
    let files: HashSet<FileId> = file_id(path).into_iter().collect();
    let reads = |pid: &i32| descriptors(*pid, 0o400, &files).is_ok_and(|found| !found.is_empty());
    let mut readers = processes.iter().map(|process| process.id.pid).filter(reads).peekable();
    readers.peek().is_some() && !readers.any(tree::a_thread_goes_on)
}

/// Whether `path` was opened for reading more than once by `processes`, and is open now. Descriptors that were inherited or
/// duplicated are of one opening. Where the kernel does not tell them apart, those are of one that are of one process, or
/// of processes of which one, or one above both, can have given it to the others.
pub fn opened_twice(processes: &[Process], path: &Path) -> bool {
    let files: HashSet<FileId> = file_id(path).into_iter().collect();
    let mut open = Vec::new();
    for pid in processes.iter().map(|process| process.id.pid) {
        open.extend(
            descriptors(pid, 0o400, &files).unwrap_or_default().into_iter().map(|descriptor| (pid, descriptor)),
        );
    }
    let inherited = |one: i32, other: i32| {
        let above = ancestors(processes, one);
        ancestors(processes, other)
            .iter()
            .any(|pid| above.contains(pid) && open.iter().any(|(holder, _)| holder == pid))
    };
    let same = |one: (i32, i32), other: (i32, i32)| {
        raw::same_opening(one, other).unwrap_or_else(|| one.0 == other.0 || inherited(one.0, other.0))
    };
    open.iter().any(|descriptor| !same(open[0], *descriptor))
}

/// A process and those above it, as far as they are among `processes`.
fn ancestors(processes: &[Process], pid: i32) -> Vec<i32> {
    let mut found = vec![pid];
    let parent = |pid: i32| processes.iter().find(|process| process.id.pid == pid).map(|process| process.parent);
    while let Some(above) = found.last().and_then(|last| parent(*last)).filter(|above| !found.contains(above)) {
        found.push(above);
    }
    found
}

/// The descriptors of a process that are `files` and were opened as `mode` says: 0o400 to read, 0o200 to write.
pub fn descriptors(pid: i32, mode: u32, files: &HashSet<FileId>) -> io::Result<Vec<i32>> {
    let of_interest = |path: &Path| {
        // Its own permissions tell how it was opened.
        let opened = fs::symlink_metadata(path).is_ok_and(|link| link.mode() & mode != 0);
        opened && file_id(path).is_some_and(|file| files.contains(&file))
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let interesting = entries.filter(|entry| of_interest(&entry.path()));
    Ok(interesting.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Where those of `processes` read who have `files` open; of each file that is open all positions.
pub fn positions(processes: &[Process], files: &HashSet<FileId>) -> Positions {
    let mut found = Positions::new();
    for process in processes.iter().filter(|process| !process.zombie) {
        let pid = process.id.pid;
        for descriptor in descriptors(pid, 0o400, files).unwrap_or_default() {
            let file = file_id(format!("/proc/{pid}/fd/{descriptor}"));
            if let (Some(file), Some(position)) = (file, position(pid, descriptor)) {
                found.entry(file).or_default().insert(position);
            }
        }
    }
    found
}

/// Where in its file the next byte of a descriptor is read, or written.
pub fn position(process: impl Display, descriptor: i32) -> Option<u64> {
    tree::value(process, &format!("fdinfo/{descriptor}"), "pos:")?.parse().ok()
}
