//! How a command opens its FIFO: a byte stream can be read only once.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::inotify::AddWatchFlags;

use crate::processes::open_files::{opened_twice, wait_to_read};
use crate::processes::tree::descendants;

/// Time after an opening in which nothing is fed.
///
/// A command may look at its input, close it, and open it again to read. Feeding waits for this time, and then while
/// the process that has the FIFO open goes on, at most `LOOK_AT_MOST`.
const LOOK: Duration = Duration::from_millis(5);
const LOOK_AT_MOST: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub struct Openings {
    /// Each one is told.
    pub told: bool,
    /// The last one.
    last: Option<Instant>,
    /// When it was last looked whether the command reads.
    looked: Option<Instant>,
    /// The command reads, as far as is known.
    waits: bool,
    /// The processes that have the FIFO open were counted since the last opening.
    counted: bool,
    count: u32,
    open_now: u32,
    /// Since when the command is paused.
    paused: Option<Instant>,
}

impl Openings {
    /// Takes a notice of the FIFO; true: it was opened.
    pub fn notice(&mut self, mask: AddWatchFlags) -> bool {
        self.waits = false;
        if mask.contains(AddWatchFlags::IN_CLOSE_NOWRITE) {
            self.open_now = self.open_now.saturating_sub(1);
            return false;
        }
        let opened = mask.contains(AddWatchFlags::IN_OPEN);
        if opened {
            self.count += 1;
            self.open_now += 1;
            self.last = Some(Instant::now());
            self.counted = false;
        }
        opened
    }

    /// The command is paused, or goes on: that is no time in which it could have closed what it has opened.
    pub fn pause(&mut self, paused: bool) {
        let since = std::mem::replace(&mut self.paused, paused.then(Instant::now));
        if let Some(since) = since.filter(|_| !paused) {
            for moment in self.last.iter_mut().chain(&mut self.looked) {
                *moment += since.max(*moment).elapsed();
            }
        }
    }

    /// Whether it was opened, as far as is told.
    pub fn were_any(&self) -> bool {
        self.count > 0
    }

    /// Whether it was opened before.
    pub fn is_again(&self) -> bool {
        self.count > 1
    }

    /// Whether the command has it open twice. Two openings at once are one notice when they were quicker than we.
    pub fn are_several(&self, fifo: &Path) -> bool {
        self.open_now > 1 || opened_twice(&descendants(), fifo)
    }

    /// The same, looked for once after each opening: notices of two that were made by two processes in the same
    /// moment may have become one.
    pub fn are_uncounted_and_several(&mut self, fifo: &Path) -> bool {
        !std::mem::replace(&mut self.counted, true) && opened_twice(&descendants(), fifo)
    }

    /// Whether the command may close it again without having read.
    pub fn may_be_a_look(&mut self, fifo: &Path) -> bool {
        // A reader has just come whose notice is still under way.
        let Some(last) = self.last else { return self.told };
        let now = Instant::now();
        if self.waits {
            return false;
        }
        if self.paused.is_some() || now < last + LOOK || self.looked.is_some_and(|looked| now < looked + LOOK) {
            return true;
        }
        self.looked = Some(now);
        let waits = now >= last + LOOK_AT_MOST || wait_to_read(&descendants(), fifo);
        // What has happened until now is told before the next turn.
        !std::mem::replace(&mut self.waits, waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that has opened its FIFO just before a pause may close it again just after.
    #[test]
    fn a_pause_is_no_time_to_close_it_again() {
        let fifo = Path::new("/nowhere/fifo");
        let mut openings = Openings::default();
        openings.notice(AddWatchFlags::IN_OPEN);
        let opened = openings.last.unwrap();
        openings.pause(true);
        while opened.elapsed() < 3 * LOOK {
            assert!(openings.may_be_a_look(fifo));
            std::thread::yield_now();
        }
        assert_eq!(openings.looked, None, "it was looked at in the pause");
        openings.pause(false);
        assert!(openings.last.unwrap() >= opened + 2 * LOOK);
        let shifted = openings.last;
        openings.pause(false);
        assert_eq!(openings.last, shifted);
    }
}
