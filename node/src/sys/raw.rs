//! The only unsafe code: system calls without a safe wrapper.
#![allow(unsafe_code)]

pub mod landlock;
pub mod seccomp;
pub mod stat;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal};
use nix::sys::stat::Mode;
use nix::unistd::{getppid, ForkResult, Pid};

use crate::sys::file_limit::FileLimit;

nix::ioctl_read_bad!(
    /// Writes the number of bytes in a pipe.
    fionread,
    nix::libc::FIONREAD,
    nix::libc::c_int
);

/// Returns the number of bytes in `pipe`, or 0 if it is unknown.
pub fn bytes_in_pipe(pipe: impl AsFd) -> u64 {
    let mut waiting = 0;
    // SAFETY: FIONREAD writes one int to the address given, which is a live local.
    let result = unsafe { fionread(pipe.as_fd().as_raw_fd(), &mut waiting) };
    result.map_or(0, |_| u64::try_from(waiting).unwrap_or(0))
}

/// Lets the kernel kill the command when this process dies, and gives the command the signal mask `inherited` and the
/// limit `files`.
pub fn bind_to_parent(command: &mut Command, inherited: SigSet, files: FileLimit) {
    let parent = Pid::this();
    let prepare = move || -> io::Result<()> {
        set_pdeathsig(Signal::SIGKILL)?;
        if getppid() != parent {
            return Err(io::Error::other("sfio-node died"));
        }
        nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&inherited), None)?;
        files.restore();
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls, and allocates only on its way to failure.
    unsafe { command.pre_exec(prepare) };
}

/// Starts the command as a grandchild. The child of this process, which its caller waits for, ends at once.
pub fn disown(command: &mut Command) {
    let prepare = || -> io::Result<()> {
        // SAFETY: the forked process has one thread; it ends by `_exit`, so that no destructor runs twice.
        match unsafe { nix::unistd::fork() }? {
            ForkResult::Parent { .. } => unsafe { nix::libc::_exit(0) },
            ForkResult::Child => Ok(()),
        }
    };
    // SAFETY: between fork and exec the closure only makes system calls, and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Gives the command the signal mask `inherited`.
pub fn with_mask(command: &mut Command, inherited: SigSet) {
    let prepare = move || Ok(nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&inherited), None)?);
    // SAFETY: between fork and exec the closure makes one system call, and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Makes the command the leader of a new session, with `umask`, the default actions of `signals` and the limit `files`.
/// Without this the command would ignore the signals that this process ignores.
pub fn lead_session(command: &mut Command, umask: Mode, signals: Vec<Signal>, files: FileLimit) {
    let prepare = move || -> io::Result<()> {
        nix::unistd::setsid()?;
        nix::sys::stat::umask(umask);
        signals.iter().copied().for_each(set_default);
        files.restore();
        Ok(())
    };
    // SAFETY: between fork and exec the closure only makes system calls, and allocates nothing.
    unsafe { command.pre_exec(prepare) };
}

/// Forbids, or allows again, that other processes of the same user inspect or trace this one, or take its open files.
/// Root always may.
pub fn shield(on: bool) {
    let _ = nix::sys::prctl::set_dumpable(!on);
}

/// Writes files in `/proc` of this process, which a shielded process may not, unless it is root.
pub fn unshielded<T>(write: impl FnOnce() -> T) -> T {
    shield(false);
    let written = write();
    shield(true);
    written
}

/// Whether `attempt` succeeds in a child process, which ends after it. The calling process must have one thread.
pub fn can(attempt: impl FnOnce() -> bool) -> bool {
    // SAFETY: the forked process has one thread; it ends by `_exit`, so that no destructor runs twice.
    match unsafe { nix::unistd::fork() } {
        Ok(ForkResult::Child) => unsafe { nix::libc::_exit((!attempt()).into()) },
        Ok(ForkResult::Parent { child }) => {
            matches!(nix::sys::wait::waitpid(child, None), Ok(nix::sys::wait::WaitStatus::Exited(_, 0)))
        }
        Err(_) => false,
    }
}

/// Gives this process and its children the lowest priority for processors and devices. The kernel kills them first when
/// memory runs out. Refusals of the kernel are ignored.
pub fn be_idle() {
    const IOPRIO_WHO_PROCESS: i32 = 1;
    const IOPRIO_CLASS_IDLE: i32 = 3 << 13;
    // SAFETY: both calls take numbers only, and change nothing but how this process is scheduled.
    unsafe {
        nix::libc::setpriority(nix::libc::PRIO_PROCESS, 0, 19);
        nix::libc::syscall(nix::libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_CLASS_IDLE);
    }
    let _ = unshielded(|| std::fs::write("/proc/self/oom_score_adj", "1000"));
}

