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

use clap::{value_parser, Args};
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
#[derive(Args)]
pub struct Options {
    /// The run directory, which must not exist, and is removed at the end
    #[arg(long, value_name = "PATH")]
    directory: PathBuf,
    /// The jobs are on other machines, which share DIRECTORY
    #[arg(long)]
    shared: bool,
    /// Stream to other machines, from this address [default: the address by which SSH has reached this machine]
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "")]
    listen: Option<String>,
    /// Encrypt streams to other machines
    #[arg(long, requires = "listen")]
    tls: bool,
    /// A directory whose files other machines of the run may have
    #[arg(long, value_name = "PATH", requires = "listen")]
    hand_out: Vec<PathBuf>,
    /// How long the driver may say nothing before this is the end [default: until the standard input ends]
    #[arg(long, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..))]
    patience: Option<u64>,
    /// Let other users read the events of jobs, if they know where these are
    #[arg(long)]
    readable: bool,
    /// Another user, besides root and this one, that may own a directory above DIRECTORY
    #[arg(long, value_name = "UID")]
    trust: Vec<u32>,
    /// A mount whose users are all trusted, even if its mode, or that of a directory above it, lets others write
    #[arg(long, value_name = "MOUNT")]
    within: Vec<PathBuf>,
}

/// Serves until the driver is gone.
pub fn run(options: &Options) -> i32 {
    let inherited = Inherited::change();
    match take_signals().and_then(|signals| serve(options, &signals, inherited)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("sfio-node: serve {}: {error}", options.directory.display());
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

fn serve(options: &Options, signals: &SignalFd, inherited: Inherited) -> io::Result<()> {
    let path = &options.directory;
    // What jobs are told, and what is told of them, lies there.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let within: Vec<_> = options.within.iter().filter_map(|mount| mount.canonicalize().ok()).collect();
    if let Some(why) = ownership::stranger(&parent.canonicalize()?, &options.trust, &within)? {
        return Err(io::Error::new(ErrorKind::PermissionDenied, format!("another user could replace it: {why}")));
    }
    directory::make(path, options.readable)?;
    let directory = path.canonicalize()?;
    let lifeline = if options.shared { None } else { Some(Lifeline::new(&directory)?) };
    let mut jobs = Jobs::new(&directory, options.readable, lifeline, Output::new())?;
    let mut hand_out = options.hand_out.clone();
    if !hand_out.is_empty() {
        // The directory need not be there yet.
        hand_out.push(memory_directory::of_run(&directory));
    }
    let listening = options.listen.as_deref().map(|address| link::listen(address, &directory, options.tls, hand_out));
    jobs.output.print(&ready(listening));
    sweep::start(&directory);
    let patience = options.patience.map(Duration::from_secs);
    Conversation::new(&directory, options.readable, options.shared, patience, inherited)?.serve(jobs, signals)
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
