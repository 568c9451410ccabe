//! Ends inotify instances where nobody waits for it.
//!
//! The kernel takes some 10 ms to end an instance with watches (it waits for an SRCU grace period), and a process that
//! has one cannot exit before. So `exec` hands its instance to `serve`, in which a thread of its own closes it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use nix::sys::socket::MsgFlags;

use crate::rights;

/// The stack of the thread: it calls two functions.
const STACK: usize = 64 << 10;

/// How long the sender may take to close its own end.
const DELAY: Duration = Duration::from_millis(20);

/// The name of the socket in the run directory.
const SOCKET: &str = "retired";

/// Hands `descriptor` to `serve`. Where that is not possible the caller's own exit takes longer.
pub fn hand_over(descriptor: &impl AsFd, run_directory: &File) {
    let send = || -> io::Result<()> {
        let peer = UnixDatagram::unbound()?;
        peer.connect(rights::socket(run_directory, SOCKET))?;
        Ok(rights::send(&peer, &[0], Some(descriptor.as_fd()), MsgFlags::MSG_DONTWAIT)?)
    };
    let _ = send();
}

/// Takes and closes what is handed over, until this process ends.
pub fn accept(run_directory: &File) -> io::Result<()> {
    let own = UnixDatagram::bind(rights::socket(run_directory, SOCKET))?;
    let close_all = move || {
        let receive = |flags| rights::receive(&own, &mut [0], flags);
        while let Ok(first) = receive(MsgFlags::empty()) {
            let mut retired = vec![first];
            while let Ok(next) = receive(MsgFlags::MSG_DONTWAIT) {
                retired.push(next);
            }
            // The one who closes last has to wait, and that shall be us.
            std::thread::sleep(DELAY);
        }
    };
    std::thread::Builder::new().stack_size(STACK).spawn(close_all).map(drop)
}
