//! Files that another machine writes.
//!
//! NFS and similar file systems answer from a cache, for up to a minute, whether a file exists and how large it is.
//! NFS asks its server when a file is opened (close-to-open consistency, nfs(5)). Written data go to the server at any
//! later time, unless a program asks for it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;
use nix::sys::statfs::fstatfs;

/// The types of file systems with such a cache, statfs(2): NFS, SMB in three versions, FUSE, 9P, AFS.
const REMEMBERING: [i128; 7] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42, 0x6573_5546, 0x0102_1997, 0x5346_414F];

/// Opens a file that may have been created a moment ago. Does not wait for the writer of a FIFO.
pub fn open(path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    match open() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            drop(path.parent().map(File::open));
            open()
        }
        result => result,
    }
}

/// Whether the file exists now.
pub fn exists(path: &Path) -> bool {
    path.exists() || (path.parent().is_some_and(|directory| File::open(directory).is_ok()) && path.exists())
}

/// Whether a file or directory certainly does not exist. A server that does not answer proves nothing.
pub fn is_missing(path: &Path) -> bool {
    open(path).is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
}

/// Makes an open file show what other machines have written to it. Costs little on a local file system.
pub fn refresh(file: &File, path: &Path) {
    if is_remembered(file) {
        drop(File::open(path));
    }
}

/// Makes other machines see what was written to an open file. Costs little on a local file system.
///
/// # Errors
/// The error of the server, for instance for lack of space.
pub fn publish(file: &File) -> io::Result<()> {
    if is_remembered(file) {
        file.sync_data()
    } else {
        Ok(())
    }
}

/// Whether the size of a file may come from a cache.
pub fn is_remembered(file: &File) -> bool {
    fstatfs(file).is_ok_and(|found| REMEMBERING.contains(&(i128::from(found.filesystem_type().0) & 0xFFFF_FFFF)))
}
