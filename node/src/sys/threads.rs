//! Threads with small stacks, because there can be many, and locks between threads.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Size of a stack in bytes. The largest buffers on a stack have 16 KiB.
pub const STACK: usize = 256 << 10;

pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.into()).stack_size(STACK).spawn(work)
}

/// Locks a mutex, even after a thread has panicked with it: this process ends then anyway.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
