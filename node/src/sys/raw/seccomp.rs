//! System calls of seccomp user notification.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::prctl::{get_no_new_privs, set_no_new_privs};

use super::own;

/// SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP: the kernel resumes the waiting thread on the core of the answering thread.
const SYNC_WAKE_UP: libc::c_ulong = 1;

/// Installs a filter for this process and its children, and returns the descriptor that receives their calls.
///
/// # Arguments
/// * `patient` - once a call was received, only signals that kill interrupt it (Linux 5.19); ignored by older kernels
///
/// # Errors
/// The error of seccomp(2); EBUSY if the process has such a filter already.
pub fn listen(program: &mut [libc::sock_filter], patient: bool) -> io::Result<OwnedFd> {
    let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
    match install(program, if patient { flags | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV } else { flags }) {
        Err(error) if error.raw_os_error() == Some(libc::EACCES) && !get_no_new_privs()? => {
            set_no_new_privs()?;
            listen(program, patient)
        }
        Err(error) if patient && error.raw_os_error() == Some(libc::EINVAL) => listen(program, false),
        result => result,
    }
}

fn install(program: &mut [libc::sock_filter], flags: u64) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
    let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: `filter` and the program it points to live until the call returns; the kernel copies them.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &filter as *const libc::sock_fprog)
    };
    Ok(own(Errno::result(result)? as i32))
}

/// Lets answers resume the waiting thread on the same core (Linux 6.6), which is faster. Older kernels ignore it.
pub fn wake_in_place(listener: &OwnedFd) {
    // SAFETY: takes a number only.
    let _ = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
}

/// Waits for the next call.
///
/// # Errors
/// EINTR; ENOENT if the calling process ended before its call was received.
pub fn receive(listener: &impl AsFd) -> nix::Result<libc::seccomp_notif> {
    let mut notice = MaybeUninit::<libc::seccomp_notif>::zeroed();
    // SAFETY: the kernel wants zeros and writes one `seccomp_notif`, for which every pattern of bits is valid.
    unsafe {
        let listener = listener.as_fd().as_raw_fd();
        Errno::result(libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV, notice.as_mut_ptr()))?;
        Ok(notice.assume_init())
    }
}

/// An answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The kernel executes the call.
    Continue,
    /// The call is not executed and returns this value.
    Value(i64),
    /// The call is not executed and fails with this error.
    Error(Errno),
}

/// Answers a call. Returns false if the call does not wait any more: it was interrupted, or its process has ended.
pub fn answer(listener: &impl AsFd, id: u64, answer: Answer) -> bool {
    let (val, error, flags) = match answer {
        Answer::Continue => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        Answer::Value(value) => (value, 0, 0),
        Answer::Error(error) => (0, -(error as i32), 0),
    };
    let mut response = libc::seccomp_notif_resp { id, val, error, flags };
    let (listener, response) = (listener.as_fd().as_raw_fd(), &raw mut response);
    // SAFETY: the kernel reads one live `seccomp_notif_resp`.
    unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, response) != -1 }
}

/// Whether a call still waits for its answer.
pub fn is_waiting(listener: &impl AsFd, id: u64) -> bool {
    // SAFETY: the kernel reads one live number.
    unsafe { libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) != -1 }
}

/// Gives an open file to the process of a call: as descriptor `place`, or as the lowest free one if that is None.
///
/// # Errors
/// ENOENT: the call does not wait any more; EMFILE: the process may not have more open files.
pub fn add_descriptor(
    listener: &impl AsFd,
    id: u64,
    file: &impl AsFd,
    place: Option<RawFd>,
    close_on_exec: bool,
) -> nix::Result<RawFd> {
    let wanted = libc::seccomp_notif_addfd {
        id,
        flags: if place.is_some() { libc::SECCOMP_ADDFD_FLAG_SETFD as u32 } else { 0 },
        srcfd: file.as_fd().as_raw_fd() as u32,
        newfd: place.unwrap_or(0) as u32,
        newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
    };
    // SAFETY: the kernel reads one live `seccomp_notif_addfd`.
    Errno::result(unsafe {
        libc::ioctl(listener.as_fd().as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const wanted)
    })
}

/// Whether the kernel can add descriptors to calling processes (Linux 5.9). Use it before the first call arrives.
pub fn can_add_descriptors(listener: &impl AsFd) -> bool {
    add_descriptor(listener, 0, listener, Some(0), false) == Err(Errno::ENOENT)
}
