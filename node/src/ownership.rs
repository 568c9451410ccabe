//! Who could put something else in the place of a file.

use std::fs::{set_permissions, symlink_metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::libc::{S_ISVTX, S_IWGRP, S_IWOTH, S_IXOTH};
use nix::unistd::{Gid, Uid};

/// Why another user could put something of his in the place of what is in `directory`, which has no links on its way;
/// None: nobody can but root, and those who are trusted. The same rule is in `streamflow_io/files.py`.
///
/// # Arguments
/// * `trusted` - users who may own a directory above
/// * `within` - mounts that only those have who are trusted, whatever their modes are
pub fn stranger(directory: &Path, trusted: &[u32], within: &[PathBuf]) -> io::Result<Option<String>> {
    let own = Uid::effective().as_raw();
    let owners = [0, own, symlink_metadata("/")?.uid()];
    for place in directory.ancestors().take_while(|place| within.iter().all(|mount| mount != place)) {
        let found = symlink_metadata(place)?;
        if !owners.contains(&found.uid()) && !trusted.contains(&found.uid()) {
            return Ok(Some(format!("{} belongs to user {}", place.display(), found.uid())));
        }
        // Many users have a group of their own, with the same number.
        let own_group = found.gid() == own && Gid::effective().as_raw() == own;
        let others = if own_group { S_IWOTH } else { S_IWOTH | S_IWGRP };
        if found.mode() & others != 0 && found.mode() & S_ISVTX == 0 {
            return Ok(Some(format!("others may write to {}, which is not sticky", place.display())));
        }
    }
    Ok(None)
}

/// Lets other users read a file of ours, whatever the mask is, if they may pass through a directory that it is below.
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
