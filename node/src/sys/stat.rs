//! What `fstat` and `statx` say of a file, byte for byte as the kernel writes it.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

/// As `fstat` would answer, if the file was open.
pub fn plain(path: &Path) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut answer = vec![0_u8; size_of::<libc::stat>()];
    // SAFETY: the kernel reads a path that ends with a null, and writes one `struct stat`, of which there is room for.
    let result = unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), answer.as_mut_ptr(), 0) };
    Errno::result(result)?;
    Ok(answer)
}

/// As `statx` would.
///
/// # Arguments
/// * `flags`, `mask` - of the call that asks
pub fn extended(path: &Path, flags: u64, mask: u64) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut answer = vec![0_u8; size_of::<libc::statx>()];
    let flags = flags & !(libc::AT_EMPTY_PATH as u64 | libc::AT_SYMLINK_NOFOLLOW as u64);
    // SAFETY: the kernel reads a path that ends with a null, and writes one `struct statx`, of which there is room for.
    let result =
        unsafe { libc::syscall(libc::SYS_statx, libc::AT_FDCWD, path.as_ptr(), flags, mask, answer.as_mut_ptr()) };
    Errno::result(result)?;
    Ok(answer)
}
