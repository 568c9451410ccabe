//! Whether streamed bytes are still those of the file, by digests that are taken before the bytes.
//!
//! A program that fills in a header, or changes one byte in the middle, does not write front to back. The reader of its
//! stream has got something else than the file. All bytes are compared that were taken before the commit. The
//! bytes after it are final.

mod blocks;
mod digests;
mod first_bytes;
mod noted;

pub use self::blocks::{block, Blocks};
pub use self::digests::Digests;
pub use self::first_bytes::compare;
pub use self::noted::Noted;
pub use crate::protocol::values::Digest;
