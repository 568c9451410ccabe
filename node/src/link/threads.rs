//! The threads of links: small ones, because there can be many.

use std::io;
use std::thread::Builder;

/// Blocks of 16 KiB are the largest that lies on their stack.
const STACK: usize = 256 << 10;

pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().name(name.into()).stack_size(STACK).spawn(work).map(drop)
}
