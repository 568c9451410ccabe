//! Ends inotify instances where nobody waits for it.
//!
//! The kernel takes some 10 ms to end an instance with watches (it waits for an SRCU grace period), and a process that
//! has one cannot exit before. So `exec` hands its instance to `serve`, in which a thread of its own closes it.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::socket::{recvmsg, sendmsg, ControlMessage, ControlMessageOwned, MsgFlags};

use crate::sys;

/// The stack of the thread: it calls two functions.
const STACK: usize = 64 << 10;

/// How long the sender may take to close its own end.
const DELAY: Duration = Duration::from_millis(20);

/// The socket in the run directory, by a name that is short enough for a socket.
fn socket(run_directory: &impl AsRawFd) -> PathBuf {
    Path::new("/proc/self/fd").join(run_directory.as_raw_fd().to_string()).join("retired")
}

/// Hands `descriptor` to `serve`. Where that is not possible the caller's own exit takes longer.
pub fn hand_over(descriptor: &impl AsFd, run_directory: &File) {
    let send = || -> io::Result<()> {
        let peer = UnixDatagram::unbound()?;
        peer.connect(socket(run_directory))?;
        let descriptors = [descriptor.as_fd().as_raw_fd()];
        let message = [ControlMessage::ScmRights(&descriptors)];
        sendmsg::<()>(peer.as_raw_fd(), &[IoSlice::new(&[0])], &message, MsgFlags::MSG_DONTWAIT, None)?;
        Ok(())
    };
    let _ = send();
}

/// Takes and closes what is handed over, until this process ends.
pub fn accept(run_directory: &File) -> io::Result<()> {
    let own = UnixDatagram::bind(socket(run_directory))?;
    let close_all = move || {
        while let Ok(first) = receive(&own, MsgFlags::empty()) {
            let mut retired = vec![first];
            while let Ok(next) = receive(&own, MsgFlags::MSG_DONTWAIT) {
                retired.push(next);
            }
            // The one who closes last has to wait, and that shall be us.
            std::thread::sleep(DELAY);
        }
    };
    std::thread::Builder::new().stack_size(STACK).spawn(close_all).map(drop)
}

fn receive(own: &UnixDatagram, flags: MsgFlags) -> nix::Result<Vec<OwnedFd>> {
    let mut byte = [0];
    let mut space = nix::cmsg_space!([RawFd; 1]);
    let mut buffer = [IoSliceMut::new(&mut byte)];
    let flags = flags | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(own.as_raw_fd(), &mut buffer, Some(&mut space), flags)?;
    let mut received = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            received.extend(descriptors.into_iter().map(sys::own));
        }
    }
    Ok(received)
}
