//! The purpose of each watch of a job.

use std::path::PathBuf;

use crate::inputs::feed::Wait;

/// The purpose of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A directory in which outputs appear.
    Directory(PathBuf),
    /// A file that existed before the command. The first write to the file is reported to the driver.
    Old(PathBuf),
    /// A file whose closes are counted. The kernel merges a notice with an equal one before it. The second notice of
    /// this watch keeps two closes apart.
    Counted,
    Input(usize, Wait),
    /// An input of some gate: all gates are examined in every round.
    Gate,
    /// The file to which a split appends its parts.
    Parts,
    /// The directory of the job.
    Control,
}
