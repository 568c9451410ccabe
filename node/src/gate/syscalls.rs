//! The system calls that the gate holds, and where each has its path.

use nix::libc;

/// How a system call names a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// By a path. `follow`: a symbolic link at its end is followed.
    Path { path: usize, follow: When },
    /// By a path relative to the directory of a descriptor.
    At { directory: usize, path: usize, follow: When },
    /// By the descriptor of a directory whose entries are read.
    Listing,
    /// By nothing: the process may find other files at the same paths afterwards.
    Elsewhere,
}

/// When something holds for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Whatever its arguments are.
    Always,
    /// In no case.
    Never,
    /// If an argument has at least one of some flags.
    Has { argument: usize, flags: u32 },
    /// If an argument has none of some flags.
    Lacks { argument: usize, flags: u32 },
}

impl When {
    pub fn holds(self, arguments: &[u64; 6]) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Has { argument, flags } => arguments[argument] as u32 & flags != 0,
            Self::Lacks { argument, flags } => arguments[argument] as u32 & flags == 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Syscall {
    pub number: i64,
    pub named: Named,
    /// The argument with the flag AT_EMPTY_PATH, which means the descriptor itself.
    pub empty: Option<usize>,
    /// When the call asks for more of a byte stream than its bytes: the answer would not be that of the file.
    pub asks: When,
    /// When the answer for a directory may change as entries come.
    pub changes: When,
    /// The name that the call makes, beside the one that it needs.
    pub makes: Option<Named>,
}

impl Syscall {
    const fn new(number: i64, named: Named) -> Self {
        Self { number, named, empty: None, asks: When::Always, changes: When::Always, makes: None }
    }

    const fn asking(self, asks: When) -> Self {
        Self { asks, ..self }
    }

    /// Says that the answer for a directory does not depend on its entries.
    const fn constant(self) -> Self {
        Self { changes: When::Never, ..self }
    }

    /// Says which path, and which descriptor of a directory, has the name that the call makes beside the other one.
    const fn to(self, directory: Option<usize>, path: usize) -> Self {
        Self { makes: Some(new_name(directory, path)), ..self }
    }

    /// Says which argument has the flags of opening. A stream can be opened for reading only.
    const fn opens(self, argument: usize) -> Self {
        self.asking(When::Has { argument, flags: (libc::O_RDWR | libc::O_PATH) as u32 })
    }

