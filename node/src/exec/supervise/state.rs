//! Decides about a running job. Facts in, actions out; no system calls, no clock. Times are durations since any fixed
//! moment.
//!
//! A job ends by itself, or is ended by a signal, by its driver, or because it cannot continue. The first reason stays.
//! The processes then get a signal, and those that survive it are killed.

use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;

use super::leftovers::{Activity, Fate, Leftovers};
use crate::gate::Purpose;
use crate::protocol::event::Reason;
use crate::sys::exit::{End, UNFINISHED};
use crate::sys::signals::{CANCELLING, DRIVER_NOTICE};

/// Time from the first signal to SIGKILL, and the same when the driver is gone.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_WITHOUT_DRIVER: Duration = Duration::from_millis(500);
/// Time after which a process that survived SIGKILL is stuck in the kernel, and left alone.
const STUCK: Duration = Duration::from_secs(10);
/// Time between two looks at processes that are being ended.
pub const ENDING_TICK: Duration = Duration::from_millis(10);

/// A fact about the job.
#[derive(Clone, Debug)]
pub enum Fact {
    /// A signal has come to this process; `to_group`: the terminal has sent it to our whole process group.
    Signal { signal: Signal, to_group: bool },
    /// There is a cancel file.
    CancelRequested,
    /// The driver is gone, so that the results are not wanted any more.
    DriverGone,
    /// An input has failed. The job cannot continue.
    InputFailed { reason: Reason, message: String },
    /// Events cannot be written. The job cannot continue, because its driver would not know of it.
    EventsFailed(String),
    /// The parts that the command has announced cannot be trusted.
    PartsFailed(String),
    /// Calls of the command are held, and cannot be answered.
    Unanswered(String),
    /// The job has used up its time or its space.
    Exhausted(Reason),
    /// The command could not be run.
    CannotRun(String),
    /// The calls of the command are reported, so that it may start.
    FilterInstalled,
    /// The calls of the command are not reported, for this reason.
    NoFilter(String),
    /// All inputs of the command are there.
    InputsThere,
    /// The main process has ended, and was waited for.
    MainEnded(WaitStatus),
    /// No process of the job is left.
    TreeEnded,
    /// The activity of the processes that the main process has left behind. None if only ended ones are left.
    Leftovers(Option<Activity>),
    /// Whether the processes that are left can go on without `exec`.
    HandedOver(bool),
    /// All signals were taken that came in a moment after the end.
    MomentOver,
    /// Time has passed.
    Tick,
}

impl From<std::io::Error> for Fact {
    fn from(error: std::io::Error) -> Self {
        Self::EventsFailed(format!("events.jsonl: {error}"))
    }
}

/// An action to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Look for a cancel file, and for changed limits.
    HearDriver,
    /// Signal all processes; with `spare_group`, except those in our own process group.
    SignalTree { signal: Signal, spare_group: bool },
    /// Signal the main process alone; `spare_group` as above.
    SignalMain { signal: Signal, spare_group: bool },
    /// Report a warning.
    Warn(String),
    /// Provide whole files instead of streams, and do not observe.
    DoWithoutFilter,
    /// Let the command start.
    LetIn,
    /// Look at the activity of the processes that the main process has left behind.
    LookAtLeftovers,
    /// Let another process answer the calls of those that are left.
    HandOver,
    /// Wait a moment, and take the signals that have come. To cancel a job, all of its processes may be signalled one
    /// after the other, and the command first.
    WaitAMoment,
}

/// The end of a job.
#[derive(Clone, Debug)]
pub struct Ended {
    pub status: WaitStatus,
    pub reason: Reason,
    pub message: Option<String>,
    /// The exit code of the command is one of success. `success` also needs that nothing else ended the job.
    pub successful_code: bool,
    pub success: bool,
}

#[derive(Debug, Default)]
pub struct State {
    success_codes: Vec<i32>,
    /// The calls to report, if any.
    purpose: Option<Purpose>,
    /// The command starts when all inputs are there, because there is no filter.
    held: bool,
    status: Option<WaitStatus>,
    leftovers: Leftovers,
    reason: Option<Reason>,
    message: Option<String>,
    /// When the processes that are left are killed. Set while the job is being ended.
    kill_at: Option<Duration>,
    over: bool,
}

