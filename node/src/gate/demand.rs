//! Decides what a call demands of a byte stream under the net, which must look like a file. No effects.

use nix::errno::Errno;
use nix::libc;

use super::call::Call;
use super::descriptors::{Place, CLONE, CONTROLS, DESCRIPTORS, NOT_BLOCKING, REQUESTS, SET_FLAGS, WATCH};
use super::syscalls::asks;

/// A demand of a call on a stream, and what has to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Answer the call at once with this value, as for a file.
    Answer(i64),
    Fail(Errno),
    /// Move the reader, or return its position.
    Seek {
        offset: i64,
        whence: i32,
    },
    /// Open the stream for reading from its beginning, with these flags.
    Open(i32),
    /// Provide the file: the call does what no pipe can.
    File,
    /// The same as `File`, for a call with a path.
    Named,
    /// Become another program, which inherits the open descriptors.
    Execute,
    /// Assume the worst: the effect of the call is unknown.
    Unseen,
}

/// Returns what a call demands of a stream by a descriptor. None if the call names none, or only needs its bytes.
pub fn of_descriptor(number: i64, arguments: &[u64; 6]) -> Option<(Place, Demand)> {
    let &(_, place, _) = DESCRIPTORS.iter().find(|(other, ..)| *other == number)?;
    let second = arguments[1] as u32;
    let demand = match number {
        libc::SYS_lseek => Demand::Seek { offset: arguments[1] as i64, whence: arguments[2] as i32 },
        libc::SYS_mmap if arguments[3] & libc::MAP_ANONYMOUS as u64 != 0 => return None,
        // Reads at the position of the reader, as `read` does.
        libc::SYS_preadv2 if arguments[3] as i64 == -1 && arguments[5] as u32 == 0 => return None,
        libc::SYS_fadvise64 if (arguments[2] as i64) < 0 || arguments[3] > 5 => Demand::Fail(Errno::EINVAL),
        libc::SYS_fadvise64 | libc::SYS_readahead | libc::SYS_fsync | libc::SYS_fdatasync => Demand::Answer(0),
        // O_NONBLOCK has no effect on a file.
        libc::SYS_fcntl if second == SET_FLAGS => Demand::Answer(0),
        libc::SYS_fcntl if CONTROLS.contains(&second) => Demand::Fail(Errno::EBADF),
        libc::SYS_ioctl if second == NOT_BLOCKING => Demand::Answer(0),
        libc::SYS_ioctl if second == CLONE => return Some((Place::Argument(2), Demand::File)),
        libc::SYS_ioctl if REQUESTS.contains(&second) => Demand::File,
        // The kernel watches no file.
        libc::SYS_epoll_ctl if second == WATCH => Demand::Fail(Errno::EPERM),
        libc::SYS_fcntl | libc::SYS_ioctl | libc::SYS_epoll_ctl => return None,
        _ => Demand::File,
    };
    Some((place, demand))
}

/// Returns what a call demands of the stream at its path. None if a pipe gives the same.
pub fn of_path(call: &Call) -> Option<Demand> {
    let flags = match call.number {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => call.arguments[1],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => return Some(Demand::Named),
        libc::SYS_openat => call.arguments[2],
        libc::SYS_openat2 => match call.open_how() {
            Some([flags, ..]) => flags,
            None => return Some(Demand::Named),
        },
        number => return asks(number, &call.arguments).then_some(Demand::Named),
    };
    of_opening(flags as i32)
}

fn of_opening(flags: i32) -> Option<Demand> {
    let has = |wanted: i32| flags & wanted == wanted;
    if has(libc::O_CREAT | libc::O_EXCL) || has(libc::O_DIRECTORY) {
        // The call fails, as for a file.
        return None;
    }
    let reads = flags & libc::O_ACCMODE == libc::O_RDONLY && flags & (libc::O_PATH | libc::O_TRUNC) == 0;
    Some(if reads { Demand::Open(flags) } else { Demand::Named })
}

/// A seek beyond this place needs the file: some file systems have no larger files.
const LARGEST: i64 = 1 << 40;

