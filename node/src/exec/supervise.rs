//! The life of a running job: one thread that waits for signals, notices and pipes, and does what `state` decides.

mod allowance;
mod announcer;
mod bursts;
mod cores;
mod inputs;
mod io_time;
mod leftovers;
mod looks;
mod outputs;
mod processes;
mod state;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::inotify::AddWatchFlags;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::SignalFd;
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;

pub use self::inputs::Inputs;
use self::leftovers::Activity;
use self::looks::Looks;
use self::outputs::Outputs;
use self::processes::Processes;

use self::state::{Action, Ended, Fact, State, ENDING_TICK};
use crate::gate::Launcher;
use crate::inputs::feed::{Feeder, Need, PAUSE};
use crate::outputs::directories::existing;
use crate::outputs::token::Token;
use crate::processes::open_files::{writing, Writing};
use crate::processes::tree::{self, Process};
use crate::processes::usage::{own_cpu, Spent};
use crate::processes::watchdog::Watchdog;
use crate::protocol::event::{AskedEvent, Event, EventLog, Paused, Reason, StartedEvent, FOREIGN};
use crate::protocol::fd_store::Client;
use crate::protocol::job::Job;
use crate::protocol::limit_file::{LimitFile, LIMIT};
use crate::protocol::liveness;
use crate::streams::announced_parts::Parts;
use crate::sys::file_limit::FileLimit;
use crate::sys::signals::SI_KERNEL;
use crate::sys::watch::{Watcher, ARRIVES, LEAVES};

/// Time between two looks at files without notices, such as those that another machine writes.
const FALLBACK_TICK: Duration = Duration::from_millis(100);
/// Time between two looks for the cancel file of a job without inotify.
const CANCEL_TICK: Duration = Duration::from_millis(250);

/// The surroundings of a job, as `exec` finds them.
pub struct Surroundings {
    pub directory: PathBuf,
    /// The end of this FIFO says that `serve` is gone.
    pub alive: File,
    pub signals: SignalFd,
    /// The zero of the times of the job.
    pub clock: Instant,
    /// The signal mask that the command gets.
    pub inherited: SigSet,
    /// The limit of open files that the command gets.
    pub files: FileLimit,
    /// How long after a successful end a signal still cancels the job.
    pub grace: Duration,
    /// Resources that were used before the job.
    pub spent: Spent,
    /// The store of `serve` that keeps descriptors for the job.
    pub store: Option<Rc<Client>>,
}

pub struct Supervisor<'a> {
    job: &'a Job,
    surroundings: &'a Surroundings,
    events: &'a mut EventLog,
    watcher: &'a mut Option<Watcher<Token>>,
    state: State,
    processes: Processes,
    inputs: Inputs<'a>,
    outputs: Outputs<'a>,
    looks: Looks,
    limits: LimitFile,
}

impl<'a> Supervisor<'a> {
    /// Sets all watches.
    ///
    /// # Errors
    /// A message, if an output directory cannot be watched.
    pub fn new(
        job: &'a Job,
        mut inputs: Inputs<'a>,
        parts: Option<Parts<'a>>,
        surroundings: &'a Surroundings,
        events: &'a mut EventLog,
        watcher: &'a mut Option<Watcher<Token>>,
    ) -> Result<Self, String> {
        let state = State::new(&job.command.success_codes, inputs.gates.purpose());
        let outputs = Outputs::new(job, &surroundings.directory, parts);
        if let Some(own) = watcher.as_mut() {
            let changes = ARRIVES | LEAVES | AddWatchFlags::IN_MODIFY;
            let control = own.watch(&surroundings.directory, changes, Token::Control);
            if control == Err(Errno::ENOSPC) || !outputs.watch.arm(own)? {
                let message = "no inotify (too many watches): outputs are committed when the job ends [SFIO-N002]";
                let _ = events.append(&[Event::warning(message, None)]);
                *watcher = None;
            }
        }
        if let Some(watcher) = watcher.as_mut() {
            let parts = outputs.parts.as_ref();
            let _ = parts.map(|parts| watcher.watch(parts.file(), AddWatchFlags::IN_MODIFY, Token::Parts));
            inputs.arm(watcher);
        }
        let (processes, looks) = (Processes::new(job), Looks::default());
        let limits = LimitFile::new(&surroundings.directory);
        Ok(Self { job, surroundings, events, watcher, state, processes, inputs, outputs, looks, limits })
    }

