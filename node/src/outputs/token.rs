//! What each watch of a job is for.

use std::path::PathBuf;

use crate::inputs::feed::Wait;

/// What a watch is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A directory in which outputs appear.
    Directory(PathBuf),
    /// A file that was there before the command: it exists for the driver when it is written to.
    Old(PathBuf),
    /// A file whose closes are counted. The kernel merges a notice with an equal one before it: this second notice of
    /// each close keeps two closes apart.
    Counted,
    Input(usize, Wait),
    /// Of any gate: all of them are looked at in every round.
    Gate,
    /// What a split says.
    Parts,
    /// The directory of the job.
    Control,
}
