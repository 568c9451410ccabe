//! The life of a running job: one thread that waits for signals, notices and pipes, and acts.

mod beginning;
mod commits;
mod ending;
mod entering;
mod files;
mod leftovers;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::inotify::AddWatchFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::time::TimeSpec;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use self::beginning::Beginning;
use self::commits::Commits;
use self::ending::Ending;
use self::leftovers::Leftovers;
use crate::commit::{Decision, Fact, Tracker};
use crate::event::{Event, EventLog, Reason, FOREIGN};
use crate::fd_store::Client;
use crate::feed::{Feeder, Need, Wait, PAUSE};
use crate::gate::{Entrance, Gates};
use crate::hold::{Holder, ProcessId};
use crate::io_time::IoTime;
use crate::job::Job;
use crate::origin::Failure;
use crate::outputs::{AsPlace, Change, OutputWatch, Place};
use crate::tree::{self, Descendants};
use crate::usage::own_cpu;
use crate::watch::{Notice, Watcher};

/// How often a tree that is being ended is looked at.
const ENDING_TICK: Duration = Duration::from_millis(10);
/// How often files are looked at that notify nobody, such as those written from another machine.
const FALLBACK_TICK: Duration = Duration::from_millis(100);
/// The same for the cancel file of a job that watches nothing.
const CANCEL_TICK: Duration = Duration::from_millis(250);

/// The job as `exec` finds it.
pub struct Surroundings {
    pub directory: PathBuf,
    /// The end of this FIFO says that `serve` is gone.
    pub alive: File,
    pub signals: SignalFd,
    /// The signal mask that the command gets.
    pub inherited: SigSet,
    /// How long after a successful end a signal still cancels the job.
    pub grace: Duration,
    /// Where `serve` keeps descriptors for the job.
    pub store: Option<Rc<Client>>,
}

impl Surroundings {
    /// What is readable when there is news of the tree, or none of the driver any more.
    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.signals.as_fd(), self.alive.as_fd()]
    }
}

/// What a watch is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    Output(Place),
    Input(usize, Wait),
    /// Of any gate: all of them are looked at in every round.
    Gate,
    Control,
}

impl From<Place> for Token {
    fn from(place: Place) -> Self {
        Self::Output(place)
    }
}

impl AsPlace for Token {
    fn as_place(&self) -> Option<&Place> {
        if let Self::Output(place) = self {
            Some(place)
        } else {
            None
        }
    }
}

/// A job that has ended.
pub struct Ended {
    pub status: WaitStatus,
    pub reason: Reason,
    pub message: Option<String>,
    /// The command's own exit code is one of success; `success` also needs that nothing else ended the job.
    pub successful_code: bool,
    pub success: bool,
    /// Time in I/O, when it was asked for and can be known.
    pub io: Option<Duration>,
}

pub struct Supervisor<'a> {
    job: &'a Job,
    feeders: &'a mut Vec<Feeder>,
    gates: &'a mut Gates,
    /// There until the command has entered.
    entrance: Option<Entrance>,
    /// Without a gate that works, the command enters when all is committed.
    held: bool,
    surroundings: &'a Surroundings,
    events: &'a mut EventLog,
    watcher: &'a mut Option<Watcher<Token>>,
    tracker: Tracker,
    /// Not announced yet.
    decisions: Vec<Decision>,
    commits: Commits,
    processes: Descendants,
    holder: Holder,
    /// Those that may have closed what is held.
    suspects: BTreeMap<ProcessId, OwnedFd>,
    clock: Instant,
    io_time: Option<IoTime>,
    /// Of a job that is observed.
    beginning: Beginning,
    main: Pid,
    status: Option<WaitStatus>,
    childless: bool,
    leftovers: Leftovers,
    /// Some processes go on after the job.
    left: bool,
    orphans: u64,
    reason: Option<Reason>,
    message: Option<String>,
    ending: Option<Ending>,
}

