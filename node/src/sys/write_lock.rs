//! A lock that tells other processes that the writer of a file lives.
//!
//! Other users may read the file, and whoever can read a file can lock it. A write lock of fcntl(2) needs a file that is
//! open for writing, and no other lock counts here. The lock belongs to the open file, so that it ends with its process.

use std::fs::File;

use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg};
use nix::libc::{flock, F_RDLCK, F_UNLCK, F_WRLCK, SEEK_SET};

/// All bytes of a file, by a lock of this kind.
fn whole(kind: i32) -> flock {
    flock { l_type: kind as i16, l_whence: SEEK_SET as i16, l_start: 0, l_len: 0, l_pid: 0 }
}

/// Locks a file that is open for writing. Returns false if another process has locked it.
pub fn lock(file: &File) -> nix::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole(F_WRLCK))) {
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        locked => locked.map(|_| true),
    }
}

pub fn unlock(file: &File) -> nix::Result<()> {
    fcntl(file, FcntlArg::F_OFD_SETLK(&whole(F_UNLCK))).map(drop)
}

/// Whether a process that may write the file has locked it.
pub fn is_locked(file: &File) -> nix::Result<bool> {
    let mut found = whole(F_RDLCK);
    fcntl(file, FcntlArg::F_OFD_GETLK(&mut found))?;
    Ok(i32::from(found.l_type) != F_UNLCK)
}
