//! A reported system call of the command, and the files that its arguments name.

use std::borrow::Cow;
use std::path::PathBuf;

use nix::libc::{self, seccomp_notif};

use super::filter;
use super::memory;
use super::resolve::Base;
use super::syscalls::{asks, makes, name, named, Named, EMPTY_PATH};

/// A system call, as the kernel reports it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub id: u64,
    pub thread: u32,
    /// The number is one of the native interface.
    pub native: bool,
    pub number: i64,
    pub arguments: [u64; 6],
}

/// The path of a call.
#[derive(Clone, Copy, Debug)]
pub struct PathArgument {
    pub base: Base,
    pub address: u64,
    /// A symbolic link at the end of the path is followed.
    pub follow: bool,
}

impl From<seccomp_notif> for Call {
    fn from(notice: seccomp_notif) -> Self {
        let (data, native) = (notice.data, filter::is_native(&notice.data));
        Self { id: notice.id, thread: notice.pid, native, number: i64::from(data.nr), arguments: data.args }
    }
}

impl Call {
    /// Returns the name in the manual pages.
    pub fn name(&self) -> Cow<'static, str> {
        name(self.number).map_or_else(|| format!("call {}", self.number).into(), Cow::Borrowed)
    }

    /// Returns the path by which this process finds an open file of the calling one.
    pub fn open_file(&self, descriptor: i32) -> PathBuf {
        format!("/proc/{}/fd/{descriptor}", self.thread).into()
    }

    /// Returns the path argument. None if the call has none that is known.
    pub fn path(&self) -> Option<PathArgument> {
        self.argument(named(self.number)?)
    }

    /// Returns the path of a name that the call makes beside its other path. None if there is no such name.
    pub fn made(&self) -> Option<PathArgument> {
        self.argument(makes(self.number)?)
    }

    fn argument(&self, named: Named) -> Option<PathArgument> {
        let (base, path, follow) = match named {
            Named::Path { path, follow } => (Base::Working, path, follow),
            Named::At { directory, path, follow } => (Base::of(self.arguments[directory]), path, follow),
            Named::Listing | Named::Elsewhere => return None,
        };
        Some(PathArgument { base, address: self.arguments[path], follow: follow.holds(&self.arguments) })
    }

    /// Returns the descriptor that a call of the `stat` family asks about, if the call has no path.
    pub fn described(&self) -> Option<i32> {
        let (descriptor, address) = (self.arguments[0] as i32, self.arguments[1]);
        let flags = match self.number {
            libc::SYS_fstat => return Some(descriptor),
            libc::SYS_newfstatat => self.arguments[3],
            libc::SYS_statx => self.arguments[2],
            _ => return None,
        };
        let is_empty = || address == 0 || memory::read_path(self.thread, address).is_some_and(|path| path.is_empty());
        let has_no_path = flags as u32 & EMPTY_PATH != 0 && descriptor != libc::AT_FDCWD && is_empty();
        has_no_path.then_some(descriptor)
    }

    /// Returns the address for the answer to a call of the `stat` family.
    pub fn answer_address(&self) -> Option<u64> {
        match self.number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat | libc::SYS_lstat => Some(self.arguments[1]),
            libc::SYS_fstat => Some(self.arguments[1]),
            libc::SYS_newfstatat => Some(self.arguments[2]),
            libc::SYS_statx => Some(self.arguments[4]),
            _ => None,
        }
    }

    /// Whether the call asks for more of a file than its bytes. True for an `openat2` whose flags cannot be read from
    /// memory.
    pub fn asks_for_more(&self) -> bool {
        if self.number != libc::SYS_openat2 {
            return asks(self.number, &self.arguments);
        }
        self.open_how().is_none_or(|[flags, ..]| asks(libc::SYS_openat, &[0, 0, flags, 0, 0, 0]))
    }

    /// Returns the `struct open_how` of `openat2`: flags, mode, and ways of resolving a path that other calls do not
    /// have.
    pub fn open_how(&self) -> Option<[u64; 3]> {
        let mut how = [0; 24];
        memory::read(self.thread, self.arguments[2] as usize, &mut how).ok()?;
        Some([0, 8, 16].map(|at| u64::from_ne_bytes(how[at..at + 8].try_into().unwrap_or_default())))
    }
}
