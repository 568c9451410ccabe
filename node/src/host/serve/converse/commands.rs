//! Commands of jobs that `serve` starts for the driver: the engine of the container need not be asked for each.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::host::serve::inherited::Inherited;
use crate::host::serve::output::Output;
use crate::protocol::json::{self, ByteString};
use crate::protocol::messages::{PrintedEvent, ReturnedEvent};
use crate::sys::exit::{CANNOT_RUN, NOT_FOUND};

/// The most output of a command in one event.
const AT_ONCE: usize = 1 << 16;
/// Bytes that may wait in a pipe when its command has ended. Later bytes are of processes that the command has left
/// behind.
const LAST_WORDS: usize = 1 << 20;

#[derive(Debug)]
struct Running {
    id: OsString,
    shell: Child,
    /// The pipe with the output of the command, on either stream. Present until no process has it open for writing.
    printed: Option<File>,
}

/// The commands that run.
#[derive(Debug)]
pub struct Commands {
    running: Vec<Running>,
    /// Readable when one has ended; all threads block the signal.
    ended: SignalFd,
    inherited: Inherited,
}

impl Commands {
    pub fn new(inherited: Inherited) -> io::Result<Self> {
        let ended =
            SignalFd::with_flags(&SigSet::from(Signal::SIGCHLD), SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Self { running: Vec::new(), ended, inherited })
    }

    /// Starts a command as the engine would: by a shell, in a session of its own, without an input.
    ///
    /// One that cannot be started has ended, and has printed why.
    pub fn start(&mut self, id: OsString, command: &OsStr, output: &mut Output) {
        match self.spawn(command) {
            Ok((shell, printed)) => self.running.push(Running { id, shell, printed: Some(printed) }),
            Err(error) => {
                let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
                refuse(&id, &format!("cannot run sh: {error}"), code, output);
            }
        }
    }

    fn spawn(&self, command: &OsStr) -> io::Result<(Child, File)> {
        let (printed, writer) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        fcntl(&printed, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        self.inherited.hand_on(&mut shell);
        Ok((shell.spawn()?, printed.into()))
    }

    /// Descriptors that become readable when there is something to tell.
    pub fn news(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let printed = self.running.iter().filter_map(|running| running.printed.as_ref());
        std::iter::once(self.ended.as_fd()).chain(printed.map(AsFd::as_fd))
    }

    /// Tells what commands have printed, and how they have ended.
    pub fn tell(&mut self, output: &mut Output) {
        while matches!(self.ended.read_signal(), Ok(Some(_))) {}
        self.running.retain_mut(|running| {
            let ended = running.shell.try_wait().transpose();
            running.hand_on(if ended.is_some() { LAST_WORDS } else { AT_ONCE }, output);
            if let Some(ended) = &ended {
                let code = ended.as_ref().map_or(CANNOT_RUN, |status| code(*status));
                returned(&running.id, code, output);
            }
            ended.is_none()
        });
    }
}

impl Running {
    /// Passes on at most `most` bytes of output. The rest waits in the pipe.
    fn hand_on(&mut self, most: usize, output: &mut Output) {
        let mut buffer = vec![0; AT_ONCE];
        let mut told = 0;
        while let Some(printed) = self.printed.as_mut().filter(|_| told < most) {
            match printed.read(&mut buffer) {
                Ok(count @ 1..) => {
                    print(&self.id, &buffer[..count], output);
                    told += count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(0) | Err(_) => self.printed = None,
            }
        }
    }
}

/// Tells of a command that it has ended before it began, and why, as if it had printed that.
pub fn refuse(id: &OsStr, why: &str, code: i32, output: &mut Output) {
    print(id, format!("sfio-node: {why}\n").as_bytes(), output);
    returned(id, code, output);
}

fn returned(id: &OsStr, code: i32, output: &mut Output) {
    output.print(&(json::write(&ReturnedEvent { job: ByteString(id), code }) + "\n"));
}

fn print(id: &OsStr, text: &[u8], output: &mut Output) {
    let text = ByteString(OsStr::from_bytes(text));
    output.print(&(json::write(&PrintedEvent { job: ByteString(id), text }) + "\n"));
}

/// The exit code, as a shell gives it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}
