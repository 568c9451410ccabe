//! `sfio-node serve`: stands for the driver on this machine.

mod jobs;
mod lifeline;
mod output;
mod remote;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{umask, Mode};

use self::jobs::Jobs;
use self::lifeline::Lifeline;
use self::output::Output;
use self::remote::Remote;
use crate::{json, link, ownership, sys};

/// Where the driver is, and the jobs are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The driver is on another machine, and reads the standard output only.
    pub remote: bool,
    /// So are the jobs, which share the file system.
    pub shared: bool,
    /// Stream to other machines, from this address (see `link::listen`).
    pub listen: Option<&'a str>,
    /// Only inside TLS.
    pub tls: bool,
}

/// Serves until the driver is gone.
pub fn run(directory: &Path, options: Options) -> i32 {
    // All that is made here is the user's alone, also what others may see of the files that he makes himself.
    umask(Mode::from_bits_truncate(0o077));
    match take_signals().and_then(|signals| serve(directory, &signals, options)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("sfio-node: serve {}: {error}", directory.display());
            1
        }
    }
}

/// Takes SIGTERM. Ctrl-C reaches the whole terminal, and cleaning up is what is left to do then.
fn take_signals() -> io::Result<SignalFd> {
    sys::ignore(Signal::SIGINT);
    sys::ignore(Signal::SIGHUP);
    let handled = SigSet::from(Signal::SIGTERM);
    handled.thread_block()?;
    Ok(SignalFd::with_flags(&handled, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

fn serve(directory: &Path, signals: &SignalFd, options: Options) -> io::Result<()> {
    // What jobs are told, and what is told of them, lies there.
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Some(why) = ownership::stranger(&parent.canonicalize()?)? {
        return Err(io::Error::new(ErrorKind::PermissionDenied, format!("another user could replace it: {why}")));
    }
    DirBuilder::new().mode(0o700).create(directory)?;
    let directory = directory.canonicalize()?;
    let lifeline = if options.shared { None } else { Some(Lifeline::new(&directory)?) };
    let mut jobs = Jobs::new(&directory, lifeline, Output::new(options.remote))?;
    if options.remote {
        jobs.watch_run_directory(&directory)?;
    }
    jobs.output.print(&ready(options.listen.map(|address| link::listen(address, &directory, options.tls))));
    if options.remote {
        return Remote::new(&directory, options.shared).serve(jobs, signals);
    }
    serve_here(&mut jobs, signals);
    jobs.end(|_| false);
    fs::remove_dir_all(&directory)
}

/// Serves a driver on this machine, until the standard input has ended.
fn serve_here(jobs: &mut Jobs, signals: &SignalFd) {
    let stdin = io::stdin();
    while jobs.output.is_heard() {
        let mut descriptors =
            [stdin.as_fd(), jobs.notices(), signals.as_fd()].map(|news| PollFd::new(news, PollFlags::POLLIN));
        let timeout = jobs.tick().and_then(|tick| PollTimeout::try_from(tick).ok());
        let _ = poll(&mut descriptors, timeout);
        let [input, _, terminated] = descriptors.map(|descriptor| descriptor.any().unwrap_or(false));
        jobs.take_notices();
        if terminated || (input && has_ended(&stdin)) {
            return;
        }
    }
}

/// Whether the driver is gone. It writes nothing.
fn has_ended(stdin: &impl AsFd) -> bool {
    !matches!(nix::unistd::read(stdin, &mut [0; 4096]), Ok(1..) | Err(Errno::EINTR | Errno::EAGAIN))
}

/// The first line that is printed; `listening` is where links are, or why they cannot be.
fn ready(listening: Option<Result<SocketAddr, String>>) -> String {
    let mut ready = BTreeMap::from([("event", "ready".to_owned())]);
    match listening {
        Some(Ok(address)) => drop(ready.insert("address", address.to_string())),
        Some(Err(message)) => drop(ready.insert("message", message)),
        None => {}
    }
    json::write(&ready) + "\n"
}
