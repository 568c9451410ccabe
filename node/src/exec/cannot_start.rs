//! A failure before the command ran.

use crate::protocol::event::Reason;
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
