//! `sfio-node exec`: runs a command as a job.

mod mounts;
mod placing;
mod supervise;

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_child_subreaper;
use nix::unistd::Pid;

use self::mounts::renamed;
use self::placing::CannotStart;
use self::supervise::{Inputs, Supervisor, Surroundings};
use crate::gate::{Gates, Launcher};
use crate::inputs::feed::{Feeder, Registration};
use crate::inputs::placement::{remove_memory, Placed};
use crate::outputs::token::Token;
use crate::processes::usage::Spent;
use crate::processes::watchdog::Watchdog;
use crate::protocol::event::{now, Event, EventLog, ExitEvent, Reason};
use crate::protocol::fd_store::Client;
use crate::protocol::job::{Job, Mount, Target};
use crate::protocol::liveness;
use crate::protocol::registration::Presence;
use crate::streams::announced_parts::{Parts, VARIABLE};
use crate::sys::exit::{End, CANNOT_RUN, CANNOT_SET_UP, NOT_FOUND};
use crate::sys::file_limit::FileLimit;
use crate::sys::raw;
use crate::sys::raw::landlock::Confined;
use crate::sys::signals;
use crate::sys::watch::Watcher;

/// Runs the job, and ends this process as the command has ended.
///
/// # Arguments
/// * `grace` - how long after a successful end a signal still cancels the job
/// * `spent` - resources that this process had used when it became this program
pub fn run(job: &Path, command: &[OsString], grace: Duration, spent: Spent) -> i32 {
    let (presence, mut events) = match Presence::begin(job) {
        Ok(begun) => begun,
        Err(error) => {
            eprintln!("sfio-node: job {}: {error}", job.display());
            return CANNOT_SET_UP;
        }
    };
    let (directory, store) = (presence.directory.clone(), presence.store.clone());
    let mut watcher = None;
    let (exit, end) = match run_in(directory, command, grace, spent, store, &mut events, &mut watcher) {
        Ok(ended) => ended,
        Err(failure) => {
            eprintln!("sfio-node: {}", failure.message);
            let (code, message) = (Some(failure.code), Some(failure.message));
            (
                ExitEvent { code, reason: failure.reason, message, ended: now(), ..ExitEvent::default() },
                End::Code(failure.code),
            )
        }
    };
    presence.end(events, exit, watcher);
    end.follow()
}

fn run_in(
    directory: PathBuf,
    command: &[OsString],
    grace: Duration,
    spent: Spent,
    store: Option<Rc<Client>>,
    events: &mut EventLog,
    watcher: &mut Option<Watcher<Token>>,
) -> Result<(ExitEvent, End), CannotStart> {
    let alive = liveness::open(&directory.join("../.."))?;
    let job = Job::load(&directory.join("job.json"))?;
    if job.rehearsal.idle {
        raw::be_idle();
    }
    let mounts = match mounts::arrange(&job.rehearsal.mounts) {
        Ok(()) => job.rehearsal.mounts.as_slice(),
        Err(error) => {
            let message = format!("directories cannot be put at other places: {error}");
            let _ = events.append(&[Event::warning(message, None)]);
            &[]
        }
    };
    let command: Vec<OsString> =
        command.iter().map(|word| renamed(word, mounts).unwrap_or_else(|| word.clone())).collect();
    let (signals, inherited) = signals::take().map_err(|error| format!("signals: {}", error.desc()))?;
    let guard = (job.limit.is_some() || job.has_window()).then(|| Watchdog::start(&directory).ok()).flatten();
    let _ = set_child_subreaper(true);
    let (clock, files) = (Instant::now(), FileLimit::raise());
    let surroundings = Surroundings { directory, alive, signals, clock, inherited, files, grace, spent, store };
    let (mut feeders, mut placed) = (Vec::new(), Vec::new());
    let mut gates = Gates::new(&job)?;
    if job.has_to_be_watched() {
        *watcher = Watcher::new().map_err(|error| warn(events, error)).ok();
    }
    let inputs = Inputs::new(&mut feeders, &mut placed, &mut gates);
    let result = run_job(&job, inputs, guard, (&command, mounts), &surroundings, events, watcher);
    let success = result.as_ref().is_ok_and(|(exit, _)| exit.success);
    feeders.iter_mut().for_each(|feeder| feeder.clean_up(success));
    if job.inputs.iter().any(|input| matches!(input.target, Target::File(_))) {
        placed.iter().for_each(Placed::clean_up);
        remove_memory(&surroundings.directory);
    }
    gates.clean_up(success);
    if !success {
        job.remove_scratch();
    }
    result
}

