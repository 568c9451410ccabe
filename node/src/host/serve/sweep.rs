//! Run directories without a living process: all their processes were killed at once, as with a container or by a
//! machine that has stopped.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;

use super::directory;
use crate::inputs::feed::remove_inputs;
use crate::processes::tree;
use crate::protocol::event::Seen;
use crate::protocol::job::{Job, Target};
use crate::protocol::liveness;
use crate::sys::ownership::open_own;
use crate::sys::pipe::remove_fifo;
use crate::sys::threads;

/// How often a `serve` changes its run directory: one on another machine that shares it does not see that it lives.
const BEAT: Duration = Duration::from_secs(600);
/// A directory without a change for this time has no living process.
const LEFT: Duration = Duration::from_secs(3600);

/// Time for a job to end by itself, when `serve` alone was killed.
const FAREWELL: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// `sfio-node clear`: clears a run directory whose `serve` is gone. A living process of it cleans up by itself.
pub fn clear(run: &Path) -> i32 {
    match place_of(run).and_then(|run| clear_now(&run, Instant::now() + FAREWELL)) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            eprintln!("sfio-node: {}: {error}", run.display());
            1
        }
        _ => 0,
    }
}

/// The place of a run directory, without links above it.
fn place_of(run: &Path) -> io::Result<PathBuf> {
    let run = std::path::absolute(run)?;
    let (parent, name) = run.parent().zip(run.file_name()).ok_or(ErrorKind::InvalidInput)?;
    Ok(parent.canonicalize()?.join(name))
}

fn clear_now(run: &Path, deadline: Instant) -> io::Result<()> {
    // serve and each exec hold a shared lock as long as they live.
    let mut opened = open_own(run)?;
    let _lock = loop {
        match Flock::lock(opened, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => break Some(lock),
            // A file system without locks has no holder of one.
            Err((_, errno)) if errno != Errno::EWOULDBLOCK => break None,
            Err((_, errno)) if Instant::now() >= deadline => return Err(errno.into()),
            Err((still, _)) => opened = still,
        }
        sleep(PAUSE);
        fs::symlink_metadata(run)?;
    };
    let jobs = fs::read_dir(run.join("jobs")).into_iter().flatten().flatten().map(|job| job.path());
    // What jobs that have ended left behind goes on, as without us.
    let left: HashSet<PathBuf> = jobs.filter(|job| !has_ended(job)).collect();
    tree::sweep("SFIO_JOB", |job| left.contains(job));
    left.iter().for_each(|job| remove_inputs(job));
    directory::remove(run)
}

fn has_ended(job: &Path) -> bool {
    let events = fs::read(job.join("events.jsonl")).unwrap_or_default();
    events.split(|byte| *byte == b'\n').filter_map(Seen::parse).any(|seen| seen.event == "exit")
}

/// Removes them beside a run directory, and shows from then on that this one is in use; in a thread of its own.
pub fn start(run_directory: &Path) {
    let own = run_directory.to_owned();
    // Without one more thread, the next `serve` does it.
    let _ = threads::spawn("sweep", move || {
        sweep(&own, SystemTime::now());
        loop {
            sleep(BEAT);
            // By the clock of the file system.
            let touch = |directory| Ok(futimens(directory, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW)?);
            let _ = File::open(&own).and_then(touch);
        }
    });
}

fn sweep(own: &Path, now: SystemTime) {
    for entry in own.parent().map(fs::read_dir).into_iter().flatten().flatten().flatten() {
        let run = entry.path();
        if run != own && is_run_directory(&entry.file_name()) && is_left(&run, now) {
            for job in fs::read_dir(run.join("jobs")).into_iter().flatten().flatten() {
                remove_streams(&job.path());
            }
            let _ = directory::remove(&run);
        }
    }
}

/// Removes the FIFOs that a job, given by its directory, was to read. Other inputs are files, which do no harm.
/// Another process may own the files of these names by now.
fn remove_streams(directory: &Path) {
    let inputs = Job::load(&directory.join("job.json")).map(|job| job.inputs).unwrap_or_default();
    for input in inputs {
        if let Target::Fifo(path) = &input.target {
            remove_fifo(path);
        }
    }
}

