//! `sfio-node serve`: stands for the driver on this machine.

mod converse;
mod directory;
mod inherited;
mod jobs;
mod lifeline;
mod output;
mod periodic;
mod readers;
mod shared;
mod sweep;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Uid;

use self::converse::Conversation;
use self::inherited::Inherited;
use self::jobs::Jobs;
use self::lifeline::Lifeline;
use self::output::Output;
pub use self::sweep::clear;
use crate::link;
use crate::protocol::json;
use crate::protocol::memory_directory;
use crate::protocol::messages::ReadyEvent;
use crate::sys::ownership;

/// Where the driver is, and the jobs are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// The jobs are on other machines, which share the file system.
    pub shared: bool,
    /// Stream to other machines, from this address (see `link::listen`).
    pub listen: Option<&'a str>,
    /// Encrypts the streams to other machines.
    pub tls: bool,
    /// The longest time without a word of the driver. None: `serve` waits for the end of the input.
    pub patience: Option<Duration>,
    /// The directories whose files other machines may have.
    pub hand_out: &'a [PathBuf],
    /// Other users may read the events of jobs, if they know where these are.
    pub readable: bool,
    /// Users that may own a directory above the run directory.
    pub trusted: &'a [u32],
    /// Mounts to which only trusted users have access.
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
    let mut jobs = Jobs::new(&directory, options.readable, lifeline, Output::new())?;
    let mut hand_out = options.hand_out.to_vec();
    if !hand_out.is_empty() {
        // It need not be there yet.
        hand_out.push(memory_directory::of_run(&directory));
    }
    let listening = options.listen.map(|address| link::listen(address, &directory, options.tls, hand_out));
    jobs.output.print(&ready(listening));
    sweep::start(&directory);
    Conversation::new(&directory, options.readable, options.shared, options.patience, inherited)?.serve(jobs, signals)
}

/// The first line that is printed.
///
/// # Arguments
/// * `listening` - where links are, or why they cannot be
fn ready(listening: Option<Result<SocketAddr, String>>) -> String {
    let (address, message) = match listening {
        Some(Ok(address)) => (Some(address), None),
        Some(Err(message)) => (None, Some(message)),
        None => (None, None),
    };
    let (uid, pid) = (Some(Uid::effective().as_raw()), Some(std::process::id()));
    json::write(&ReadyEvent { address, message: message.as_deref(), uid, pid }) + "\n"
}
