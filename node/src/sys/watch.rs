//! One inotify instance for everything that a process waits for.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// The smallest number of events that can fill the 4096 bytes of one read. An event has 16 bytes and at most 256 for a
/// name.
const FULL: usize = 4096 / (16 + 256);

/// Events of a directory: an entry has come, or has left.
pub const ARRIVES: AddWatchFlags = AddWatchFlags::IN_CREATE.union(AddWatchFlags::IN_MOVED_TO);
pub const LEAVES: AddWatchFlags = AddWatchFlags::IN_DELETE.union(AddWatchFlags::IN_MOVED_FROM);

/// Something that happened to the path that `token` was registered for.
#[derive(Debug)]
pub struct Notice<T> {
    pub token: T,
    pub mask: AddWatchFlags,
    pub name: Option<OsString>,
}

impl<T: PartialEq> Notice<T> {
    /// Whether this notice is the close of a file whose creation is the previous notice, `made`.
    pub fn closes_what_was_made(&self, made: &Self) -> bool {
        let masks = (made.mask, self.mask) == (AddWatchFlags::IN_CREATE, AddWatchFlags::IN_CLOSE_WRITE);
        masks && (&made.token, &made.name) == (&self.token, &self.name)
    }
}

/// The source of notices.
#[derive(Debug)]
enum Source {
    Inotify(Inotify),
    /// A counter that stays zero and is never readable.
    Nowhere(EventFd),
}

/// A function that watches a path.
pub type Watch<'a> = dyn FnMut(&Path, AddWatchFlags) -> nix::Result<()> + 'a;

/// Watches paths, each for one or several tokens.
#[derive(Debug)]
pub struct Watcher<T> {
    source: Source,
    tokens: HashMap<WatchDescriptor, Vec<T>>,
}

impl<T: Clone + PartialEq> Watcher<T> {
    pub fn new() -> nix::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        Ok(Self { source: Source::Inotify(inotify), tokens: HashMap::new() })
    }

    /// Returns a watcher that sees nothing. Each `read` reports lost notices, so that its caller examines the files
    /// itself.
    pub fn blind() -> nix::Result<Self> {
        let nothing = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { source: Source::Nowhere(nothing), tokens: HashMap::new() })
    }

    pub fn is_blind(&self) -> bool {
        matches!(self.source, Source::Nowhere(_))
    }

    pub fn watch(&mut self, path: &Path, mask: AddWatchFlags, token: T) -> nix::Result<()> {
        let Source::Inotify(inotify) = &self.source else { return Ok(()) };
        let add = AddWatchFlags::from_bits_retain(nix::libc::IN_MASK_ADD);
        let descriptor = inotify.add_watch(path, mask | add)?;
        let tokens = self.tokens.entry(descriptor).or_default();
        if !tokens.contains(&token) {
            tokens.push(token);
        }
        Ok(())
    }

    /// Ends the watches of the tokens that `selects` picks.
    pub fn forget(&mut self, selects: impl Fn(&T) -> bool) {
        let Source::Inotify(inotify) = &self.source else { return };
        self.tokens.retain(|descriptor, tokens| {
            tokens.retain(|token| !selects(token));
            if tokens.is_empty() {
                let _ = inotify.rm_watch(*descriptor);
            }
            !tokens.is_empty()
        });
    }

    /// Returns all notices up to now, and whether some were lost because the queue of the kernel was full.
    pub fn read(&mut self) -> (Vec<Notice<T>>, bool) {
        let (mut notices, mut lost) = (Vec::new(), false);
        let Source::Inotify(inotify) = &self.source else { return (notices, true) };
        loop {
            let events = match inotify.read_events() {
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
        match &self.source {
            Source::Inotify(inotify) => inotify.as_fd(),
            Source::Nowhere(nothing) => nothing.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blind_say_so() {
        let mut watcher = Watcher::blind().unwrap();
        watcher.watch(Path::new("/"), AddWatchFlags::IN_CREATE, 1).unwrap();
        watcher.forget(|_| true);
        let (notices, lost) = watcher.read();
        assert!(watcher.is_blind() && lost && notices.is_empty());
    }
}
