//! `sfio-node serve`: stands for the driver on this machine.

mod converse;
mod directory;
mod inherited;
mod jobs;
mod lifeline;
mod output;
mod periodic;
mod readers;
mod remote;
mod sweep;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Uid;

use self::converse::Conversation;
use self::inherited::Inherited;
use self::jobs::Jobs;
use self::lifeline::Lifeline;
use self::output::Output;
use self::remote::Remote;
pub use self::sweep::clear;
use crate::link;
use crate::protocol::json;
use crate::protocol::messages::ReadyEvent;
use crate::sys::ownership;

/// Where the driver is, and the jobs are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The driver is on another machine, and reads the standard output only.
    pub remote: bool,
    /// So are the jobs, which share the file system.
    pub shared: bool,
    /// Stream to other machines, from this address (see `link::listen`).
    pub listen: Option<&'a str>,
    /// What streams is encrypted.
    pub tls: bool,
    /// The driver asks for jobs on the standard input, and says nothing for so long at most.
    pub converse: Option<Duration>,
    /// Other users may read the events of jobs, if they know where these are.
    pub readable: bool,
    /// Users who may own a directory above the run directory.
    pub trusted: &'a [u32],
    /// Mounts that only those have who are trusted.
    pub within: &'a [PathBuf],
}

/// Serves until the driver is gone.
pub fn run(directory: &Path, options: Options) -> i32 {
    let inherited = Inherited::change();
    match take_signals().and_then(|signals| serve(directory, &signals, inherited, options)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("sfio-node: serve {}: {error}", directory.display());
            1
        }
    }
}

/// Takes SIGTERM. That a child has ended is not to be taken by a thread that is started later, either.
fn take_signals() -> io::Result<SignalFd> {
    SigSet::from(Signal::SIGCHLD).thread_block()?;
    let handled = SigSet::from(Signal::SIGTERM);
    handled.thread_block()?;
    Ok(SignalFd::with_flags(&handled, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

fn serve(path: &Path, signals: &SignalFd, inherited: Inherited, options: Options) -> io::Result<()> {
    // What jobs are told, and what is told of them, lies there.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let within: Vec<_> = options.within.iter().filter_map(|mount| mount.canonicalize().ok()).collect();
    if let Some(why) = ownership::stranger(&parent.canonicalize()?, options.trusted, &within)? {
        return Err(io::Error::new(ErrorKind::PermissionDenied, format!("another user could replace it: {why}")));
    }
    directory::make(path, options.readable)?;
    let directory = path.canonicalize()?;
    let lifeline = if options.shared { None } else { Some(Lifeline::new(&directory)?) };
    let output = Output::new(options.remote || options.converse.is_some());
    let mut jobs = Jobs::new(&directory, options.readable, lifeline, output)?;
    if options.remote {
        jobs.watch_run_directory(&directory)?;
    }
    let listening = options.listen.map(|address| link::listen(address, &directory, options.tls));
    jobs.output.print(&ready(listening, options.converse.map(|_| Uid::effective().as_raw())));
    sweep::start(&directory);
    if options.remote {
        return Remote::new(&directory, options.shared).serve(jobs, signals);
    }
    if let Some(patience) = options.converse {
        return Conversation::new(&directory, options.readable, patience, inherited)?.serve(jobs, signals);
    }
    serve_here(&mut jobs, signals);
    jobs.end(|_| false);
    directory::remove(&directory)
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

/// The first line that is printed.
///
/// # Arguments
/// * `listening` - where links are, or why they cannot be
/// * `uid` - who this is, for a driver that is somebody else
fn ready(listening: Option<Result<SocketAddr, String>>, uid: Option<u32>) -> String {
    let (address, message) = match listening {
        Some(Ok(address)) => (Some(address), None),
        Some(Err(message)) => (None, Some(message)),
        None => (None, None),
    };
    json::write(&ReadyEvent { address, message: message.as_deref(), uid }) + "\n"
}