fn run_job(
    job: &Job,
    inputs: Inputs,
    guard: Option<Watchdog>,
    (command, mounts): (&[OsString], &[Mount]),
    surroundings: &Surroundings,
    events: &mut EventLog,
    watcher: &mut Option<Watcher<Token>>,
) -> Result<(ExitEvent, End), CannotStart> {
    job.close_directories()?;
    placing::place(job, surroundings, inputs.placed)?;
    let parts = job.split.as_ref().map(Parts::begin).transpose()?;
    let launcher = inputs.gates.purpose().map(Launcher::new).transpose();
    let launcher = launcher.map_err(|error| format!("the gate: {}", error.desc()))?;
    let mut streamed_stdin = None;
    let streams = job.inputs.iter().filter(|input| !matches!(input.target, Target::File(_)));
    for (number, input) in (0..).zip(streams) {
        let (streams, handler) = (Arc::clone(&inputs.gates.streams), Arc::clone(&inputs.gates.handler));
        let registration = Registration { number, store: surroundings.store.clone(), streams, handler };
        let (feeder, reader) = Feeder::new(input.clone(), registration)?;
        inputs.feeders.push(feeder);
        streamed_stdin = streamed_stdin.or(reader);
    }
    let placed = inputs.placed.iter().map(Placed::bytes).sum::<u64>();
    let said = parts.as_ref().map(|parts| parts.file().to_owned());
    let lent = Inputs::new(inputs.feeders, inputs.placed, inputs.gates);
    let mut supervisor = Supervisor::new(job, lent, parts, surroundings, events, watcher)?;
    // The job may have been cancelled before this process listened.
    if surroundings.directory.join("cancel").exists() {
        return Err(CannotStart::ended(Reason::Cancelled));
    }
    let started = now();
    let mut program = match &launcher {
        Some(launcher) => launcher.command(command),
        None => plain(command)?,
    };
    program.envs(env::vars_os().filter_map(|(name, value)| Some((name, renamed(&value, mounts)?))));
    let main = spawn(job, streamed_stdin, said.as_deref(), program, surroundings)?;
    supervisor.started(main, launcher, guard);
    let (ended, io, paused) = supervisor.supervise();
    let fed = |is_part: bool| {
        let feeders = inputs.feeders.iter().filter(|feeder| feeder.input.part().is_some() == is_part);
        feeders.map(Feeder::streamed).sum::<u64>()
    };
    let parts = job.inputs.iter().any(|input| input.part().is_some()).then(|| placed + fed(true));
    let may_wait = !(job.gates.is_empty() && job.inputs.is_empty());
    let held = may_wait.then(|| inputs.gates.handler.table.held());
    let end = ended.end();
    let exit = ExitEvent {
        code: ended.code(),
        signal: ended.signal().map(|signal| signal as i32),
        success: ended.success,
        reason: ended.reason,
        message: ended.message,
        started: Some(started),
        ended: now(),
        usage: Spent::of_job(&surroundings.spent, fed(false), parts, io, held, paused),
    };
    Ok((exit, end))
}

/// Warns that inotify is missing, for example because this user has too many instances. Only time is lost.
fn warn(events: &mut EventLog, error: nix::Error) {
    let message = format!("no inotify ({}): outputs are committed when the job ends [SFIO-N002]", error.desc());
    let _ = events.append(&[Event::warning(message, None)]);
}

fn at(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

/// Directories in which each process may write: its standard streams, devices and shared memory.
const OF_ALL: [&str; 2] = ["/dev", "/proc"];

fn plain(words: &[OsString]) -> Result<Command, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(arguments);
    Ok(command)
}

fn spawn(
    job: &Job,
    streamed_stdin: Option<OwnedFd>,
    said: Option<&Path>,
    mut command: Command,
    surroundings: &Surroundings,
) -> Result<Pid, CannotStart> {
    command.env("SFIO_JOB", &surroundings.directory);
    match said {
        Some(file) => command.env(VARIABLE, file),
        // A value from a job in which this process runs does not concern this job.
        None => command.env_remove(VARIABLE),
    };
    if let Some(path) = &job.command.stdin {
        command.stdin(File::open(path).map_err(at(path))?);
    } else if let Some(reader) = streamed_stdin {
        command.stdin(Stdio::from(reader));
    }
    let mut stdout = None;
    if let Some(path) = &job.command.stdout {
        let file = File::create(path).map_err(at(path))?;
        stdout = Some(file.try_clone().map_err(at(path))?);
        command.stdout(file);
    }
    if let Some(path) = &job.command.stderr {
        command.stderr(match stdout {
            Some(shared) if job.command.stdout.as_ref() == Some(path) => shared,
            _ => File::create(path).map_err(at(path))?,
        });
    }
    raw::bind_to_parent(&mut command, surroundings.inherited, surroundings.files);
    if job.rehearsal.confined {
        let places = job.rehearsal.scratch.iter().map(PathBuf::as_path);
        let confined = raw::landlock::confine(&mut command, places.chain(OF_ALL.map(Path::new)));
        if job.rehearsal.apart && confined != Confined::Wholly {
            return Err(CannotStart {
                code: CANNOT_SET_UP,
                reason: Reason::Error,
                message: "it cannot be kept apart: the kernel has no Landlock, or none that knows TCP".into(),
            });
        }
    }
    let child = command.spawn().map_err(|error| CannotStart {
        code: if error.kind() == std::io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN },
        reason: Reason::Error,
        message: format!("cannot run {}: {error}", Path::new(command.get_program()).display()),
    })?;
    Ok(Pid::from_raw(child.id() as i32))
}
