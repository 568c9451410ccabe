//! One inotify instance for everything that a process waits for.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// The fewest events that can fill the 4096 bytes that are read at once: none is longer than 16 bytes and a name with its end.
const FULL: usize = 4096 / (16 + 256);

/// Something that happened to what `token` stands for.
#[derive(Debug)]
pub struct Notice<T> {
    pub token: T,
    pub mask: AddWatchFlags,
    pub name: Option<OsString>,
}

impl<T: PartialEq> Notice<T> {
    /// Whether this is the close of a file, and the one before it, `made`, says that it was made.
    pub fn closes_what_was_made(&self, made: &Self) -> bool {
        let masks = (made.mask, self.mask) == (AddWatchFlags::IN_CREATE, AddWatchFlags::IN_CLOSE_WRITE);
        masks && (&made.token, &made.name) == (&self.token, &self.name)
    }
}

/// Watches paths on behalf of tokens. A path can have several.
#[derive(Debug)]
pub struct Watcher<T> {
    inotify: Inotify,
    tokens: HashMap<WatchDescriptor, Vec<T>>,
}

impl<T: Clone + PartialEq> Watcher<T> {
    pub fn new() -> nix::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self { inotify, tokens: HashMap::new() })
    }

    pub fn watch(&mut self, path: &Path, mask: AddWatchFlags, token: T) -> nix::Result<()> {
        let add = AddWatchFlags::from_bits_retain(nix::libc::IN_MASK_ADD);
        let descriptor = self.inotify.add_watch(path, mask | add)?;
        let tokens = self.tokens.entry(descriptor).or_default();
        if !tokens.contains(&token) {
            tokens.push(token);
        }
        Ok(())
    }

    /// Ends the watches of the tokens that `selects` picks.
    pub fn forget(&mut self, selects: impl Fn(&T) -> bool) {
        let inotify = &self.inotify;
        self.tokens.retain(|descriptor, tokens| {
            tokens.retain(|token| !selects(token));
            if tokens.is_empty() {
                let _ = inotify.rm_watch(*descriptor);
            }
            !tokens.is_empty()
        });
    }

    /// Whatever has happened so far, and whether notices were lost (the queue was full).
    pub fn read(&mut self) -> (Vec<Notice<T>>, bool) {
        let (mut notices, mut lost) = (Vec::new(), false);
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EINTR) => continue,
                Err(_) => return (notices, lost),
            };
            let all = events.len() < FULL;
            for event in events {
                lost |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                let ended = event.mask.contains(AddWatchFlags::IN_IGNORED);
                let tokens = if ended { self.tokens.remove(&event.wd) } else { self.tokens.get(&event.wd).cloned() };
                for token in tokens.into_iter().flatten().filter(|_| !ended) {
                    notices.push(Notice { token, mask: event.mask, name: event.name.clone() });
                }
            }
            if all {
                return (notices, lost);
            }
        }
    }
}

impl<T> AsFd for Watcher<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}
