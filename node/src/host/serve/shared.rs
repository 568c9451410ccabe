//! `serve --shared`: the jobs are on other machines, and the file system is all that connects them with this one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::jobs::{Jobs, LOOK};
use super::periodic::Periodic;

/// How often this process gives the jobs a sign of life.
const BEAT: Duration = Duration::from_secs(5);
/// Looking at files takes at most one part in `EFFORT` of the time.
const EFFORT: u32 = 10;

/// Gives the jobs signs of life, and looks at their files, for which there are no notices.
pub struct Shared {
    heartbeat: PathBuf,
    beat: Periodic,
    count: u64,
    look: Periodic,
}

impl Shared {
    pub fn new(run: &Path) -> Self {
        let now = Instant::now();
        let (beat, look) = (Periodic::new(BEAT, now), Periodic::new(LOOK, now));
        Self { heartbeat: run.join("heartbeat"), beat, count: 0, look }
    }

    /// When there is something to do next.
    ///
    /// # Arguments
    /// * `looks` - whether files are looked at, too
    pub fn due(&self, looks: bool) -> Instant {
        if looks {
            self.beat.due.min(self.look.due)
        } else {
            self.beat.due
        }
    }

    /// Gives a sign of life, when it is time for one.
    pub fn beat(&mut self) {
        if self.beat.take(Instant::now()) {
            self.count += 1;
            let new = self.heartbeat.with_extension("new");
            // Jobs that see no sign of life for long end. They could not tell anything of themselves either.
            let _ = fs::write(&new, format!("{}\n", self.count)).and_then(|()| fs::rename(&new, &self.heartbeat));
        }
    }

    /// Takes the notices that there are, and looks at all files, when it is time to.
    pub fn take_news(&mut self, jobs: &mut Jobs) {
        let began = Instant::now();
        let looks = self.look.take(began);
        if jobs.are_noticed() || looks {
            jobs.take_notices();
        }
        if looks {
            jobs.welcome_all();
            let (now, took) = (Instant::now(), began.elapsed());
            self.look.due = self.look.due.max(now + took * EFFORT);
        }
    }
}
