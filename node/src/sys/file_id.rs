//! Identity of a file, independent of its names.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device number and inode number.
pub type FileId = (u64, u64);

/// Returns the identity of the file at `path`, or None if the file does not exist or may not be examined.
pub fn file_id(path: impl AsRef<Path>) -> Option<FileId> {
    fs::metadata(path).ok().as_ref().map(file_id_of)
}

pub fn file_id_of(found: &Metadata) -> FileId {
    (found.dev(), found.ino())
}
