//! What a file is known by, whatever its names are.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Its device and number.
pub type FileId = (u64, u64);

/// None: nothing is there, or may be seen.
pub fn file_id(path: impl AsRef<Path>) -> Option<FileId> {
    fs::metadata(path).ok().as_ref().map(file_id_of)
}

pub fn file_id_of(found: &Metadata) -> FileId {
    (found.dev(), found.ino())
}
