//! `sfio-node serve`: stands for the driver on this machine.

mod here;
mod lifeline;
mod remote;

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::AddWatchFlags;
use nix::sys::signal::{kill, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{umask, Mode};
use nix::unistd::Pid;

use self::lifeline::Lifeline;
use self::remote::Remote;
use crate::event::{now, Event, Exit, Reason, Seen, ENTRY};
use crate::follow::Follower;
use crate::fresh;
use crate::job::{Job, Target};
use crate::json::Writer;
use crate::pipe::remove_fifo;
use crate::watch::Watcher;
use crate::{link, sys, tree};

/// How often files are looked at that notify nobody.
const LOOK: Duration = Duration::from_millis(250);
/// How long jobs may take to end when the driver is gone.
const FAREWELL: Duration = Duration::from_secs(10);

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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Run,
    Jobs,
    Job(OsString),
}

/// A job that has not ended.
#[derive(Debug)]
struct Running {
    events: Follower,
    /// Its `exec`, valid as long as the events are open for writing.
    pid: Option<i32>,
}

struct Server {
    directory: PathBuf,
    jobs: PathBuf,
    /// None: the jobs are on other machines.
    lifeline: Option<Lifeline>,
    /// None: the driver is on this machine.
    remote: Option<Remote>,
    watcher: Watcher<Token>,
    running: HashMap<OsString, Running>,
    /// Those of which all was printed.
    ended: HashSet<OsString>,
    requests: Vec<u8>,
    /// The driver reads what is printed.
    heard: bool,
}