    /// Says which argument has the rights asked for. A stream exists and is readable, as the file.
    const fn may(self, argument: usize) -> Self {
        let changes = When::Has { argument, flags: (libc::R_OK | libc::W_OK | libc::X_OK) as u32 };
        Self { changes, ..self.asking(When::Has { argument, flags: (libc::W_OK | libc::X_OK) as u32 }) }
    }
}

const NOFOLLOW: u32 = libc::AT_SYMLINK_NOFOLLOW as u32;
const FOLLOW: u32 = libc::AT_SYMLINK_FOLLOW as u32;
const OPEN_NOFOLLOW: u32 = libc::O_NOFOLLOW as u32;
pub const EMPTY_PATH: u32 = libc::AT_EMPTY_PATH as u32;

const fn at(number: i64, follow: When) -> Syscall {
    Syscall::new(number, Named::At { directory: 0, path: 1, follow })
}

const fn stat_at(number: i64, flags: usize) -> Syscall {
    Syscall { empty: Some(flags), ..at(number, unless(flags, NOFOLLOW)) }
}

const fn path(number: i64, follow: When) -> Syscall {
    Syscall::new(number, Named::Path { path: 0, follow })
}

const fn elsewhere(number: i64) -> Syscall {
    Syscall::new(number, Named::Elsewhere)
}

const fn new_name(directory: Option<usize>, path: usize) -> Named {
    match directory {
        Some(directory) => Named::At { directory, path, follow: When::Never },
        None => Named::Path { path, follow: When::Never },
    }
}

/// A call that makes a name, or fails because the name exists. It asks nothing of a file.
const fn making(number: i64, directory: Option<usize>, path: usize) -> Syscall {
    Syscall::new(number, new_name(directory, path)).asking(When::Never).constant()
}

const fn unless(argument: usize, flags: u32) -> When {
    When::Lacks { argument, flags }
}

/// The calls that are held, the most frequent first.
pub const SYSCALLS: &[Syscall] = &[
    at(libc::SYS_openat, unless(2, OPEN_NOFOLLOW)).opens(2),
    stat_at(libc::SYS_newfstatat, 3),
    stat_at(libc::SYS_statx, 2),
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_stat, When::Always),
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_lstat, When::Never),
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_open, unless(1, OPEN_NOFOLLOW)).opens(1),
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_access, When::Always).may(1),
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_readlink, When::Never).constant(),
    at(libc::SYS_faccessat, When::Always).may(2),
    at(libc::SYS_faccessat2, unless(3, NOFOLLOW)).may(2),
    at(libc::SYS_readlinkat, When::Never).constant(),
    path(libc::SYS_execve, When::Always).constant(),
    at(libc::SYS_execveat, unless(4, NOFOLLOW)).constant(),
    path(libc::SYS_chdir, When::Always).constant(),
    at(libc::SYS_openat2, When::Always),
    path(libc::SYS_statfs, When::Always).constant(),
    path(libc::SYS_truncate, When::Always).constant(),
    path(libc::SYS_getxattr, When::Always),
    path(libc::SYS_lgetxattr, When::Never),
    path(libc::SYS_listxattr, When::Always),
    path(libc::SYS_llistxattr, When::Never),
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_link, When::Never).to(None, 1),
    at(libc::SYS_linkat, When::Has { argument: 4, flags: FOLLOW }).to(Some(2), 3),
    at(libc::SYS_name_to_handle_at, When::Has { argument: 4, flags: FOLLOW }),
    Syscall::new(libc::SYS_inotify_add_watch, Named::Path { path: 1, follow: unless(2, libc::IN_DONT_FOLLOW) }),
    // A call that changes a name has to find it, too.
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_rename, When::Never).to(None, 1),
    at(libc::SYS_renameat, When::Never).to(Some(2), 3),
    at(libc::SYS_renameat2, When::Never).to(Some(2), 3),
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_unlink, When::Never).asking(When::Never),
    at(libc::SYS_unlinkat, When::Never).asking(When::Never),
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_chmod, When::Always),
    at(libc::SYS_fchmodat, When::Always),
    at(libc::SYS_utimensat, unless(3, NOFOLLOW)),
    // What a command makes at the name of an input would be in the place of the input.
    #[cfg(target_arch = "x86_64")]
    path(libc::SYS_creat, When::Always).asking(When::Never),
    #[cfg(target_arch = "x86_64")]
    making(libc::SYS_mkdir, None, 0),
    making(libc::SYS_mkdirat, Some(0), 1),
    #[cfg(target_arch = "x86_64")]
    making(libc::SYS_mknod, None, 0),
    making(libc::SYS_mknodat, Some(0), 1),
    #[cfg(target_arch = "x86_64")]
    making(libc::SYS_symlink, None, 1),
    making(libc::SYS_symlinkat, Some(1), 2),
    elsewhere(libc::SYS_chroot),
    elsewhere(libc::SYS_pivot_root),
    elsewhere(libc::SYS_unshare),
    elsewhere(libc::SYS_setns),
    elsewhere(libc::SYS_mount),
    elsewhere(libc::SYS_move_mount),
    Syscall::new(libc::SYS_getdents64, Named::Listing).asking(When::Never),
    #[cfg(target_arch = "x86_64")]
    Syscall::new(libc::SYS_getdents, Named::Listing).asking(When::Never),
];

/// The calls that read the entries of a directory, with their types.
pub const LISTINGS: &[i64] = &[
    libc::SYS_getdents64,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_getdents,
];

/// The calls that show how files are read. Mappings of files are reported, too.
pub const OBSERVED: &[i64] = &[
    libc::SYS_openat,
    libc::SYS_lseek,
    libc::SYS_pread64,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_creat,
    libc::SYS_openat2,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    // After one of these, not all reads are seen.
    libc::SYS_open_by_handle_at,
    libc::SYS_io_setup,
    libc::SYS_io_uring_setup,
];

