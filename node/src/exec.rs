//! `sfio-node exec`: runs a command as a job.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::prctl::set_child_subreaper;
use nix::unistd::Pid;

use crate::event::{now, Event, EventLog, Exit, Reason};
use crate::exit::{End, CANNOT_RUN, CANNOT_SET_UP, NOT_FOUND};
use crate::fd_store::Client;
use crate::feed::{Feeder, Registration};
use crate::gate::{Gates, Launcher};
use crate::job::Job;
use crate::supervise::{Supervisor, Surroundings};
use crate::token::Token;
use crate::usage::Spent;
use crate::watch::Watcher;
use crate::{alive, signals, sys};

/// How long a killed `serve` may hold its lock.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// A failure before the command ran: the exit code, and a message.
struct CannotStart {
    code: i32,
    message: String,
}

impl From<String> for CannotStart {
    fn from(message: String) -> Self {
        Self { code: CANNOT_SET_UP, message }
    }
}

/// Runs the job and ends this process as the command has ended.
///
/// # Arguments
/// * `grace` - how long after a successful end a signal still cancels the job
/// * `spent` - what this process had used when it became this program
pub fn run(job: &Path, command: &[OsString], grace: Duration, spent: Spent) -> i32 {
    let opened = job.canonicalize().and_then(|directory| {
        let events = EventLog::open(&directory.join("events.jsonl"))?;
        Ok((directory, events))
    });
    let (directory, mut events) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            eprintln!("sfio-node: job {}: {error}", job.display());
            return CANNOT_SET_UP;
        }
    };
    let run_directory = directory.ancestors().nth(2).unwrap_or(&directory).to_owned();
    let opened = File::open(&run_directory).ok();
    let store = opened.as_ref().and_then(|run| Client::new(run, directory.file_name()?).ok()).map(Rc::new);
    let lock = opened.and_then(|run| Flock::lock(run, FlockArg::LockSharedNonblock).ok());
    store.iter().for_each(|store| store.begin());
    let mut watcher = None;
    let (exit, end) = match run_in(directory, command, grace, spent, store.clone(), &mut events, &mut watcher) {
        Ok(ended) => ended,
        Err(failure) => {
            eprintln!("sfio-node: {}", failure.message);
            let (code, message) = (Some(failure.code), Some(failure.message));
            (Exit { code, reason: Reason::Error, message, ended: now(), ..Exit::default() }, End::Code(failure.code))
        }
    };
    let driver_gone = exit.reason == Reason::Driver;
    store.iter().for_each(|store| store.end());
    let _ = events.conclude(exit);
    if let (Some(watcher), Some(store)) = (&mut watcher, &store) {
        watcher.forget(|_| true);
        store.close(watcher);
    }
    if let (true, Some(lock)) = (driver_gone, &lock) {
        remove_abandoned(&run_directory, lock);
    }
    end.follow()
}

