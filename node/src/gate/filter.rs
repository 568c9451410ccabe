//! The seccomp filter of the gate, as a program for the kernel. No effects.

use nix::libc::{self, sock_filter};
use serde::{Deserialize, Serialize};

use super::descriptors::{Told, ALARMS, AT_POSITIONS, DESCRIPTORS, NAMED, TELLING};
use super::syscalls::{Syscall, When, EMPTY_PATH, LISTINGS, OBSERVED, SYSCALLS};
use crate::protocol::json;

/// Offsets in `seccomp_data` of linux/seccomp.h: the number of the call, the architecture, six arguments.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
/// Bit in the number of a call of the x32 interface, which only x86-64 has.
const X32: u32 = 0x4000_0000;

/// AUDIT_ARCH_… of linux/audit.h.
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const MORE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const HAS_BITS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const ALLOW: sock_filter = jump(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
const NOTIFY: sock_filter = jump(RETURN, libc::SECCOMP_RET_USER_NOTIF, 0, 0);
/// Programs take this error for an old kernel, and do not use io_uring, whose operations no filter sees.
const REFUSE: sock_filter = jump(RETURN, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32, 0, 0);

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The purposes of a filter.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Purpose {
    /// Calls with a path are reported, because some have to wait.
    pub holds: bool,
    /// Calls that ask about a descriptor are reported. The listing of a directory may deliver entries.
    pub delivers: bool,
    /// Calls that ask for more of a file than its bytes are reported, because the file may be a byte stream.
    pub streams: bool,
    /// Calls on an input that a byte stream does not allow are reported, because the input may be one.
    pub net: bool,
    /// Calls that ask for a limited time whether there is something to read are reported.
    pub polls: bool,
    /// Calls that set an alarm are reported.
    pub alarms: bool,
    /// Calls that read are reported.
    pub observes: bool,
    /// Calls that distinguish a file from an excerpt of it, which has at least this many bytes, are reported.
    pub excerpts: Option<u32>,
}

impl Purpose {
    /// Reads what `exec` has written for the launcher.
    pub fn read(text: &str) -> Result<Self, String> {
        json::read(text.as_bytes())
    }

    /// Whether calls may have to wait for a long time.
    pub fn may_hold(self) -> bool {
        self.holds || self.streams || self.net
    }

    /// Whether only signals that end the process interrupt a waiting call. Other signals never interrupt a wait for the
    /// bytes of a file, but may interrupt a wait for a name.
    pub fn is_patient(self) -> bool {
        self.net || !self.may_hold()
    }
}

/// Returns the filter for a purpose.
pub fn program(purpose: Purpose) -> Vec<sock_filter> {
    let (observes, excerpts) = (purpose.observes, purpose.excerpts.is_some());
    // The arguments of a call of another architecture are not understood.
    let foreign = if purpose.holds || purpose.net || observes || excerpts { NOTIFY } else { ALLOW };
    let mut program =
        vec![jump(LOAD, ARCHITECTURE, 0, 0), jump(EQUAL, NATIVE, 1, 0), foreign, jump(LOAD, NUMBER, 0, 0)];
    if cfg!(target_arch = "x86_64") {
        program.extend([jump(AT_LEAST, X32, 0, 1), foreign]);
    }
    if purpose.net {
        program.extend(NAMED.iter().flat_map(|number| [jump(EQUAL, *number as u32, 0, 1), NOTIFY]));
        program.extend(DESCRIPTORS.iter().flat_map(|(number, _, told)| catch(*number, *told)));
    }
    if purpose.polls {
        let polls = DESCRIPTORS.iter().filter(|(_, place, _)| place.is_polled());
        program.extend(polls.flat_map(|(number, _, told)| catch(*number, *told)));
    }
    if purpose.alarms {
        program.extend(ALARMS.iter().flat_map(|(number, told)| catch(*number, *told)));
    }
    if let Some(end) = purpose.excerpts {
        program.extend(TELLING.iter().flat_map(|(number, told)| catch(*number, *told)));
        program.extend(far_seek(end));
        program.extend(AT_POSITIONS.iter().flat_map(|(number, position)| far_read(*number, *position, end)));
    }
    if purpose.delivers {
        let describing = [libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx];
        program.extend(describing.iter().flat_map(|number| [jump(EQUAL, *number as u32, 0, 1), NOTIFY]));
    }
    if purpose.streams {
        program.extend(LISTINGS.iter().flat_map(|number| [jump(EQUAL, *number as u32, 0, 1), NOTIFY]));
    }
    if purpose.holds {
        program.extend(SYSCALLS.iter().flat_map(hold));
    } else {
        // Only calls that ask for more than bytes are reported. An observer records them.
        program.extend(SYSCALLS.iter().flat_map(hold_if_it_asks));
    }
    if purpose.may_hold() || purpose.excerpts.is_some() {
        program.extend([jump(EQUAL, libc::SYS_io_uring_setup as u32, 0, 1), REFUSE]);
    }
    if purpose.observes {
        program.extend(catch(libc::SYS_mmap, Told::UnlessMinusOne(4)));
        program.extend(OBSERVED.iter().flat_map(|number| [jump(EQUAL, *number as u32, 0, 1), NOTIFY]));
    }
    program.push(ALLOW);
    program
}

/// Whether a call came through the interface whose numbers are known here.
pub fn is_native(call: &libc::seccomp_data) -> bool {
    let x32 = cfg!(target_arch = "x86_64") && call.nr as u32 >= X32;
    call.arch == NATIVE && !x32
}

/// Allows `lseek` to a place up to `end`, and reports any other.
fn far_seek(end: u32) -> impl Iterator<Item = sock_filter> {
    let head = [
        jump(EQUAL, libc::SYS_lseek as u32, 0, 8),
        jump(LOAD, argument(2), 0, 0),
        jump(EQUAL, libc::SEEK_SET as u32, 0, 5),
    ];
    head.into_iter().chain(allow_up_to(end, 1))
}

/// Allows a read at a position up to `end`, and reports any other.
fn far_read(number: i64, position: usize, end: u32) -> impl Iterator<Item = sock_filter> {
    std::iter::once(jump(EQUAL, number as u32, 0, 6)).chain(allow_up_to(end, position))
}

/// Allows a call with a place up to `end` in an argument of 64 bits, and reports any other.
fn allow_up_to(end: u32, at: usize) -> [sock_filter; 6] {
    [
        jump(LOAD, argument(at) ^ 4, 0, 0),
        jump(EQUAL, 0, 0, 3),
        jump(LOAD, argument(at), 0, 0),
        jump(MORE, end, 1, 0),
        ALLOW,
        NOTIFY,
    ]
}

fn hold(call: &Syscall) -> Vec<sock_filter> {
    let number = call.number as u32;
    let Some(flags) = call.empty else { return vec![jump(EQUAL, number, 0, 1), NOTIFY] };
    // fstat is often this call, with an empty path and a descriptor. No answer is needed then, because the opening of
    // an incomplete directory has waited before.
    vec![
        jump(EQUAL, number, 0, 6),
        jump(LOAD, argument(flags), 0, 0),
        jump(HAS_BITS, EMPTY_PATH, 0, 3),
        jump(LOAD, argument(0), 0, 0),
        jump(EQUAL, libc::AT_FDCWD as u32, 1, 0),
        ALLOW,
        NOTIFY,
    ]
}

fn hold_if_it_asks(call: &Syscall) -> Vec<sock_filter> {
    let (flagged, asks) = match call.asks {
        When::Always => return hold(call),
        When::Never => return Vec::new(),
        When::Has { argument: number, flags } => (argument(number), jump(HAS_BITS, flags, 0, 1)),
        When::Lacks { argument: number, flags } => (argument(number), jump(HAS_BITS, flags, 1, 0)),
    };
    // Other calls go on to the next tests, which need the number of the call again.
    let again = jump(LOAD, NUMBER, 0, 0);
    vec![jump(EQUAL, call.number as u32, 0, 4), jump(LOAD, flagged, 0, 0), asks, NOTIFY, again]
}

/// Reports a call as `told` says, and allows it otherwise.
fn catch(number: i64, told: Told) -> Vec<sock_filter> {
    let (load, zero) = (|number: usize| jump(LOAD, argument(number), 0, 0), jump(EQUAL, 0, 0, 1));
    let tests = match told {
        Told::Always => return vec![jump(EQUAL, number as u32, 0, 1), NOTIFY],
        Told::UnlessMinusOne(at) => vec![load(at), jump(EQUAL, -1_i32 as u32, 0, 1)],
        Told::UnlessNegative(at) => vec![load(at), jump(HAS_BITS, 1 << 31, 0, 1)],
        Told::UnlessNull(at) => {
            let upper = jump(LOAD, argument(at) ^ 4, 0, 0);
            vec![load(at), jump(EQUAL, 0, 0, 3), upper, zero]
        }
        Told::IfOneOf(at, values) => {
            let meant = |(index, value): (usize, &u32)| jump(EQUAL, *value, (values.len() - index) as u8, 0);
            std::iter::once(load(at)).chain(values.iter().enumerate().map(meant)).collect()
        }
    };
    let mut program = vec![jump(EQUAL, number as u32, 0, tests.len() as u8 + 2)];
    program.extend(tests);
    program.extend([ALLOW, NOTIFY]);
    program
}

/// Returns the offset of the lower half of an argument.
fn argument(number: usize) -> u32 {
    ARGUMENTS + 8 * number as u32 + if cfg!(target_endian = "big") { 4 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program on the words of a `seccomp_data`, as the kernel does.
    fn run(program: &[sock_filter], architecture: u32, number: i64, arguments: [u64; 6]) -> u32 {
        let mut words = vec![number as u32, architecture, 0, 0];
        for argument in arguments {
            words.extend([argument as u32, (argument >> 32) as u32]);
        }
        let (mut at, mut accumulator) = (0, 0);
        loop {
            let step = program[at];
            at += 1;
            let holds = match step.code {
                LOAD => {
                    accumulator = words[step.k as usize / 4];
                    continue;
                }
                RETURN => return step.k,
                EQUAL => accumulator == step.k,
                AT_LEAST => accumulator >= step.k,
                MORE => accumulator > step.k,
                HAS_BITS => accumulator & step.k != 0,
                code => panic!("unknown instruction {code}"),
            };
            at += usize::from(if holds { step.jt } else { step.jf });
        }
    }

    #[test]
    fn what_is_held() {
        let program = program(Purpose { holds: true, ..Purpose::default() });
        let none = [0; 6];
        for call in SYSCALLS {
            assert_eq!(run(&program, NATIVE, call.number, none), libc::SECCOMP_RET_USER_NOTIF, "{}", call.number);
            assert_eq!(run(&program, 0x4000_0003, call.number, none), libc::SECCOMP_RET_USER_NOTIF, "32 bits");
        }
        for number in [libc::SYS_read, libc::SYS_sendmsg, libc::SYS_recvfrom, libc::SYS_fstat, libc::SYS_mmap] {
            assert_eq!(run(&program, NATIVE, number, none), libc::SECCOMP_RET_ALLOW);
        }
        assert_eq!(run(&program, NATIVE, libc::SYS_io_uring_setup, none), REFUSE.k);
    }

    #[test]
    fn what_is_observed() {
        let none = [0; 6];
        for holds in [false, true] {
            let program = program(Purpose { holds, observes: true, ..Purpose::default() });
            let answer = |number: i64, arguments: [u64; 6]| run(&program, NATIVE, number, arguments);
            for number in OBSERVED.iter().filter(|number| !holds || **number != libc::SYS_io_uring_setup) {
                assert_eq!(answer(*number, none), libc::SECCOMP_RET_USER_NOTIF, "{number}");
            }
            for number in [libc::SYS_read, libc::SYS_readv, libc::SYS_fstat, libc::SYS_close] {
                assert_eq!(answer(number, none), libc::SECCOMP_RET_ALLOW);
            }
            assert_eq!(answer(libc::SYS_mmap, none), libc::SECCOMP_RET_USER_NOTIF);
            for no_file in [u64::MAX, u64::from(u32::MAX)] {
                assert_eq!(answer(libc::SYS_mmap, [0, 0, 0, 0, no_file, 0]), libc::SECCOMP_RET_ALLOW);
            }
            let held = if holds { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(answer(libc::SYS_unlinkat, none), held);
            assert_eq!(answer(libc::SYS_newfstatat, none), libc::SECCOMP_RET_USER_NOTIF);
            assert_eq!(run(&program, 0x4000_0003, libc::SYS_read, none), libc::SECCOMP_RET_USER_NOTIF, "32 bits");
        }
    }

    #[test]
    fn what_asks_of_streams() {
        let program = program(Purpose { streams: true, ..Purpose::default() });
        let answer = |number: i64, argument: usize, flags: i32| {
            let mut arguments = [0; 6];
            arguments[argument] = flags as u64;
            run(&program, NATIVE, number, arguments)
        };
        for (number, argument, flags, told) in [
            (libc::SYS_newfstatat, 3, 0, true),
            (libc::SYS_newfstatat, 3, libc::AT_EMPTY_PATH, false),
            (libc::SYS_openat, 2, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, false),
            (libc::SYS_openat, 2, libc::O_RDWR | libc::O_CREAT, true),
            (libc::SYS_faccessat, 2, libc::R_OK, false),
            (libc::SYS_faccessat, 2, libc::X_OK, true),
            (libc::SYS_faccessat2, 2, libc::W_OK, true),
            (libc::SYS_readlinkat, 0, 0, true),
            (libc::SYS_unlinkat, 0, 0, false),
            (libc::SYS_getdents64, 0, 0, true),
            (libc::SYS_mmap, 0, 0, false),
        ] {
            let expected = if told { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(answer(number, argument, flags), expected, "{number} {flags:o}");
        }
        assert_eq!(answer(libc::SYS_io_uring_setup, 0, 0), REFUSE.k);
    }

    #[test]
    fn what_the_net_catches() {
        const MINUS_ONE: u64 = u64::MAX;
        let minus_one_of_32_bits = u64::from(u32::MAX);
        for observes in [false, true] {
            let program = program(Purpose { streams: true, net: true, observes, ..Purpose::default() });
            let answer = |number: i64, arguments: [u64; 6]| run(&program, NATIVE, number, arguments);
            let none = [0; 6];
            for number in NAMED {
                assert_eq!(answer(*number, none), libc::SECCOMP_RET_USER_NOTIF, "{number}");
            }
            for (number, ..) in DESCRIPTORS.iter().filter(|(.., told)| *told == Told::Always) {
                assert_eq!(answer(*number, none), libc::SECCOMP_RET_USER_NOTIF, "{number}");
            }
            for (number, arguments, told) in [
                (libc::SYS_openat, [0, 0, libc::O_RDONLY as u64, 0, 0, 0], true),
                (libc::SYS_execve, none, true),
                (libc::SYS_newfstatat, none, true),
                (libc::SYS_mmap, [0, 0, 0, 0, 3, 0], true),
                (libc::SYS_mmap, [0, 0, 0, 0, minus_one_of_32_bits, 0], false),
                (libc::SYS_poll, [9, 1, 0, 0, 0, 0], true),
                (libc::SYS_poll, [9, 1, MINUS_ONE, 0, 0, 0], false),
                (libc::SYS_poll, [9, 1, minus_one_of_32_bits, 0, 0, 0], false),
                (libc::SYS_ppoll, [9, 1, 0, 0, 0, 0], false),
                (libc::SYS_ppoll, [9, 1, 1, 0, 0, 0], true),
                (libc::SYS_ppoll, [9, 1, 1 << 32, 0, 0, 0], true),
                (libc::SYS_pselect6, [9, 1, 0, 0, 1 << 40, 0], true),
                (libc::SYS_fcntl, [3, libc::F_SETFL as u64, 0, 0, 0, 0], true),
                (libc::SYS_fcntl, [3, libc::F_GETPIPE_SZ as u64, 0, 0, 0, 0], true),
                (libc::SYS_fcntl, [3, libc::F_SETFD as u64, 0, 0, 0, 0], false),
                (libc::SYS_ioctl, [3, 0x541B, 0, 0, 0, 0], true),
                (libc::SYS_ioctl, [3, 0x5421, 0, 0, 0, 0], true),
                (libc::SYS_ioctl, [3, 0x5401, 0, 0, 0, 0], false),
                (libc::SYS_read, none, false),
                (libc::SYS_readv, none, false),
                (libc::SYS_write, none, false),
                (libc::SYS_fstat, none, false),
                (libc::SYS_close, none, false),
                (libc::SYS_epoll_ctl, [9, libc::EPOLL_CTL_ADD as u64, 3, 0, 0, 0], true),
                (libc::SYS_epoll_ctl, [9, libc::EPOLL_CTL_DEL as u64, 3, 0, 0, 0], false),
                (libc::SYS_epoll_wait, none, false),
                (libc::SYS_timer_settime, none, false),
            ] {
                let expected = if told { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
                assert_eq!(answer(number, arguments), expected, "{number} {arguments:?}");
            }
            assert_eq!(run(&program, 0x4000_0003, libc::SYS_read, none), libc::SECCOMP_RET_USER_NOTIF, "32 bits");
            assert_eq!(answer(libc::SYS_io_uring_setup, none), REFUSE.k);
        }
    }

    #[test]
    fn what_is_timed_in_a_trial() {
        let program = program(Purpose { streams: true, polls: true, alarms: true, ..Purpose::default() });
        let real = libc::ITIMER_REAL as u64;
        for (number, arguments, told) in [
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_alarm, [1, 0, 0, 0, 0, 0], true),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_alarm, [0; 6], false),
            (libc::SYS_setitimer, [real, 1, 0, 0, 0, 0], true),
            (libc::SYS_setitimer, [libc::ITIMER_PROF as u64, 1, 0, 0, 0, 0], false),
            (libc::SYS_timer_settime, [0; 6], true),
            (libc::SYS_epoll_ctl, [9, libc::EPOLL_CTL_ADD as u64, 3, 0, 0, 0], true),
            (libc::SYS_ppoll, [9, 1, 1, 0, 0, 0], true),
            (libc::SYS_read, [0; 6], false),
        ] {
            let expected = if told { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(run(&program, NATIVE, number, arguments), expected, "{number} {arguments:?}");
        }
    }

    #[test]
    fn what_tells_excerpts_from_files() {
        let purpose = Purpose { excerpts: Some(1000), ..Purpose::default() };
        let program = program(purpose);
        let answer = |number: i64, arguments: [u64; 6]| run(&program, NATIVE, number, arguments);
        let none = [0; 6];
        for (number, arguments, told) in [
            (libc::SYS_fstat, none, true),
            (libc::SYS_newfstatat, [3, 0, 0, u64::from(EMPTY_PATH), 0, 0], true),
            (libc::SYS_newfstatat, none, true),
            (libc::SYS_statx, [3, 0, u64::from(EMPTY_PATH), 0, 0, 0], true),
            (libc::SYS_readlinkat, none, true),
            (libc::SYS_lseek, [3, 0, libc::SEEK_END as u64, 0, 0, 0], true),
            (libc::SYS_lseek, [3, 0, libc::SEEK_HOLE as u64, 0, 0, 0], true),
            (libc::SYS_lseek, [3, 1000, libc::SEEK_SET as u64, 0, 0, 0], false),
            (libc::SYS_lseek, [3, 1001, libc::SEEK_SET as u64, 0, 0, 0], true),
            (libc::SYS_lseek, [3, 1 << 32, libc::SEEK_SET as u64, 0, 0, 0], true),
            (libc::SYS_lseek, [3, 0, libc::SEEK_CUR as u64, 0, 0, 0], true),
            (libc::SYS_lseek, [3, 1, libc::SEEK_CUR as u64, 0, 0, 0], true),
            (libc::SYS_lseek, [3, u64::MAX, libc::SEEK_CUR as u64, 0, 0, 0], true),
            (libc::SYS_ioctl, [3, 0x541B, 0, 0, 0, 0], true),
            (libc::SYS_ioctl, [3, 0x5401, 0, 0, 0, 0], false),
            (libc::SYS_openat, none, false),
            (libc::SYS_read, none, false),
            (libc::SYS_pread64, [3, 0, 9, 1000, 0, 0], false),
            (libc::SYS_pread64, [3, 0, 9, 1001, 0, 0], true),
            (libc::SYS_preadv, [3, 0, 1, 1 << 40, 0, 0], true),
            (libc::SYS_preadv2, [3, 0, 1, u64::MAX, u64::MAX, 0], true),
            (libc::SYS_mmap, [0, 0, 0, 0, 3, 0], true),
            (libc::SYS_mmap, [0, 0, 0, 0, u64::MAX, 0], false),
            (libc::SYS_copy_file_range, none, false),
            (libc::SYS_copy_file_range, [3, 1, 1, 0, 9, 0], true),
            (libc::SYS_sendfile, [1, 3, 0, 9, 0, 0], false),
            (libc::SYS_splice, [3, 1, 1, 0, 9, 0], true),
        ] {
            let expected = if told { libc::SECCOMP_RET_USER_NOTIF } else { libc::SECCOMP_RET_ALLOW };
            assert_eq!(answer(number, arguments), expected, "{number} {arguments:?}");
        }
        assert_eq!(run(&program, 0x4000_0003, libc::SYS_read, none), libc::SECCOMP_RET_USER_NOTIF, "32 bits");
        assert_eq!(answer(libc::SYS_io_uring_setup, none), REFUSE.k);
    }

    #[test]
    fn descriptors_need_no_answer() {
        let program = program(Purpose { holds: true, ..Purpose::default() });
        let stat = |directory: i32, flags: u32| {
            run(&program, NATIVE, libc::SYS_newfstatat, [directory as u64, 0, 0, u64::from(flags), 0, 0])
        };
        assert_eq!(stat(3, EMPTY_PATH), libc::SECCOMP_RET_ALLOW);
        assert_eq!(stat(3, 0), libc::SECCOMP_RET_USER_NOTIF);
        assert_eq!(stat(libc::AT_FDCWD, EMPTY_PATH), libc::SECCOMP_RET_USER_NOTIF);
    }
}
