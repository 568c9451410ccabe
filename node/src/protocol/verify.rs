//! Whether streamed bytes are still those of the file, by digests that are taken before the bytes.
//!
//! A program that fills in a header, or changes one byte in the middle, does not write front to back. The reader of its
//! stream has got something else than the file. All bytes are compared that were taken before the commit. The
//! bytes after it are final.

mod blocks;
mod first_bytes;

pub use self::blocks::{block, Blocks, Difference};
pub use self::first_bytes::compare;
pub use crate::protocol::values::Digest;