/// Whether this process was started with `signal` ignored, as under `nohup`.
pub fn is_ignored(signal: Signal) -> bool {
    // SAFETY: a null action asks for the present one, which is written to a live local.
    unsafe {
        let mut action: nix::libc::sigaction = std::mem::zeroed();
        nix::libc::sigaction(signal as i32, std::ptr::null(), &mut action);
        action.sa_sigaction == nix::libc::SIG_IGN
    }
}

/// Restores the default action of `signal`.
pub fn set_default(signal: Signal) {
    // SAFETY: no handler is installed, so none can run at a bad moment.
    let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) };
}

/// Makes SIGCHLD arrive when a child ends, but not when it stops or continues.
pub fn hear_of_ends() {
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::SA_NOCLDSTOP, SigSet::empty());
    // SAFETY: no handler is installed, so none can run at a bad moment.
    let _ = unsafe { nix::sys::signal::sigaction(Signal::SIGCHLD, &action) };
}

/// Starts writing the cached changes of a file to its device. Does not wait, unless the queue of the device is full.
pub fn write_out(file: &File) {
    use nix::libc::{sync_file_range, SYNC_FILE_RANGE_WRITE};
    // SAFETY: takes numbers only, and changes nothing but when the kernel writes.
    let _ = unsafe { sync_file_range(file.as_raw_fd(), 0, 0, SYNC_FILE_RANGE_WRITE) };
}

/// Ignores `signal`.
pub fn ignore(signal: Signal) {
    // SAFETY: no handler is installed, so none can run at a bad moment.
    let _ = unsafe { nix::sys::signal::signal(signal, SigHandler::SigIgn) };
}

/// Makes `signal` interrupt a system call, without any other effect.
pub fn let_interrupt(signal: Signal) {
    extern "C" fn nothing(_: nix::libc::c_int) {}
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing, which is safe at any moment.
    let _ = unsafe { nix::sys::signal::sigaction(signal, &action) };
}

/// Lets accept(2) return a connection only after its first data have arrived, or after `seconds`: tcp(7).
///
/// # Errors
/// An error, if the kernel does not offer it.
pub fn defer_accept(listening: impl AsFd, seconds: i32) -> nix::Result<()> {
    use nix::libc::{setsockopt, socklen_t, IPPROTO_TCP, TCP_DEFER_ACCEPT};
    let socket = listening.as_fd().as_raw_fd();
    let (value, size) = (std::ptr::from_ref(&seconds).cast(), size_of::<i32>() as socklen_t);
    // SAFETY: the kernel reads one int from the address given, which is that of a live local.
    Errno::result(unsafe { setsockopt(socket, IPPROTO_TCP, TCP_DEFER_ACCEPT, value, size) }).map(drop)
}

/// Takes ownership of a descriptor that the kernel has just given to this process.
pub fn own(descriptor: RawFd) -> OwnedFd {
    // SAFETY: callers pass what a system call has just returned, which has no other owner.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// Whether two descriptors, each with its process, belong to the same call of open(2), by kcmp(2). None if unknown.
pub fn same_opening(one: (i32, i32), other: (i32, i32)) -> Option<bool> {
    const KCMP_FILE: i32 = 0;
    // SAFETY: kcmp takes numbers only, and changes nothing.
    match unsafe { nix::libc::syscall(nix::libc::SYS_kcmp, one.0, other.0, KCMP_FILE, one.1, other.1) } {
        -1 => None,
        order => Some(order == 0),
    }
}

/// `struct pidfd_info` of linux/pidfd.h in its first version.
#[repr(C)]
#[derive(Default)]
pub struct PidfdInfo {
    mask: u64,
    ids: [u32; 13],
    exit_code: i32,
}

nix::ioctl_readwrite!(
    /// PIDFD_GET_INFO of linux/pidfd.h.
    pidfd_get_info,
    0xFF,
    11,
    PidfdInfo
);

/// Opens a descriptor of a process, which stays valid after the process has ended.
pub fn open_process(pid: i32) -> Option<OwnedFd> {
    // SAFETY: pidfd_open takes numbers only.
    let descriptor = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_open, pid, 0) };
    RawFd::try_from(descriptor).ok().filter(|descriptor| *descriptor >= 0).map(own)
}

/// Duplicates a descriptor of another process into this one (Linux 5.6).
pub fn borrow_descriptor(process: &OwnedFd, descriptor: RawFd) -> nix::Result<OwnedFd> {
    // SAFETY: pidfd_getfd takes numbers only.
    let result = unsafe { nix::libc::syscall(nix::libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0) };
    Ok(own(Errno::result(result)? as RawFd))
}

