//! The inputs of the command: byte streams, files, and what lies behind its gates.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::{ppoll, PollFd, PollFlags};
use nix::sys::time::TimeSpec;
use nix::unistd::Pid;

use super::state::Fact;
use crate::gate::{Gates, Launcher, Message, Reply};
use crate::inputs::feed::{Feeder, Need, Wait};
use crate::inputs::placement::Placed;
use crate::outputs::token::Token;
use crate::processes::tree::Process;
use crate::processes::usage::thread_cpu;
use crate::protocol::event::{Event, EventLog};
use crate::streams::origin::Failure;
use crate::sys::watch::{Notice, Watcher};

/// Shortest and longest pause between two looks at processes that share a pipe with one that has the file. The pause
/// doubles each time.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(500);

/// All inputs of a job. Each method that fails returns the fact that the job cannot continue.
pub struct Inputs<'a> {
    pub feeders: &'a mut Vec<Feeder>,
    /// Inputs that are files from the beginning.
    pub placed: &'a mut Vec<Placed>,
    pub gates: &'a mut Gates,
    /// Present until the command has started.
    pub launcher: Option<Launcher>,
    /// When to look next for processes that share a stream, and the pause after that.
    sharers: (Instant, Duration),
    /// The calls of the command are not reported.
    unseen: bool,
}

impl<'a> Inputs<'a> {
    pub fn new(feeders: &'a mut Vec<Feeder>, placed: &'a mut Vec<Placed>, gates: &'a mut Gates) -> Self {
        Self { feeders, placed, gates, launcher: None, sharers: (Instant::now(), SOONEST), unseen: false }
    }

    pub fn arm(&mut self, watcher: &mut Watcher<Token>) {
        for (index, feeder) in self.feeders.iter_mut().enumerate() {
            feeder.arm(watcher, &|wait| Token::Input(index, wait));
        }
        self.gates.arm(watcher, &Token::Gate);
    }

    pub fn notice(&mut self, notice: &Notice<Token>, watcher: &mut Watcher<Token>) -> Result<(), Fact> {
        let Token::Input(index, wait) = notice.token else { return Ok(()) };
        let feeder = &mut self.feeders[index];
        match wait {
            Wait::Growth => feeder.growth_notice(),
            Wait::Beside => {}
            Wait::Events => feeder.read_events(Some(watcher), &|wait| Token::Input(index, wait)),
            Wait::Fifo => feeder.fifo_notice(notice.mask).map_err(|failure| failed(&feeder.input.name, failure))?,
        }
        Ok(())
    }

    pub fn notices_were_lost(&mut self) {
        self.feeders.iter_mut().for_each(Feeder::notices_were_lost);
    }

