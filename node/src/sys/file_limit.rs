//! How many files this process may have open at once.

use nix::sys::resource::{getrlimit, rlim_t, setrlimit, Resource::RLIMIT_NOFILE};

/// The soft limit before `raise`. Commands get this limit: programs that use select(2) may fail under a higher one.
#[derive(Clone, Copy, Debug)]
pub struct FileLimit(Option<rlim_t>);

impl FileLimit {
    /// Lets this process open as many files as it may.
    pub fn raise() -> Self {
        let limits = getrlimit(RLIMIT_NOFILE).ok();
        if let Some((_, most)) = limits {
            let _ = setrlimit(RLIMIT_NOFILE, most, most);
        }
        Self(limits.map(|(before, _)| before))
    }

    /// Gives this process the limit before. Makes system calls only.
    pub fn restore(self) {
        if let (Some(before), Ok((_, most))) = (self.0, getrlimit(RLIMIT_NOFILE)) {
            let _ = setrlimit(RLIMIT_NOFILE, before.min(most), most);
        }
    }
}
