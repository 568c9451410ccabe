//! Makes the files of inputs before the command starts; and why a command cannot start.

use super::supervise::Surroundings;
use crate::inputs::placement::{NotPlaced, Placed};
use crate::protocol::event::Reason;
use crate::protocol::job::{Input, Job};
use crate::protocol::liveness;
use crate::streams::part_writer::Trouble;
use crate::sys::exit::{CANNOT_SET_UP, UNFINISHED};

/// The exit code of `exec`, the reason of the job's end, and a message.
pub struct CannotStart {
    pub code: i32,
    pub reason: Reason,
    pub message: String,
}

impl CannotStart {
    /// The job was ended before its command had started.
    pub fn ended(reason: Reason) -> Self {
        Self { code: UNFINISHED, reason, message: "the job ended before its command had started".into() }
    }
}

impl From<String> for CannotStart {
    fn from(message: String) -> Self {
        Self { code: CANNOT_SET_UP, reason: Reason::Error, message }
    }
}

/// Makes all files, and adds each to `placed`, even if a later one fails.
pub fn place(job: &Job, surroundings: &Surroundings, placed: &mut Vec<Placed>) -> Result<(), CannotStart> {
    for (number, input) in job.inputs.iter().enumerate() {
        let mut ending = None;
        let mut interrupted = || {
            ending = liveness::ending(&surroundings.directory, &surroundings.alive, &surroundings.signals);
            ending.is_some()
        };
        let made = Placed::new(input, &surroundings.directory, number, &mut interrupted);
        let made = made.map_err(|failure| cannot_start(input, failure, ending.take()))?;
        placed.extend(made);
    }
    Ok(())
}

fn cannot_start(input: &Input, failure: NotPlaced, ending: Option<Reason>) -> CannotStart {
    match failure {
        NotPlaced::Interrupted => CannotStart::ended(ending.unwrap_or(Reason::Cancelled)),
        NotPlaced::Failed(Trouble::Read(failure)) => {
            let (reason, message) = failure.of_input(&input.name);
            CannotStart { code: UNFINISHED, reason, message }
        }
        NotPlaced::Failed(Trouble::Write(error)) => {
            let message = format!("input from {}: cannot make its file: {error}", input.name);
            CannotStart { code: CANNOT_SET_UP, reason: Reason::Error, message }
        }
    }
}
