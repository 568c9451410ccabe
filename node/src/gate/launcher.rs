//! `sfio-node launch`: puts the filter on itself, and then becomes the command.
//!
//! So the filter holds the command's own execve, too, and whoever answers it need not be the one who started it.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::fcntl::{fcntl, FcntlArg, FdFlag, OFlag};
use nix::sys::signal::Signal;
use nix::sys::socket::{socketpair, AddressFamily, MsgFlags, SockFlag, SockType};
use nix::unistd::{execvp, Pid};

use super::filter::{self, Purpose};
use super::memory;
use crate::sys::exit::{CANNOT_RUN, CANNOT_SET_UP, NOT_FOUND};
use crate::sys::fd_passing;
use crate::sys::own_program::own_program;
use crate::sys::raw::{self, seccomp};

/// Set, to whatever: commands do without the gate, as where the system has none.
const WITHOUT_GATE: &str = "SFIO_NODE_WITHOUT_GATE";

/// What the launcher says: it listens, and where it keeps `MARK`; it has no filter, and why; the command
/// cannot be run.
const LISTENS: u8 = b'L';
const WITHOUT: u8 = b'W';
const CANNOT: u8 = b'X';
/// Who can read this in its memory can read its paths.
const MARK: [u8; 16] = *b"sfio-node launch";
const LONGEST: usize = 4096;

/// The side of the one who starts it, and lets it go on.
#[derive(Debug)]
pub struct Launcher {
    socket: OwnedFd,
    other: Option<OwnedFd>,
    purpose: Purpose,
}

/// What the launcher has said.
#[derive(Debug)]
pub enum Message {
    /// Its calls are told at this descriptor. With a reason why they cannot be understood, if so.
    Listening(OwnedFd, Option<String>),
    /// There will be no gate, for this reason.
    Without(String),
    /// The command cannot be run.
    CannotRun(String),
    /// It runs, or has ended.
    Gone,
}

impl Launcher {
    pub fn new(purpose: Purpose) -> nix::Result<Self> {
        let (socket, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        fcntl(&other, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(Self { socket, other: Some(other), purpose })
    }

    /// The launcher, which becomes the command that `words` are.
    pub fn command(&self, words: &[OsString]) -> Command {
        let mut command = own_program();
        let socket = self.other.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        command.arg("launch").arg("--socket").arg(socket.to_string());
        let Purpose { holds, delivers, streams, net, observes, excerpts } = self.purpose;
        let purposes = [
            ("--hold", holds),
            ("--delivers", delivers),
            ("--streams", streams),
            ("--net", net),
            ("--observe", observes),
        ];
        command.args(purposes.into_iter().filter(|(_, meant)| *meant).map(|(name, _)| name));
        command.args(excerpts.iter().flat_map(|end| ["--excerpts".into(), end.to_string()]));
        command.arg("--").args(words);
        command
    }

    /// The process has its end of the socket.
    pub fn spawned(&mut self) {
        self.other = None;
    }

    pub fn hear(&self, process: Pid) -> Option<Message> {
        let mut bytes = [0; LONGEST];
        let received = match fd_passing::receive(&self.socket, &mut bytes, MsgFlags::empty()) {
            Err(Errno::EAGAIN | Errno::EINTR) => return None,
            received => received.unwrap_or_default(),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(match (bytes[..received.length].split_first(), received.file) {
            (Some((&LISTENS, address)), Some(listener)) => {
                let trouble =
                    test(process, address).or_else(|| test_net(process, &listener).filter(|_| self.purpose.net));
                Message::Listening(listener, trouble)
            }
            (Some((&WITHOUT, reason)), _) => Message::Without(text(reason)),
            (Some((&CANNOT, message)), _) => Message::CannotRun(text(message)),
            _ => Message::Gone,
        })
    }

    /// Lets the process become the command; with this file as its standard input, if there is one.
    pub fn let_in(&self, stdin: Option<BorrowedFd>) {
        let _ = fd_passing::send(&self.socket, b"!", stdin, MsgFlags::empty());
    }
}

impl AsFd for Launcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Why the calls of a process would not be understood.
fn test(process: Pid, address: &[u8]) -> Option<String> {
    let address = usize::from_ne_bytes(address.try_into().ok()?);
    let mut mark = [0; MARK.len()];
    match memory::read(process.as_raw() as u32, address, &mut mark) {
        Ok(_) if mark == MARK => None,
        Ok(_) => Some("the memory of the command cannot be read".into()),
        Err(error) => Some(format!("the memory of the command cannot be read: {}", error.desc())),
    }
}

/// Why a process cannot be given a file in the place of a stream.
fn test_net(process: Pid, listener: &OwnedFd) -> Option<String> {
    if !seccomp::can_add_descriptors(listener) {
        return Some("this kernel gives no open files to those who call: Linux 5.9 does".into());
    }
    let open = std::fs::read_dir(format!("/proc/{process}/fd"));
    open.err().map(|error| format!("what the command has open cannot be seen: {error}"))
}

/// `sfio-node launch`: see the module.
pub fn launch(socket: RawFd, purpose: Purpose, words: &[OsString]) -> i32 {
    let socket = raw::own(socket);
    let _ = fcntl(&socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
    let say = |kind: u8, text: &[u8], listener: Option<&OwnedFd>| {
        let message = [&[kind], &text[..text.len().min(LONGEST - 1)]].concat();
        fd_passing::send(&socket, &message, listener.map(AsFd::as_fd), MsgFlags::empty())
    };
    let mark = MARK;
    let said = match listen(purpose) {
        Ok(listener) => {
            let address = std::hint::black_box(&mark).as_ptr() as usize;
            say(LISTENS, &address.to_ne_bytes(), Some(&listener))
        }
        Err(reason) => say(WITHOUT, reason.as_bytes(), None),
    };
    let let_in = said.and_then(|()| fd_passing::receive(&socket, &mut [0], MsgFlags::empty()));
    match let_in {
        Ok(fd_passing::Received { length: 1, file, .. }) => {
            if file.is_some_and(|file| nix::unistd::dup2_stdin(file).is_err()) {
                return CANNOT_SET_UP;
            }
        }
        _ => return CANNOT_SET_UP,
    }
    let error = become_command(words);
    let program = Path::new(words.first().map_or(OsStr::new(""), OsString::as_os_str));
    let message = format!("cannot run {}: {}", program.display(), error.desc());
    eprintln!("sfio-node: {message}");
    let _ = say(CANNOT, message.as_bytes(), None);
    if error == Errno::ENOENT {
        NOT_FOUND
    } else {
        CANNOT_RUN
    }
}

fn listen(purpose: Purpose) -> Result<OwnedFd, String> {
    if std::env::var_os(WITHOUT_GATE).is_some() {
        return Err(format!("{WITHOUT_GATE} is set"));
    }
    seccomp::listen(&mut filter::program(purpose), purpose.is_patient()).map_err(|error| match error.raw_os_error() {
        Some(nix::libc::EBUSY) => "this process has a seccomp listener already, as in some containers".into(),
        _ => format!("seccomp user notification: {error}"),
    })
}

fn become_command(words: &[OsString]) -> Errno {
    let words: Result<Vec<CString>, _> = words.iter().map(|word| CString::new(word.as_bytes())).collect();
    let Ok(words) = words else { return Errno::EINVAL };
    let Some(program) = words.first() else { return Errno::ENOENT };
    // A program in Rust ignores it from its start, and so would what it becomes.
    raw::set_default(Signal::SIGPIPE);
    let Err(error) = execvp(program, &words);
    error
}