/// Whether a name is `streamflow-io-`, the process of the driver, and a random number.
fn is_run_directory(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix("streamflow-io-")?.split_once('-'));
    numbers.is_some_and(|(process, random)| {
        process.parse::<u32>().is_ok() && random.len() >= 8 && random.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

fn is_left(run: &Path, now: SystemTime) -> bool {
    fs::symlink_metadata(run).is_ok_and(|found| {
        let age = found.modified().ok().and_then(|changed| now.duration_since(changed).ok());
        age > Some(LEFT) && open_own(run).is_ok() && liveness::is_gone(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pipe::make_fifo;

    /// A run directory with a job that reads a stream, as it was made a while ago.
    fn make(parent: &Path, name: &str, age: Duration) -> PathBuf {
        let run = parent.join(name);
        let job = run.join("jobs/1");
        fs::create_dir_all(&job).unwrap();
        drop(make_fifo(&run.join("alive")).unwrap());
        let fifo = parent.join(format!("{name}.fifo"));
        drop(make_fifo(&fifo).unwrap());
        let target = serde_json::json!({"fifo": fifo});
        let input = serde_json::json!({"name": "a", "port": "p", "path": "/a", "events": "/e", "target": target});
        fs::write(job.join("job.json"), serde_json::json!({"name": "b", "streams": [input]}).to_string()).unwrap();
        File::open(&run).unwrap().set_modified(SystemTime::now() - age).unwrap();
        run
    }

    #[test]
    fn what_was_killed_at_once_is_cleared() {
        let place = tempfile::tempdir().unwrap();
        let fifo = |run: &Path| PathBuf::from(format!("{}.fifo", run.display()));
        let [killed, ended, lives] = ["killed", "ended", "lives"].map(|name| make(place.path(), name, LEFT));
        let mut process =
            std::process::Command::new("sleep").arg("60").env("SFIO_JOB", killed.join("jobs/1")).spawn().unwrap();
        assert_eq!(clear(&killed), 0);
        assert!(!killed.exists() && !fifo(&killed).exists());
        assert_eq!(process.wait().unwrap().code(), None, "it was killed");

        let mut process =
            std::process::Command::new("sleep").arg("60").env("SFIO_JOB", ended.join("jobs/1")).spawn().unwrap();
        fs::write(ended.join("jobs/1/events.jsonl"), "{\"event\":\"exit\",\"success\":true}\n").unwrap();
        assert_eq!(clear(&ended), 0);
        assert!(!ended.exists() && fifo(&ended).exists(), "what a job has left is its own");
        assert!(process.try_wait().unwrap().is_none());
        process.kill().unwrap();
        process.wait().unwrap();

        let lock = Flock::lock(File::open(&lives).unwrap(), FlockArg::LockSharedNonblock).unwrap();
        let soon = Instant::now() + 2 * PAUSE;
        assert_eq!(clear_now(&lives, soon).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(lives.exists() && fifo(&lives).exists());
        drop(lock);
        assert_eq!((clear(&lives), clear(&lives)), (0, 0), "also when it is gone");
    }

    #[test]
    fn what_nobody_holds_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let old = LEFT + Duration::from_secs(1);
        let left = ["streamflow-io-1-0123456789abcdef", "streamflow-io-2-01234567"];
        let others = ["streamflow-io-1-01234567.html", "streamflow-io-doctor-01234567", "streamflow-io-7", "notes"];
        for name in left.iter().chain(&others) {
            make(place.path(), name, old);
        }
        let young = make(place.path(), "streamflow-io-3-01234567", LEFT / 2);
        let lives = make(place.path(), "streamflow-io-4-01234567", old);
        let _alive = File::options().read(true).write(true).open(lives.join("alive")).unwrap();
        let own = make(place.path(), "streamflow-io-5-01234567", old);
        std::os::unix::fs::symlink(&young, place.path().join("streamflow-io-6-01234567")).unwrap();

        sweep(&own, SystemTime::now());

        for name in left {
            assert!(!place.path().join(name).exists(), "{name}");
            assert!(!place.path().join(format!("{name}.fifo")).exists(), "{name}: its stream");
        }
        for path in others.map(|name| place.path().join(name)).iter().chain([&young, &lives, &own]) {
            let fifo = format!("{}.fifo", path.display());
            assert!(path.join("jobs/1/job.json").exists() && Path::new(&fifo).exists(), "{}", path.display());
        }
    }
}
