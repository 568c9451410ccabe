//! Watches the output directories of a job, and tells what happens to files that match.

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

/// What has happened to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Exists,
    Closed,
    /// Moved into place.
    Placed,
    /// Found in a directory that was not watched when it was made, or after notices were lost; or a link to a file.
    Found,
    /// Removed or moved away, with everything below it.
    Gone,
}

impl Change {
    /// Whether a close may follow from it.
    pub fn is_close(&self) -> bool {
        matches!(self.what, What::Closed | What::Placed | What::Found)
    }

    fn all_found(paths: Vec<PathBuf>) -> Vec<Self> {
        paths.into_iter().map(|path| Self { path, what: What::Found }).collect()
    }
}

/// Which directories are watched, and for what.
pub struct OutputWatch<'a> {
    pub outputs: &'a [Output],
}

impl OutputWatch<'_> {
    /// Watches the roots and what is below them. Files that are there already are no news.
    ///
    /// # Errors
    /// A message when a root cannot be watched.
    pub fn arm(&self, watcher: &mut Watcher<Token>) -> Result<(), String> {
        for output in self.outputs {
            let mut old = Vec::new();
            self.descend(&output.root, watcher, &mut old).map_err(|error| {
                format!("output {}: cannot watch {}: {}", output.port, output.root.display(), error.desc())
            })?;
            // Who writes what a link leads to does not do it here.
            for path in old.into_iter().filter(|path| !path.is_symlink()) {
                let touched = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ONESHOT;
                let _ = watcher.watch(&path, touched, Token::Old(path.clone()));
            }
        }
        Ok(())
    }

    /// Turns a notice into changes, and follows new directories.
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
                // It may be gone again, and without a watch its files are committed at the end.
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
        // What is gone again was another file: its directory may have been moved, or a notice of its end follows.
        let Ok(file) = fs::symlink_metadata(&path) else { return Vec::new() };
        if !file.is_file() && !file.is_symlink() {
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

    /// After notices were lost: all that is there, and watches for directories that were missed.
    pub fn rescan(&self, watcher: &mut Watcher<Token>) -> Vec<Change> {
        let mut found = Vec::new();
        for output in self.outputs {
            let _ = self.descend(&output.root, watcher, &mut found);
        }
        found.sort();
        found.dedup();
        Change::all_found(found)
    }

    /// Watches `directory`, then looks at what is in it: in this order nothing is missed.
    fn descend(&self, directory: &Path, watcher: &mut Watcher<Token>, found: &mut Vec<PathBuf>) -> nix::Result<()> {
        let Some(mask) = self.mask(directory) else { return Ok(()) };
        // A file that was removed has still its name when it is closed, which may be another file's by then.
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

    /// What has to be known about `directory`: closes where they are told; appearances where a stream may begin.
    fn mask(&self, directory: &Path) -> Option<AddWatchFlags> {
        let here = || self.outputs.iter().filter(|output| output.reaches(directory));
        // As `Token::Counted`, for a file that is not watched yet.
        let opens = if here().any(Output::counts_closes) { AddWatchFlags::IN_OPEN } else { AddWatchFlags::empty() };
        if here().any(Output::tells_closes) {
            return Some(ARRIVES | LEAVES | AddWatchFlags::IN_CLOSE_WRITE | opens);
        }
        here().any(|output| output.kind != Kind::Directory).then_some(ARRIVES)
    }
}

fn what(path: &Path, mask: AddWatchFlags, file: &Metadata) -> What {
    // A link is made of a file that somebody has written under another name, and that nobody closes under this one.
    let is_link = |file: &Metadata| if file.is_symlink() { path.is_file() } else { file.nlink() > 1 };
    let linked = mask.contains(AddWatchFlags::IN_CREATE) && is_link(file);
    match () {
        () if mask.contains(AddWatchFlags::IN_MOVED_TO) => What::Placed,
        () if mask.contains(AddWatchFlags::IN_CLOSE_WRITE) => What::Closed,
        () if linked => What::Found,
        () => What::Exists,
    }
}

/// Whether it is a file, or a link to one.
fn is_file(entry: &DirEntry) -> bool {
    match entry.file_type() {
        Ok(kind) if !kind.is_symlink() => kind.is_file(),
        _ => fs::metadata(entry.path()).is_ok_and(|target| target.is_file()),
    }
}

/// The files of `outputs` that exist now.
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
