//! Whether bytes that were streamed are still those of the file: digests of what was noted before it was taken.
//!
//! A program that fills in a header, or changes one byte in the middle, is not written front to back, and its reader has
//! got something else than the file. By default all bytes are compared that were taken before the commit; what is taken
//! afterwards is final.

mod digests;
mod noted;
mod part;
mod samples;

pub use self::noted::Noted;
pub use self::part::{compare, Part};
pub use crate::protocol::messages::Verify;
pub use crate::protocol::values::Digest;
