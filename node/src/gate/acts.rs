//! Acts of a job on files, read from its system calls.

use std::fs::{self, Metadata};
use std::io::ErrorKind;

use nix::libc;

use super::call::{Call, PathArgument};
use super::memory;
use super::observation::{Act, Opener, Whence};
use super::resolve::{find, Base, Caller};
use super::syscalls::asks;
use crate::processes::open_files;
use crate::processes::tree;
use crate::sys::file_id::{file_id, file_id_of, FileId};

/// The effect of a call is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unseen;

pub type Seen = Result<Option<(FileId, Act)>, Unseen>;

/// Returns what a call is about to do, and to which file. None if it does not matter.
pub fn act_of(call: &Call) -> Seen {
    let arguments = &call.arguments;
    let reads_at = |descriptor: usize, position: usize| match arguments[position] {
        0 => Ok(None),
        _ => at_descriptor(call, descriptor, Act::ReadAt),
    };
    match call.number {
        _ if !call.native => Err(Unseen),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => open(call, arguments[1]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => {
            let path = PathArgument { base: Base::Working, address: arguments[0], follow: true };
            at_path(call, path, Act::Open { reads: false, writes: true, by: None })
        }
        libc::SYS_openat => open(call, arguments[2]),
        libc::SYS_openat2 => open_how(call),
        libc::SYS_execveat if arguments[4] & libc::AT_EMPTY_PATH as u64 != 0 => at_descriptor(call, 0, Act::Execute),
        libc::SYS_execve | libc::SYS_execveat => at_name(call, Act::Execute),
        libc::SYS_mmap if arguments[3] & libc::MAP_ANONYMOUS as u64 == 0 => at_descriptor(call, 4, Act::Map),
        libc::SYS_lseek => seek(call),
        libc::SYS_pread64 | libc::SYS_preadv => at_descriptor(call, 0, Act::ReadAt),
        // Reads at the position of the reader.
        libc::SYS_preadv2 if arguments[3] as i64 == -1 => Ok(None),
        libc::SYS_preadv2 => at_descriptor(call, 0, Act::ReadAt),
        libc::SYS_sendfile => reads_at(1, 2),
        libc::SYS_copy_file_range | libc::SYS_splice => reads_at(0, 1),
        libc::SYS_io_uring_setup | libc::SYS_io_setup | libc::SYS_open_by_handle_at => Err(Unseen),
        _ if asks(call.number, arguments) => at_name(call, Act::Ask),
        _ => Ok(None),
    }
}

fn open(call: &Call, flags: u64) -> Seen {
    let flags = flags as i32;
    let has = |wanted: i32| flags & wanted == wanted;
    // The call creates a new file, or fails because the file exists.
    if has(libc::O_CREAT | libc::O_EXCL) {
        return Ok(None);
    }
    if has(libc::O_PATH) {
        return at_name(call, Act::Ask);
    }
    let access = flags & libc::O_ACCMODE;
    let (reads, writes) = (access != libc::O_WRONLY, access != libc::O_RDONLY || has(libc::O_TRUNC));
    let opening = |by| Act::Open { reads, writes, by };
    Ok(at_name(call, opening(None))?.map(|(file, act)| match act {
        Act::List => (file, act),
        _ => (file, opening(opener(call.thread, file))),
    }))
}

/// Returns the opener of a file. None if its process has the file open, or may not be examined.
fn opener(thread: u32, file: FileId) -> Option<Opener> {
    let mut open = fs::read_dir(format!("/proc/{thread}/fd")).ok()?.flatten();
    if open.any(|descriptor| file_id(descriptor.path()) == Some(file)) {
        return None;
    }
    let read = tree::value(thread, "io", "rchar:")?.parse().ok()?;
    let faults = tree::read(thread.try_into().ok()?)?.vitals.reaped_faults;
    Some(Opener { thread, read, faults })
}

/// Whether a thread may have children that hold files which it has opened. Children that it has waited for do not
/// count.
pub fn may_have_heirs(thread: u32) -> bool {
    // A process that ignores the ends of its children does not wait for them.
    let ignored = tree::value(thread, "status", "SigIgn:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    let waits = ignored.is_some_and(|ignored| ignored & (1 << (libc::SIGCHLD - 1)) == 0);
    !waits || thread.try_into().is_ok_and(tree::may_have_children)
}

fn open_how(call: &Call) -> Seen {
    match call.open_how() {
        Some([flags, _, resolve]) if resolve & libc::RESOLVE_IN_ROOT == 0 => open(call, flags),
        _ => Err(Unseen),
    }
}

/// `lseek`: a question for the position, or a seek to it, is no move.
fn seek(call: &Call) -> Seen {
    let [_, offset, whence, ..] = call.arguments;
    let (offset, whence) = (offset as i64, whence as i32);
    if (offset, whence) == (0, libc::SEEK_CUR) {
        return Ok(None);
    }
    let Some(file) = of_descriptor(call, 0)? else { return Ok(None) };
    let position = open_files::position(call.thread, call.arguments[0] as i32);
    let position = position.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1);
    let (target, by) = match whence {
        libc::SEEK_SET => (offset, Whence::Start),
        libc::SEEK_CUR => (position.saturating_add(offset), Whence::Here),
        libc::SEEK_END => ((file.len() as i64).saturating_add(offset), Whence::Beyond),
        // Only the file system knows where the next data or the next hole is.
        _ => (i64::MAX, Whence::Beyond),
    };
    // The call fails if it would lead before the start.
    let moves = target >= 0 && target != position;
    Ok(moves.then(|| (file_id_of(&file), Act::Seek { from: position, to: target, by })))
}

/// Returns the act of a call on the file of a descriptor.
fn at_descriptor(call: &Call, argument: usize, act: Act) -> Seen {
    Ok(of_descriptor(call, argument)?.map(|file| (file_id_of(&file), act)))
}

fn of_descriptor(call: &Call, argument: usize) -> Result<Option<Metadata>, Unseen> {
    match fs::metadata(call.open_file(call.arguments[argument] as i32)) {
        Ok(found) => Ok(Some(found).filter(Metadata::is_file)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Unseen),
        Err(_) => Ok(None),
    }
}

/// Returns the act of a call on the file at its path.
fn at_name(call: &Call, act: Act) -> Seen {
    call.path().map_or(Ok(None), |path| at_path(call, path, act))
}

fn at_path(call: &Call, PathArgument { base, address, follow }: PathArgument, act: Act) -> Seen {
    let Some(path) = memory::read_path(call.thread, address) else {
        return if memory::is_forbidden(call.thread, address) { Err(Unseen) } else { Ok(None) };
    };
    // The process may have entered another mount namespace unseen.
    let caller = Caller { thread: call.thread, elsewhere: true };
    // A question about a symbolic link is a question about the input, which may be a link.
    let Ok(found) = find(caller, base, &path, follow || act == Act::Ask) else { return Ok(None) };
    let act = match act {
        _ if found.is_file() => Some(act),
        Act::Open { .. } if found.is_dir() => Some(Act::List),
        _ => None,
    };
    Ok(act.map(|act| (file_id_of(&found), act)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};
    use std::os::fd::AsRawFd;

    fn call(number: i64, arguments: [u64; 6]) -> Call {
        Call { id: 0, thread: std::process::id(), native: true, number, arguments }
    }

    #[test]
    fn seeks() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        file.seek(SeekFrom::Start(4)).unwrap();
        let moves = |offset: i64, whence: i32| {
            let arguments = [file.as_raw_fd() as u64, offset as u64, whence as u64, 0, 0, 0];
            act_of(&call(libc::SYS_lseek, arguments)).unwrap().map(|(_, act)| act)
        };
        for (offset, whence, expected) in [
            (0, libc::SEEK_CUR, false),
            (1, libc::SEEK_CUR, true),
            (-5, libc::SEEK_CUR, false),
            (4, libc::SEEK_SET, false),
            (0, libc::SEEK_SET, true),
            (-6, libc::SEEK_END, false),
            (-11, libc::SEEK_END, false),
            (0, libc::SEEK_END, true),
            (0, libc::SEEK_HOLE, true),
        ] {
            let moved = moves(offset, whence).is_some_and(|act| matches!(act, Act::Seek { from: 4, .. }));
            assert_eq!(moved, expected, "{offset} {whence}");
        }
    }

    #[test]
    fn openings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let flags = |flags: i32| {
            let arguments = [libc::AT_FDCWD as u64, text.as_ptr() as u64, flags as u64, 0, 0, 0];
            act_of(&call(libc::SYS_openat, arguments)).unwrap().map(|(_, act)| match act {
                Act::Open { reads, writes, by } => Act::Open { reads, writes, by: by.filter(|by| by.read == 0) },
                other => other,
            })
        };
        let opening = |reads: bool, writes: bool| Some(Act::Open { reads, writes, by: None });
        for (wanted, expected) in [
            (libc::O_RDONLY | libc::O_CLOEXEC, opening(true, false)),
            (libc::O_RDWR, opening(true, true)),
            (libc::O_WRONLY | libc::O_APPEND, opening(false, true)),
            (libc::O_RDONLY | libc::O_TRUNC, opening(true, true)),
            (libc::O_PATH, Some(Act::Ask)),
            (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, None),
            (libc::O_RDWR | libc::O_CREAT, opening(true, true)),
        ] {
            assert_eq!(flags(wanted), expected, "{wanted:o}");
        }
        let foreign = Call { native: false, ..call(libc::SYS_openat, [0; 6]) };
        assert_eq!(act_of(&foreign), Err(Unseen));
    }
}
