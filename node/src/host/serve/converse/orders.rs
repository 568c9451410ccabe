//! Does the requests of the driver in the directory of the jobs.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::host::serve::directory;
use crate::protocol::job::is_name_of_job;
use crate::protocol::limit_file::replace_limits;

/// Makes the directory of a job, with its `job.json`; all of it or nothing.
///
/// # Errors
/// A message: such as that it is there, or that there is no space.
pub fn make_job(jobs: &Path, id: &OsStr, spec: &str, readable: bool) -> Result<(), String> {
    let directory = directory_of(jobs, id)?;
    let at = |error: io::Error| format!("{}: {error}", directory.display());
    directory::make(&directory, readable).map_err(at)?;
    write_spec(&directory, spec).map_err(|error| {
        let _ = fs::remove_dir_all(&directory);
        at(error)
    })
}

fn write_spec(directory: &Path, spec: &str) -> io::Result<()> {
    let part = directory.join("job.json.part");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(spec.as_bytes())?;
    fs::rename(&part, directory.join("job.json"))
}

/// Gives a job other limits; one that is not there needs none.
///
/// # Errors
/// A message, when that is no name of a job, or there is no space.
pub fn limit_job(jobs: &Path, id: &OsStr, spec: &str) -> Result<(), String> {
    let directory = directory_of(jobs, id)?;
    match replace_limits(&directory, spec.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(format!("{}: {error}", directory.display())),
        _ => Ok(()),
    }
}

/// Whether there is such a job.
///
/// # Errors
/// A message, when there is none.
pub fn may_run(jobs: &Path, id: &OsStr) -> Result<(), String> {
    directory_of_job(jobs, id).map(drop)
}

/// Makes the file that cancels a job; false: it cannot be made.
///
/// # Errors
/// A message, when there is no such job.
pub fn cancel_job(jobs: &Path, id: &OsStr) -> Result<bool, String> {
    Ok(File::create(directory_of_job(jobs, id)?.join("cancel")).is_ok())
}

fn directory_of_job(jobs: &Path, id: &OsStr) -> Result<PathBuf, String> {
    let directory = directory_of(jobs, id)?;
    if directory.is_dir() {
        Ok(directory)
    } else {
        Err(format!("{}: there is no such job", directory.display()))
    }
}

fn directory_of(jobs: &Path, id: &OsStr) -> Result<PathBuf, String> {
    if is_name_of_job(id) {
        Ok(jobs.join(id))
    } else {
        Err(format!("{:?} is no name of a job", id.to_string_lossy()))
    }
}
