//! The way of a command through its gates.

use super::{Supervisor, Token};
use crate::event::Event;
use crate::gate::{Entered, Purpose};

impl Supervisor<'_> {
    /// Hears what the process at the entrance says.
    pub(super) fn look_at_entrance(&mut self) {
        while let Some(entered) = self.entrance.as_ref().and_then(|entrance| entrance.hear(self.main)) {
            match entered {
                Entered::Listening(listener, trouble) => {
                    // Its calls have to be answered, even if they are not understood.
                    let trouble = self.gates.serve(listener).err().map(|error| error.to_string()).or(trouble);
                    self.enter(trouble);
                }
                Entered::Without(reason) => self.enter(Some(reason)),
                Entered::CannotRun(message) => self.message = Some(message),
                Entered::Gone => self.entrance = None,
            }
        }
    }

    fn enter(&mut self, trouble: Option<String>) {
        if let Some(reason) = trouble {
            let effect = match self.gates.purpose() {
                Some(Purpose { holds: false, streams: false, .. }) => "how the command reads is not observed",
                Some(Purpose { observes: false, .. }) => "the command starts when all that it reads is committed",
                _ => "the command starts when all that it reads is committed, and how it reads is not observed",
            };
            let message = format!("no gate ({reason}): {effect}");
            self.note(&[Event::warning(message, None)]);
            self.gates.lose_sight();
            // It might ask for the size of a stream, and find none.
            self.gates.streams().want_all();
            self.held = true;
        }
        self.let_in();
    }

    fn let_in(&mut self) {
        let may_enter = !self.held || (self.gates.are_open() && !self.gates.streams().are_open());
        if let Some(entrance) = self.entrance.as_ref().filter(|_| may_enter) {
            entrance.let_in();
            self.held = false;
        }
    }

    /// Brings the whole files for which the command waits.
    pub(super) fn bring_wholes(&mut self) {
        if self.reason.is_some() || self.ending.is_some() {
            return;
        }
        let mut changed = false;
        for number in self.gates.streams().wanted() {
            let feeder = &mut self.feeders[number];
            if !self.held && !feeder.is_wanted_whole() {
                let (input, file) = (feeder.input.clone(), feeder.input.path.display());
                let asks = "the command asks by path for more than the bytes of";
                let message =
                    format!("input {}: {asks} {file} (stat, access...), and waits for the whole file", input.name);
                self.note(&[Event::warning(message, Some(&input))]);
            }
            match self.feeders[number].bring_whole() {
                Ok(true) => {
                    self.gates.streams().is_whole(number);
                    changed = true;
                }
                Ok(false) => {}
                Err(failure) => return self.fail(number, failure),
            }
        }
        if changed {
            self.gates.release();
            self.let_in_if_held();
        }
    }

    fn let_in_if_held(&mut self) {
        if self.held {
            self.let_in();
        }
    }

    /// Takes what has been committed.
    pub(super) fn advance_gates(&mut self) {
        if self.reason.is_some() || self.ending.is_some() || self.gates.are_open() {
            return;
        }
        if let Some(watcher) = self.watcher.as_mut() {
            self.gates.arm(watcher, &Token::Gate);
        }
        if let Err((input, failure)) = self.gates.advance() {
            self.fail_input(input, failure);
        } else {
            self.let_in_if_held();
        }
    }
}
