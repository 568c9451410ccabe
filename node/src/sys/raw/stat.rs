//! The answers of `fstat` and `statx`, byte for byte as the kernel writes them.

use std::ffi::CString;
use std::io;
use std::mem::{offset_of, size_of};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;

/// Returns what `fstat` would answer if the file were open.
pub fn plain(path: &Path) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut answer = vec![0_u8; size_of::<libc::stat>()];
    // SAFETY: the kernel reads a path that ends with a null, and writes one `struct stat`, for which there is room.
    let result = unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), answer.as_mut_ptr(), 0) };
    Errno::result(result)?;
    Ok(answer)
}

/// Returns what `statx` would answer if the file were open.
///
/// # Arguments
/// * `flags`, `mask` - arguments of the call that is answered
pub fn extended(path: &Path, flags: u64, mask: u64) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut answer = vec![0_u8; size_of::<libc::statx>()];
    let flags = flags & !(libc::AT_EMPTY_PATH as u64 | libc::AT_SYMLINK_NOFOLLOW as u64);
    // SAFETY: the kernel reads a path that ends with a null, and writes one `struct statx`, for which there is room.
    let result =
        unsafe { libc::syscall(libc::SYS_statx, libc::AT_FDCWD, path.as_ptr(), flags, mask, answer.as_mut_ptr()) };
    Errno::result(result)?;
    Ok(answer)
}

/// Whether the file gives capabilities to a process that executes the file.
pub fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the kernel reads two texts that end with a null. Without room for an answer it writes nothing.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// The fields of the answers that change with each new entry: size, blocks, times.
const PLAIN: [Range<usize>; 3] = [
    field(offset_of!(libc::stat, st_size), 8),
    field(offset_of!(libc::stat, st_blocks), 8),
    // The times of the last modification and the last change, each with its nanoseconds.
    field(offset_of!(libc::stat, st_mtime), 32),
];
const EXTENDED: [Range<usize>; 4] = [
    field(offset_of!(libc::statx, stx_size), 8),
    field(offset_of!(libc::statx, stx_blocks), 8),
    field(offset_of!(libc::statx, stx_mtime), size_of::<libc::statx_timestamp>()),
    field(offset_of!(libc::statx, stx_ctime), size_of::<libc::statx_timestamp>()),
];
/// The number of links that some file systems report for a directory because they do not count them.
const UNCOUNTED: u32 = 1;

const fn field(start: usize, bytes: usize) -> Range<usize> {
    start..start + bytes
}

/// The attributes of a directory at one time. Later answers repeat the fields that change with each new entry.
/// The number of links is always `UNCOUNTED`.
#[derive(Clone, Debug)]
pub struct Snapshot {
    plain: Vec<u8>,
    extended: Vec<u8>,
}

impl Snapshot {
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { plain: plain(path)?, extended: extended(path, 0, libc::STATX_BASIC_STATS.into())? })
    }

    /// Returns what `fstat` would have answered.
    pub fn plain(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut answer = repeat(plain(path)?, &self.plain, &PLAIN);
        let links = libc::nlink_t::from(UNCOUNTED).to_ne_bytes();
        answer[field(offset_of!(libc::stat, st_nlink), links.len())].copy_from_slice(&links);
        Ok(answer)
    }

    /// Returns what `statx` would have answered. See the function `extended` for the arguments.
    pub fn extended(&self, path: &Path, flags: u64, mask: u64) -> io::Result<Vec<u8>> {
        let mut answer = repeat(extended(path, flags, mask)?, &self.extended, &EXTENDED);
        answer[field(offset_of!(libc::statx, stx_nlink), 4)].copy_from_slice(&UNCOUNTED.to_ne_bytes());
        Ok(answer)
    }
}

fn repeat(mut answer: Vec<u8>, before: &[u8], fields: &[Range<usize>]) -> Vec<u8> {
    fields.iter().for_each(|field| answer[field.clone()].copy_from_slice(&before[field.clone()]));
    answer
}
