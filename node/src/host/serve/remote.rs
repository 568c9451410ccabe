//! `serve --remote`: the driver is on another machine, and reads the standard output. With `--shared` the jobs are on
//! others still, and the file system is all that is known of them.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signalfd::SignalFd;

use super::directory;
use super::jobs::{Jobs, LOOK};
use super::output::LAST_WORDS;
use super::periodic::{Periodic, ALIVE, ALIVE_LINE};
use crate::sys::remote_file;

/// How often the jobs on other machines are told that this process is there.
const BEAT: Duration = Duration::from_secs(5);
/// How often to look whether this is the end, while the reader takes nothing.
const WAITING: Duration = Duration::from_secs(1);
/// Of all time, that may be spent with looking at files: one part in so many.
const EFFORT: u32 = 10;
/// How long jobs on other machines may take to end, which look for that once a second.
const FAREWELL: Duration = Duration::from_secs(5);
pub struct Remote {
    directory: PathBuf,
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
    /// # Arguments
    /// * `shared` - the jobs are on other machines
    pub fn new(directory: &Path, shared: bool) -> Self {
        let now = Instant::now();
        let heart = shared.then(|| Heart { beat: Periodic::new(BEAT, now), count: 0 });
        let (alive, look) = (Periodic::new(ALIVE, now + ALIVE), Periodic::new(LOOK, now));
        Self { directory: directory.to_owned(), alive, look, heart }
    }

    /// Serves until the driver has said that this is the end, or nobody reads what is printed; then ends the jobs and
    /// removes the run directory.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn serve(mut self, mut jobs: Jobs, signals: &SignalFd) -> io::Result<()> {
        while jobs.output.is_heard() && !self.is_over() && !self.wait(&mut jobs, signals) {
            self.turn(&mut jobs);
        }
        let deadline = Instant::now() + FAREWELL;
        jobs.end(|jobs| {
            std::thread::sleep(LOOK / 5);
            self.take_news(jobs);
            Instant::now() < deadline
        });
        jobs.output.flush(LAST_WORDS);
        directory::remove(&self.directory)
    }

    /// Whether the driver has said that this is the end, or somebody has removed the run directory.
    fn is_over(&self) -> bool {
        remote_file::exists(&self.directory.join("end")) || remote_file::is_missing(&self.directory.join("jobs"))
    }

    /// Waits until there is something to do; true: for the end, since it was terminated.
    fn wait(&self, jobs: &mut Jobs, signals: &SignalFd) -> bool {
        let waits = jobs.output.is_full();
        let writable = if waits { PollFlags::POLLOUT } else { PollFlags::empty() };
        let mut descriptors = [
            PollFd::new(jobs.output.as_fd(), writable),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(jobs.notices(), PollFlags::POLLIN),
        ];
        // What cannot be printed now waits in its files.
        let all = if waits { 2 } else { 3 };
        let tick = jobs.tick().filter(|_| !waits).and_then(|tick| PollTimeout::try_from(tick).ok());
        let timeout = self.timeout(jobs.have_to_be_looked_at(), waits);
        let _ = poll(&mut descriptors[..all], tick.map_or(timeout, |tick| timeout.min(tick)));
        let terminated = descriptors[1].any() == Some(true);
        let state = descriptors[0].revents().unwrap_or(PollFlags::empty());
        jobs.output.look(state);
        terminated
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

    fn turn(&mut self, jobs: &mut Jobs) {
        self.beat();
        if jobs.output.is_full() {
            jobs.output.flush(Duration::ZERO);
        } else {
            if self.alive.take(Instant::now()) {
                jobs.output.print(ALIVE_LINE);
            }
            self.take_news(jobs);
        }
    }

    fn take_news(&mut self, jobs: &mut Jobs) {
        if jobs.are_noticed() {
            jobs.take_notices();
        }
        if jobs.have_to_be_looked_at() {
            self.look_around(jobs);
        }
    }

    /// Looks at all files, when it is time to.
    fn look_around(&mut self, jobs: &mut Jobs) {
        let began = Instant::now();
        if !self.look.take(began) {
            return;
        }
        if jobs.are_noticed() {
            jobs.welcome_all();
        } else {
            jobs.take_notices();
        }
        let (now, took) = (Instant::now(), began.elapsed());
        self.look.due = self.look.due.max(now + took * EFFORT);
    }
}