impl<'a> Supervisor<'a> {
    /// Arms all watches.
    ///
    /// # Errors
    /// A message when an output directory cannot be watched.
    pub fn new(
        job: &'a Job,
        feeders: &'a mut Vec<Feeder>,
        gates: &'a mut Gates,
        surroundings: &'a Surroundings,
        events: &'a mut EventLog,
        watcher: &'a mut Option<Watcher<Token>>,
    ) -> Result<Self, String> {
        let mut supervisor = Self {
            job,
            feeders,
            gates,
            entrance: None,
            held: false,
            surroundings,
            events,
            watcher,
            tracker: Tracker::new(&job.outputs),
            decisions: Vec::new(),
            commits: Commits::default(),
            processes: Descendants::new(),
            holder: Holder::default(),
            suspects: BTreeMap::new(),
            clock: Instant::now(),
            io_time: None,
            beginning: Beginning::default(),
            main: Pid::from_raw(0),
            status: None,
            childless: false,
            leftovers: Leftovers::of(job),
            left: false,
            orphans: 0,
            reason: None,
            message: None,
            ending: None,
        };
        supervisor.arm()?;
        Ok(supervisor)
    }

    fn arm(&mut self) -> Result<(), String> {
        let Some(watcher) = self.watcher.as_mut() else { return Ok(()) };
        OutputWatch { outputs: &self.job.outputs }.arm(watcher)?;
        let appears = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        let changes = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM;
        let _ = watcher.watch(&self.surroundings.directory, appears | changes, Token::Control);
        for (index, feeder) in self.feeders.iter_mut().enumerate() {
            feeder.arm(watcher, &|wait| Token::Input(index, wait));
        }
        self.gates.arm(watcher, &Token::Gate);
        Ok(())
    }

    /// The command runs, or is at the entrance.
    pub fn started(&mut self, main: Pid, entrance: Option<Entrance>) {
        self.main = main;
        self.entrance = entrance;
        if let Some(entrance) = &mut self.entrance {
            entrance.spawned();
        }
        let processes = self.processes.look();
        // Without `/proc`, or where it hides the command, nothing can be known.
        self.io_time = (self.job.measure && !processes.is_empty()).then(|| IoTime::new(self.now()));
        self.holder = Holder::new(self.snapshot(processes));
        self.note(&[Event::Started { pid: Pid::this().as_raw(), command_pid: main.as_raw() }]);
        for path in [&self.job.stdout, &self.job.stderr].into_iter().flatten() {
            self.observe(path, Fact::Exists);
        }
        self.announce();
        self.look_for_cancel();
        self.pump_all();
        self.advance_gates();
    }

    /// Stays with the job until its tree has ended, or what goes on is none of its business.
    pub fn supervise(mut self) -> Ended {
        while !self.childless && !self.left {
            let now = self.now();
            let nap = if self.is_awaited() { None } else { self.holder.rest(now) };
            let news = self.wait(nap);
            // First of all: a writer that died may be seen for some microseconds only.
            self.take_notices();
            if news {
                self.take_signals();
                self.reap();
            }
            self.pump_all();
            self.look_at_entrance();
            self.advance_gates();
            self.bring_wholes();
            self.review();
            self.look_at_waits();
            self.look_at_events();
            if news {
                self.look_at_driver();
            }
            self.end_tree();
        }
        self.leave_streams();
        self.conclude()
    }

    fn conclude(mut self) -> Ended {
        self.take_notices();
        let status = self.status.unwrap_or(WaitStatus::StillAlive);
        let successful_code = self.has_successful_code();
        if successful_code && self.reason.is_none() {
            // Who cancels a job may signal all of its processes, one after the other, and the command first.
            std::thread::sleep(self.surroundings.grace);
            self.take_signals();
        }
        // Nobody of the tree is left to change them.
        if self.reason.is_none() && !self.events.is_intact() {
            (self.reason, self.message) = (Some(Reason::Error), Some(FOREIGN.into()));
        }
        let success = successful_code && self.reason.is_none();
        if success {
            self.feeders.iter_mut().for_each(Feeder::leave_file);
            self.commit_all();
        }
        let verdicts = self.gates.verdicts();
        self.note(&verdicts.iter().map(Event::Used).collect::<Vec<_>>());
        let now = self.now();
        Ended {
            status,
            reason: self.reason.unwrap_or(Reason::Exited),
            message: self.message,
            successful_code,
            success,
            io: self.io_time.map(|time| time.total(now)),
        }
    }

