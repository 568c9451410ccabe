//! Whether a file was written since its commit.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::sys::file_id::{file_id_of, FileId};

/// The identity, size and time of a file at its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    file: FileId,
    size: u64,
    modified: (i64, i64),
    /// The file had other names, by which it may be written unseen.
    linked: bool,
}

/// The fate of a committed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Same,
    Written,
    Removed,
}

impl Stamp {
    pub fn of(file: &Metadata) -> Self {
        let modified = (file.mtime(), file.mtime_nsec());
        Self { file: file_id_of(file), size: file.size(), modified, linked: file.nlink() > 1 }
    }

    /// Compares the file `path` with this stamp. `writable`: a process may have written to it meanwhile.
    ///
    /// A file with other names always counts as writable. Otherwise another time of modification proves nothing: `cp
    /// -p` and similar programs set it after they have closed the file.
    pub fn fate(&self, path: &Path, writable: bool) -> Fate {
        let Ok(file) = fs::metadata(path) else { return Fate::Removed };
        let now = Self::of(&file);
        let same_file = (now.file, now.size) == (self.file, self.size);
        let writable = writable || self.linked || now.linked || path.is_symlink();
        if same_file && (now.modified == self.modified || !writable) {
            Fate::Same
        } else {
            Fate::Written
        }
    }
}