    /// Says that the command, or its launcher, runs.
    pub fn started(&mut self, main: Pid, mut launcher: Option<Launcher>, guard: Option<Watchdog>) {
        launcher.iter_mut().for_each(Launcher::spawned);
        self.inputs.launcher = launcher;
        self.processes.main = main;
        let processes = self.processes.look();
        self.looks = Looks::new(self.job, !processes.is_empty(), guard, self.now());
        self.outputs.start(self.processes.snapshot(processes));
        self.note(&[Event::Started(StartedEvent {
            pid: Pid::this().as_raw(),
            command_pid: main.as_raw(),
            cached: None,
        })]);
        for path in [&self.job.command.stdout, &self.job.command.stderr].into_iter().flatten() {
            self.outputs.exists(path);
        }
        self.announce();
        self.hear_driver();
        self.bring_inputs();
    }

    /// Supervises the job until its processes have ended, or may go on without `exec`.
    ///
    /// Also returns the time in I/O, if it was asked for and is known, and how the job was kept to its limit.
    pub fn supervise(mut self) -> (Ended, Option<Duration>, Option<Paused>) {
        while !self.state.is_over() {
            let lived = self.lived();
            let nap = if self.is_awaited() { None } else { self.outputs.holder.rest(lived) };
            let news = self.wait(nap);
            // Notices come first: a writer that died may be visible for some microseconds only.
            self.take_notices();
            if news {
                self.take_signals();
                self.reap();
            }
            self.bring_inputs();
            self.tell_parts();
            self.review();
            self.look_at_waits();
            self.look_at_limit();
            self.look_at_windows();
            self.look_at_processes();
            self.look_at_events();
            if news {
                self.look_at_driver();
            }
            self.handle(Fact::Tick);
        }
        self.slacken();
        self.leave_streams();
        self.wait_for_files();
        self.conclude()
    }

    fn conclude(mut self) -> (Ended, Option<Duration>, Option<Paused>) {
        self.take_notices();
        if self.state.may_succeed() {
            self.wait_a_moment();
        }
        self.end_parts();
        let now = self.now();
        if let Some(burst) = self.looks.end_writes(now) {
            self.note(&[burst]);
        }
        // No process of the job is left that could change the events.
        if !self.state.is_given_up() && !self.events.is_intact() {
            self.state.spoil(Reason::Error, Some(FOREIGN.into()));
        }
        if self.state.may_succeed() {
            let left = self.inputs.leave_files();
            self.check(left);
        }
        self.end_windows();
        if self.state.may_succeed() {
            let written = self.outputs.commit_all(self.events);
            self.check(written.map_err(Fact::from));
        }
        for (name, call) in self.inputs.gates.asked() {
            self.note(&[Event::Asked(AskedEvent { name: &name, call })]);
        }
        let verdicts = self.inputs.gates.verdicts();
        self.note(&verdicts.into_iter().map(Event::Used).collect::<Vec<_>>());
        if self.state.has_failed_alone() {
            let programs = self.inputs.gates.unprivileged();
            self.note(&programs.iter().map(|program| without_privileges(program)).collect::<Vec<_>>());
        }
        let now = self.now();
        let (time, paused) = self.looks.end(now);
        (self.state.ended(), time, paused)
    }

    fn now(&self) -> Duration {
        self.surroundings.clock.elapsed()
    }

    fn is_paused(&self) -> bool {
        self.looks.is_paused()
    }

    /// Returns how long the job has lived by now, without its pauses: a paused process cannot do what is waited for.
    fn lived(&self) -> Duration {
        let now = self.now();
        now - self.looks.paused(now)
    }

    /// Passes a fact to the state, and takes the actions that follow.
    fn handle(&mut self, fact: Fact) {
        for action in self.state.handle(self.now(), fact) {
            self.act(action);
        }
    }

