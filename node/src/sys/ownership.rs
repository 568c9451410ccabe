//! Checks which other users could replace a file.

use std::fs::{set_permissions, symlink_metadata, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::libc::{S_ISVTX, S_IWGRP, S_IWOTH, S_IXOTH};
use nix::unistd::{Gid, Uid};

/// Returns why another user could replace what is in `directory`, or None if only root and trusted users could.
/// `directory` must be a path without symbolic links. `streamflow_io/files.py` has the same rule.
///
/// # Arguments
/// * `trusted` - users that may own a directory above
/// * `within` - mounts that only trusted users can reach; the modes of their directories do not matter
pub fn stranger(directory: &Path, trusted: &[u32], within: &[PathBuf]) -> io::Result<Option<String>> {
    let own = Uid::effective().as_raw();
    let owners = [0, own, symlink_metadata("/")?.uid()];
    for place in directory.ancestors().take_while(|place| within.iter().all(|mount| mount != place)) {
        let found = symlink_metadata(place)?;
        if !owners.contains(&found.uid()) && !trusted.contains(&found.uid()) {
            return Ok(Some(format!("{} belongs to user {}", place.display(), found.uid())));
        }
        if others_write(&found) && found.mode() & S_ISVTX == 0 {
            return Ok(Some(format!("others may write to {}, which is not sticky", place.display())));
        }
    }
    Ok(None)
}

/// Whether the mode lets another user write there.
fn others_write(found: &Metadata) -> bool {
    let own = Uid::effective().as_raw();
    // Many users have a private group with the same number.
    let own_group = found.gid() == own && Gid::effective().as_raw() == own;
    found.mode() & if own_group { S_IWOTH } else { S_IWOTH | S_IWGRP } != 0
}

/// Opens a directory of this user in which no other user may write. Nothing in another one is to be believed.
///
/// # Errors
/// Why it is none; a symbolic link is none, either.
pub fn open_own(directory: &Path) -> io::Result<File> {
    let opened = open_directory(directory, OFlag::O_NOFOLLOW)?;
    let found = opened.metadata()?;
    let why = if found.uid() != Uid::effective().as_raw() {
        format!("{} belongs to user {}", directory.display(), found.uid())
    } else if others_write(&found) {
        format!("others may write to {}", directory.display())
    } else {
        return Ok(opened);
    };
    Err(io::Error::new(ErrorKind::PermissionDenied, why))
}

fn open_directory(place: &Path, follow: OFlag) -> io::Result<File> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NONBLOCK | follow;
    OpenOptions::new().read(true).custom_flags(flags.bits()).open(place)
}

/// Removes the write permission of other users from the directories of a job, and from those between them and its
/// streams.
/// StreamFlow creates directories with mode 0777 when it creates them by a command.
///
/// # Errors
/// A message, if another user has created one of the directories on the way to a stream.
pub fn close<'a>(
    directories: impl Iterator<Item = &'a Path>,
    streams: impl Iterator<Item = &'a Path> + Clone,
) -> Result<(), String> {
    for directory in directories {
        let Some(owner) = close_one(directory, OFlag::empty())? else { continue };
        // Jobs do not stream below a directory of an untrusted user, so owners of directories above are trusted.
        // In a container one of them can be the user of the host.
        let above = directory.ancestors().skip(1).filter_map(|place| symlink_metadata(place).ok());
        let trusted: Vec<u32> =
            [0, Uid::effective().as_raw(), owner].into_iter().chain(above.map(|place| place.uid())).collect();
        for above in streams.clone().filter_map(Path::parent) {
            let way: Vec<&Path> = above.ancestors().take_while(|place| place.starts_with(directory)).collect();
            // The outermost directory is closed first. After that other users cannot replace what it contains.
            for place in way.iter().rev().skip(1) {
                if let Some(user) = close_one(place, OFlag::O_NOFOLLOW)?.filter(|owner| !trusted.contains(owner)) {
                    return Err(format!("{}: user {user} has put a directory there [SFIO-S027]", place.display()));
                }
            }
        }
    }
    Ok(())
}

