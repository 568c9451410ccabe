//! Shows directories to a job at other paths, so that the job gets and writes the paths of another run of it.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use memchr::memmem;
use nix::mount::{mount, MsFlags};
use nix::sched::{unshare, CloneFlags};
use nix::unistd::{getegid, geteuid};

use crate::protocol::job::Mount;
use crate::sys::raw;

/// Binds each directory to its place, for this process and its children. The working directory stays the same
/// directory.
/// Must be called before there are other threads.
///
/// # Errors
/// The error, if the kernel refuses it. Nothing has changed then.
pub fn arrange(mounts: &[Mount]) -> io::Result<()> {
    if mounts.is_empty() {
        return Ok(());
    }
    // A failure halfway would leave this process in a user namespace without a user, so a child tries first.
    if !raw::can(|| put(mounts).is_ok()) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    put(mounts)
}

fn put(mounts: &[Mount]) -> io::Result<()> {
    let (user, group) = (geteuid(), getegid());
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        raw::unshielded(|| {
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
        })?;
    }
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    for each in mounts {
        mount(Some(&each.path), &each.at, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    }
    let here = env::current_dir()?;
    env::set_current_dir(renamed(here.as_os_str(), mounts).unwrap_or(here.into()))
}

/// Replaces the directories in a text by their places. Returns None if the text names none of them.
pub fn renamed(text: &OsStr, mounts: &[Mount]) -> Option<OsString> {
    let mut bytes = text.as_bytes().to_vec();
    for each in mounts {
        let (path, at) = (each.path.as_os_str().as_bytes(), each.at.as_os_str().as_bytes());
        let places: Vec<usize> = memmem::find_iter(&bytes, path).collect();
        for place in places.into_iter().rev() {
            bytes.splice(place..place + path.len(), at.iter().copied());
        }
    }
    (bytes != text.as_bytes()).then(|| OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_changed() {
        let mount = |path: &str, at: &str| Mount { path: path.into(), at: at.into() };
        let mounts = [mount("/w/b", "/w/a"), mount("/tmp/long", "/t")];
        let changed = |text: &str| renamed(text.as_ref(), &mounts).map(|text| text.into_string().unwrap());
        assert_eq!(changed("x=/w/b/f,/w/b /tmp/long/long"), Some("x=/w/a/f,/w/a /t/long".into()));
        assert_eq!(changed("/w/c"), None);
    }
}