    fn has_successful_code(&self) -> bool {
        matches!(self.status, Some(WaitStatus::Exited(_, code)) if self.job.success_codes.contains(&code))
    }

    fn now(&self) -> Duration {
        self.clock.elapsed()
    }

    /// False: nothing but files, streams and calls need attention; there is no news of the tree, nor of the driver.
    fn wait(&self, nap: Option<Duration>) -> bool {
        let space = self.feeders.iter().filter(|feeder| feeder.need == Need::Space).filter_map(Feeder::sink);
        let arrivals = self.feeders.iter().flat_map(Feeder::arrivals);
        let readable = self.surroundings.descriptors();
        let wishes = std::iter::once(self.gates.streams().as_fd());
        let notices = self.watcher.iter().map(AsFd::as_fd);
        let entrance = self.entrance.iter().map(AsFd::as_fd);
        let reading = readable.into_iter().chain(notices).chain(entrance).chain(wishes).chain(arrivals);
        let mut descriptors: Vec<PollFd> =
            reading.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLIN)).collect();
        descriptors.extend(space.map(|descriptor| PollFd::new(descriptor, PollFlags::POLLOUT)));
        if self.reason.is_some() {
            // The hang-up of the driver would be reported for ever.
            descriptors.remove(1);
        }
        nap.into_iter().for_each(std::thread::sleep);
        let timeout = if nap.is_some() { Some(Duration::ZERO) } else { self.timeout() };
        let ready = ppoll(&mut descriptors, timeout.map(TimeSpec::from_duration), None);
        // Those of signals and of the driver come first. Without inotify, the cancel file has to be looked for.
        let first = if self.reason.is_some() { 1 } else { 2 };
        let news = descriptors[..first].iter().any(|descriptor| descriptor.any() != Some(false));
        news || self.watcher.is_none() || !matches!(ready, Ok(1..))
    }

    /// Whether the command, or who observes it, waits for what this process does.
    fn is_awaited(&self) -> bool {
        !self.job.inputs.is_empty() || !self.job.gates.is_empty() || self.job.observed.is_some()
    }

    fn timeout(&self) -> Option<Duration> {
        let now = self.now();
        let review = self.holder.next_review().filter(|_| self.ending.is_none()).map(|at| at.saturating_sub(now));
        let leaving =
            (self.status.is_some() && self.ending.is_none()).then(|| self.leftovers.due().saturating_sub(now));
        let fed = self.feeders.iter().any(|feeder| feeder.need != Need::Nothing || feeder.is_leaving());
        let awaited = self.feeders.iter().any(Feeder::is_wanted_whole);
        let paused = self.feeders.iter().any(|feeder| feeder.need == Need::Pause);
        let watched = self.watcher.is_some();
        let ticks = [
            review,
            leaving,
            self.ending.is_some().then_some(ENDING_TICK),
            (fed || awaited || !self.gates.are_open()).then_some(FALLBACK_TICK),
            paused.then_some(PAUSE),
            (!watched).then_some(CANCEL_TICK),
            self.io_time.as_ref().map(|time| time.due().saturating_sub(now)),
        ];
        ticks.into_iter().flatten().min()
    }

    fn look_at_waits(&mut self) {
        let now = self.now();
        let Some(time) = self.io_time.as_mut().filter(|time| time.due() <= now) else { return };
        let before = own_cpu();
        let processes = self.processes.look();
        let waits = tree::waits_for_device(&processes);
        if self.job.observed.is_some() {
            self.gates.look(&processes, self.beginning.is_over());
        }
        time.look(now, waits, own_cpu().saturating_sub(before));
    }

    fn take_notices(&mut self) {
        let Some(mut watcher) = self.watcher.take() else { return };
        let (notices, lost) = watcher.read();
        let outputs = OutputWatch { outputs: &self.job.outputs };
        let mut changes = Vec::new();
        for (index, notice) in notices.iter().enumerate() {
            match &notice.token {
                // A close says that it was made, too.
                Token::Output(_) if notices.get(index + 1).is_some_and(|next| next.closes_what_was_made(notice)) => {}
                Token::Output(place) => changes.extend(outputs.changes(place, notice, &mut watcher)),
                Token::Control => self.look_for_cancel(),
                Token::Input(index, wait) => self.input_notice(*index, *wait, notice, &mut watcher),
                Token::Gate => {}
            }
        }
        if lost {
            self.feeders.iter_mut().for_each(Feeder::notices_were_lost);
            self.commits.lost = true;
            let unknown = |change: &Change| !matches!(change, Change::Found(path) if self.tracker.closes(path) > 0);
            changes.extend(outputs.rescan(&mut watcher).into_iter().filter(unknown));
        }
        *self.watcher = Some(watcher);
        self.take_changes(changes);
    }

    fn input_notice(&mut self, index: usize, wait: Wait, notice: &Notice<Token>, watcher: &mut Watcher<Token>) {
        let feeder = &mut self.feeders[index];
        match wait {
            Wait::Growth => feeder.growth_notice(),
            Wait::Beside => {}
            Wait::Events => feeder.read_events(Some(watcher), &|wait| Token::Input(index, wait)),
            Wait::Fifo => {
                if let Err(failure) = feeder.fifo_notice(notice.mask) {
                    self.fail(index, failure);
                }
            }
        }
    }

    /// What others have written into the events may have been believed already: what was made of it must not count.
    fn look_at_events(&mut self) {
        if self.reason.is_none() && !self.events.is_ours() {
            self.end(Reason::Error, Some(FOREIGN.into()), Signal::SIGKILL, false);
        }
    }

    fn note(&mut self, events: &[Event]) {
        let written = self.events.append(events);
        self.require(written);
    }

    /// Without its events nobody knows of the job: it cannot go on.
    fn require(&mut self, written: io::Result<()>) {
        if let (Err(error), None) = (written, &self.reason) {
            self.end(Reason::Error, Some(format!("events.jsonl: {error}")), Signal::SIGKILL, false);
        }
    }

    fn pump_all(&mut self) {
        for index in 0..self.feeders.len() {
            if self.reason.is_some() || self.ending.is_some() {
                return;
            }
            let token = |wait| Token::Input(index, wait);
            let feeder = &mut self.feeders[index];
            feeder.read_events(self.watcher.as_mut(), &token);
            match feeder.pump(self.watcher.as_mut(), &token).map(|event| self.events.append(event.as_slice())) {
                Ok(written) => self.require(written),
                Err(failure) => self.fail(index, failure),
            }
        }
    }

    /// The command has ended, perhaps before it had read all: waits until it is known what to compare of that.
    fn leave_streams(&mut self) {
        let read = |feeder: &&mut Feeder| feeder.streamed() > 0;
        self.feeders.iter_mut().filter(read).for_each(Feeder::leave);
        while self.has_successful_code() && self.reason.is_none() {
            let pending = (0..self.feeders.len()).find(|&index| self.report(index));
            if pending.is_none() {
                return;
            }
            std::thread::sleep(ENDING_TICK);
            self.take_signals();
            self.look_at_driver();
        }
    }

    /// Tells how a stream has ended; true: that is not known yet.
    fn report(&mut self, index: usize) -> bool {
        match self.feeders[index].report().map(|event| self.events.append(event.as_slice())) {
            Ok(written) => self.require(written),
            Err(failure) => self.fail(index, failure),
        }
        self.feeders[index].is_leaving()
    }

    /// The stream stays open, so that nothing looks like its end, until the tree is gone.
    fn fail(&mut self, index: usize, failure: Failure) {
        self.fail_input(self.feeders[index].input.name.clone(), failure);
    }

    fn fail_input(&mut self, input: String, failure: Failure) {
        let (reason, message) = match failure {
            Failure::Producer(message) => (Reason::Producer { input }, message),
            Failure::Rewritten(message) => (Reason::Rewritten { input }, message),
            Failure::Reopened(message) => (Reason::Error, format!("input {input}: {message}")),
        };
        self.end(reason, Some(message), Signal::SIGKILL, false);
    }
}
