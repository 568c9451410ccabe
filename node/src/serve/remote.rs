//! `serve --remote`: the driver is on another machine, and reads the standard output. With `--shared` the jobs are on
//! others still, and the file system is all that is known of them.

use std::fs::{self, File};
use std::io::{self, Stdout};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::PIPE_BUF;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signalfd::SignalFd;

use super::{Server, LOOK};
use crate::fresh;

/// How often both sides of a connection are told that it is there.
const ALIVE: Duration = Duration::from_secs(15);
/// How often the jobs on other machines are told that this process is there.
const BEAT: Duration = Duration::from_secs(5);
/// How often to look whether this is the end, while the reader takes nothing.
const WAITING: Duration = Duration::from_secs(1);
/// Of all time, that may be spent with looking at files: one part in so many.
const EFFORT: u32 = 10;
/// How long jobs on other machines may take to end, which look for that once a second.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long the reader may take nothing of what is left to print in the end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long the run directory may refuse to be removed, because somebody still writes in it.
const LAST_FILES: Duration = Duration::from_secs(5);

/// Something that is due again and again.
#[derive(Debug)]
struct Periodic {
    period: Duration,
    due: Instant,
}

impl Periodic {
    fn new(period: Duration, due: Instant) -> Self {
        Self { period, due }
    }

    /// Whether it is due, which is asked once.
    fn take(&mut self, now: Instant) -> bool {
        let due = now >= self.due;
        if due {
            self.due = now + self.period;
        }
        due
    }
}

/// The standard output: a reader that is slow stops nothing but the printing.
#[derive(Debug)]
pub struct Outlet {
    stdout: Stdout,
    unsent: Vec<u8>,
}

impl Outlet {
    /// Prints what the reader takes now, and keeps the rest; false: nobody reads.
    pub fn print(&mut self, text: &str) -> bool {
        self.unsent.extend(text.as_bytes());
        self.flush(Duration::ZERO)
    }

    /// Prints what is left, as long as the reader takes something within `patience`.
    fn flush(&mut self, patience: Duration) -> bool {
        while !self.unsent.is_empty() {
            let mut descriptors = [PollFd::new(self.stdout.as_fd(), PollFlags::POLLOUT)];
            let _ = poll(&mut descriptors, PollTimeout::try_from(patience).unwrap_or(PollTimeout::ZERO));
            let state = descriptors[0].revents().unwrap_or(PollFlags::empty());
            if is_broken(state) {
                return false;
            }
            if !state.contains(PollFlags::POLLOUT) {
                return true;
            }
            // A pipe that has space takes so much without waiting, pipe(7).
            let piece = &self.unsent[..self.unsent.len().min(PIPE_BUF)];
            match nix::unistd::write(&self.stdout, piece) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

fn is_broken(state: PollFlags) -> bool {
    state.intersects(PollFlags::POLLERR | PollFlags::POLLHUP | PollFlags::POLLNVAL)
}

pub struct Remote {
    directory: PathBuf,
    pub outlet: Outlet,
    alive: Periodic,
    /// When to look at files of which there are no notices.
    look: Periodic,
    /// For jobs on other machines.
    heart: Option<Heart>,
}

/// What says that this process lives.
struct Heart {
    beat: Periodic,
    count: u64,
}

impl Remote {
    pub fn new(directory: &Path, shared: bool) -> Self {
        let now = Instant::now();
        let heart = shared.then(|| Heart { beat: Periodic::new(BEAT, now), count: 0 });
        let outlet = Outlet { stdout: io::stdout(), unsent: Vec::new() };
        let (alive, look) = (Periodic::new(ALIVE, now + ALIVE), Periodic::new(LOOK, now));
        Self { directory: directory.to_owned(), outlet, alive, look, heart }
    }

    /// Whether the driver has said that this is the end, or somebody has removed the run directory.
    fn is_over(&self) -> bool {
        fresh::exists(&self.directory.join("end")) || fresh::is_missing(&self.directory.join("jobs"))
    }

    /// # Arguments
    /// * `looks` - files are looked at
    /// * `waits` - for the reader: before it takes something, nothing is done but to give signs of life
    fn timeout(&self, looks: bool, waits: bool) -> PollTimeout {
        let now = Instant::now();
        let own = if waits { now + WAITING } else { self.alive.due };
        let look = (looks && !waits).then_some(self.look.due);
        let beat = self.heart.as_ref().map(|heart| heart.beat.due);
        let due = [look, beat].into_iter().flatten().fold(own, Instant::min);
        let left = due.saturating_duration_since(now);
        // Not a moment too early, which would be a turn for nothing.
        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO)
    }

    /// Tells the jobs that this process is there.
    fn beat(&mut self) {
        let Some(heart) = &mut self.heart else { return };
        if heart.beat.take(Instant::now()) {
            heart.count += 1;
            let new = self.directory.join("heartbeat.new");
            // Where that fails for long the jobs end, which they could not tell either.
            let _ = fs::write(&new, format!("{}\n", heart.count))
                .and_then(|()| fs::rename(&new, self.directory.join("heartbeat")));
        }
    }

    /// Prints what the reader still takes, and removes the run directory.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn finish(&mut self, heard: bool) -> io::Result<()> {
        if heard {
            self.outlet.flush(LAST_WORDS);
        }
        let deadline = Instant::now() + LAST_FILES;
        loop {
            match fs::remove_dir_all(&self.directory) {
                Err(_) if fresh::is_missing(&self.directory) => return Ok(()),
                Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK),
                result => return result,
            }
        }
    }
}

