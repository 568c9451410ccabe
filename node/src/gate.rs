//! The gate: a command starts before its inputs are committed, and each call that touches one of these is held until
//! the commit.
//!
//! Calls with a path are held by seccomp user notification. Safety does not depend on the gate: an input that is not
//! committed does not exist at the path where the command looks. An observed command is only delayed, with or without
//! gates.

mod acts;
mod call;
mod demand;
mod descriptors;
mod excerpts;
mod filter;
mod handler;
mod input;
mod launcher;
mod listing;
mod memory;
mod net;
mod observation;
mod observer;
mod pass_through;
mod privileges;
mod resolve;
mod staging;
mod streams;
mod syscalls;
mod table;

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use self::call::Call;
pub use self::demand::{of_descriptor, target, Demand};
use self::excerpts::Excerpts;
pub use self::filter::Purpose;
pub use self::handler::Handler;
use self::input::GatedInput;
pub use self::launcher::{launch, Launcher, Message};
pub use self::net::{descriptors_of, Asked, Net, Reply};
use self::observer::Observer;
pub use self::pass_through::pass_through;
pub use self::streams::Streams;
use self::table::GateTable;
use crate::processes::tree::Process;
use crate::protocol::event::{Event, GateEvent, UsedEvent};
use crate::protocol::job::{Access, Job, Target};
use crate::streams::origin::Failure;
use crate::sys::watch::Watcher;

/// Shorter waits are not reported.
const LONG: Duration = Duration::from_millis(800);

/// The gated inputs of a job, and the handler that answers the reported calls.
#[derive(Debug)]
pub struct Gates {
    inputs: Vec<GatedInput>,
    /// The byte streams that a command finds by their names.
    pub streams: Arc<Streams>,
    has_streams: bool,
    has_net: bool,
    /// The names of the inputs that are tried as streams.
    trials: Vec<String>,
    pub handler: Arc<Handler>,
    /// Whether the last event said that the command waits.
    told: bool,
}

impl Gates {
    /// Prepares the places of the inputs.
    ///
    /// # Errors
    /// A message that names the input.
    pub fn new(job: &Job) -> Result<Self, String> {
        let streams = Streams::new(job.inputs.len()).map_err(|error| format!("eventfd: {}", error.desc()))?;
        let streams = Arc::new(streams);
        let has_streams = job.inputs.iter().any(|input| matches!(input.target, Target::Fifo(_)));
        let has_net = job.inputs.iter().any(|input| input.net.is_some());
        let trials = job.inputs.iter().filter(|input| matches!(input.access, Access::Replay));
        let trials: Vec<String> = trials.map(|input| input.name.clone()).collect();
        let table = GateTable::new(Arc::clone(&streams), !has_net && !trials.is_empty());
        let inputs = job.gates.iter().map(|spec| GatedInput::new(spec, &table)).collect::<Result<_, _>>()?;
        let handler = Arc::new(Handler::new(table, Observer::of(job), Excerpts::of(job)?));
        Ok(Self { inputs, streams, has_streams, has_net, trials, handler, told: false })
    }

    /// Returns which calls the kernel has to report, or None if no filter is needed.
    pub fn purpose(&self) -> Option<Purpose> {
        let (holds, observes) = (!self.inputs.is_empty(), self.handler.observer.is_some());
        let excerpts = self.handler.excerpts.as_ref().map(Excerpts::end);
        let delivers = self.inputs.iter().any(|input| input.spec.delivers());
        let (streams, net, alarms) = (self.has_streams, self.has_net, !self.trials.is_empty());
        // A command that asks whether there is something to read must not get a pipe.
        let polls = alarms && !net;
        let purpose = Purpose { holds, delivers, streams, net, polls, alarms, observes, excerpts };
        Some(purpose).filter(|purpose| purpose.may_hold() || purpose.observes || purpose.excerpts.is_some())
    }

    /// Returns the byte streams that are under the net.
    pub fn net(&self) -> &Net {
        &self.handler.table.net
    }

    /// Whether everything is committed.
    pub fn are_open(&self) -> bool {
        self.inputs.iter().all(|input| input.open)
    }

    /// Watches the events of the producers. Must be called until they exist.
    pub fn arm<T: Clone + PartialEq>(&mut self, watcher: &mut Watcher<T>, token: &T) {
        for input in self.inputs.iter_mut().filter(|input| !input.open) {
            input.producer.watch(&mut |path, mask| watcher.watch(path, mask, token.clone()));
        }
    }

    /// Puts committed inputs in place, and continues the calls that waited for them.
    ///
    /// # Errors
    /// The name of the input, and why the command must not continue.
    pub fn advance(&mut self) -> Result<(), (String, Failure)> {
        let mut changed = false;
        for input in self.inputs.iter_mut().filter(|input| !input.open) {
            let advanced = input.advance(&self.handler.table);
            changed |= advanced.map_err(|failure| (input.spec.name.clone(), failure))?;
        }
        if changed {
            self.handler.release();
        }
        Ok(())
    }

    /// Returns an event when the command begins to wait at a gate, or stops waiting.
    pub fn news(&mut self) -> Option<Event<'static>> {
        let waits = !self.inputs.is_empty() && self.handler.has_held_for(LONG);
        (std::mem::replace(&mut self.told, waits) != waits).then_some(Event::Gate(GateEvent { waits }))
    }

    /// Says that the calls of the command are not reported, or not understood.
    pub fn lose_sight(&self) {
        self.handler.observer.iter().for_each(Observer::lose_sight);
    }

    /// Records how far the inputs have been read, if the command is observed.
    pub fn look(&self, processes: &[Process], written: bool) {
        self.handler.observer.iter().for_each(|observer| observer.look(processes, written));
    }

    /// Returns how the inputs were read, after the command has ended.
    pub fn verdicts(&self) -> Vec<UsedEvent> {
        self.handler.observer.as_ref().map(Observer::verdicts).unwrap_or_default()
    }

    /// Returns each input with which a trial shows nothing, with the name of a call: an excerpt that the command could
    /// distinguish from its file, or a stream that an alarm may end.
    pub fn asked(&self) -> Vec<(String, Cow<'static, str>)> {
        let told_apart = self.handler.excerpts.as_ref().map(Excerpts::told_apart).unwrap_or_default();
        let alarm = self.handler.alarm.get();
        let timed = self.trials.iter().filter_map(|name| Some((name.clone(), alarm?.clone())));
        told_apart.into_iter().chain(timed).collect()
    }

    /// Returns the programs that had none of the privileges of their files, because calls are reported.
    pub fn unprivileged(&self) -> Vec<PathBuf> {
        self.handler.programs.unprivileged()
    }

    /// Removes what was put in place, unless the job has succeeded and the input is whole.
    pub fn clean_up(&mut self, success: bool) {
        for input in self.inputs.iter().filter(|input| !(success && input.open)) {
            input.clean_up();
        }
    }
}
