//! Whether streamed bytes are still those of the file, by digests that are taken before the bytes.
//!
//! A program that fills in a header, or changes one byte in the middle, does not write front to back. The reader of its
//! stream has got something else than the file. By default all bytes are compared that were taken before the commit. The
//! bytes after it are final.

mod blocks;
mod digests;
mod first_bytes;
mod noted;
mod samples;

pub use self::blocks::{block, Blocks};
pub use self::first_bytes::compare;
pub use self::noted::Noted;
pub use crate::protocol::messages::Verify;
pub use crate::protocol::values::Digest;