impl State {
    pub fn new(success_codes: &[i32], purpose: Option<Purpose>) -> Self {
        Self { success_codes: success_codes.to_owned(), purpose, ..Self::default() }
    }

    /// Takes a fact, and returns the actions to take now, in order.
    pub fn handle(&mut self, now: Duration, fact: Fact) -> Vec<Action> {
        match fact {
            Fact::Signal { signal, to_group } => self.signal(now, signal, to_group),
            Fact::CancelRequested if self.reason.is_none() => self.cancel(now, Signal::SIGTERM, false),
            Fact::DriverGone if self.reason.is_none() => self.end(now, Reason::Driver, None, PATIENCE_WITHOUT_DRIVER),
            Fact::Exhausted(reason) if self.reason.is_none() => self.end(now, reason, None, PATIENCE),
            Fact::InputFailed { reason, message } => self.end(now, reason, Some(message), Duration::ZERO),
            Fact::EventsFailed(message) | Fact::PartsFailed(message) | Fact::Unanswered(message)
                if self.reason.is_none() =>
            {
                self.end(now, Reason::Error, Some(message), Duration::ZERO)
            }
            Fact::CannotRun(message) => {
                self.message = Some(message);
                Vec::new()
            }
            Fact::FilterInstalled => vec![Action::LetIn],
            Fact::NoFilter(why) => {
                self.held = true;
                let message = format!("no gate ({why}): {} [SFIO-N001]", without_filter(self.purpose));
                vec![Action::Warn(message), Action::DoWithoutFilter]
            }
            Fact::InputsThere if std::mem::take(&mut self.held) => vec![Action::LetIn],
            Fact::MainEnded(status) => {
                self.status = Some(status);
                self.leftovers.begin(now);
                Vec::new()
            }
            Fact::TreeEnded => {
                self.over = true;
                Vec::new()
            }
            Fact::Leftovers(activity) => match self.leftovers.decide(now, activity) {
                Fate::Wait => Vec::new(),
                Fate::Leave => vec![Action::HandOver],
                Fate::End => self.end_leftovers(now),
            },
            Fact::HandedOver(true) => vec![Action::WaitAMoment],
            Fact::HandedOver(false) => self.end_leftovers(now),
            Fact::MomentOver => {
                self.over |= self.reason.is_none();
                Vec::new()
            }
            Fact::Tick if !self.over => self.tick(now),
            _ => Vec::new(),
        }
    }

    fn signal(&mut self, now: Duration, signal: Signal, to_group: bool) -> Vec<Action> {
        match signal {
            Signal::SIGCHLD => Vec::new(),
            DRIVER_NOTICE => vec![Action::HearDriver],
            _ if CANCELLING.contains(&signal) => self.cancel(now, signal, to_group),
            _ if self.status.is_none() => vec![Action::SignalMain { signal, spare_group: to_group }],
            _ => Vec::new(),
        }
    }

    fn cancel(&mut self, now: Duration, signal: Signal, spare_group: bool) -> Vec<Action> {
        self.reason.get_or_insert(Reason::Cancelled);
        self.signal_tree(now, signal, PATIENCE, spare_group)
    }

    /// Begins to end the job. Without patience, kills its processes at once.
    fn end(&mut self, now: Duration, reason: Reason, message: Option<String>, patience: Duration) -> Vec<Action> {
        self.spoil(reason, message);
        let signal = if patience.is_zero() { Signal::SIGKILL } else { Signal::SIGTERM };
        self.signal_tree(now, signal, patience, false)
    }

    fn end_leftovers(&mut self, now: Duration) -> Vec<Action> {
        let message = "processes that the command left running are ended: they cannot go on without sfio-node";
        let mut actions = vec![Action::Warn(message.into())];
        actions.extend(self.signal_tree(now, Signal::SIGTERM, PATIENCE, false));
        actions
    }

