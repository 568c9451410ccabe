//! The conversation of `serve` with its driver, which needs nothing else of this machine: its requests are on the
//! standard input, the answers on the standard output.

mod commands;
mod lines;
mod orders;

use std::ffi::OsStr;
use std::io::{self, Stdin, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signalfd::SignalFd;

use self::commands::{refuse, Commands};
use self::lines::{Lines, TooLong, LONGEST};
use self::orders::{cancel_job, limit_job, make_job, may_run};
use super::directory;
use super::inherited::Inherited;
use super::jobs::{Jobs, LOOK};
use super::output::LAST_WORDS;
use super::periodic::{Periodic, ALIVE, ALIVE_LINE};
use super::shared::Shared;
use crate::protocol::json::{self, ByteString};
use crate::protocol::messages::{MadeEvent, RefusedEvent, Request};
use crate::sys::exit::CANNOT_SET_UP;
use crate::sys::pipe;

/// How long jobs on other machines may take to end. They look for that once a second.
const FAREWELL: Duration = Duration::from_secs(5);
/// Bytes of the input that are taken at once.
const AT_ONCE: usize = 1 << 16;
/// Misunderstood lines that are reported. The standard error need not be read.
const COMPLAINTS: usize = 20;
/// The most characters of each.
const LENGTH: usize = 300;

pub struct Conversation {
    run: PathBuf,
    /// Others may read the events of the jobs.
    readable: bool,
    stdin: Stdin,
    lines: Lines,
    commands: Commands,
    /// Present if the jobs are on other machines.
    shared: Option<Shared>,
    /// When to say again that this process lives. Only a driver with a patience listens for that.
    alive: Option<Periodic>,
    /// The longest time without a word of the driver. Without a patience the end of the input decides alone.
    patience: Option<Duration>,
    /// When the driver has said something.
    heard: Instant,
    complaints: usize,
}

/// The news of one wait.
struct News {
    input: bool,
    terminated: bool,
}

impl Conversation {
    /// # Arguments
    /// * `readable` - other users may read the events of the jobs
    /// * `shared` - the jobs are on other machines
    /// * `patience` - the longest time without a word of the driver. None: `serve` waits for the end of the input
    pub fn new(
        run: &Path,
        readable: bool,
        shared: bool,
        patience: Option<Duration>,
        inherited: Inherited,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let alive = |patience: Duration| {
            // Several are lost before one side believes that the other is gone.
            let period = ALIVE.min(patience / 4);
            Periodic::new(period, now + period)
        };
        Ok(Self {
            run: run.to_owned(),
            readable,
            stdin: io::stdin(),
            lines: Lines::default(),
            commands: Commands::new(inherited)?,
            shared: shared.then(|| Shared::new(run)),
            alive: patience.map(alive),
            patience,
            heard: now,
            complaints: 0,
        })
    }

    /// Serves until the input has ended, or has brought nothing for too long, or the output is closed. Then ends the
    /// jobs and removes the run directory.
    ///
    /// # Errors
    /// When the run directory cannot be removed.
    pub fn serve(mut self, mut jobs: Jobs, signals: &SignalFd) -> io::Result<()> {
        while jobs.output.is_heard() {
            let news = self.wait(&mut jobs, signals);
            if news.terminated || (news.input && !self.listen(&mut jobs)) || self.is_forsaken() {
                break;
            }
            self.turn(&mut jobs);
        }
        let deadline = Instant::now() + FAREWELL;
        jobs.end(|jobs| {
            std::thread::sleep(LOOK / 5);
            self.shared.iter_mut().for_each(|shared| shared.take_news(jobs));
            Instant::now() < deadline
        });
        jobs.output.flush(LAST_WORDS);
        directory::remove(&self.run)
    }

    /// Whether the driver has said nothing for too long. What has come while this process was stopped counts.
    fn is_forsaken(&self) -> bool {
        self.silence().is_some_and(|silence| Instant::now() >= silence)
            && pipe::state(&self.stdin, PollFlags::POLLIN).is_empty()
    }

    /// The moment from which on the driver has said nothing for too long.
    fn silence(&self) -> Option<Instant> {
        self.patience.map(|patience| self.heard + patience)
    }

    fn wait(&self, jobs: &mut Jobs, signals: &SignalFd) -> News {
        let waits = jobs.output.is_full();
        let writable = if waits { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut descriptors = vec![
            PollFd::new(jobs.output.as_fd(), writable),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.stdin.as_fd(), PollFlags::POLLIN),
        ];
        if !waits {
            // What cannot be printed now waits in its files, and in pipes; requests do not.
            let news = std::iter::once(jobs.notices()).chain(self.commands.news());
            descriptors.extend(news.map(|news| PollFd::new(news, PollFlags::POLLIN)));
        }
        let _ = poll(&mut descriptors, self.timeout(jobs.tick(), waits));
        let state = |number: usize| descriptors[number].revents().unwrap_or(PollFlags::empty());
        let [output, signal, input] = [0, 1, 2].map(state);
        jobs.output.look(output);
        News { input: !input.is_empty(), terminated: !signal.is_empty() }
    }

    /// How long there is nothing to do.
    ///
    /// # Arguments
    /// * `tick` - after which jobs have to be looked at
    /// * `waits` - for the driver to read: until then jobs are not looked at
    fn timeout(&self, tick: Option<Duration>, waits: bool) -> PollTimeout {
        let now = Instant::now();
        let alive = self.alive.iter().map(|alive| alive.due).chain(tick.map(|tick| now + tick)).filter(|_| !waits);
        let shared = self.shared.iter().map(|shared| shared.due(!waits));
        let Some(due) = alive.chain(self.silence()).chain(shared).min() else { return PollTimeout::NONE };
        // Not a moment too early, which would be a turn for nothing.
        let left = due.saturating_duration_since(now) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO)
    }

    /// Takes what has come; false: the driver is gone.
    fn listen(&mut self, jobs: &mut Jobs) -> bool {
        let mut buffer = vec![0; AT_ONCE];
        match nix::unistd::read(&self.stdin, &mut buffer) {
            Ok(count @ 1..) => {
                self.heard = Instant::now();
                for line in self.lines.take(&buffer[..count]) {
                    self.answer(line, jobs);
                }
                true
            }
            Err(Errno::EINTR | Errno::EAGAIN) => true,
            _ => false,
        }
    }

    fn answer(&mut self, line: Result<Vec<u8>, TooLong>, jobs: &mut Jobs) {
        let done = match &line {
            Err(TooLong) => Err(format!("more than {LONGEST} bytes")),
            Ok(line) => json::read(line).and_then(|request| self.act(request, jobs)),
        };
        if let Err(message) = done {
            self.complain(&message);
        }
    }

    /// Does what the driver asks for.
    ///
    /// # Errors
    /// A message that says what is not understood, or why it cannot be done.
    fn act(&mut self, request: Request, jobs: &mut Jobs) -> Result<(), String> {
        let directory = self.run.join("jobs");
        let Request { job, spec, run, command, limit, cancel, alive } = request;
        match (job, run, limit, cancel, alive, spec, command) {
            (Some(id), None, None, None, None, Some(spec), None) => {
                let made = make_job(&directory, &id.0, spec.0.get(), self.readable);
                jobs.output.print(&answer(&id.0, made.err()));
            }
            (None, Some(id), None, None, None, None, Some(command)) => match may_run(&directory, &id.0) {
                Ok(()) => self.commands.start(id.0, &command.0, &mut jobs.output),
                Err(why) => refuse(&id.0, &why, CANNOT_SET_UP, &mut jobs.output),
            },
            (None, None, Some(id), None, None, Some(spec), None) => limit_job(&directory, &id.0, spec.0.get())?,
            (None, None, None, Some(id), None, None, None) => {
                // The process of a job on another machine is another one here.
                if !cancel_job(&directory, &id.0)? && self.shared.is_none() {
                    jobs.terminate(&id.0);
                }
            }
            (None, None, None, None, Some(_), None, None) => {}
            _ => {
                let pairs = "\"job\" or \"limit\" and \"spec\", \"run\" and \"command\", \"cancel\", or \"alive\"";
                return Err(format!("has to have {pairs}"));
            }
        }
        Ok(())
    }

    /// Reports a misunderstood line on the standard error, which need not be read. The number of reports is limited.
    fn complain(&mut self, message: &str) {
        self.complaints += 1;
        if self.complaints <= COMPLAINTS {
            let told: String = message.chars().filter(|letter| !letter.is_control()).take(LENGTH).collect();
            let _ = writeln!(io::stderr(), "sfio-node: a line of the input: {told}");
        }
    }

    fn turn(&mut self, jobs: &mut Jobs) {
        self.shared.iter_mut().for_each(Shared::beat);
        if jobs.output.is_full() {
            jobs.output.flush(Duration::ZERO);
            return;
        }
        if self.alive.as_mut().is_some_and(|alive| alive.take(Instant::now())) {
            jobs.output.print(ALIVE_LINE);
        }
        match &mut self.shared {
            Some(shared) => shared.take_news(jobs),
            None => jobs.take_notices(),
        }
        self.commands.tell(&mut jobs.output);
    }
}

/// The line that says whether a job was made.
fn answer(id: &OsStr, refused: Option<String>) -> String {
    let job = ByteString(id);
    let line = match &refused {
        None => json::write(&MadeEvent { job }),
        Some(message) => json::write(&RefusedEvent { job, message }),
    };
    line + "\n"
}
