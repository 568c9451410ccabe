//! The calls with a descriptor that treat a pipe otherwise than a file, and when the kernel reports them.

use nix::libc;

/// The place of the descriptors in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Argument(usize),
    /// `struct pollfd`s, as many as the second argument says.
    Polled,
    /// A set of bits, at the second argument, as many as the first argument says.
    Selected,
    /// The third argument, which an epoll instance is to watch.
    Watched,
}

impl Place {
    /// Whether the call asks whether there is something to read.
    pub fn is_polled(self) -> bool {
        matches!(self, Self::Polled | Self::Selected | Self::Watched)
    }
}

/// When the kernel reports a call. Calls that treat a pipe like a file are not reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Always,
    /// Unless an argument is -1.
    UnlessMinusOne(usize),
    /// Unless an argument, of 32 bits, is negative.
    UnlessNegative(usize),
    /// Unless an argument is a null pointer.
    UnlessNull(usize),
    /// If an argument, of 32 bits, is one of these.
    IfOneOf(usize, &'static [u32]),
}

pub const WATCH: u32 = libc::EPOLL_CTL_ADD as u32;
pub const SET_FLAGS: u32 = libc::F_SETFL as u32;
pub const CONTROLS: &[u32] = &[SET_FLAGS, libc::F_SETPIPE_SZ as u32, libc::F_GETPIPE_SZ as u32];
pub const NOT_BLOCKING: u32 = libc::FIONBIO as u32;
/// FICLONE of linux/fs.h. The others in `REQUESTS`: FIBMAP, FIGETBSZ, FS_IOC_FIEMAP, FS_IOC_GETFLAGS, FIOQSIZE.
pub const CLONE: u32 = 0x4004_9409;
pub const REQUESTS: &[u32] = &[NOT_BLOCKING, libc::FIONREAD as u32, CLONE, 1, 2, 0xC020_660B, 0x8008_6601, 0x5460];

/// The calls that treat the descriptor of a pipe otherwise than that of a file, or refuse it.
///
/// `fstat` is not among them, because the C library calls it for each file that it opens.
pub const DESCRIPTORS: &[(i64, Place, Told)] = &[
    (libc::SYS_lseek, Place::Argument(0), Told::Always),
    (libc::SYS_mmap, Place::Argument(4), Told::UnlessMinusOne(4)),
    (libc::SYS_pread64, Place::Argument(0), Told::Always),
    (libc::SYS_preadv, Place::Argument(0), Told::Always),
    (libc::SYS_preadv2, Place::Argument(0), Told::Always),
    (libc::SYS_fadvise64, Place::Argument(0), Told::Always),
    (libc::SYS_readahead, Place::Argument(0), Told::Always),
    (libc::SYS_fcntl, Place::Argument(0), Told::IfOneOf(1, CONTROLS)),
    (libc::SYS_ioctl, Place::Argument(0), Told::IfOneOf(1, REQUESTS)),
    (libc::SYS_sendfile, Place::Argument(1), Told::Always),
    (libc::SYS_copy_file_range, Place::Argument(0), Told::Always),
    (libc::SYS_splice, Place::Argument(0), Told::Always),
    (libc::SYS_tee, Place::Argument(0), Told::Always),
    (libc::SYS_vmsplice, Place::Argument(0), Told::Always),
    (libc::SYS_fsync, Place::Argument(0), Told::Always),
    (libc::SYS_fdatasync, Place::Argument(0), Told::Always),
    (libc::SYS_sync_file_range, Place::Argument(0), Told::Always),
    (libc::SYS_fstatfs, Place::Argument(0), Told::Always),
    (libc::SYS_fchmod, Place::Argument(0), Told::Always),
    (libc::SYS_fchown, Place::Argument(0), Told::Always),
    (libc::SYS_fgetxattr, Place::Argument(0), Told::Always),
    (libc::SYS_flistxattr, Place::Argument(0), Told::Always),
    // Calls that ask whether there is something to read. A file is always readable.
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, Place::Polled, Told::UnlessNegative(2)),
    (libc::SYS_ppoll, Place::Polled, Told::UnlessNull(2)),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, Place::Selected, Told::UnlessNull(4)),
    (libc::SYS_pselect6, Place::Selected, Told::UnlessNull(4)),
    (libc::SYS_epoll_ctl, Place::Watched, Told::IfOneOf(1, &[WATCH])),
];

/// The calls that set an alarm, and when the kernel reports them. The alarm may end a wait for bytes.
pub const ALARMS: &[(i64, Told)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_alarm, Told::UnlessNull(0)),
    (libc::SYS_setitimer, Told::IfOneOf(0, &[libc::ITIMER_REAL as u32])),
    (libc::SYS_timer_settime, Told::Always),
];

/// The calls that distinguish an excerpt from its file by a descriptor, and when the kernel reports them.
/// Calls with a path are reported as for byte streams.
pub const TELLING: &[(i64, Told)] = &[
    (libc::SYS_fstat, Told::Always),
    (libc::SYS_newfstatat, Told::Always),
    (libc::SYS_statx, Told::Always),
    (libc::SYS_mmap, Told::UnlessMinusOne(4)),
    (libc::SYS_sendfile, Told::UnlessNull(2)),
    (libc::SYS_copy_file_range, Told::UnlessNull(1)),
    (libc::SYS_splice, Told::UnlessNull(1)),
    (libc::SYS_ioctl, Told::IfOneOf(1, REQUESTS)),
    (libc::SYS_fstatfs, Told::Always),
    (libc::SYS_fgetxattr, Told::Always),
    (libc::SYS_flistxattr, Told::Always),
    (libc::SYS_io_setup, Told::Always),
];

/// The calls that read at a position, and the argument with the position.
/// The kernel reports them, and `lseek`, if the position is beyond the end.
pub const AT_POSITIONS: &[(i64, usize)] = &[(libc::SYS_pread64, 3), (libc::SYS_preadv, 3), (libc::SYS_preadv2, 3)];

/// The calls that open a file by its path, list a directory, or make it unknown what is read.
pub const NAMED: &[i64] = &[
    libc::SYS_openat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    libc::SYS_openat2,
    libc::SYS_getdents64,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getdents,
    libc::SYS_io_setup,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_stands_once() {
        let numbers: Vec<i64> = DESCRIPTORS.iter().map(|(number, ..)| *number).chain(NAMED.iter().copied()).collect();
        for (index, number) in numbers.iter().enumerate() {
            assert!(!numbers[..index].contains(number), "{number}");
        }
    }
}
