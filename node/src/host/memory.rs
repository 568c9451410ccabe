//! `sfio-node memory`: how much memory there is for files, and the directory in memory of a run.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::statvfs::{statvfs, FsFlags};
use nix::unistd::{access, AccessFlags, Uid, User};
use serde::Serialize;

use crate::protocol::{liveness, memory_directory};
use crate::sys::memory::{self, Available};
use crate::sys::own_program::own_program;
use crate::sys::raw;

/// Says that the directory in memory has a guard.
const GUARDED: &str = "memory.guard";
/// Where systemd runs, and which users stay without a session. Users below this number are those of the system.
const SYSTEMD: &str = "/run/systemd/system";
const LINGERING: &str = "/var/lib/systemd/linger";
const FIRST_USER: u32 = 1000;
/// How long the guard tries: a job that goes on for a moment may write still.
const TRIES: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Default, Serialize)]
struct Answer {
    #[serde(flatten)]
    available: Available,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<PathBuf>,
    space: u64,
    free: u64,
    held: Vec<u64>,
}

/// Prints the memory of this machine, and that of a run.
///
/// # Arguments
/// * `run` - the run directory, which gets a directory in memory; None: nothing is made
/// * `of` - the names of directories there whose bytes are printed, too
pub fn run(run: Option<&Path>, of: &[PathBuf]) -> i32 {
    let mut answer = Answer { available: Available::find(), ..Answer::default() };
    let shared = Path::new(memory_directory::SHARED);
    answer.why = obstacle(shared);
    if answer.why.is_none() {
        answer.space = memory::space(shared);
        answer.free = answer.space.min(memory::unused());
        match run.map(|run| make(run, shared)) {
            Some(Ok(directory)) => {
                answer.held = of.iter().map(|name| bytes_below(&directory.join(name))).collect();
                answer.directory = Some(directory);
            }
            Some(Err(error)) => answer.why = Some(format!("no directory can be made in {}: {error}", shared.display())),
            None => {}
        }
    }
    println!("{}", serde_json::json!(answer));
    0
}

/// Makes the directory in memory of a run, which goes when `serve` does, however that ends.
fn make(run: &Path, shared: &Path) -> io::Result<PathBuf> {
    let alive = liveness::open(run).map_err(io::Error::other)?;
    let directory = memory_directory::directory(run)?.canonicalize()?;
    if !directory.starts_with(shared.canonicalize()?) {
        return Err(io::Error::other(format!("{} is elsewhere", directory.display())));
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(run.join(GUARDED)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(directory),
        made => made?,
    };
    let mut program = own_program();
    program.arg("guard-memory").arg("--directory").arg(&directory).process_group(0);
    program.stdin(alive).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
    raw::disown(&mut program);
    let started = program.spawn().and_then(|mut child| child.wait());
    if let Err(error) = started {
        let _ = fs::remove_file(run.join(GUARDED));
        return Err(error);
    }
    Ok(directory)
}

/// `sfio-node guard-memory`: removes a directory when `serve`, whose FIFO is the standard input, is gone.
pub fn guard(directory: &Path) -> i32 {
    let input = io::stdin();
    let mut polled = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    loop {
        let _ = poll(&mut polled, PollTimeout::NONE);
        // The FIFO does not block. Nothing is ever written into it.
        match nix::unistd::read(input.as_fd(), &mut [0]) {
            Ok(0) => break,
            _ => sleep(PAUSE),
        }
    }
    let deadline = Instant::now() + TRIES;
    while !memory_directory::remove_whole(directory) && Instant::now() < deadline {
        sleep(PAUSE);
    }
    0
}

/// Why no file of a job can lie in memory on this machine.
fn obstacle(shared: &Path) -> Option<String> {
    let place = shared.display();
    let writable = access(shared, AccessFlags::W_OK | AccessFlags::X_OK).is_ok();
    if !memory_directory::is_memory(shared) || !writable {
        return Some(format!("{place} is no tmpfs that you can write to"));
    }
    if statvfs(shared).is_ok_and(|found| found.flags().contains(FsFlags::ST_NOEXEC)) {
        return Some(format!("{place} is mounted with `noexec`, and a tool may run a file that another tool has made"));
    }
    let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let user = Uid::effective();
    let stays = survives_logout(user.as_raw(), &cgroup, Path::new(SYSTEMD), || {
        let name = User::from_uid(user).ok().flatten().map(|user| user.name);
        name.is_some_and(|name| Path::new(LINGERING).join(name).exists())
    });
    (!stays).then(|| format!("systemd would empty {place} when you log out"))
}

/// Whether the files of a user in memory stay there while a process runs.
///
/// `systemd-logind` removes them with the last session of the user (`RemoveIPC`), except those of system users.
///
/// # Arguments
/// * `cgroup` - of the process, as in `/proc/self/cgroup`
fn survives_logout(user: u32, cgroup: &str, systemd: &Path, lingers: impl Fn() -> bool) -> bool {
    user < FIRST_USER || !systemd.exists() || cgroup.contains(&format!("/user-{user}.slice/")) || lingers()
}

/// The bytes that all in a directory takes.
fn bytes_below(directory: &Path) -> u64 {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found
        .map(|entry| match fs::symlink_metadata(entry.path()) {
            Ok(status) if status.is_dir() => bytes_below(&entry.path()),
            Ok(status) => status.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_removes_files_of_users_without_a_session() {
        let systemd = tempfile::tempdir().unwrap();
        let survives = |user, cgroup, lingers: bool| survives_logout(user, cgroup, systemd.path(), || lingers);
        assert!(survives(0, "0::/system.slice/cron.service", false));
        assert!(survives(1000, "0::/user.slice/user-1000.slice/session-3.scope", false));
        assert!(!survives(1000, "0::/system.slice/slurmstepd.scope/job_7", false));
        assert!(survives(1000, "0::/system.slice/slurmstepd.scope/job_7", true));
        assert!(!survives(1000, "0::/user.slice/user-10001.slice/session-3.scope", false));
        assert!(survives_logout(1000, "", &systemd.path().join("none"), || false));
    }
}
