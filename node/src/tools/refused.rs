//! `sfio-node refused`: prints which system calls are refused here, as by the seccomp profile of a container.

use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::uio::{process_vm_readv, RemoteIoVec};
use nix::unistd::{getpid, pipe};

use crate::sys::raw;

/// Prints the name of each refused call in a line. `sfio-node` has a substitute for each, which is worse.
pub fn run() -> i32 {
    let mut output = io::stdout();
    for name in refused() {
        if let Err(error) = writeln!(output, "{name}") {
            eprintln!("sfio-node: {error}");
            return 1;
        }
    }
    0
}

/// Tries each call with this process itself, for which no right is needed.
fn refused() -> impl Iterator<Item = &'static str> {
    let tried: [(_, fn() -> bool); 4] =
        [("kcmp", compares), ("pidfd_getfd", borrows), ("process_vm_readv", reads), ("seccomp", raw::can_notify)];
    tried.into_iter().filter_map(|(name, works)| (!works()).then_some(name))
}

fn compares() -> bool {
    let Ok((reader, _)) = pipe() else { return false };
    let descriptor = (getpid().as_raw(), reader.as_raw_fd());
    raw::same_opening(descriptor, descriptor) == Some(true)
}

fn borrows() -> bool {
    let Ok((reader, _)) = pipe() else { return false };
    let process = raw::open_process(getpid().as_raw());
    process.is_some_and(|process| raw::borrow_descriptor(&process, reader.as_fd().as_raw_fd()).is_ok())
}

fn reads() -> bool {
    let (word, mut buffer) = (*b"word", [0_u8; 4]);
    let remote = [RemoteIoVec { base: word.as_ptr() as usize, len: word.len() }];
    process_vm_readv(getpid(), &mut [IoSliceMut::new(&mut buffer)], &remote) == Ok(word.len()) && buffer == word
}
