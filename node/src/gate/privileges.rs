//! Programs that had none of the privileges of their files, because the calls of their job are reported.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use nix::libc;
use nix::sys::prctl::get_no_new_privs;

use super::call::Call;
use super::memory;
use crate::processes::tree;
use crate::sys::raw::stat::has_capabilities;
use crate::sys::threads::lock;

/// The most paths that are remembered.
const MOST: usize = 1000;

/// The programs of a job that a filter without privileges reports.
#[derive(Debug, Default)]
pub struct Programs {
    /// Whether the filter has taken the privileges.
    lost: OnceLock<bool>,
    /// Absolute paths that the job has executed.
    paths: Mutex<BTreeSet<PathBuf>>,
}

impl Programs {
    /// Remembers the program of a call. Looks at no file yet, because that may need a process of this job.
    pub fn note(&self, call: &Call) {
        let executes = call.native && matches!(call.number, libc::SYS_execve | libc::SYS_execveat);
        if !executes || !*self.lost.get_or_init(|| loses(call.thread)) {
            return;
        }
        let path = call.path().and_then(|path| memory::read_path(call.thread, path.address));
        let path = path.map(|path| PathBuf::from(OsString::from_vec(path)));
        let mut paths = lock(&self.paths);
        if let Some(path) = path.filter(|path| path.is_absolute() && paths.len() < MOST) {
            paths.insert(path);
        }
    }

    /// Returns the programs whose files give privileges.
    pub fn unprivileged(&self) -> Vec<PathBuf> {
        lock(&self.paths).iter().filter(|path| gives_privileges(path)).cloned().collect()
    }
}

/// Whether a process of a job gets no privileges from files, although this process does.
fn loses(thread: u32) -> bool {
    get_no_new_privs() == Ok(false) && tree::value(thread, "status", "NoNewPrivs:").as_deref() == Some("1")
}

fn gives_privileges(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| {
        found.is_file() && (found.mode() & (libc::S_ISUID | libc::S_ISGID) != 0 || has_capabilities(path))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_that_give_privileges() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (mode, expected) in [(0o755, false), (0o4755, true), (0o2755, true), (0o1755, false)] {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(gives_privileges(file.path()), expected, "{mode:o}");
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o2755)).unwrap();
        assert!(!gives_privileges(directory.path()));
        assert!(!gives_privileges(Path::new("/nowhere")));
    }
}