/// Serves until the driver is gone.
pub fn run(directory: &Path, options: Options) -> i32 {
    // All that is made here is the user's alone, also what others may see of the files that he makes himself.
    umask(Mode::from_bits_truncate(0o077));
    match take_signals().and_then(|signals| Server::new(directory, options)?.serve(&signals, options)) {
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
    let mut handled = SigSet::empty();
    handled.add(Signal::SIGTERM);
    handled.thread_block()?;
    Ok(SignalFd::with_flags(&handled, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

impl Server {
    fn new(directory: &Path, options: Options) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(directory)?;
        let directory = directory.canonicalize()?;
        let lifeline = if options.shared { None } else { Some(Lifeline::new(&directory)?) };
        let jobs = directory.join("jobs");
        DirBuilder::new().mode(0o700).create(&jobs)?;
        // Such as with too many instances of this user.
        let mut watcher = Watcher::new().or_else(|_| Watcher::blind())?;
        let appears = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        watcher.watch(&jobs, appears, Token::Jobs)?;
        let remote = options.remote.then(|| Remote::new(&directory, options.shared));
        if remote.is_some() {
            watcher.watch(&directory, appears, Token::Run)?;
        }
        let (running, ended, requests) = (HashMap::new(), HashSet::new(), Vec::new());
        Ok(Self { directory, jobs, lifeline, remote, watcher, running, ended, requests, heard: true })
    }

    fn serve(mut self, signals: &SignalFd, options: Options) -> io::Result<()> {
        let ready = ready(options.listen.map(|address| link::listen(address, &self.directory, options.tls)));
        self.print(&ready);
        if self.remote.is_some() {
            self.serve_remotely(signals);
        } else {
            self.serve_here(signals);
        }
        if let Some(lifeline) = &mut self.lifeline {
            lifeline.let_go();
            self.take_leave();
        } else {
            self.cancel_all();
        }
        self.finish()
    }

    fn finish(mut self) -> io::Result<()> {
        match &mut self.remote {
            Some(remote) => remote.finish(self.heard),
            None => fs::remove_dir_all(&self.directory),
        }
    }

    /// Waits for the jobs to end, and then ends those that did not.
    fn take_leave(&mut self) {
        let deadline = Instant::now() + FAREWELL;
        while !self.running.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let left = if self.watcher.is_blind() { left.min(LOOK) } else { left };
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let _ = poll(&mut [PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN)], timeout);
            self.take_notices();
        }
        for running in self.running.values() {
            if let Some(pid) = running.pid {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        if !self.running.is_empty() {
            tree::sweep("SFIO_JOB", |job| job.starts_with(&self.jobs));
        }
        for id in self.running.keys() {
            remove_fifos(&self.jobs.join(id));
        }
    }

    fn print(&mut self, text: &str) {
        if text.is_empty() || !self.heard {
            return;
        }
        self.heard = match &mut self.remote {
            Some(remote) => remote.outlet.print(text),
            None => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok()
            }
        };
    }

    fn take_notices(&mut self) {
        let (notices, lost) = self.watcher.read();
        let mut changed: Vec<(OsString, bool)> = Vec::new();
        for notice in notices {
            match (notice.token, notice.name) {
                (Token::Jobs, Some(name)) => self.welcome(name),
                (Token::Job(id), Some(name)) if name == "events.jsonl" => {
                    let closed = notice.mask.contains(AddWatchFlags::IN_CLOSE_WRITE) && self.lifeline.is_some();
                    match changed.iter_mut().find(|(other, _)| *other == id) {
                        Some((_, closes)) => *closes |= closed,
                        None => changed.push((id, closed)),
                    }
                }
                _ => {}
            }
        }
        if lost {
            self.welcome_all();
            changed = self.running.keys().map(|id| (id.clone(), self.is_closed(id))).collect();
        }
        for (id, closed) in changed {
            self.pass_on(&id, closed);
        }
    }

    fn welcome_all(&mut self) {
        for entry in fs::read_dir(&self.jobs).into_iter().flatten().flatten() {
            self.welcome(entry.file_name());
        }
    }

    /// A job has appeared; its events may be there already.
    fn welcome(&mut self, id: OsString) {
        if self.ended.contains(&id) {
            return;
        }
        let directory = self.jobs.join(&id);
        let mask = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE;
        let watched = self.watcher.watch(&directory, mask | AddWatchFlags::IN_ONLYDIR, Token::Job(id.clone()));
        // Where others write, there are notices of little, and it is looked at anyway.
        let known = watched.is_ok() || self.lifeline.is_none();
        if known && fresh::exists(&directory.join("events.jsonl")) {
            let closed = self.is_closed(&id);
            self.pass_on(&id, closed);
        }
    }

    /// Whether nobody writes the events of a job any more. Of jobs on other machines that is not known.
    fn is_closed(&self, id: &OsStr) -> bool {
        self.lifeline.is_some() && !is_written(&self.jobs.join(id))
    }

    /// Prints new events of a job. `closed`: its exec has closed them, which it does only when it ends.
    fn pass_on(&mut self, id: &OsStr, closed: bool) {
        if self.ended.contains(id) {
            return;
        }
        let path = self.jobs.join(id).join("events.jsonl");
        let mut running =
            self.running.remove(id).unwrap_or_else(|| Running { events: Follower::new(path.clone()), pid: None });
        let (mut text, mut ended) = (String::new(), false);
        loop {
            let lines = running.events.lines();
            if lines.is_empty() {
                break;
            }
            self.print(&std::mem::take(&mut text));
            for line in lines {
                let Some(seen) = Seen::parse(&line) else { continue };
                if seen.event == ENTRY {
                    continue;
                }
                running.pid = running.pid.or(seen.pid);
                ended |= seen.event == "exit";
                text.push_str(&printed(id, &line));
            }
        }
        if closed && !ended {
            self.kill_processes(id);
            let exit = Exit { success: false, reason: Reason::Lost.name(), ended: now(), ..Exit::default() };
            let line = Event::Exit(exit).line();
            let separator = if running.events.is_torn() { "\n" } else { "" };
            let append = OpenOptions::new().append(true).open(&path);
            // Jobs that read from this one learn it there.
            let _ = append.and_then(|mut file| file.write_all(format!("{separator}{line}").as_bytes()));
            text.push_str(&printed(id, line.as_bytes()));
            ended = true;
        }
        if ended {
            if let Some(lifeline) = &self.lifeline {
                lifeline.keeper.forget(id);
            }
            self.watcher.forget(|token| matches!(token, Token::Job(other) if other == id));
            self.ended.insert(id.to_owned());
        } else {
            self.running.insert(id.to_owned(), running);
        }
        self.print(&text);
    }

    fn kill_processes(&self, id: &OsStr) {
        let directory = self.jobs.join(id);
        tree::sweep("SFIO_JOB", |job| job == directory);
        remove_fifos(&directory);
    }
}

/// Does what the exec of a job can no longer do.
pub fn remove_fifos(job: &Path) {
    let Ok(job) = Job::load(&job.join("job.json")) else { return };
    for input in job.inputs {
        if let Target::Fifo(path) = input.target {
            remove_fifo(&path);
        }
    }
}

/// The first line that is printed; `listening` is where links are, or why they cannot be.
fn ready(listening: Option<Result<SocketAddr, String>>) -> String {
    let mut writer = Writer::new();
    writer.text("event", b"ready");
    match listening {
        Some(Ok(address)) => writer.text("address", address.to_string().as_bytes()),
        Some(Err(message)) => writer.text("message", message.as_bytes()),
        None => &mut writer,
    };
    writer.finish() + "\n"
}

/// The line that is printed for a job's event.
fn printed(id: &OsStr, line: &[u8]) -> String {
    let event = String::from_utf8_lossy(line);
    let mut text = Writer::new().text("job", id.as_bytes()).members(event.trim_end()).finish();
    text.push('\n');
    text
}

/// Whether the exec of this job lives. It locks the events before it writes the first one.
fn is_written(directory: &Path) -> bool {
    let Ok(file) = File::open(directory.join("events.jsonl")) else { return true };
    let empty = file.metadata().is_ok_and(|metadata| metadata.len() == 0);
    empty || Flock::lock(file, FlockArg::LockSharedNonblock).is_err()
}