    fn signal_tree(&mut self, now: Duration, signal: Signal, patience: Duration, spare_group: bool) -> Vec<Action> {
        self.kill_at = Some(self.kill_at.unwrap_or(Duration::MAX).min(now + patience));
        vec![Action::SignalTree { signal, spare_group }]
    }

    /// Kills the processes that are left when the time has come. Ends those that a failed main process has left behind.
    fn tick(&mut self, now: Duration) -> Vec<Action> {
        match self.kill_at {
            Some(kill_at) if now >= kill_at + STUCK => self.over = true,
            Some(kill_at) if now >= kill_at => {
                return vec![Action::SignalTree { signal: Signal::SIGKILL, spare_group: false }]
            }
            Some(_) => {}
            None if self.has_successful_code() && now >= self.leftovers.due() => return vec![Action::LookAtLeftovers],
            None if self.status.is_some() && !self.has_successful_code() => {
                return self.signal_tree(now, Signal::SIGTERM, PATIENCE, false)
            }
            None => {}
        }
        Vec::new()
    }

    /// Returns when something has to be done, unless something happens before.
    pub fn due(&self, now: Duration) -> Option<Duration> {
        let ending = self.kill_at.map(|_| now + ENDING_TICK);
        ending.or(self.status.map(|_| self.leftovers.due()))
    }

    /// Whether nothing has to be done for the job any more.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether there is a reason to end the job.
    pub fn is_given_up(&self) -> bool {
        self.reason.is_some()
    }

    /// Whether the processes are being ended, for any reason. Nothing new is given to processes that end.
    pub fn is_ending(&self) -> bool {
        self.reason.is_some() || self.kill_at.is_some()
    }

    /// Whether the command waits until all of its inputs are there.
    pub fn is_held(&self) -> bool {
        self.held
    }

    fn has_successful_code(&self) -> bool {
        matches!(self.status, Some(WaitStatus::Exited(_, code)) if self.success_codes.contains(&code))
    }

    /// Whether the command has succeeded, and nothing speaks against it so far.
    pub fn may_succeed(&self) -> bool {
        self.has_successful_code() && self.reason.is_none()
    }

    /// Whether the command has failed, and neither a signal nor `exec` has ended the job.
    pub fn has_failed_alone(&self) -> bool {
        !self.has_successful_code() && self.reason.is_none()
    }

    /// Makes the job fail for a reason, if it is the first one. No process need be left.
    pub fn spoil(&mut self, reason: Reason, message: Option<String>) {
        if self.reason.is_none() {
            (self.reason, self.message) = (Some(reason), message);
        }
    }

    pub fn ended(self) -> Ended {
        let (successful_code, success) = (self.has_successful_code(), self.may_succeed());
        Ended {
            status: self.status.unwrap_or(WaitStatus::StillAlive),
            reason: self.reason.unwrap_or(Reason::Exited),
            message: self.message,
            successful_code,
            success,
        }
    }
}