/// When `serve` was killed, the last of its jobs removes the run directory.
fn remove_abandoned(directory: &Path, lock: &Flock<File>) {
    // serve and each exec hold a shared lock as long as they live, and serve may take a moment to die.
    let deadline = Instant::now() + LAST_MOMENT;
    while directory.exists() && Instant::now() < deadline {
        if lock.relock(FlockArg::LockExclusiveNonblock).is_ok() {
            let _ = std::fs::remove_dir_all(directory);
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn run_in(
    directory: PathBuf,
    command: &[OsString],
    grace: Duration,
    spent: Spent,
    store: Option<Rc<Client>>,
    events: &mut EventLog,
    watcher: &mut Option<Watcher<Token>>,
) -> Result<(Exit, End), CannotStart> {
    let alive = alive::open(&directory.join("../.."))?;
    let job = Job::load(&directory.join("job.json"))?;
    let (signals, inherited) = signals::take().map_err(|error| format!("signals: {}", error.desc()))?;
    let _ = set_child_subreaper(true);
    let surroundings = Surroundings { directory, alive, signals, inherited, grace, spent, store };
    let mut feeders = Vec::new();
    if !job.outputs.is_empty() || !job.inputs.is_empty() || !job.gates.is_empty() {
        *watcher = Watcher::new().map_err(|error| warn(events, error)).ok();
    }
    let mut gates = Gates::new(&job)?;
    let result = run_job(&job, &mut feeders, &mut gates, command, &surroundings, events, watcher);
    let success = result.as_ref().is_ok_and(|(exit, _)| exit.success);
    feeders.iter_mut().for_each(|feeder| feeder.clean_up(success));
    gates.clean_up(success);
    result
}

fn run_job(
    job: &Job,
    feeders: &mut Vec<Feeder>,
    gates: &mut Gates,
    command: &[OsString],
    surroundings: &Surroundings,
    events: &mut EventLog,
    watcher: &mut Option<Watcher<Token>>,
) -> Result<(Exit, End), CannotStart> {
    let launcher = gates.purpose().map(Launcher::new).transpose();
    let launcher = launcher.map_err(|error| format!("the gate: {}", error.desc()))?;
    let mut streamed_stdin = None;
    for (number, input) in (0..).zip(&job.inputs) {
        let registration =
            Registration { number, store: surroundings.store.clone(), streams: Arc::clone(&gates.streams) };
        let (feeder, reader) = Feeder::new(input.clone(), registration)?;
        feeders.push(feeder);
        streamed_stdin = streamed_stdin.or(reader);
    }
    let mut supervisor = Supervisor::new(job, feeders, gates, surroundings, events, watcher)?;
    let started = now();
    let program = match &launcher {
        Some(launcher) => launcher.command(command).map_err(|error| format!("the gate: {error}"))?,
        None => plain(command)?,
    };
    let main = spawn(job, streamed_stdin, program, surroundings)?;
    supervisor.started(main, launcher);
    let (ended, io) = supervisor.supervise();
    let streamed = feeders.iter().map(Feeder::streamed).sum();
    let end = ended.end();
    let exit = Exit {
        code: ended.code(),
        signal: ended.signal().map(|signal| signal as i32),
        success: ended.success,
        reason: ended.reason,
        message: ended.message,
        started: Some(started),
        ended: now(),
        usage: Spent::of_job(&surroundings.spent, streamed, io),
    };
    Ok((exit, end))
}

/// Without inotify, such as with too many instances of this user, all that is lost is time.
fn warn(events: &mut EventLog, error: nix::Error) {
    let message = format!("no inotify ({}): outputs are committed when the job ends", error.desc());
    let _ = events.append(&[Event::warning(message, None)]);
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

fn plain(words: &[OsString]) -> Result<Command, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

fn spawn(
    job: &Job,
    streamed_stdin: Option<OwnedFd>,
    mut command: Command,
    surroundings: &Surroundings,
) -> Result<Pid, CannotStart> {
    command.env("SFIO_JOB", &surroundings.directory);
    if let Some(path) = &job.stdin {
        command.stdin(File::open(path).map_err(at(path))?);
    } else if let Some(reader) = streamed_stdin {
        command.stdin(Stdio::from(reader));
    }
    let mut stdout = None;
    if let Some(path) = &job.stdout {
        let file = File::create(path).map_err(at(path))?;
        stdout = Some(file.try_clone().map_err(at(path))?);
        command.stdout(file);
    }
    if let Some(path) = &job.stderr {
        command.stderr(match stdout {
            Some(shared) if job.stdout.as_ref() == Some(path) => shared,
            _ => File::create(path).map_err(at(path))?,
        });
    }
    sys::bind_to_parent(&mut command, surroundings.inherited);
    let child = command.spawn().map_err(|error| CannotStart {
        code: if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN },
        message: format!("cannot run {}: {error}", Path::new(command.get_program()).display()),
    })?;
    Ok(Pid::from_raw(child.id() as i32))
}