/// Returns the place that `lseek` leads to, or its error. None if the result depends on the file.
///
/// # Arguments
/// * `here` - the position of the reader
pub fn target(offset: i64, whence: i32, here: u64) -> Option<Result<u64, Errno>> {
    let base = match whence {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => i64::try_from(here).ok()?,
        _ => return None,
    };
    match base.checked_add(offset)? {
        place @ 0..=LARGEST => Some(Ok(place as u64)),
        i64::MIN..0 => Some(Err(Errno::EINVAL)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUS_ONE: u64 = u64::MAX;

    #[test]
    fn what_calls_ask() {
        let file = |at: usize| Some((Place::Argument(at), Demand::File));
        let answer = Some((Place::Argument(0), Demand::Answer(0)));
        let fails = |error| Some((Place::Argument(0), Demand::Fail(error)));
        for (number, arguments, expected) in [
            (libc::SYS_read, [3, 0, 0, 0, 0, 0], None),
            (libc::SYS_fstat, [3, 0, 0, 0, 0, 0], None),
            (libc::SYS_pread64, [3, 0, 9, 0, 0, 0], file(0)),
            (libc::SYS_preadv2, [3, 0, 1, MINUS_ONE, 0, 0], None),
            (libc::SYS_preadv2, [3, 0, 1, MINUS_ONE, 0, 8], file(0)),
            (libc::SYS_preadv2, [3, 0, 1, 0, 0, 0], file(0)),
            (libc::SYS_mmap, [0, 9, 1, libc::MAP_PRIVATE as u64, 3, 0], file(4)),
            (libc::SYS_mmap, [0, 9, 1, libc::MAP_ANONYMOUS as u64, 3, 0], None),
            (libc::SYS_sendfile, [1, 3, 0, 9, 0, 0], file(1)),
            (libc::SYS_splice, [3, 0, 1, 0, 9, 0], file(0)),
            (libc::SYS_copy_file_range, [3, 0, 1, 0, 9, 0], file(0)),
            (libc::SYS_fadvise64, [3, 0, 0, libc::POSIX_FADV_SEQUENTIAL as u64, 0, 0], answer),
            (libc::SYS_fadvise64, [3, 0, 0, 6, 0, 0], fails(Errno::EINVAL)),
            (libc::SYS_fadvise64, [3, 0, MINUS_ONE, 0, 0, 0], fails(Errno::EINVAL)),
            (libc::SYS_fcntl, [3, libc::F_GETFL as u64, 0, 0, 0, 0], None),
            (libc::SYS_fcntl, [3, libc::F_DUPFD as u64, 0, 0, 0, 0], None),
            (libc::SYS_fcntl, [3, libc::F_SETPIPE_SZ as u64, 0, 0, 0, 0], fails(Errno::EBADF)),
            (libc::SYS_fcntl, [3, libc::F_SETFL as u64, libc::O_NONBLOCK as u64, 0, 0, 0], answer),
            (libc::SYS_ioctl, [3, 0x5401, 0, 0, 0, 0], None),
            (libc::SYS_ioctl, [3, NOT_BLOCKING.into(), 0, 0, 0, 0], answer),
            (libc::SYS_ioctl, [3, REQUESTS[1].into(), 0, 0, 0, 0], file(0)),
            (libc::SYS_ioctl, [1, CLONE.into(), 3, 0, 0, 0], file(2)),
            (libc::SYS_epoll_ctl, [9, WATCH.into(), 3, 0, 0, 0], Some((Place::Watched, Demand::Fail(Errno::EPERM)))),
            (libc::SYS_epoll_ctl, [9, libc::EPOLL_CTL_DEL as u64, 3, 0, 0, 0], None),
            (
                libc::SYS_lseek,
                [3, MINUS_ONE, libc::SEEK_END as u64, 0, 0, 0],
                Some((Place::Argument(0), Demand::Seek { offset: -1, whence: libc::SEEK_END })),
            ),
        ] {
            assert_eq!(of_descriptor(number, &arguments), expected, "{number} {arguments:?}");
        }
    }

    #[test]
    fn openings() {
        for (flags, expected) in [
            (libc::O_RDONLY | libc::O_CLOEXEC, Some(Demand::Open(libc::O_RDONLY | libc::O_CLOEXEC))),
            (libc::O_NONBLOCK, Some(Demand::Open(libc::O_NONBLOCK))),
            (libc::O_RDWR, Some(Demand::Named)),
            (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, Some(Demand::Named)),
            (libc::O_PATH, Some(Demand::Named)),
            (libc::O_RDONLY | libc::O_TRUNC, Some(Demand::Named)),
            (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, None),
            (libc::O_DIRECTORY, None),
        ] {
            assert_eq!(of_opening(flags), expected, "{flags:o}");
        }
    }

    #[test]
    fn targets() {
        let invalid = Some(Err(Errno::EINVAL));
        for (offset, whence, expected) in [
            (0, libc::SEEK_CUR, Some(Ok(7))),
            (3, libc::SEEK_CUR, Some(Ok(10))),
            (-7, libc::SEEK_CUR, Some(Ok(0))),
            (-8, libc::SEEK_CUR, invalid),
            (7, libc::SEEK_SET, Some(Ok(7))),
            (0, libc::SEEK_SET, Some(Ok(0))),
            (-1, libc::SEEK_SET, invalid),
            (LARGEST + 1, libc::SEEK_SET, None),
            (i64::MAX, libc::SEEK_CUR, None),
            (0, libc::SEEK_END, None),
            (7, libc::SEEK_DATA, None),
            (7, 99, None),
        ] {
            assert_eq!(target(offset, whence, 7), expected, "{offset} {whence}");
        }
    }
}
