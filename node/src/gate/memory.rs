//! The memory and the descriptors of a process whose call is held.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::libc::PATH_MAX;
use nix::sys::uio::{process_vm_readv, process_vm_writev, RemoteIoVec};
use nix::unistd::Pid;

use crate::processes::tree;
use crate::sys::raw;

/// At most the size of a page on any machine. A page is readable as a whole, or not at all.
const PAGE: usize = 4096;

/// Reads a path up to its end. Returns None if that is impossible.
pub fn read_path(thread: u32, address: u64) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    let mut at = usize::try_from(address).ok()?;
    let mut buffer = [0_u8; PAGE];
    while path.len() < PATH_MAX as usize {
        let length = PAGE - at % PAGE;
        let count = read(thread, at, &mut buffer[..length]).ok().filter(|count| *count > 0)?;
        let end = buffer[..count].iter().position(|byte| *byte == 0);
        path.extend(&buffer[..end.unwrap_or(count)]);
        if end.is_some() {
            return Some(path);
        }
        at += count;
    }
    None
}

/// Whether the memory of a process may not be read.
pub fn is_forbidden(thread: u32, address: u64) -> bool {
    read(thread, address as usize, &mut [0]) == Err(Errno::EPERM)
}

/// Reads from the memory of a process.
pub fn read(thread: u32, address: usize, buffer: &mut [u8]) -> nix::Result<usize> {
    let remote = [RemoteIoVec { base: address, len: buffer.len() }];
    match process_vm_readv(Pid::from_raw(thread as i32), &mut [IoSliceMut::new(buffer)], &remote) {
        Err(error) if is_refusal(error) => read_file(thread, address, buffer),
        result => result,
    }
}

fn read_file(thread: u32, address: usize, buffer: &mut [u8]) -> nix::Result<usize> {
    File::open(memory(thread)).and_then(|memory| memory.read_at(buffer, address as u64)).map_err(as_of_a_call)
}

/// Writes to the memory of a process.
///
/// # Errors
/// EFAULT if not all of the memory is writable.
pub fn write(thread: u32, address: u64, bytes: &[u8]) -> nix::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let remote = [RemoteIoVec { base: address as usize, len: bytes.len() }];
    let count = match process_vm_writev(Pid::from_raw(thread as i32), &[IoSlice::new(bytes)], &remote) {
        Err(error) if is_refusal(error) => write_file(thread, address, bytes)?,
        result => result?,
    };
    if count == bytes.len() {
        Ok(())
    } else {
        Err(Errno::EFAULT)
    }
}

fn write_file(thread: u32, address: u64, bytes: &[u8]) -> nix::Result<usize> {
    let memory = OpenOptions::new().write(true).open(memory(thread));
    memory.and_then(|memory| memory.write_at(bytes, address)).map_err(as_of_a_call)
}

/// Returns the memory of a process as a file, proc(5). The file needs the same right as the calls, but some containers
/// refuse the calls.
fn memory(thread: u32) -> String {
    format!("/proc/{thread}/mem")
}

/// Returns the error that the call without a file would give.
fn as_of_a_call(error: Error) -> Errno {
    match error.kind() {
        ErrorKind::PermissionDenied => Errno::EPERM,
        ErrorKind::NotFound => Errno::ESRCH,
        _ => Errno::EFAULT,
    }
}

/// Whether a call was refused or does not exist, rather than failed.
pub fn is_refusal(error: Errno) -> bool {
    matches!(error, Errno::EPERM | Errno::EACCES | Errno::ENOSYS)
}

/// Duplicates a descriptor of a process into this one.
pub fn borrow_descriptor(thread: u32, descriptor: i32) -> nix::Result<OwnedFd> {
    let process = raw::open_process(process_of(thread).ok_or(Errno::ESRCH)?).ok_or(Errno::EPERM)?;
    raw::borrow_descriptor(&process, descriptor)
}

/// Returns the process of a thread.
fn process_of(thread: u32) -> Option<i32> {
    tree::value(thread, "status", "Tgid:")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let own = std::process::id();
        let (long, endless) = (vec![b'x'; PAGE - 10], vec![b'x'; 3 * PAGE]);
        for text in [b"/a path".as_slice(), b"", &long] {
            let mut memory = text.to_vec();
            memory.push(0);
            assert!(read_path(own, memory.as_ptr() as u64).as_deref() == Some(text));
        }
        assert!(read_path(own, endless.as_ptr() as u64).is_none());
        assert_eq!(read_path(own, 16), None);
    }

    #[test]
    fn the_memory_is_a_file_too() {
        let (own, text, mut target) = (std::process::id(), *b"text", [0; 4]);
        let mut found = [0; 4];
        assert_eq!(read_file(own, text.as_ptr() as usize, &mut found), Ok(4));
        assert_eq!(found, text);
        assert_eq!(write_file(own, target.as_mut_ptr() as u64, &text), Ok(4));
        assert_eq!(std::hint::black_box(target), text);
        assert_eq!(read_file(own, 16, &mut found), Err(Errno::EFAULT));
    }
}
