//! Finds programs, and what is known of them before they are read.

use std::env;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Returns the program that a shell would run for a name.
pub fn which(name: &OsString, path: &OsString) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    (!name.is_empty()).then(|| env::split_paths(path).map(|directory| directory.join(name)).find(is_program)).flatten()
}

pub fn mtime_of(found: &Metadata) -> i64 {
    found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec())
}

/// Reads the first bytes of a file.
pub fn head(file: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    crate::sys::remote_file::open(file)?.take(bytes).read_to_end(&mut found)?;
    Ok(found)
}
