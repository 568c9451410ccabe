//! `sfio-node launch`: installs the filter for itself, and then becomes the command.
//!
//! Therefore the filter holds even the execve of the command, and the process that answers need not be its parent.

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
use crate::protocol::json;
use crate::sys::exit::{CANNOT_RUN, CANNOT_SET_UP, NOT_FOUND};
use crate::sys::fd_passing;
use crate::sys::own_program::own_program;
use crate::sys::raw::{self, seccomp};

/// Environment variable, with any value: commands run without the gate, as on a system that has none.
const WITHOUT_GATE: &str = "SFIO_NODE_WITHOUT_GATE";

/// Messages of the launcher: it listens, with the address of `MARK`; it has no filter, with the reason; the command
/// cannot be run.
const LISTENS: u8 = b'L';
const WITHOUT: u8 = b'W';
const CANNOT: u8 = b'X';
/// A process that can read this in the launcher's memory can read paths there.
const MARK: [u8; 16] = *b"sfio-node launch";
const LONGEST: usize = 4096;

/// The side of the process that starts the launcher.
#[derive(Debug)]
pub struct Launcher {
    socket: OwnedFd,
    other: Option<OwnedFd>,
    purpose: Purpose,
}

/// A message of the launcher.
#[derive(Debug)]
pub enum Message {
    /// The kernel reports calls at this descriptor. With the reason, if the calls cannot be understood.
    Listening(OwnedFd, Option<String>),
    /// There is no gate, for this reason.
    Without(String),
    /// The command cannot be run.
    CannotRun(String),
    /// The command runs, or has ended.
    Gone,
}

impl Launcher {
    pub fn new(purpose: Purpose) -> nix::Result<Self> {
        let (socket, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        fcntl(&socket, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        fcntl(&other, FcntlArg::F_SETFD(FdFlag::empty()))?;
        Ok(Self { socket, other: Some(other), purpose })
    }

    /// Returns the command of the launcher, which becomes the command `words`.
    pub fn command(&self, words: &[OsString]) -> Command {
        let mut command = own_program();
        let socket = self.other.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        command.arg("launch").arg("--socket").arg(socket.to_string());
        command.arg("--purpose").arg(json::write(&self.purpose));
        command.arg("--").args(words);
        command
    }

    /// Closes the launcher's end of the socket, after the launcher was started.
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

    /// Lets the launcher become the command, with `stdin` as its standard input, if given.
    pub fn let_in(&self, stdin: Option<BorrowedFd>) {
        let _ = fd_passing::send(&self.socket, b"!", stdin, MsgFlags::empty());
    }
}

impl AsFd for Launcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns why the calls of a process would not be understood, if so.
fn test(process: Pid, address: &[u8]) -> Option<String> {
    let address = usize::from_ne_bytes(address.try_into().ok()?);
    let mut mark = [0; MARK.len()];
    match memory::read(process.as_raw() as u32, address, &mut mark) {
        Ok(_) if mark == MARK => None,
        Ok(_) => Some("the memory of the command cannot be read".into()),
        Err(error) => Some(format!("the memory of the command cannot be read: {}", error.desc())),
    }
}

/// Returns why a process cannot get a file in the place of a stream, if so.
fn test_net(process: Pid, listener: &OwnedFd) -> Option<String> {
    if !seccomp::can_add_descriptors(listener) {
        return Some("this kernel gives no open files to a process that calls: Linux 5.9 does".into());
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
    // A program in Rust ignores SIGPIPE from its start, and the command would inherit this.
    raw::set_default(Signal::SIGPIPE);
    let Err(error) = execvp(program, &words);
    error
}