/// Closes one directory and returns its owner, or None if the directory is missing or may not be opened.
fn close_one(place: &Path, follow: OFlag) -> Result<Option<u32>, String> {
    let at = |error: io::Error| format!("{}: {error}", place.display());
    let directory = match open_directory(place, follow) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => return Ok(None),
        opened => opened.map_err(at)?,
    };
    let found = directory.metadata().map_err(at)?;
    if found.mode() & S_IWOTH != 0 && found.mode() & S_ISVTX == 0 {
        // In a container the directory may belong to a user of the host. Only that user can change its mode.
        let _ = directory.set_permissions(Permissions::from_mode(found.mode() & 0o7777 & !(S_IWGRP | S_IWOTH)));
    }
    Ok(Some(found.uid()))
}

/// Makes a file of this user readable for others, whatever the umask, if others may pass through `directory`, which is
/// above the file.
pub fn share(path: &Path, directory: &Path) -> io::Result<()> {
    if symlink_metadata(directory)?.mode() & S_IXOTH != 0 {
        set_permissions(path, Permissions::from_mode(0o644))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_write_there() {
        let base = tempfile::tempdir().unwrap();
        let inner = base.path().canonicalize().unwrap().join("inner");
        std::fs::create_dir(&inner).unwrap();
        for (mode, safe) in [(0o700, true), (0o755, true), (0o757, false), (0o1777, true), (0o1770, true)] {
            set_permissions(base.path(), Permissions::from_mode(mode)).unwrap();
            let found = stranger(&inner, &[], &[]).unwrap();
            assert_eq!(found.is_none(), safe, "{mode:o}: {found:?}");
        }
        assert!(stranger(&inner.join("missing"), &[], &[]).is_err());
    }

    #[test]
    fn only_a_directory_of_our_own_is_opened() {
        let base = tempfile::tempdir().unwrap();
        let [ours, link, shared] = ["ours", "link", "shared"].map(|name| base.path().join(name));
        std::fs::create_dir(&ours).unwrap();
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        std::fs::create_dir(&shared).unwrap();
        for (mode, own) in [(0o711, true), (0o700, true), (0o757, false), (0o1777, false)] {
            set_permissions(&ours, Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_own(&ours).is_ok(), own, "{mode:o}");
        }
        set_permissions(&ours, Permissions::from_mode(0o700)).unwrap();
        assert!(open_own(&link).is_err() && open_own(&ours.join("none")).is_err());
        if Uid::effective().is_root() {
            std::os::unix::fs::chown(&shared, Some(65534), None).unwrap();
            let message = open_own(&shared).unwrap_err().to_string();
            assert!(message.ends_with("/shared belongs to user 65534"), "{message}");
        }
    }

    #[test]
    fn what_is_made_for_all_is_closed() {
        let base = tempfile::tempdir().unwrap();
        let job = base.path().join("job");
        let stream = job.join("one/two/fifo");
        std::fs::create_dir_all(stream.parent().unwrap()).unwrap();
        let places = [base.path(), &job, &job.join("one"), &job.join("one/two")];
        for (mode, closed) in [(0o777, 0o755), (0o775, 0o775), (0o1777, 0o1777), (0o702, 0o700), (0o2777, 0o2755)] {
            places.iter().for_each(|place| set_permissions(place, Permissions::from_mode(mode)).unwrap());
            let directories = [job.clone(), base.path().join("missing")];
            let directories = directories.iter().map(PathBuf::as_path);
            close(directories, [stream.as_path(), Path::new("/elsewhere/fifo")].into_iter()).unwrap();
            let modes = places.map(|place| symlink_metadata(place).unwrap().mode() & 0o7777);
            assert_eq!(modes, [mode, closed, closed, closed]);
        }
        std::os::unix::fs::symlink(base.path(), job.join("link")).unwrap();
        let behind = job.join("link/fifo");
        let message = close([job.as_path()].into_iter(), [behind.as_path()].into_iter()).unwrap_err();
        assert!(message.contains("job/link: "), "{message}");
    }

    #[test]
    fn nobody_is_a_stranger_on_a_mount_of_those_who_are_trusted() {
        let base = tempfile::tempdir().unwrap();
        let mount = base.path().canonicalize().unwrap().join("mount");
        let inner = mount.join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        set_permissions(&mount, Permissions::from_mode(0o777)).unwrap();
        assert!(stranger(&inner, &[], &[]).unwrap().is_some());
        assert!(stranger(&inner, &[], &[inner.join("deeper"), mount.with_extension("other")]).unwrap().is_some());
        assert_eq!(stranger(&inner, &[], std::slice::from_ref(&mount)).unwrap(), None);
        set_permissions(&inner, Permissions::from_mode(0o777)).unwrap();
        assert!(stranger(&inner, &[], &[mount]).unwrap().is_some());
    }
}
