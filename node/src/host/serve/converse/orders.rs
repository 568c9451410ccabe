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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    fn entries(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }

    #[test]
    fn jobs_are_made_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let jobs = directory.path().join("jobs");
        fs::create_dir(&jobs).unwrap();
        for (id, readable) in [(&b"a b\n"[..], false), (b"\xff\"", true)] {
            let id = OsStr::from_bytes(id);
            make_job(&jobs, id, "{ }", readable).unwrap();
            let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(jobs.join(id)), if readable { 0o711 } else { 0o700 });
            assert_eq!(mode(jobs.join(id).join("job.json")), 0o600);
            assert_eq!(fs::read_to_string(jobs.join(id).join("job.json")).unwrap(), "{ }");
            assert_eq!(entries(&jobs.join(id)), ["job.json"]);
            assert!(make_job(&jobs, id, "{}", readable).unwrap_err().contains("File exists"));
            assert_eq!((may_run(&jobs, id), cancel_job(&jobs, id)), (Ok(()), Ok(true)));
            assert_eq!(entries(&jobs.join(id)), ["cancel", "job.json"]);
            for limits in ["{ }", r#"{"rate": 7}"#] {
                limit_job(&jobs, id, limits).unwrap();
                assert_eq!(fs::read_to_string(jobs.join(id).join("limit")).unwrap(), limits);
            }
            assert_eq!(entries(&jobs.join(id)), ["cancel", "job.json", "limit"]);
        }
        let long = "x".repeat(256);
        let before = entries(&jobs);
        for id in ["", ".", "..", "/", "a/b", "../x", "a/", "/etc", "a\0b", &long] {
            assert!(make_job(&jobs, OsStr::new(id), "{}", false).is_err(), "{id}");
            assert!(cancel_job(&jobs, OsStr::new(id)).is_err(), "{id}");
            assert!(limit_job(&jobs, OsStr::new(id), "{}").is_err() || id == long, "{id}");
            assert!(may_run(&jobs, OsStr::new(id)).is_err(), "{id}");
        }
        assert!(cancel_job(&jobs, OsStr::new("nobody")).is_err());
        assert_eq!(limit_job(&jobs, OsStr::new("nobody"), "{}"), Ok(()));
        assert_eq!((entries(&jobs), entries(directory.path())), (before, vec!["jobs".to_owned()]));
        fs::create_dir(jobs.join("nobody")).unwrap();
        fs::create_dir(jobs.join("nobody/cancel")).unwrap();
        assert_eq!(cancel_job(&jobs, OsStr::new("nobody")), Ok(false));
    }
}
