//! Finds whether a process waits for bytes of a pipe.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::libc;

use super::stalls::Doing;
use crate::gate::{descriptors_of, of_descriptor, Call};
use crate::processes::open_files::descriptors;
use crate::processes::tree::Process;
use crate::sys::file_id::file_id;

/// Finds what those of the processes do that read the pipe.
pub fn doing(processes: &[Process], pipe: &impl AsFd) -> Doing {
    let Some(pipe) = file_id(format!("/proc/self/fd/{}", pipe.as_fd().as_raw_fd())) else { return Doing::Unseen };
    if !Path::new("/proc/self/syscall").exists() {
        return Doing::Unseen;
    }
    let (pipe, mut doing) = (HashSet::from([pipe]), Doing::Unseen);
    for pid in processes.iter().filter(|process| !process.zombie).map(|process| process.id.pid) {
        let held = descriptors(pid, 0o400, &pipe).unwrap_or_default();
        if held.is_empty() {
            continue;
        }
        if may_wait_for(pid, &held) || held.iter().any(|descriptor| never_blocks(pid, *descriptor)) {
            return Doing::Waits;
        }
        doing = Doing::Works;
    }
    doing
}

/// Whether calls at a descriptor return where there is nothing to read: such a reader asks again and again.
fn never_blocks(pid: i32, descriptor: i32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}")).unwrap_or_default();
    let flags = text.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_NONBLOCK != 0)
}

/// Whether a thread of a process waits for something to read, at one of some descriptors, or at others that cannot be
/// seen.
pub fn may_wait_for(pid: i32, held: &[i32]) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.flatten().any(|thread| match fs::read_to_string(thread.path().join("syscall")) {
        Ok(line) => parse_call(pid as u32, &line).is_some_and(|call| waits_at(&call, held)),
        Err(error) => error.kind() == ErrorKind::PermissionDenied,
    })
}

/// Parses what a thread does in the kernel, as proc(5) tells it. A thread outside a call gives None.
fn parse_call(thread: u32, line: &str) -> Option<Call> {
    let mut words = line.split_ascii_whitespace();
    let number = words.next()?.parse().ok().filter(|number| *number >= 0)?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok()?;
    }
    Some(Call { id: 0, thread, native: true, number, arguments })
}

fn waits_at(call: &Call, held: &[i32]) -> bool {
    let reads = [libc::SYS_read, libc::SYS_readv, libc::SYS_preadv2, libc::SYS_splice, libc::SYS_tee];
    let reads = reads.contains(&call.number);
    if reads {
        return held.contains(&(call.arguments[0] as i32));
    }
    #[cfg(target_arch = "x86_64")]
    let polls = [libc::SYS_poll, libc::SYS_ppoll, libc::SYS_select, libc::SYS_pselect6, libc::SYS_epoll_wait];
    #[cfg(not(target_arch = "x86_64"))]
    let polls = [libc::SYS_ppoll, libc::SYS_pselect6];
    let waits = [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
    if !polls.contains(&call.number) && !waits.contains(&call.number) {
        // The descriptors of its requests cannot be seen.
        return call.number == libc::SYS_io_uring_enter;
    }
    match of_descriptor(call.number, &call.arguments) {
        Some((place, _)) => descriptors_of(call, place).iter().any(|descriptor| held.contains(descriptor)),
        None => watches(call.thread, call.arguments[0] as i32, held),
    }
}

/// Whether an epoll instance has one of some descriptors, proc(5).
fn watches(thread: u32, instance: i32, held: &[i32]) -> bool {
    let text = fs::read_to_string(format!("/proc/{thread}/fdinfo/{instance}")).unwrap_or_default();
    let watched =
        text.lines().filter_map(|line| line.strip_prefix("tfd:")?.split_ascii_whitespace().next()?.parse().ok());
    watched.into_iter().any(|descriptor: i32| held.contains(&descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pipe::fifo_of_tests;
    use nix::fcntl::{fcntl, FcntlArg, OFlag};
    use std::os::fd::AsRawFd;

    #[test]
    fn who_waits() {
        let text = |number: i64, first: u64| format!("{number} 0x{first:x} 0x0 0x0 0x0 0x0 0x0 0x7ffe 0x7f00\n");
        let own = std::process::id();
        let waits = |line: &str| parse_call(own, line).is_some_and(|call| waits_at(&call, &[3]));
        for (line, expected) in [
            (text(libc::SYS_read, 3), true),
            (text(libc::SYS_read, 4), false),
            (text(libc::SYS_readv, 3), true),
            (text(libc::SYS_io_uring_enter, 4), true),
            (text(libc::SYS_wait4, 3), false),
            (text(libc::SYS_lseek, 3), false),
            ("running\n".into(), false),
            ("-1 0x7ffe 0x7f00\n".into(), false),
        ] {
            assert_eq!(waits(&line), expected, "{line}");
        }
        let (from, _to) = fifo_of_tests();
        let polled = [libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        let line = format!("{} 0x{:x} 0x1 0x0 0x0 0x0 0x0 0x7ffe 0x7f00\n", libc::SYS_ppoll, polled.as_ptr() as u64);
        let call = parse_call(own, &line).unwrap();
        assert!(waits_at(&call, &[from.as_raw_fd()]) && !waits_at(&call, &[9999]));
    }

    #[test]
    fn who_never_blocks() {
        let (from, _to) = fifo_of_tests();
        let own = std::process::id() as i32;
        for (flags, expected) in [(OFlag::empty(), false), (OFlag::O_NONBLOCK, true)] {
            fcntl(&from, FcntlArg::F_SETFL(flags)).unwrap();
            assert_eq!(never_blocks(own, from.as_raw_fd()), expected);
        }
    }
}
