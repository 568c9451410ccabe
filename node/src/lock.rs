//! Locks between threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also where a thread has panicked that had it: this process then ends anyway.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
