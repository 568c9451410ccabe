//! `RUN/memory`: a directory in memory for parts that a command needs as files, and for outputs that are removed.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{symlink, DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::readlinkat;
use nix::sys::statfs::{statfs, TMPFS_MAGIC};
use nix::unistd::Uid;

use crate::sys::ownership::open_own;
use crate::sys::random::random;

const NAME: &str = "memory";
/// Where there is memory that every user may take, shm_overview(7).
pub const SHARED: &str = "/dev/shm";

/// The directory in memory of a run, which is made if need be.
///
/// # Errors
/// When no memory can be had, or another user could put files there.
pub fn directory(run_directory: &Path) -> io::Result<PathBuf> {
    directory_in(run_directory, Path::new(SHARED))
}

fn directory_in(run_directory: &Path, shared: &Path) -> io::Result<PathBuf> {
    let place = of_run(run_directory);
    if !exists(&place) {
        if is_memory(shared) {
            let name: String = random::<16>()?.iter().map(|byte| format!("{byte:02x}")).collect();
            // First of all, so that it is known what is to be removed. Another job may be quicker.
            tolerate(symlink(shared.join(format!("streamflow-io-{name}")), &place))?;
        } else if is_memory(run_directory) {
            tolerate(make(&place))?;
        } else {
            return Err(io::Error::new(ErrorKind::Unsupported, "there is no tmpfs"));
        }
    }
    let directory = fs::read_link(&place).unwrap_or(place);
    tolerate(make(&directory))?;
    let found = fs::symlink_metadata(&directory)?;
    if !found.is_dir() || found.uid() != Uid::effective().as_raw() || found.mode() & 0o077 != 0 {
        let message = format!("{} is not ours alone", directory.display());
        return Err(io::Error::new(ErrorKind::PermissionDenied, message));
    }
    Ok(directory)
}

fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn make(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

fn tolerate(made: io::Result<()>) -> io::Result<()> {
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

pub fn is_memory(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC)
}

/// The path in a run directory that leads to its directory in memory.
pub fn of_run(run_directory: &Path) -> PathBuf {
    run_directory.join(NAME)
}

/// The place of a job there, by the directory of the job.
pub fn of_job(job: &Path) -> Option<PathBuf> {
    let place = of_run(job.ancestors().nth(2)?);
    Some(fs::read_link(&place).unwrap_or(place).join(job.file_name()?))
}

/// Removes a run directory with all that is in it, and what it has in memory.
pub fn remove_run(run_directory: &Path) -> io::Result<()> {
    // Another user may have put a directory in the place of one that is gone.
    let link = open_own(run_directory).and_then(|run| Ok(readlinkat(&run, NAME)?));
    if let Ok(directory) = link.map(PathBuf::from) {
        if directory.parent() == Some(Path::new(SHARED)) && open_own(&directory).is_ok() {
            remove_whole(&directory);
        }
    }
    fs::remove_dir_all(run_directory)
}

/// Removes a directory, also what a job has made unwritable in it, and returns whether it is gone.
pub fn remove_whole(directory: &Path) -> bool {
    if fs::remove_dir_all(directory).is_err() {
        allow(directory);
        let _ = fs::remove_dir_all(directory);
    }
    !exists(directory)
}

/// Lets the user remove what is in a directory.
fn allow(directory: &Path) {
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            allow(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_elsewhere_is_not_followed() {
        let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(other.path(), run.path().join(NAME)).unwrap();
        remove_run(run.path()).unwrap();
        assert!(other.path().exists() && !run.path().exists());
    }

    #[test]
    fn what_is_not_ours_is_not_used() {
        let run = tempfile::tempdir().unwrap();
        let other = run.path().join("other");
        DirBuilder::new().mode(0o755).create(&other).unwrap();
        symlink(&other, run.path().join(NAME)).unwrap();
        assert_eq!(directory(run.path()).unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
