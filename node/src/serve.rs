//! `sfio-node serve`: stands for the driver on this machine.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::AddWatchFlags;
use nix::sys::signal::{kill, SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::unistd::{mkfifo, Pid};

use crate::event::{now, Event, Exit, Reason, Seen, ENTRY};
use crate::exec::CANCEL_NOTICE;
use crate::follow::Follower;
use crate::job::{Job, Target};
use crate::json::{Json, Writer};
use crate::keep::Keeper;
use crate::pipe::remove_fifo;
use crate::watch::Watcher;
use crate::{link, retire, sys, tree};

/// How long jobs may take to end when the driver is gone.
const FAREWELL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
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
    /// The write end of the FIFO that tells each exec that this process lives.
    alive: Option<File>,
    /// Tells the last exec whether it has to remove the run directory.
    _lock: Flock<File>,
    watcher: Watcher<Token>,
    keeper: Keeper,
    running: HashMap<OsString, Running>,
    /// Those of which all was printed.
    ended: HashSet<OsString>,
    requests: Vec<u8>,
    /// The driver reads what is printed.
    heard: bool,
}

/// Serves until the driver is gone; with `listen`, streams to other machines, too (see `link::listen`).
pub fn run(directory: &Path, listen: Option<&str>) -> i32 {
    match take_signals().and_then(|signals| Server::new(directory)?.serve(&signals, listen)) {
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
    fn new(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(directory)?;
        let directory = directory.canonicalize()?;
        let lock = File::open(&directory)?;
        let lock = Flock::lock(lock, FlockArg::LockSharedNonblock).map_err(|(_, error)| error)?;
        retire::accept(&lock)?;
        let keeper = Keeper::accept(&lock)?;
        let jobs = directory.join("jobs");
        DirBuilder::new().mode(0o700).create(&jobs)?;
        let alive = directory.join("alive");
        mkfifo(&alive, Mode::S_IRUSR | Mode::S_IWUSR)?;
        // A write end alone cannot be opened before there is a reader.
        let open = |read| OpenOptions::new().read(read).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(&alive);
        let both = open(true)?;
        let alive = open(false)?;
        drop(both);
        let mut watcher = Watcher::new()?;
        watcher.watch(&jobs, AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO, Token::Jobs)?;
        let (running, ended, requests) = (HashMap::new(), HashSet::new(), Vec::new());
        Ok(Self {
            directory,
            jobs,
            alive: Some(alive),
            _lock: lock,
            watcher,
            keeper,
            running,
            ended,
            requests,
            heard: true,
        })
    }

    fn serve(mut self, signals: &SignalFd, listen: Option<&str>) -> io::Result<()> {
        let ready = ready(listen.map(|address| link::listen(address, &self.directory)));
        self.print(&ready);
        let stdin = io::stdin();
        while self.heard {
            let mut descriptors = [
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            let _ = poll(&mut descriptors, PollTimeout::NONE);
            let ready = descriptors.map(|descriptor| descriptor.any().unwrap_or(false));
            self.take_notices();
            if ready[2] || (ready[0] && !self.take_requests()) {
                break;
            }
        }
        // Each exec sees the end of this FIFO and cancels its job.
        self.alive = None;
        self.take_leave();
        fs::remove_dir_all(&self.directory)
    }

    /// Waits for the jobs to end, and then ends those that did not.
    fn take_leave(&mut self) {
        let deadline = Instant::now() + FAREWELL;
        while !self.running.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
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
            self.remove_fifos(id);
        }
    }

    fn print(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut stdout = io::stdout().lock();
        self.heard = self.heard && stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_ok();
    }

    /// Reads requests; false at their end.
    fn take_requests(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let length = match nix::unistd::read(io::stdin(), &mut buffer) {
            Ok(length) => length,
            Err(nix::errno::Errno::EINTR | nix::errno::Errno::EAGAIN) => return true,
            Err(_) => 0,
        };
        self.requests.extend(&buffer[..length]);
        while let Some(end) = self.requests.iter().position(|byte| *byte == b'\n') {
            let request: Vec<u8> = self.requests.drain(..=end).collect();
            if let Err(message) = self.obey(&request) {
                eprintln!("sfio-node: serve: {message}: {}", String::from_utf8_lossy(&request).trim_end());
            }
        }
        length > 0
    }

    fn obey(&mut self, request: &[u8]) -> Result<(), String> {
        let request = Json::parse(request)?;
        let id = request.get("cancel").and_then(Json::text).ok_or("has to be {\"cancel\": ID}")?;
        let id = OsStr::from_bytes(id);
        if Path::new(id).components().count() != 1 || id == ".." {
            return Err("no such job".into());
        }
        let cancel = self.jobs.join(id).join("cancel");
        File::create(&cancel).map_err(|error| format!("{}: {error}", cancel.display()))?;
        // A job that watches nothing looks for its cancel file only now and then.
        if let Some(pid) = self.running.get(id).and_then(|running| running.pid) {
            let _ = kill(Pid::from_raw(pid), CANCEL_NOTICE);
        }
        Ok(())
    }

    fn take_notices(&mut self) {
        let (notices, lost) = self.watcher.read();
        let mut changed: Vec<(OsString, bool)> = Vec::new();
        for notice in notices {
            match (notice.token, notice.name) {
                (Token::Jobs, Some(name)) => self.welcome(name),
                (Token::Job(id), Some(name)) if name == "events.jsonl" => {
                    let closed = notice.mask.contains(AddWatchFlags::IN_CLOSE_WRITE);
                    match changed.iter_mut().find(|(other, _)| *other == id) {
                        Some((_, closes)) => *closes |= closed,
                        None => changed.push((id, closed)),
                    }
                }
                _ => {}
            }
        }
        if lost {
            for entry in fs::read_dir(&self.jobs).into_iter().flatten().flatten() {
                self.welcome(entry.file_name());
            }
            changed = self.running.keys().map(|id| (id.clone(), !is_written(&self.jobs.join(id)))).collect();
        }
        for (id, closed) in changed {
            self.pass_on(&id, closed);
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
        if watched.is_ok() && directory.join("events.jsonl").exists() {
            self.pass_on(&id, !is_written(&directory));
        }
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
            self.keeper.forget(id);
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
        self.remove_fifos(id);
    }

    /// Does what the exec of the job can no longer do.
    fn remove_fifos(&self, id: &OsStr) {
        let Ok(job) = Job::load(&self.jobs.join(id).join("job.json")) else { return };
        for input in job.inputs {
            if let Target::Fifo(path) = input.target {
                remove_fifo(&path);
            }
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
