//! System calls of Landlock: they restrict which files a command may change and which servers it may reach.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::libc;
use nix::sys::prctl::set_no_new_privs;

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
/// The rights to write to files, and to create and remove entries of directories.
const CHANGES: u64 = 1 << 1 | 0x1FF << 4;
/// The right to rename or link between directories. A ruleset that does not handle it forbids both.
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
/// The rights to bind and to connect TCP sockets.
const NETWORK: u64 = 0b11;

#[repr(C)]
struct Ruleset {
    files: u64,
    network: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// How far a command is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confined {
    Not,
    /// Changes to files are confined.
    InFiles,
    /// Changes to files and the use of TCP are confined.
    Wholly,
}

/// Confines a command and its children: they may change files only below `directories`, and may not use TCP.
/// The result says how much of this the kernel supports.
pub fn confine<'a>(command: &mut Command, directories: impl Iterator<Item = &'a Path>) -> Confined {
    let Ok((ruleset, confined)) = ruleset(directories) else { return Confined::Not };
    let prepare = move || -> io::Result<()> {
        set_no_new_privs()?;
        // SAFETY: the call takes numbers only.
        match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: between fork and exec the closure only makes system calls, and allocates nothing.
    unsafe { command.pre_exec(prepare) };
    confined
}

fn ruleset<'a>(directories: impl Iterator<Item = &'a Path>) -> io::Result<(OwnedFd, Confined)> {
    // SAFETY: with a null pointer for the attributes the call only returns the version.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<Ruleset>(), 0, CREATE_RULESET_VERSION)
    };
    let (files, size) = match version {
        ..1 => return Err(io::Error::last_os_error()),
        1 => (CHANGES, 8),
        2 => (CHANGES | REFER, 8),
        3 => (CHANGES | REFER | TRUNCATE, 8),
        4.. => (CHANGES | REFER | TRUNCATE, size_of::<Ruleset>()),
    };
    let attributes = Ruleset { files, network: NETWORK };
    // SAFETY: the attributes live until the call returns, which reads `size` bytes of them.
    let made = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, size, 0) };
    let made = i32::try_from(made).ok().filter(|made| *made >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the descriptor has just been made, and has no other owner.
    let ruleset = unsafe { OwnedFd::from_raw_fd(made) };
    for directory in directories {
        let parent = File::options().read(true).custom_flags(libc::O_PATH).open(directory)?;
        let rule = PathBeneath { allowed: files, parent: parent.as_raw_fd() };
        // SAFETY: the rule lives until the call returns.
        let added = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), RULE_PATH_BENEATH, &raw const rule, 0)
        };
        if added != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok((ruleset, if version < 4 { Confined::InFiles } else { Confined::Wholly }))
}
