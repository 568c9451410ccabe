//! Finds the symbolic links in a directory that lead to a file.

use std::fs;
use std::path::Path;

use crate::sys::file_id::{file_id, file_id_of, FileId};

/// Whether a symbolic link in or below `directory` leads to the same file as `place`. `place` itself does not count.
pub fn lead_to(directory: &Path, place: &Path) -> bool {
    let Some(wanted) = file_id(place) else { return false };
    search(directory, wanted, fs::symlink_metadata(place).ok().as_ref().map(file_id_of))
}

fn search(directory: &Path, wanted: FileId, except: Option<FileId>) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_symlink() => {
            file_id(entry.path()) == Some(wanted) && entry.metadata().ok().as_ref().map(file_id_of) != except
        }
        Ok(kind) if kind.is_dir() => search(&entry.path(), wanted, except),
        _ => false,
    })
}