fn call(number: i64) -> Option<&'static Syscall> {
    SYSCALLS.iter().find(|call| call.number == number)
}

macro_rules! names {
    ($number:expr; $($(#[$meta:meta])* $name:literal = $call:ident,)*) => {
        match $number {
            $($(#[$meta])* libc::$call => Some($name),)*
            _ => None,
        }
    };
}

/// Returns the name of a call that asks for more of a byte stream than its bytes.
pub fn name(number: i64) -> Option<&'static str> {
    names! { number;
        #[cfg(target_arch = "x86_64")] "open" = SYS_open,
        #[cfg(target_arch = "x86_64")] "creat" = SYS_creat,
        #[cfg(target_arch = "x86_64")] "stat" = SYS_stat,
        #[cfg(target_arch = "x86_64")] "lstat" = SYS_lstat,
        #[cfg(target_arch = "x86_64")] "access" = SYS_access,
        #[cfg(target_arch = "x86_64")] "readlink" = SYS_readlink,
        #[cfg(target_arch = "x86_64")] "rename" = SYS_rename,
        #[cfg(target_arch = "x86_64")] "link" = SYS_link,
        #[cfg(target_arch = "x86_64")] "chmod" = SYS_chmod,
        #[cfg(target_arch = "x86_64")] "poll" = SYS_poll,
        #[cfg(target_arch = "x86_64")] "select" = SYS_select,
        #[cfg(target_arch = "x86_64")] "getdents" = SYS_getdents,
        #[cfg(target_arch = "x86_64")] "alarm" = SYS_alarm,
        "openat" = SYS_openat, "openat2" = SYS_openat2, "newfstatat" = SYS_newfstatat, "statx" = SYS_statx,
        "faccessat" = SYS_faccessat, "faccessat2" = SYS_faccessat2, "readlinkat" = SYS_readlinkat,
        "execve" = SYS_execve, "execveat" = SYS_execveat, "statfs" = SYS_statfs, "truncate" = SYS_truncate,
        "getxattr" = SYS_getxattr, "lgetxattr" = SYS_lgetxattr, "listxattr" = SYS_listxattr,
        "llistxattr" = SYS_llistxattr, "linkat" = SYS_linkat, "renameat" = SYS_renameat, "renameat2" = SYS_renameat2,
        "fchmodat" = SYS_fchmodat, "utimensat" = SYS_utimensat, "name_to_handle_at" = SYS_name_to_handle_at,
        "inotify_add_watch" = SYS_inotify_add_watch, "getdents64" = SYS_getdents64, "lseek" = SYS_lseek,
        "mmap" = SYS_mmap, "pread64" = SYS_pread64, "preadv" = SYS_preadv, "preadv2" = SYS_preadv2,
        "fcntl" = SYS_fcntl, "ioctl" = SYS_ioctl, "sendfile" = SYS_sendfile, "splice" = SYS_splice, "tee" = SYS_tee,
        "copy_file_range" = SYS_copy_file_range, "vmsplice" = SYS_vmsplice, "sync_file_range" = SYS_sync_file_range,
        "fstatfs" = SYS_fstatfs, "fchmod" = SYS_fchmod, "fchown" = SYS_fchown, "fgetxattr" = SYS_fgetxattr,
        "flistxattr" = SYS_flistxattr, "ppoll" = SYS_ppoll, "pselect6" = SYS_pselect6,
        "epoll_ctl" = SYS_epoll_ctl, "setitimer" = SYS_setitimer, "timer_settime" = SYS_timer_settime,
    }
}

/// Returns how the call with this number names a file.
pub fn named(number: i64) -> Option<Named> {
    call(number).map(|call| call.named)
}

/// Returns how the call with this number names what it makes, beside the file that it needs.
pub fn makes(number: i64) -> Option<Named> {
    call(number).and_then(|call| call.makes)
}

/// Whether the answer of a call for a directory may change as entries come.
pub fn changes(number: i64, arguments: &[u64; 6]) -> bool {
    call(number).is_some_and(|call| call.changes.holds(arguments))
}

/// Whether a call asks for more of a file than its bytes.
pub fn asks(number: i64, arguments: &[u64; 6]) -> bool {
    call(number).is_some_and(|call| call.asks.holds(arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_stands_once() {
        let numbers: Vec<i64> = SYSCALLS.iter().map(|call| call.number).collect();
        for (index, number) in numbers.iter().enumerate() {
            assert!(!numbers[..index].contains(number), "{number}");
        }
    }

    /// C libraries use these where the kernel has only calls with a directory.
    #[test]
    fn what_every_architecture_has_is_held() {
        for number in [
            libc::SYS_openat,
            libc::SYS_newfstatat,
            libc::SYS_faccessat,
            libc::SYS_readlinkat,
            libc::SYS_linkat,
            libc::SYS_renameat,
            libc::SYS_unlinkat,
            libc::SYS_fchmodat,
        ] {
            assert!(matches!(named(number), Some(Named::At { .. })), "{number}");
        }
    }

    #[test]
    fn to_read_a_stream_is_to_ask_for_nothing_more() {
        let no_file = libc::AT_FDCWD as u64;
        for (number, argument, flags, expected) in [
            (libc::SYS_openat, 2, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, false),
            (libc::SYS_openat, 2, libc::O_RDWR, true),
            (libc::SYS_openat, 2, libc::O_PATH, true),
            (libc::SYS_faccessat, 2, libc::F_OK, false),
            (libc::SYS_faccessat2, 2, libc::R_OK, false),
            (libc::SYS_faccessat, 2, libc::R_OK | libc::W_OK, true),
            (libc::SYS_newfstatat, 3, 0, true),
            (libc::SYS_readlinkat, 3, 0, true),
            (libc::SYS_unlinkat, 2, 0, false),
            (libc::SYS_read, 2, -1, false),
        ] {
            let mut arguments = [no_file, 0, 0, 0, 0, 0];
            arguments[argument] = flags as u64;
            assert_eq!(asks(number, &arguments), expected, "{number} {flags:o}");
        }
    }

    #[test]
    fn what_changes_as_entries_come() {
        for (number, argument, flags, expected) in [
            (libc::SYS_openat, 2, libc::O_RDONLY | libc::O_DIRECTORY, true),
            (libc::SYS_openat, 2, libc::O_PATH, true),
            (libc::SYS_newfstatat, 3, libc::AT_SYMLINK_NOFOLLOW, true),
            (libc::SYS_statx, 2, 0, true),
            (libc::SYS_renameat2, 4, 0, true),
            (libc::SYS_unlinkat, 2, libc::AT_REMOVEDIR, true),
            (libc::SYS_utimensat, 3, 0, true),
            (libc::SYS_faccessat, 2, libc::F_OK, false),
            (libc::SYS_faccessat2, 2, libc::R_OK, true),
            (libc::SYS_readlinkat, 3, 0, false),
            (libc::SYS_execve, 2, 0, false),
            (libc::SYS_chdir, 2, 0, false),
        ] {
            let mut arguments = [0; 6];
            arguments[argument] = flags as u64;
            assert_eq!(changes(number, &arguments), expected, "{number} {flags:o}");
        }
    }

    #[test]
    fn flags_decide_what_is_followed() {
        let follow = |number: i64, arguments: [u64; 6]| match named(number) {
            Some(Named::Path { follow, .. } | Named::At { follow, .. }) => follow.holds(&arguments),
            _ => panic!("{number} has no path"),
        };
        assert!(follow(libc::SYS_newfstatat, [0; 6]));
        assert!(!follow(libc::SYS_newfstatat, [0, 0, 0, NOFOLLOW.into(), 0, 0]));
        assert!(!follow(libc::SYS_readlinkat, [0; 6]));
        assert!(!follow(libc::SYS_linkat, [0; 6]));
        assert_eq!(named(libc::SYS_read), None);
    }
}
