//! The run directory, and those in it.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::protocol::memory_directory;
use crate::sys::remote_file;

/// How long, and how often, the removal of a directory is tried again while a process still writes in it.
const LAST_FILES: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);

/// Makes a directory for this user alone; if it is `readable`, others may pass through it, but not list it.
pub fn make(path: &Path, readable: bool) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    if readable {
        fs::set_permissions(path, Permissions::from_mode(0o711))?;
    }
    Ok(())
}

/// Removes a directory with all that is in it.
pub fn remove(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + LAST_FILES;
    loop {
        match memory_directory::remove_run(path) {
            Err(_) if remote_file::is_missing(path) => return Ok(()),
            Err(_) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            result => return result,
        }
    }
}
