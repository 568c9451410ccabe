//! FIFOs, and moving bytes into pipes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{fcntl, splice, FcntlArg, OFlag, SpliceFFlags};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::beside::beside;

/// Size in bytes of widened pipes, where the system allows it. Also the most bytes that one system call moves.
pub const PIPE_SIZE: usize = 1 << 20;

/// Sets the size of `pipe` to `PIPE_SIZE`. Returns false if the limits of the system forbid it.
pub fn widen(pipe: impl AsFd) -> bool {
    fcntl(pipe, FcntlArg::F_SETPIPE_SZ(PIPE_SIZE as i32)).is_ok()
}

/// Sets the size of `pipe` back to the default. Has no effect while the pipe holds more bytes.
pub fn narrow(pipe: impl AsFd) {
    let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(1 << 16));
}

pub fn has_space(sink: impl AsFd) -> bool {
    state(sink, PollFlags::POLLOUT).contains(PollFlags::POLLOUT)
}

pub fn has_reader(sink: impl AsFd) -> bool {
    !state(sink, PollFlags::empty()).contains(PollFlags::POLLERR)
}

/// Returns which of `events` are true now. An error or a closed other end is always included.
pub fn state(sink: impl AsFd, events: PollFlags) -> PollFlags {
    let mut descriptors = [PollFd::new(sink.as_fd(), events)];
    let _ = poll(&mut descriptors, PollTimeout::ZERO);
    descriptors[0].revents().unwrap_or(PollFlags::empty())
}

/// Makes a FIFO and opens it for writing, even without a reader. Replaces a FIFO that a killed job has left behind.
pub fn make_fifo(path: &Path) -> io::Result<OwnedFd> {
    remove_fifo(path);
    let both = hold_fifo(path)?;
    let sink = OpenOptions::new().write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    drop(both);
    Ok(sink.into())
}

/// Makes a FIFO and opens it in both directions, which never blocks.
fn hold_fifo(path: &Path) -> io::Result<OwnedFd> {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let opened = OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
    if opened.is_err() {
        remove_fifo(path);
    }
    Ok(opened?.into())
}

/// Replaces `fifo` by a new FIFO, after `watch` has been called for the new one.
pub fn guard_fifo(fifo: &Path, watch: impl FnOnce(&Path) -> nix::Result<()>) -> io::Result<OwnedFd> {
    let guard = &*beside(fifo, "end");
    let held = hold_fifo(guard)?;
    let placed = watch(guard).map_err(io::Error::from).and_then(|()| fs::rename(guard, fifo));
    if placed.is_err() {
        remove_fifo(guard);
    }
    placed.map(|()| held)
}

/// Removes `path` if it is a FIFO, and returns whether it was one.
pub fn remove_fifo(path: &Path) -> bool {
    is_fifo(path) && {
        let _ = fs::remove_file(path);
        true
    }
}

pub fn is_fifo(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_fifo())
}

/// Removes `path` if it is a symbolic link, as an earlier attempt of the job leaves.
pub fn remove_link(path: &Path) {
    if path.is_symlink() {
        let _ = fs::remove_file(path);
    }
}

/// Moves at most `most` bytes of `source` from `offset` into the pipe, without copying where the file system can.
pub fn move_bytes(source: &File, offset: &mut i64, most: u64, sink: &OwnedFd) -> nix::Result<usize> {
    let most = most.min(PIPE_SIZE as u64) as usize;
    let flags = SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE;
    match splice(source, Some(offset), sink, None, most, flags) {
        Err(Errno::EINVAL) => copy_bytes(source, *offset, most, sink),
        result => result,
    }
}

fn copy_bytes(source: &File, offset: i64, most: usize, sink: &OwnedFd) -> nix::Result<usize> {
    let mut buffer = vec![0; most.min(1 << 16)];
    let length = nix::sys::uio::pread(source, &mut buffer, offset)?;
    if length == 0 {
        Ok(0)
    } else {
        nix::unistd::write(sink, &buffer[..length])
    }
}

/// Makes a nonblocking pipe of the full size.
#[cfg(test)]
pub fn fifo_of_tests() -> (OwnedFd, OwnedFd) {
    let (from, to) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).unwrap();
    widen(&to);
    (from, to)
}
