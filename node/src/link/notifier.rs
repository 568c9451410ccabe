//! One inotify instance for all connections: a user has few of them.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::streams::origin::Origin;
use crate::streams::source::Source;
use crate::sys::threads::{lock, spawn};
use crate::sys::watch::Watcher;

#[derive(Debug)]
struct Watches {
    watcher: Watcher<u64>,
    wakers: HashMap<u64, Arc<EventFd>>,
    last: u64,
}

/// Wakes the connections for which there is news.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Mutex<Watches>>);

impl Notifier {
    /// # Errors
    /// When there are too many inotify instances, or threads.
    pub fn new() -> std::io::Result<Self> {
        let watcher = Watcher::new()?;
        let descriptor = watcher.as_fd().try_clone_to_owned()?;
        let notifier = Self(Arc::new(Mutex::new(Watches { watcher, wakers: HashMap::new(), last: 0 })));
        let thread = notifier.clone();
        spawn("notifier", move || loop {
            let _ = poll(&mut [PollFd::new(descriptor.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
            thread.wake();
        })?;
        Ok(notifier)
    }

    pub fn waker(&self) -> nix::Result<Waker> {
        let event = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
        let mut watches = lock(&self.0);
        watches.last += 1;
        let number = watches.last;
        watches.wakers.insert(number, event.clone());
        drop(watches);
        Ok(Waker { number, event, notifier: self.clone() })
    }

    fn wake(&self) {
        let mut watches = lock(&self.0);
        let (notices, lost) = watches.watcher.read();
        let concerned = |number: &u64| lost || notices.iter().any(|notice| notice.token == *number);
        for (_, waker) in watches.wakers.iter().filter(|(number, _)| concerned(number)) {
            let _ = waker.write(1);
        }
    }
}

/// Becomes readable when there is news for one connection.
#[derive(Debug)]
pub struct Waker {
    number: u64,
    event: Arc<EventFd>,
    notifier: Notifier,
}

impl Waker {
    /// Watches the file and the events of `source`. After true there may be more in the file.
    pub fn watch(&self, source: &mut Source) -> bool {
        let mut watches = lock(&self.notifier.0);
        let mut watch = |path: &Path, mask| watches.watcher.watch(path, mask, self.number);
        source.watch_events(&mut watch);
        source.watch_growth(&mut watch)
    }

    /// Whether it was woken since the last call.
    pub fn was_woken(&self) -> bool {
        self.event.read().is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        let mut watches = lock(&self.notifier.0);
        watches.wakers.remove(&self.number);
        watches.watcher.forget(|number| *number == self.number);
    }
}