/// Returns what follows for the command when its calls are not reported.
fn without_filter(purpose: Option<Purpose>) -> &'static str {
    match purpose {
        Some(Purpose { holds: false, streams: false, net: false, .. }) => "how the command reads is not observed",
        Some(Purpose { observes: false, .. }) => "the command starts when all that it reads is committed",
        _ => "the command starts when all that it reads is committed, and how it reads is not observed",
    }
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        if let WaitStatus::Exited(_, code) = self.status {
            Some(code)
        } else {
            None
        }
    }

    pub fn signal(&self) -> Option<Signal> {
        match self.status {
            WaitStatus::Exited(..) => None,
            WaitStatus::Signaled(_, signal, _) => Some(signal),
            _ => Some(Signal::SIGKILL),
        }
    }

    /// Returns how `exec` ends.
    pub fn end(&self) -> End {
        match (&self.reason, self.code(), self.signal()) {
            (Reason::Exited, Some(code), _) => End::Code(code),
            // A cancelled command that ends with success must not look like a success.
            (Reason::Cancelled | Reason::Driver, Some(_), _) if self.successful_code => End::Code(UNFINISHED),
            (Reason::Cancelled | Reason::Driver, Some(code), _) => End::Code(code),
            (Reason::Exited | Reason::Cancelled | Reason::Driver, None, Some(signal)) => End::Signal(signal),
            _ => End::Code(UNFINISHED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::Pid;

    fn fact(word: &str) -> Fact {
        let main = Pid::from_raw(7);
        match word.split_once(':').unwrap_or((word, "")) {
            ("exit", code) => Fact::MainEnded(WaitStatus::Exited(main, code.parse().unwrap())),
            ("killed", _) => Fact::MainEnded(WaitStatus::Signaled(main, Signal::SIGKILL, false)),
            ("gone", _) => Fact::TreeEnded,
            ("cancel", _) => Fact::CancelRequested,
            ("driver", _) => Fact::DriverGone,
            ("overtime", _) => Fact::Exhausted(Reason::Overtime),
            ("events", _) => Fact::EventsFailed("no space".into()),
            ("input", _) => Fact::InputFailed { reason: Reason::Producer { input: "a".into() }, message: "?".into() },
            (signal, to) => Fact::Signal { signal: signal.parse().unwrap(), to_group: to == "group" },
        }
    }

    fn word(action: &Action) -> String {
        match action {
            Action::SignalTree { signal, spare_group } => format!("{signal}{}", if *spare_group { "-" } else { "" }),
            Action::SignalMain { signal, .. } => format!("main:{signal}"),
            Action::Warn(_) => "warn".into(),
            other => format!("{other:?}"),
        }
    }

    /// Handles facts, `TIME FACT, TIME FACT`, in milliseconds, with a tick every 10 ms. Writes each action that differs
    /// from the one before. The processes that are left do `activity`, and may go on.
    fn course(facts: &str, activity: Option<Activity>) -> (String, Ended) {
        let facts: Vec<(u64, Fact)> = facts
            .split(", ")
            .map(|step| step.split_once(' ').unwrap())
            .map(|(time, word)| (time.parse().unwrap(), fact(word)))
            .collect();
        let mut state = State::new(&[0, 3], None);
        let (mut words, mut last) = (Vec::new(), String::new());
        for now in (0..20_000).step_by(10) {
            let due = facts.iter().filter(|(at, _)| *at == now).map(|(_, fact)| fact.clone());
            let mut told: Vec<Fact> = due.chain([Fact::Tick]).collect();
            while !told.is_empty() {
                for action in state.handle(Duration::from_millis(now), told.remove(0)) {
                    match action {
                        Action::LookAtLeftovers => told.insert(0, Fact::Leftovers(activity)),
                        Action::HandOver => told.insert(0, Fact::HandedOver(true)),
                        Action::WaitAMoment => told.insert(0, Fact::MomentOver),
                        _ => {}
                    }
                    if word(&action) != last {
                        last = word(&action);
                        words.push(format!("{now}:{last}"));
                    }
                }
            }
            if state.is_over() {
                words.push(format!("{now}:over"));
                break;
            }
        }
        (words.join(" "), state.ended())
    }

    #[test]
    fn ways_to_end() {
        for (name, facts, expected, end) in [
            ("success", "10 exit:0, 10 gone", "10:over", "Exited Code(0) true"),
            ("another code of success", "10 exit:3, 10 gone", "10:over", "Exited Code(3) true"),
            ("failure", "10 exit:4, 10 gone", "10:over", "Exited Code(4) false"),
            ("a signal", "10 killed, 10 gone", "10:over", "Exited Signal(SIGKILL) false"),
            ("processes are left", "10 exit:4, 50 gone", "10:SIGTERM 50:over", "Exited Code(4) false"),
            (
                "cancelled, and nobody listens",
                "10 cancel, 30 cancel, 2050 killed, 2050 gone",
                "10:SIGTERM 2010:SIGKILL 2050:over",
                "Cancelled Signal(SIGKILL) false",
            ),
            ("ends well", "10 cancel, 20 exit:0, 20 gone", "10:SIGTERM 20:over", "Cancelled Code(75) false"),
            ("ends badly", "10 SIGINT, 20 exit:4, 20 gone", "10:SIGINT 20:over", "Cancelled Code(4) false"),
            ("at the end", "10 exit:0, 10 SIGTERM, 10 gone", "10:SIGTERM 10:over", "Cancelled Code(75) false"),
            (
                "the driver is gone",
                "10 driver, 600 killed, 600 gone",
                "10:SIGTERM 510:SIGKILL 600:over",
                "Driver Signal(SIGKILL) false",
            ),
            ("its time is over", "10 overtime, 20 exit:0, 20 gone", "10:SIGTERM 20:over", "Overtime Code(75) false"),
            (
                "an input, and then the driver",
                "10 input, 20 driver, 30 killed, 30 gone",
                "10:SIGKILL 30:over",
                "Producer { input: \"a\" } Code(75) false",
            ),
            (
                "an input of one that is cancelled",
                "10 cancel, 20 input, 30 killed, 30 gone",
                "10:SIGTERM 20:SIGKILL 30:over",
                "Cancelled Signal(SIGKILL) false",
            ),
            (
                "no events of one that is cancelled",
                "10 cancel, 20 events, 30 exit:0, 30 gone",
                "10:SIGTERM 30:over",
                "Cancelled Code(75) false",
            ),
            ("stuck in the kernel", "10 events", "10:SIGKILL 10010:over", "Error Code(75) false"),
        ] {
            let (found, ended) = course(facts, None);
            let ended = format!("{:?} {:?} {}", ended.reason, ended.end(), ended.success);
            assert_eq!((found.as_str(), ended.as_str()), (expected, end), "{name}");
        }
    }

    #[test]
    fn what_is_left_behind() {
        let daemon = Activity::default();
        let (prints, reads) = (Activity { prints: true, ..daemon }, Activity { reads: true, full: true, ..daemon });
        for (name, facts, activity, expected) in [
            ("a daemon goes on", "10 exit:0", Some(daemon), "10:HandOver 10:WaitAMoment 10:over"),
            ("one that prints is waited for", "10 exit:0, 90 gone", Some(prints), "90:over"),
            ("and can be cancelled", "10 exit:0, 50 cancel, 90 gone", Some(prints), "50:SIGTERM 90:over"),
            ("one that never reads", "10 exit:0, 10100 gone", Some(reads), "10010:warn 10010:SIGTERM 10100:over"),
            ("nobody, who is not waited for yet", "10 exit:0, 60 gone", None, "60:over"),
        ] {
            assert_eq!(course(facts, activity).0, format!("10:LookAtLeftovers {expected}"), "{name}");
        }
        let mut state = State::new(&[0], None);
        state.handle(Duration::ZERO, fact("exit:0"));
        let actions = state.handle(Duration::ZERO, Fact::HandedOver(false));
        assert_eq!(actions.iter().map(word).collect::<Vec<_>>(), ["warn", "SIGTERM"]);
        assert!(state.is_ending() && !state.is_given_up());
    }

    #[test]
    fn the_command_starts_once() {
        let now = Duration::ZERO;
        let mut state = State::new(&[0], None);
        assert_eq!(state.handle(now, Fact::FilterInstalled), [Action::LetIn]);
        assert!(state.handle(now, Fact::InputsThere).is_empty());
        let starts = "the command starts when all that it reads is committed";
        for (holds, observes, effect) in [
            (true, false, starts.into()),
            (false, true, "how the command reads is not observed".into()),
            (true, true, format!("{starts}, and how it reads is not observed")),
        ] {
            let mut state = State::new(&[0], Some(Purpose { holds, observes, ..Purpose::default() }));
            let warning = Action::Warn(format!("no gate (EBUSY): {effect} [SFIO-N001]"));
            assert_eq!(state.handle(now, Fact::NoFilter("EBUSY".into())), [warning, Action::DoWithoutFilter]);
            assert!(state.is_held());
            assert_eq!(state.handle(now, Fact::InputsThere), [Action::LetIn]);
            assert!(state.handle(now, Fact::InputsThere).is_empty() && !state.is_held());
        }
    }
}