/// Whether a seccomp filter may pass calls to another process, seccomp(2).
pub fn can_notify() -> bool {
    use nix::libc::{syscall, SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, SECCOMP_RET_USER_NOTIF};
    let action = SECCOMP_RET_USER_NOTIF;
    // SAFETY: the kernel reads one number from the address given, which is that of a live local.
    unsafe { syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, std::ptr::from_ref(&action)) == 0 }
}

/// Returns the wait status of a process that its parent has waited for. None if it has not ended, or before Linux 6.15.
pub fn status_of_dead(process: &OwnedFd) -> Option<i32> {
    const PIDFD_INFO_EXIT: u64 = 1 << 3;
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the kernel writes at most the size of the structure, which is part of the request's number.
    unsafe { pidfd_get_info(process.as_raw_fd(), &mut info) }.ok()?;
    (info.mask & PIDFD_INFO_EXIT != 0).then_some(info.exit_code)
}

/// Returns how many bytes of a range of a file are in the page cache, counted in whole pages.
/// None if the kernel does not tell: only the owner of the file, root, and users that may write to it learn it.
pub fn cached_bytes(file: &File, offset: u64, length: u64) -> Option<u64> {
    match cachestat(file, offset, length) {
        Ok(pages) => Some(pages * page_size()),
        // Linux before 6.5. To other users mincore(2) reports that every page is cached.
        Err(Errno::ENOSYS) if may_ask(file) => mincore(file, offset, length).ok().map(|pages| pages * page_size()),
        Err(_) => None,
    }
}

/// Whether this process owns a file or may write to it.
fn may_ask(file: &File) -> bool {
    let own = nix::unistd::Uid::effective();
    let is_owner = || file.metadata().is_ok_and(|found| found.uid() == own.as_raw());
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    own.is_root() || is_owner() || nix::unistd::access(path.as_str(), nix::unistd::AccessFlags::W_OK).is_ok()
}

/// Returns the size of a page in bytes.
pub fn page_size() -> u64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten().map_or(4096, |size| size as u64)
}

/// Returns the number of cached pages, by cachestat(2).
fn cachestat(file: &File, offset: u64, length: u64) -> nix::Result<u64> {
    const SYS_CACHESTAT: nix::libc::c_long = 451;
    if length == 0 {
        // To the kernel the length 0 means the whole file.
        return Ok(0);
    }
    let range = [offset, length];
    // struct cachestat: cached, dirty, in writeback, evicted, recently evicted.
    let mut found = [0_u64; 5];
    // SAFETY: the kernel reads two numbers and writes five, at the addresses of live locals.
    let result =
        unsafe { nix::libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), found.as_mut_ptr(), 0_u32) };
    Errno::result(result).map(|_| found[0])
}

/// Returns the number of cached pages, by mincore(2) on a temporary mapping.
fn mincore(file: &File, offset: u64, length: u64) -> nix::Result<u64> {
    use nix::libc::{c_void, MAP_FAILED, MAP_SHARED, PROT_NONE};
    let page = page_size();
    let begin = offset / page * page;
    let size = (offset + length - begin) as usize;
    if size == 0 {
        return Ok(0);
    }
    let mut pages = vec![0_u8; size.div_ceil(page as usize)];
    // SAFETY: the mapping is new, no code reads its content, and it is removed before this returns.
    // The kernel writes one byte for each page of the mapping, and `pages` has as many.
    let result = unsafe {
        let mapping: *mut c_void =
            nix::libc::mmap(std::ptr::null_mut(), size, PROT_NONE, MAP_SHARED, file.as_raw_fd(), begin as i64);
        if mapping == MAP_FAILED {
            return Err(Errno::last());
        }
        let result = nix::libc::mincore(mapping, size, pages.as_mut_ptr());
        nix::libc::munmap(mapping, size);
        result
    };
    Errno::result(result).map(|_| pages.iter().filter(|page| **page & 1 != 0).count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_written_is_cached() {
        let mut file = tempfile::tempfile().unwrap();
        let page = page_size();
        file.write_all(&vec![7; 3 * page as usize]).unwrap();
        for (offset, length, pages) in [(0, 3 * page, 3), (page, page, 1), (0, 0, 0), (page, 2 * page, 2)] {
            assert_eq!(cached_bytes(&file, offset, length), Some(pages * page));
            assert_eq!(mincore(&file, offset, length), Ok(pages));
            assert!(may_ask(&file));
        }
    }
}
