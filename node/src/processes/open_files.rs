//! The files that processes have open, from `/proc`.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::processes::tree::{self, Process};
use crate::sys::file_id::{file_id, FileId};
use crate::sys::raw;

/// The positions at which processes read each file.
pub type Positions = HashMap<FileId, HashSet<u64>>;

/// Whether processes have files open for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    No,
    /// A process is exiting, and may not be examined. It writes no more, and closes what it has open.
    Ending,
    /// One has, or may not be examined.
    Yes,
}

/// Whether `processes` have one of `paths` open for writing. What exits belongs to root; others may not examine it.
pub fn writing(processes: &[Process], paths: &[impl AsRef<Path>]) -> Writing {
    let files: HashSet<FileId> = paths.iter().filter_map(file_id).collect();
    let mut found = Writing::No;
    for process in processes.iter().filter(|process| !process.zombie && !files.is_empty()) {
        match descriptors(process.id.pid, 0o200, &files) {
            Ok(open) if open.is_empty() => {}
            Err(error) if error.kind() != ErrorKind::PermissionDenied => {}
            Err(_) if tree::is_exiting(process.id) => found = Writing::Ending,
            _ => return Writing::Yes,
        }
    }
    found
}

/// Whether one of `processes` has one of `files` open for writing. A process that may not be examined does not count.
pub fn holds_any(processes: &[Process], files: &HashSet<FileId>) -> bool {
    let open = |process: &Process| descriptors(process.id.pid, 0o200, files).is_ok_and(|found| !found.is_empty());
    !files.is_empty() && processes.iter().any(open)
}

/// Whether some of `processes` have `path` open for reading and all of these sleep: they wait for data.
pub fn wait_to_read(processes: &[Process], path: &Path) -> bool {
    let files: HashSet<FileId> = file_id(path).into_iter().collect();
    let reads = |pid: &i32| descriptors(*pid, 0o400, &files).is_ok_and(|found| !found.is_empty());
    let mut readers = processes.iter().map(|process| process.id.pid).filter(reads).peekable();
    readers.peek().is_some() && !readers.any(tree::a_thread_goes_on)
}

/// Whether `processes` have `path` open from more than one call of open(2) for reading.
///
/// Inherited and duplicated descriptors belong to one call. Without help of the kernel this is a guess: two descriptors
/// count as one call if they are in one process, or if one process that has the file open is above both.
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

/// Returns `pid` and its ancestors, as far as they are among `processes`.
fn ancestors(processes: &[Process], pid: i32) -> Vec<i32> {
    let mut found = vec![pid];
    let parent = |pid: i32| processes.iter().find(|process| process.id.pid == pid).map(|process| process.parent);
    while let Some(above) = found.last().and_then(|last| parent(*last)).filter(|above| !found.contains(above)) {
        found.push(above);
    }
    found
}

/// Returns the descriptors of a process for `files` that were opened as `mode` says: 0o400 to read, 0o200 to write.
pub fn descriptors(pid: i32, mode: u32, files: &HashSet<FileId>) -> io::Result<Vec<i32>> {
    let of_interest = |path: &Path| {
        // The permissions of the link tell how the file was opened.
        let opened = fs::symlink_metadata(path).is_ok_and(|link| link.mode() & mode != 0);
        opened && file_id(path).is_some_and(|file| files.contains(&file))
    };
    let entries = fs::read_dir(format!("/proc/{pid}/fd"))?.flatten();
    let interesting = entries.filter(|entry| of_interest(&entry.path()));
    Ok(interesting.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// Returns all positions at which `processes` read each of `files` that is open.
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

/// Returns the position of a descriptor in its file.
pub fn position(process: impl Display, descriptor: i32) -> Option<u64> {
    tree::value(process, &format!("fdinfo/{descriptor}"), "pos:")?.parse().ok()
}
