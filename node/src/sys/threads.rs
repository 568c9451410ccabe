//! Threads with small stacks, because there can be many, and locks between them.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Blocks of 16 KiB are the largest that lies on their stack.
const STACK: usize = 256 << 10;

pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.into()).stack_size(STACK).spawn(work)
}

/// Takes a lock, also where a thread has panicked that had it: this process then ends anyway.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
