//! Watches the output directories of a job, and reports what happens to files that match.

use std::fs::{self, DirEntry, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::AddWatchFlags;

use crate::outputs::token::Token;
use crate::protocol::job::{Kind, Output};
use crate::sys::watch::{Notice, Watcher, ARRIVES, LEAVES};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub path: PathBuf,
    pub what: What,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Exists,
    Closed,
    /// Moved into place.
    Placed,
    /// Found in a directory that was not watched when the file was made, or after notices were lost; or a link to a
    /// file.
    Found,
    /// Removed or moved away, with everything below it.
    Gone,
}

impl Change {
    /// Whether the change may mean that the file was closed.
    pub fn is_close(&self) -> bool {
        matches!(self.what, What::Closed | What::Placed | What::Found)
    }

    fn all_found(paths: Vec<PathBuf>) -> Vec<Self> {
        paths.into_iter().map(|path| Self { path, what: What::Found }).collect()
    }
}

/// Watches the directories of `outputs`.
pub struct OutputWatch<'a> {
    pub outputs: &'a [Output],
}

impl OutputWatch<'_> {
    /// Watches the roots and the directories below. Existing files are not reported until they are written to.
    /// Returns false if the user has too many watches.
    ///
    /// # Errors
    /// A message, if a root cannot be watched.
    pub fn arm(&self, watcher: &mut Watcher<Token>) -> Result<bool, String> {
        for output in self.outputs {
            let mut old = Vec::new();
            match self.descend(&output.root, watcher, &mut old) {
                Err(Errno::ENOSPC) => return Ok(false),
                Err(error) => {
                    let root = output.root.display();
                    return Err(format!("output {}: cannot watch {root}: {}", output.port, error.desc()));
                }
                Ok(()) => {}
            }
            // Links are skipped: their targets are written elsewhere.
            for path in old.into_iter().filter(|path| !path.is_symlink()) {
                let touched = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ONESHOT;
                let _ = watcher.watch(&path, touched, Token::Old(path.clone()));
            }
        }
        Ok(true)
    }

    /// Turns a notice into changes, and watches new directories.
    pub fn changes(&self, notice: &Notice<Token>, watcher: &mut Watcher<Token>) -> Vec<Change> {
        let directory = match &notice.token {
            Token::Old(path) => return vec![Change { path: path.clone(), what: What::Exists }],
            Token::Directory(directory) => directory,
            _ => return Vec::new(),
        };
        let Some(name) = &notice.name else { return Vec::new() };
        let (path, mask) = (directory.join(name), notice.mask);
        let left = mask.intersects(LEAVES);
        if mask.contains(AddWatchFlags::IN_ISDIR) {
            if left {
                watcher.forget(|token| matches!(token, Token::Directory(other) if other.starts_with(&path)));
                return vec![Change { path, what: What::Gone }];
            }
            let mut found = Vec::new();
            if mask.intersects(ARRIVES) {
                // The directory may be gone again. Without a watch its files are committed at the end.
                let _ = self.descend(&path, watcher, &mut found);
            }
            return Change::all_found(found);
        }
        if !self.outputs.iter().any(|output| output.concerns(&path)) {
            return Vec::new();
        }
        if left {
            return vec![Change { path, what: What::Gone }];
        }
        // If the file is gone, its directory was moved, or a notice of its removal follows.
        let Ok(file) = fs::symlink_metadata(&path) else { return Vec::new() };
        // A link to an input that streams leads to a FIFO until the job has succeeded. A program that opens the FIFO
        // takes the bytes.
        if !fs::metadata(&path).map_or(file.is_symlink(), |target| target.is_file()) {
            return Vec::new();
        }
        if self.counts_closes(&path) {
            let _ = watcher.watch(&path, AddWatchFlags::IN_CLOSE_WRITE, Token::Counted);
        }
        vec![Change { what: what(&path, mask, &file), path }]
    }

    fn counts_closes(&self, path: &Path) -> bool {
        self.outputs.iter().any(|output| output.counts_closes() && output.concerns(path))
    }

    /// Returns all files that exist, after notices were lost, and watches directories that were missed.
    pub fn rescan(&self, watcher: &mut Watcher<Token>) -> Vec<Change> {
        let mut found = Vec::new();
        for output in self.outputs {
            let _ = self.descend(&output.root, watcher, &mut found);
        }
        found.sort();
        found.dedup();
        Change::all_found(found)
    }

    /// Watches `directory`, then lists its entries. In this order no entry is missed.
    fn descend(&self, directory: &Path, watcher: &mut Watcher<Token>, found: &mut Vec<PathBuf>) -> nix::Result<()> {
        let Some(mask) = self.mask(directory) else { return Ok(()) };
        // Without IN_EXCL_UNLINK the close of a removed file would count as a close of a new file with the same name.
        let only = AddWatchFlags::IN_ONLYDIR | AddWatchFlags::from_bits_retain(nix::libc::IN_EXCL_UNLINK);
        watcher.watch(directory, mask | only, Token::Directory(directory.to_owned()))?;
        let entries = fs::read_dir(directory).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
        for entry in entries.flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => match self.descend(&path, watcher, found) {
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(error) => return Err(error),
                },
                Ok(_) if self.outputs.iter().any(|output| output.concerns(&path)) && is_file(&entry) => {
                    found.push(path)
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns what to watch in `directory`: closes where a rule or the driver needs them, new entries where a stream
    /// may begin.
    fn mask(&self, directory: &Path) -> Option<AddWatchFlags> {
        let here = || self.outputs.iter().filter(|output| output.reaches(directory));
        // A notice of opening keeps two closes of a file apart that has no watch of its own yet. See `Token::Counted`.
        let opens = if here().any(Output::counts_closes) { AddWatchFlags::IN_OPEN } else { AddWatchFlags::empty() };
        if here().any(Output::tells_closes) {
            return Some(ARRIVES | LEAVES | AddWatchFlags::IN_CLOSE_WRITE | opens);
        }
        here().any(|output| output.kind != Kind::Directory).then_some(ARRIVES)
    }
}

fn what(path: &Path, mask: AddWatchFlags, file: &Metadata) -> What {
    // A link names a file that was written under another name, so the link is never closed.
    let is_link = |file: &Metadata| if file.is_symlink() { path.is_file() } else { file.nlink() > 1 };
    let linked = mask.contains(AddWatchFlags::IN_CREATE) && is_link(file);
    match () {
        () if mask.contains(AddWatchFlags::IN_MOVED_TO) => What::Placed,
        () if mask.contains(AddWatchFlags::IN_CLOSE_WRITE) => What::Closed,
        () if linked => What::Found,
        () => What::Exists,
    }
}

/// Whether an entry is a file or a link to a file.
fn is_file(entry: &DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if !kind.is_symlink() => kind.is_file(),
        _ => fs::metadata(entry.path()).is_ok_and(|target| target.is_file()),
    }
}

/// Returns the files of `outputs` that exist now.
pub fn existing(outputs: &[Output]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for output in outputs {
        let mut directories = vec![output.root.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    if output.reaches(&path) {
                        directories.push(path);
                    }
                } else if output.rule_of(&path).is_some() && is_file(&entry) {
                    found.push(path);
                }
            }
        }
    }
    found.sort();
    found.dedup();
    found
}
