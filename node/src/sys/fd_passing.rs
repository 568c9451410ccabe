//! Passes open files between processes through sockets, and identifies the sending process.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags, UnixCredentials};

use crate::sys::raw;

/// Returns a path of the socket `name` in the run directory that is short enough for a socket address.
pub fn socket(run_directory: &File, name: &str) -> PathBuf {
    Path::new("/proc/self/fd").join(run_directory.as_raw_fd().to_string()).join(name)
}

/// Sends one message, and with it `file`, if given.
pub fn send(to: &impl AsRawFd, bytes: &[u8], file: Option<BorrowedFd>, flags: MsgFlags) -> nix::Result<()> {
    let descriptors: Vec<RawFd> = file.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&descriptors)];
    let rights = if file.is_some() { rights.as_slice() } else { &[] };
    sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(bytes)], rights, flags | MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

/// A received message, whose bytes are in the caller's buffer.
#[derive(Default)]
pub struct Received {
    pub length: usize,
    pub file: Option<OwnedFd>,
    /// The sending process, as reported by the kernel. None unless the socket has the option PassCred.
    pub sender: Option<i32>,
}

/// Receives one message into `bytes`.
pub fn receive(from: &impl AsRawFd, bytes: &mut [u8], flags: MsgFlags) -> nix::Result<Received> {
    let mut space = nix::cmsg_space!(RawFd, UnixCredentials);
    let mut parts = [IoSliceMut::new(bytes)];
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(from.as_raw_fd(), &mut parts, Some(&mut space), flags)?;
    let (mut file, mut sender) = (None, None);
    for control in message.cmsgs()? {
        match control {
            ControlMessageOwned::ScmRights(descriptors) => file = descriptors.first().copied().map(raw::own),
            ControlMessageOwned::ScmCredentials(credentials) => sender = Some(credentials.pid()),
            _ => {}
        }
    }
    Ok(Received { length: message.bytes, file, sender })
}