    fn check(&mut self, result: Result<(), Fact>) {
        result.err().into_iter().for_each(|fact| self.handle(fact));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::HearDriver => self.hear_driver(),
            Action::SignalTree { signal, spare_group } => {
                self.processes.signal(signal, spare_group);
                // A paused process would not receive the signal.
                self.slacken();
            }
            Action::SignalMain { signal, spare_group } => self.processes.signal_main(signal, spare_group),
            Action::Warn(message) => self.note(&[Event::warning(message, None)]),
            Action::DoWithoutFilter => self.inputs.do_without_filter(),
            Action::LetIn => self.inputs.let_in(),
            Action::LookAtLeftovers => {
                let activity = self.look_at_leftovers();
                self.handle(Fact::Leftovers(activity));
            }
            Action::HandOver => {
                let over = self.inputs.gates.handler.hand_over();
                self.handle(Fact::HandedOver(over));
            }
            Action::WaitAMoment => {
                self.wait_a_moment();
                self.handle(Fact::MomentOver);
            }
        }
    }

    /// Takes late signals: to cancel a job, all of its processes may be signalled one after the other, and the command
    /// first.
    fn wait_a_moment(&mut self) {
        std::thread::sleep(self.surroundings.grace);
        self.take_signals();
    }

    /// Waits until something needs attention. Returns false if there can be no news of the processes or of the driver.
    fn wait(&self, nap: Option<Duration>) -> bool {
        let mut news = vec![self.surroundings.signals.as_fd()];
        if !self.state.is_given_up() {
            // The hang-up of the driver would be reported for ever.
            news.push(self.surroundings.alive.as_fd());
        }
        let first = news.len();
        let readable = news
            .into_iter()
            .chain(self.watcher.iter().map(AsFd::as_fd))
            .chain(self.inputs.readable())
            .chain(self.outputs.waker().filter(|_| !self.state.is_ending()));
        let mut descriptors: Vec<PollFd> = readable.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        descriptors.extend(self.inputs.writable().map(|fd| PollFd::new(fd, PollFlags::POLLOUT)));
        nap.into_iter().for_each(std::thread::sleep);
        let timeout = if nap.is_some() { Some(Duration::ZERO) } else { self.pause() };
        let ready = ppoll(&mut descriptors, timeout.map(TimeSpec::from_duration), None);
        let news = descriptors[..first].iter().any(|descriptor| descriptor.any() != Some(false));
        // Without inotify, the cancel file has to be looked for.
        news || self.watcher.is_none() || !(matches!(ready, Ok(1..)) || self.inputs.are_due())
    }

    /// Whether the command, or its observer, waits for work of this process.
    fn is_awaited(&self) -> bool {
        !self.job.inputs.is_empty() || !self.job.gates.is_empty() || self.job.observation.reads.is_some()
    }

    /// Returns for how long nothing has to be done, unless something happens. None: until something happens.
    fn pause(&self) -> Option<Duration> {
        let (now, lived) = (self.now(), self.lived());
        let reviewed = self.outputs.holder.next_review().filter(|_| !self.state.is_ending() && !self.is_paused());
        let due = [
            self.state.due(now),
            reviewed.map(|at| now + at.saturating_sub(lived)),
            self.looks.due(self.state.is_ending()),
        ];
        let ticks = [
            self.inputs.wait_for_files().then_some(FALLBACK_TICK),
            self.inputs.are_paused().then_some(PAUSE),
            self.inputs.rest(),
            self.watcher.is_none().then_some(CANCEL_TICK),
        ];
        due.map(|due| due.map(|at| at.saturating_sub(now))).into_iter().chain(ticks).flatten().min()
    }

    fn take_notices(&mut self) {
        let Some(mut watcher) = self.watcher.take() else { return };
        let (notices, lost) = watcher.read();
        let mut changes = Vec::new();
        for (index, notice) in notices.iter().enumerate() {
            match &notice.token {
                // The close that follows implies that the file was made.
                Token::Directory(_) if notices.get(index + 1).is_some_and(|next| next.closes_what_was_made(notice)) => {
                }
                Token::Control if notice.name.as_ref().is_some_and(|name| name == LIMIT) => self.look_for_limits(),
                Token::Control => self.look_for_cancel(),
                Token::Parts => {}
                Token::Input(..) => {
                    let taken = self.inputs.notice(notice, &mut watcher);
                    self.check(taken);
                }
                _ => changes.extend(self.outputs.watch.changes(notice, &mut watcher)),
            }
        }
        if lost {
            self.hear_driver();
            self.inputs.notices_were_lost();
            changes.extend(self.outputs.rescan(&mut watcher));
        }
        *self.watcher = Some(watcher);
        let (lived, closes) = (self.lived(), !self.state.is_given_up());
        self.outputs.take(changes, closes, lived, &mut self.processes);
        self.announce();
    }

    fn take_signals(&mut self) {
        while let Ok(Some(info)) = self.surroundings.signals.read_signal() {
            if let Ok(signal) = Signal::try_from(info.ssi_signo as i32) {
                self.handle(Fact::Signal { signal, to_group: info.ssi_code == SI_KERNEL });
            }
        }
    }

    fn reap(&mut self) {
        while !self.state.is_over() {
            let Some(fact) = self.processes.reap() else { return };
            self.handle(fact);
        }
    }

    /// Provides the inputs of the command, as far as they are there.
    fn bring_inputs(&mut self) {
        while let Some(fact) = self.inputs.hear(self.processes.main) {
            self.handle(fact);
        }
        if self.state.is_ending() {
            return;
        }
        let warn = !self.state.is_held();
        let brought = self.inputs.feed(self.watcher.as_mut(), self.events);
        let brought = brought.and_then(|()| self.inputs.advance_gates(self.watcher.as_mut(), self.events));
        let brought = brought.and_then(|()| self.inputs.bring_wholes(warn, self.events));
        let brought = brought.and_then(|()| self.inputs.answer_calls(self.events));
        self.check(brought);
        self.look_at_sharers();
        if self.inputs.readers_due() {
            self.inputs.look_at_readers(|| self.processes.look());
        }
        if self.state.is_held() && self.inputs.are_there() {
            self.handle(Fact::InputsThere);
        }
    }

    /// Finds the processes that share a stream which has become a file for one of them.
    fn look_at_sharers(&mut self) {
        if self.inputs.sharers_due() {
            let (processes, paused) = (self.processes.look(), self.is_paused());
            let looked = self.inputs.look_at_sharers(&processes, paused);
            self.check(looked);
        }
    }

    /// Reports the parts that the command has announced.
    fn tell_parts(&mut self) {
        let Some(parts) = self.outputs.parts.as_mut().filter(|_| !self.state.is_given_up()) else { return };
        let told = parts.read().map_err(Fact::PartsFailed).and_then(|said| {
            let events: Vec<Event> = said.iter().map(|said| parts.event(said)).collect();
            Ok(self.events.append(&events)?)
        });
        self.check(told);
    }

    /// Checks, after the end of the command, that the announced parts can be trusted.
    fn end_parts(&mut self) {
        if self.state.may_succeed() {
            self.tell_parts();
            let ended = self.outputs.parts.as_ref().map_or(Ok(()), Parts::end);
            self.check(ended.map_err(Fact::PartsFailed));
        }
    }

    fn review(&mut self) {
        if !self.state.is_given_up() && !self.is_paused() {
            self.outputs.review(self.lived(), &mut self.processes);
            self.announce();
        }
    }

    fn look_at_waits(&mut self) {
        let now = self.now();
        if !self.looks.waits_are_due(now) {
            return;
        }
        let before = own_cpu();
        let processes = self.processes.look();
        let waits = tree::waits_for_device(&processes);
        if self.job.observation.reads.is_some() {
            self.inputs.gates.look(&processes, self.outputs.have_data());
        }
        self.looks.look_at_waits(now, waits, before);
    }

    /// Keeps the job to its limit.
    fn look_at_limit(&mut self) {
        let now = self.now();
        let before = self.looks.is_paused();
        let told = self.looks.look_at_limit(now, &mut self.processes);
        self.may_have_paused(before);
        if !told.is_empty() {
            self.note(&told);
        }
    }

    /// Pauses the job while a reader of its window is too far behind.
    fn look_at_windows(&mut self) {
        if !self.job.has_window() || self.state.is_ending() {
            return;
        }
        let (now, before) = (self.now(), self.looks.is_paused());
        self.looks.look_at_window(now, self.outputs.wants_pause(), &mut self.processes);
        self.may_have_paused(before);
        let told = self.outputs.tell_windows(self.events);
        self.check(told.map_err(Fact::from));
    }

    fn may_have_paused(&mut self, before: bool) {
        let after = self.looks.is_paused();
        if before != after {
            self.inputs.pause(after);
        }
    }

    /// Waits until it is known what is left of files with windows.
    fn end_windows(&mut self) {
        while self.state.may_succeed() {
            match self.outputs.end_windows() {
                Ok(true) => break,
                Ok(false) => std::thread::sleep(ENDING_TICK),
                Err(why) => self.state.spoil(Reason::Error, Some(why)),
            }
            self.take_signals();
            self.look_at_driver();
        }
        let told = self.outputs.tell_windows(self.events);
        self.check(told.map_err(Fact::from));
    }

    /// Tells what else is found of the processes, and ends the job when it has had its time, or its space.
    fn look_at_processes(&mut self) {
        let now = self.now();
        let burst = self.looks.look_at_writes(now, &mut self.processes);
        burst.into_iter().for_each(|burst| self.note(&[burst]));
        if self.state.is_ending() {
            return;
        }
        let needed = self.looks.look_at_demand(now, &mut self.processes);
        needed.into_iter().for_each(|needed| self.note(&[needed]));
        if let Some(reason) = self.looks.look_at_allowance(self.job, now, &mut self.processes) {
            self.handle(Fact::Exhausted(reason));
        }
    }

    fn slacken(&mut self) {
        let now = self.now();
        self.looks.slacken(now);
        self.inputs.pause(false);
    }

    /// Ends the job if another process has written into its events, because such events may have been believed already.
    fn look_at_events(&mut self) {
        if !self.state.is_given_up() && !self.events.is_ours() {
            self.handle(Fact::EventsFailed(FOREIGN.into()));
        }
    }

    fn look_at_driver(&mut self) {
        if self.state.is_given_up() {
            return;
        }
        if !liveness::is_held(&self.surroundings.alive) {
            self.handle(Fact::DriverGone);
        } else if self.watcher.is_none() {
            self.hear_driver();
        }
    }

    fn hear_driver(&mut self) {
        self.look_for_cancel();
        self.look_for_limits();
    }

    /// Keeps the job to its present limit.
    fn look_for_limits(&mut self) {
        if self.state.is_ending() {
            return;
        }
        match self.limits.look() {
            Ok(None) => {}
            Ok(Some(limits)) => {
                let now = self.now();
                self.looks.keep_to(limits.rate, now);
            }
            Err(message) => self.note(&[Event::warning(message, None)]),
        }
    }

    fn look_for_cancel(&mut self) {
        if !self.state.is_given_up() && self.surroundings.directory.join("cancel").exists() {
            self.handle(Fact::CancelRequested);
        }
    }

    fn look_at_leftovers(&mut self) -> Option<Activity> {
        let processes: Vec<Process> = self.processes.find().into_iter().filter(|process| !process.zombie).collect();
        if processes.is_empty() {
            return None;
        }
        let read: Vec<&Feeder> = self.inputs.feeders.iter().filter(|feeder| feeder.is_read()).collect();
        let files = existing(&self.job.outputs);
        Some(Activity {
            prints: self.processes.print(&processes),
            reads: !read.is_empty() || self.inputs.gates.handler.holds_somebody(),
            streamed: read.iter().map(|feeder| feeder.streamed()).sum(),
            full: read.iter().any(|feeder| matches!(feeder.need, Need::Space | Need::Pause)),
            writes: writing(&processes, &files) != Writing::No,
            exits: processes.iter().any(|process| process.vitals.exiting),
        })
    }

    /// Leaves the streams after the end of the command. Waits until it is known what to compare of those that were not
    /// read to their end.
    fn leave_streams(&mut self) {
        self.inputs.leave();
        while self.state.may_succeed() {
            match self.inputs.report(self.events) {
                Ok(false) => return,
                Ok(true) => {}
                Err(fact) => self.handle(fact),
            }
            std::thread::sleep(ENDING_TICK);
            self.take_signals();
            self.look_at_driver();
        }
    }

    /// Waits, after the end of the command, for the files of inputs that may be outputs: these are as complete as the
    /// inputs then. Any output may lead to an input behind a gate.
    fn wait_for_files(&mut self) {
        if !self.state.may_succeed() {
            return;
        }
        // The driver collects other outputs when all inputs are committed.
        let early = !self.job.outputs.is_empty() || self.job.inputs.iter().any(|input| input.window);
        let wanted = self.inputs.in_outputs(early);
        while self.state.may_succeed() {
            match self.bring_files(&wanted) {
                Ok(true) => return,
                Ok(false) => {}
                Err(fact) => self.handle(fact),
            }
            self.inputs.await_files(&wanted, ENDING_TICK);
            self.take_signals();
            self.look_for_cancel();
            self.look_at_driver();
        }
    }

    fn bring_files(&mut self, wanted: &[usize]) -> Result<bool, Fact> {
        self.inputs.advance_gates(self.watcher.as_mut(), self.events)?;
        Ok(self.inputs.bring_files(wanted)? && self.inputs.gates.are_open())
    }

    fn announce(&mut self) {
        let written = self.outputs.announce(self.events);
        self.check(written.map_err(Fact::from));
    }

    fn note(&mut self, events: &[Event]) {
        let written = self.events.append(events);
        self.check(written.map_err(Fact::from));
    }
}

/// Warns that a program had no privileges in a job that has failed.
fn without_privileges(program: &Path) -> Event<'static> {
    let message = format!(
        "{} had no privileges (setuid, setgid or capabilities) here, because the calls of this job are held or observed, \
         and not by root. If the tool needs these privileges, its inputs may have neither `streamable` nor `start: \
         producer`, and the run no `observe: true`",
        program.display()
    );
    Event::warning(message, None)
}