impl Server {
    /// Serves until the driver has said that this is the end, or nobody reads what is printed.
    pub(super) fn serve_remotely(&mut self, signals: &SignalFd) {
        while self.heard && !self.remote.as_ref().is_none_or(Remote::is_over) {
            let Some(remote) = &self.remote else { return };
            let waits = !remote.outlet.unsent.is_empty();
            let writable = if waits { PollFlags::POLLOUT } else { PollFlags::empty() };
            let mut descriptors = [
                PollFd::new(remote.outlet.stdout.as_fd(), writable),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN),
            ];
            // What cannot be printed now waits in its files.
            let all = if waits { 2 } else { 3 };
            let tick = self.tick().filter(|_| !waits).and_then(|tick| PollTimeout::try_from(tick).ok());
            let timeout = remote.timeout(self.looks(), waits);
            let _ = poll(&mut descriptors[..all], tick.map_or(timeout, |tick| timeout.min(tick)));
            if descriptors[1].any() == Some(true) {
                return;
            }
            self.heard = !descriptors[0].revents().is_some_and(is_broken);
            self.turn(waits);
        }
    }

    fn turn(&mut self, waits: bool) {
        let Some(remote) = &mut self.remote else { return };
        remote.beat();
        if waits {
            self.heard = self.heard && remote.outlet.flush(Duration::ZERO);
        } else {
            if remote.alive.take(Instant::now()) {
                self.print("{\"event\":\"alive\"}\n");
            }
            self.take_news();
        }
    }

    fn take_news(&mut self) {
        if !self.watcher.is_blind() {
            self.take_notices();
        }
        if self.looks() {
            self.look_around();
        }
    }

    /// Whether files are looked at: other machines write them, or there are no notices.
    fn looks(&self) -> bool {
        self.lifeline.is_none() || self.watcher.is_blind()
    }

    /// Looks at all files, when it is time to.
    fn look_around(&mut self) {
        let began = Instant::now();
        if !self.remote.as_mut().is_some_and(|remote| remote.look.take(began)) {
            return;
        }
        if self.watcher.is_blind() {
            self.take_notices();
        } else {
            self.welcome_all();
        }
        let (now, took) = (Instant::now(), began.elapsed());
        if let Some(remote) = &mut self.remote {
            remote.look.due = remote.look.due.max(now + took * EFFORT);
        }
    }

    /// Cancels jobs on other machines, and waits for them to end. They end, too, when the run directory is gone.
    pub(super) fn cancel_all(&mut self) {
        for id in self.running.keys() {
            let _ = File::create(self.jobs.join(id).join("cancel"));
        }
        let deadline = Instant::now() + FAREWELL;
        while !self.running.is_empty() && Instant::now() < deadline {
            std::thread::sleep(LOOK / 5);
            self.take_news();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_again_and_again() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut periodic = Periodic::new(Duration::from_secs(5), at(1));
        let taken: Vec<bool> = [0, 1, 2, 6, 6, 30, 31, 35].map(|second| periodic.take(at(second))).to_vec();
        assert_eq!(taken, [false, true, false, true, false, true, false, true]);
    }
}
