//! Makes the files of inputs before the command starts.

use nix::errno::Errno;

use super::cannot_start::CannotStart;
use super::supervise::Surroundings;
use crate::inputs::placement::{NotPlaced, Placed};
use crate::protocol::event::{EventLog, Reason};
use crate::protocol::job::{Input, Job};
use crate::streams::part_writer::Trouble;
use crate::sys::exit::{CANNOT_SET_UP, UNFINISHED};
use crate::sys::signals::CANCELLING;

/// Makes all files, and adds each to `placed`, even if a later one fails.
pub fn place(
    job: &Job,
    surroundings: &Surroundings,
    events: &mut EventLog,
    placed: &mut Vec<Placed>,
) -> Result<(), CannotStart> {
    for (number, input) in job.inputs.iter().enumerate() {
        let mut ending = None;
        let mut interrupted = || {
            ending = self::ending(surroundings);
            ending.is_some()
        };
        let made = Placed::new(input, &surroundings.directory, number, &mut interrupted);
        let made = made.map_err(|failure| cannot_start(input, failure, ending.take()))?;
        if let Some(file) = made {
            placed.push(file);
            let told = placed.last().map(Placed::event);
            events.append(told.as_slice()).map_err(|error| format!("events.jsonl: {error}"))?;
        }
    }
    Ok(())
}

/// Returns why the job has to end, if it has.
fn ending(surroundings: &Surroundings) -> Option<Reason> {
    let gone = || !matches!(nix::unistd::read(&surroundings.alive, &mut [0]), Err(Errno::EAGAIN | Errno::EINTR));
    let signalled = || {
        let signals = std::iter::from_fn(|| surroundings.signals.read_signal().ok().flatten());
        let cancelling = CANCELLING.map(|signal| signal as u32);
        signals.fold(false, |found, info| found | cancelling.contains(&info.ssi_signo))
    };
    if signalled() || surroundings.directory.join("cancel").exists() {
        Some(Reason::Cancelled)
    } else if gone() {
        Some(Reason::Driver)
    } else {
        None
    }
}

fn cannot_start(input: &Input, failure: NotPlaced, ending: Option<Reason>) -> CannotStart {
    match failure {
        NotPlaced::Interrupted => CannotStart::ended(ending.unwrap_or(Reason::Cancelled)),
        NotPlaced::Failed(Trouble::Read(failure)) => {
            let (reason, message) = failure.of_input(&input.name);
            CannotStart { code: UNFINISHED, reason, message }
        }
        NotPlaced::Failed(Trouble::Write(error)) => {
            let message = format!("input {}: cannot make its file: {error}", input.name);
            CannotStart { code: CANNOT_SET_UP, reason: Reason::Error, message }
        }
    }
}