    /// Returns descriptors that are readable when the launcher, a call or another machine has a message.
    pub fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let launcher = self.launcher.iter().map(AsFd::as_fd);
        let arrivals = self.feeders.iter().flat_map(Feeder::arrivals);
        launcher.chain([self.gates.streams.as_fd()]).chain(arrivals)
    }

    /// Returns descriptors that are writable when a reader has taken something.
    pub fn writable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.feeders.iter().filter(|feeder| feeder.need == Need::Space).filter_map(Feeder::sink)
    }

    /// Whether files may change without a notice.
    pub fn wait_for_files(&self) -> bool {
        let waits = |feeder: &Feeder| feeder.need != Need::Nothing || feeder.is_leaving() || feeder.is_wanted_whole();
        !self.gates.are_open() || self.feeders.iter().any(waits) || self.gates.net().waiting() > 0
    }

    /// Returns the time until something is due: a stream, a look at sharers, or a look at readers.
    pub fn rest(&self) -> Option<Duration> {
        let sharers = self.feeders.iter().any(Feeder::is_split).then_some(self.sharers.0);
        let looks = self.feeders.iter().filter_map(Feeder::look_due);
        let due = self.feeders.iter().filter_map(Feeder::due).chain(sharers).chain(looks).min();
        due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Whether the time has come for which a stream was waiting.
    pub fn are_due(&self) -> bool {
        self.feeders.iter().any(Feeder::is_due)
    }

    pub fn are_paused(&self) -> bool {
        self.feeders.iter().any(|feeder| feeder.need == Need::Pause)
    }

    /// Reads a message of the launcher, and returns the fact that follows.
    pub fn hear(&mut self, main: Pid) -> Option<Fact> {
        Some(match self.launcher.as_ref()?.hear(main)? {
            // The calls have to be answered, even if they are not understood.
            Message::Listening(listener, trouble) => match self.gates.handler.start(listener) {
                Ok(stuck) => {
                    let trouble = stuck.map(|error| error.to_string()).or(trouble);
                    trouble.map_or(Fact::FilterInstalled, Fact::NoFilter)
                }
                Err(error) => Fact::Unanswered(format!("the calls of the command cannot be answered: {error}")),
            },
            Message::Without(reason) => Fact::NoFilter(reason),
            Message::CannotRun(message) => Fact::CannotRun(message),
            Message::Gone => {
                self.launcher = None;
                return None;
            }
        })
    }

    /// Prepares for a command whose calls are not reported. Such a command gets whole files, because it could ask for
    /// the size of a stream.
    pub fn do_without_filter(&mut self) {
        self.unseen = true;
        self.gates.lose_sight();
        self.gates.streams.want_all();
    }

    /// Whether all that the command can find is there as a whole.
    pub fn are_there(&self) -> bool {
        self.gates.are_open() && !self.gates.streams.are_open()
    }

    /// Feeds the streams that can be fed.
    pub fn feed(&mut self, mut watcher: Option<&mut Watcher<Token>>, events: &mut EventLog) -> Result<(), Fact> {
        for (index, feeder) in self.feeders.iter_mut().enumerate() {
            let token = |wait| Token::Input(index, wait);
            feeder.read_events(watcher.as_deref_mut(), &token);
            let written = feeder.pump(watcher.as_deref_mut(), &token).map(|event| events.append(event.as_slice()));
            written.map_err(|failure| failed(&feeder.input.name, failure))??;
            events.append(feeder.progress().as_slice())?;
        }
        Ok(())
    }

    /// Opens the gates of inputs that have been committed.
    pub fn advance_gates(&mut self, watcher: Option<&mut Watcher<Token>>, events: &mut EventLog) -> Result<(), Fact> {
        if !self.gates.are_open() {
            watcher.into_iter().for_each(|watcher| self.gates.arm(watcher, &Token::Gate));
            self.gates.advance().map_err(|(input, failure)| failed(&input, failure))?;
        }
        events.append(self.gates.news().as_slice()).map_err(Fact::from)
    }

    /// Provides the whole files for which the command waits.
    ///
    /// # Arguments
    /// * `warn` - report each of them, because the command has asked for it
    pub fn bring_wholes(&mut self, warn: bool, events: &mut EventLog) -> Result<(), Fact> {
        let streams = Arc::clone(&self.gates.streams);
        let mut changed = false;
        for number in streams.wanted() {
            let feeder = &mut self.feeders[number];
            if warn && !feeder.is_wanted_whole() {
                let (input, file) = (&feeder.input, feeder.input.path.display());
                let asks = "the command asks by path for more than the bytes of";
                let waits = "(stat, access, a listing...), and waits for the whole file [SFIO-S024]";
                let message = format!("input from {}: {asks} {file} {waits}", input.name);
                events.append(&[Event::warning(message, Some(input))])?;
            }
            if feeder.bring_whole().map_err(|failure| failed(&feeder.input.name, failure))? {
                streams.is_whole(number);
                changed = true;
            }
        }
        if changed {
            self.gates.handler.release();
        }
        Ok(())
    }

    /// Lets the command start.
    pub fn let_in(&mut self) {
        let Some(launcher) = &self.launcher else { return };
        // Without reports of its calls the command gets no stream as its standard input, but the file.
        let held = self.unseen.then(|| self.feeders.iter_mut().find_map(Feeder::stdin_file)).flatten();
        launcher.let_in(held);
    }

    /// Answers the calls about streams under the net, as far as possible now.
    pub fn answer_calls(&mut self, events: &mut EventLog) -> Result<(), Fact> {
        let handler = Arc::clone(&self.gates.handler);
        let mut placed = false;
        for asked in handler.table.net.take() {
            if !handler.is_waiting(&asked.call) {
                continue;
            }
            let feeder = &mut self.feeders[asked.stream];
            let reply = feeder.serve(&asked, &handler).map_err(|failure| failed(&feeder.input.name, failure))?;
            if !matches!(reply, Reply::Answer(_)) {
                events.append(feeder.hold(&asked.call).as_slice())?;
            }
            match reply {
                Reply::Answer(answer) => handler.answer_of_net(&asked.call, Some(answer)),
                Reply::Later => handler.table.net.keep(asked),
                Reply::Placed => {
                    self.gates.streams.is_whole(asked.stream);
                    self.sharers = (Instant::now() + SOONEST, SOONEST);
                    placed = true;
                    handler.answer_of_net(&asked.call, None);
                }
            }
        }
        if placed {
            handler.release();
        }
        Ok(())
    }

    /// Whether a look at processes that share a stream is due.
    pub fn sharers_due(&self) -> bool {
        self.feeders.iter().any(Feeder::is_split) && Instant::now() >= self.sharers.0
    }

    /// Finds the processes that have the pipe of a stream which is a file for others.
    pub fn look_at_sharers(&mut self, processes: &[Process], paused: bool) -> Result<(), Fact> {
        let (_, pause) = self.sharers;
        self.sharers = (Instant::now() + pause, (pause * 2).min(LATEST));
        for (number, feeder) in self.feeders.iter_mut().enumerate().filter(|(_, feeder)| feeder.is_split()) {
            let looked = feeder.look_at_sharers(processes, paused);
            if looked.map_err(|failure| failed(&feeder.input.name, failure))? {
                self.gates.net().is_over(number);
            }
        }
        Ok(())
    }

    /// Whether a look at the readers of streams is due.
    pub fn readers_due(&self) -> bool {
        let now = Instant::now();
        self.feeders.iter().filter_map(Feeder::look_due).any(|due| due <= now)
    }

    /// Finds out whether readers that have taken all bytes wait for more.
    ///
    /// # Arguments
    /// * `look` - returns all processes as they are now
    pub fn look_at_readers(&mut self, look: impl FnOnce() -> Vec<Process>) {
        let (before, now) = (thread_cpu(), Instant::now());
        let processes = look();
        let due = self.feeders.iter_mut().filter(|feeder| feeder.look_due().is_some_and(|due| due <= now));
        let looked: Vec<_> = due.map(|feeder| (feeder.doing(&processes), feeder)).collect();
        let cost = thread_cpu().saturating_sub(before);
        looked.into_iter().for_each(|(doing, feeder)| feeder.looked(doing, cost));
    }

    /// Says that the command is paused, or continues.
    pub fn pause(&mut self, paused: bool) {
        self.feeders.iter_mut().for_each(|feeder| feeder.pause(paused));
    }

    /// Says that the command has ended, perhaps before it had read all.
    pub fn leave(&mut self) {
        self.feeders.iter_mut().filter(|feeder| feeder.streamed() > 0).for_each(Feeder::leave);
    }

    /// Checks, after a success, that the command can have read its streams. Leaves files to which its outputs may be
    /// links.
    pub fn leave_files(&mut self) -> Result<(), Fact> {
        for feeder in self.feeders.iter_mut() {
            feeder
                .check_unopened()
                .and_then(|()| feeder.leave_file())
                .map_err(|failure| failed(&feeder.input.name, failure))?;
        }
        for placed in self.placed.iter_mut() {
            placed.leave_file().map_err(|failure| failed(placed.name(), failure))?;
        }
        Ok(())
    }

    /// Returns the numbers of the streams to which outputs refer, and whose files would come too late for these.
    ///
    /// # Arguments
    /// * `early` - outputs are committed or collected before all inputs are committed
    pub fn in_outputs(&self, early: bool) -> Vec<usize> {
        let feeders = self.feeders.iter().enumerate().filter(|(_, feeder)| feeder.is_output(early));
        feeders.map(|(number, _)| number).collect()
    }

    /// Brings the whole files of some streams, as far as possible now. Returns true if they are there.
    pub fn bring_files(&mut self, numbers: &[usize]) -> Result<bool, Fact> {
        let mut there = true;
        for &number in numbers {
            let feeder = &mut self.feeders[number];
            feeder.read_events(None::<&mut Watcher<Token>>, &|wait| Token::Input(number, wait));
            there &= feeder.bring_whole().map_err(|failure| failed(&feeder.input.name, failure))?;
        }
        Ok(there)
    }

    /// Waits until more of these files may have come.
    pub fn await_files(&self, numbers: &[usize], most: Duration) {
        let arrivals = numbers.iter().flat_map(|number| self.feeders[*number].arrivals());
        let mut arrivals: Vec<PollFd> = arrivals.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let _ = ppoll(&mut arrivals, Some(TimeSpec::from_duration(most)), None);
    }

    /// Reports how the streams have ended that the command has left. Returns true if this is unknown for one of them.
    pub fn report(&mut self, events: &mut EventLog) -> Result<bool, Fact> {
        for feeder in self.feeders.iter_mut() {
            let written = feeder.report().map(|event| events.append(event.as_slice()));
            written.map_err(|failure| failed(&feeder.input.name, failure))??;
            if feeder.is_leaving() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Keeps the stream open until the tree is gone, so that nothing looks like its end.
fn failed(input: &str, failure: Failure) -> Fact {
    let (reason, message) = failure.of_input(input);
    Fact::InputFailed { reason, message }
}
