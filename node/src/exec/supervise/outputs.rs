//! The output files of a job: follows their changes, and announces them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::announcer::Announcer;
use super::processes::Processes;
use crate::outputs::commit::{self, Decision, Fact, Tracker};
use crate::outputs::directories::{existing, Change, OutputWatch, What};
use crate::outputs::hold::{Holder, Sign};
use crate::outputs::token::Token;
use crate::outputs::window::Window;
use crate::processes::open_files::{writing, Writing};
use crate::processes::snapshot::Snapshot;
use crate::protocol::event::{Event, EventLog};
use crate::protocol::job::Job;
use crate::streams::acknowledgements::DIRECTORY;
use crate::streams::announced_parts::Parts;
use crate::sys::watch::Watcher;

/// The most empty files that are examined. A job with more files has written something.
const EMPTY_FILES: usize = 100;

pub struct Outputs<'a> {
    pub watch: OutputWatch<'a>,
    tracker: Tracker,
    pub holder: Holder,
    /// Decisions that were not announced yet.
    decisions: Vec<Decision>,
    announcer: Announcer,
    /// The directory of the job.
    job: &'a Path,
    windows: Vec<Window>,
    /// Tells that a window wants a pause, or wants none any more.
    waker: Option<Arc<EventFd>>,
    /// Only for an observed job.
    beginning: Option<Beginning>,
    /// The parts that the command announces, if it is a split.
    pub parts: Option<Parts<'a>>,
}

impl<'a> Outputs<'a> {
    /// # Arguments
    /// * `directory` - of the job
    pub fn new(job: &'a Job, directory: &'a Path, parts: Option<Parts<'a>>) -> Self {
        let outputs = &job.outputs;
        if job.has_window() {
            // Without it no reader begins, and all is kept.
            let _ = fs::create_dir(directory.join(DIRECTORY));
        }
        Self {
            watch: OutputWatch { outputs },
            tracker: Tracker::new(outputs),
            holder: Holder::default(),
            decisions: Vec::new(),
            announcer: Announcer::default(),
            job: directory,
            windows: Vec::new(),
            // Without it the windows are looked at again and again.
            waker: if job.has_window() { new_waker() } else { None },
            beginning: job.observation.reads.as_ref().map(|_| Beginning::default()),
            parts,
        }
    }

    /// Says that the command runs.
    pub fn start(&mut self, first: Snapshot) {
        self.holder = Holder::new(first);
    }

    /// Says that a file exists.
    pub fn exists(&mut self, path: &Path) {
        self.decisions.extend(self.tracker.handle(path, Fact::Exists));
    }

    /// Returns what may have happened when notices were lost.
    pub fn rescan(&mut self, watcher: &mut Watcher<Token>) -> Vec<Change> {
        self.announcer.lost = true;
        let mut changes = self.watch.rescan(watcher);
        changes.retain(|change| self.tracker.closes(&change.path) == 0);
        changes
    }

    /// Takes changes of files, and counts or holds closes.
    ///
    /// # Arguments
    /// * `closes` - closes may count, because nothing ends the job
    pub fn take(&mut self, changes: Vec<Change>, closes: bool, now: Duration, processes: &mut Processes) {
        let living = if changes.iter().any(Change::is_close) { processes.look() } else { Vec::new() };
        let mut closed: Vec<(PathBuf, Sign)> = Vec::new();
        for Change { path, what } in changes {
            if what == What::Gone {
                self.holder.forget(&path);
                closed.retain(|(other, _)| !other.starts_with(&path));
                self.decisions.extend(self.tracker.handle(&path, Fact::Gone));
                continue;
            }
            self.exists(&path);
            let sign = match what {
                What::Closed => Some(Sign::Notice),
                What::Placed | What::Found => match (writing(&living, &[&path]), what) {
                    (Writing::Yes, _) => None,
                    (_, What::Found) => Some(Sign::Scan),
                    (Writing::No, _) => Some(Sign::Move),
                    (Writing::Ending, _) => Some(Sign::EarlyMove),
                },
                What::Exists | What::Gone => None,
            };
            closed.extend(sign.map(|sign| (path, sign)));
        }
        if closes && !closed.is_empty() {
            let counted = self.holder.close(&closed, now, processes.snapshot(living));
            self.count(counted);
            processes.hold(self.holder.suspects());
        }
    }

    /// Reviews the held closes, if a review is due.
    pub fn review(&mut self, now: Duration, processes: &mut Processes) {
        if self.holder.next_review().is_none_or(|due| due > now) {
            return;
        }
        let snapshot = processes.snapshot_of_suspects(self.holder.suspects());
        let counted = self.holder.review(now, &snapshot);
        self.count(counted);
        processes.hold(self.holder.suspects());
    }

    /// Counts closes. The close of a file that is gone does not count: what takes its place begins anew.
    fn count(&mut self, closed: Vec<PathBuf>) {
        let there: Vec<PathBuf> = closed.into_iter().filter(|path| path.exists()).collect();
        self.decisions.extend(self.tracker.handle_all(&there, Fact::Closed));
    }

    /// Writes the events of all decisions.
    pub fn announce(&mut self, events: &mut EventLog) -> io::Result<()> {
        let decisions = std::mem::take(&mut self.decisions);
        self.beginning.iter_mut().for_each(|beginning| beginning.note(&decisions));
        let outputs = self.watch.outputs;
        for decision in &decisions {
            if let commit::What::Opened(path) = &decision.what {
                self.begin_window(decision.port, path);
            }
        }
        let announced = decisions.iter().flat_map(|decision| self.announcer.events(outputs, decision));
        events.append(&announced.collect::<Vec<_>>())
    }

    fn begin_window(&mut self, port: usize, path: &Path) {
        let output = &self.watch.outputs[port];
        if let Some(spec) = &output.window {
            // Without a thread all is kept.
            self.windows.extend(Window::begin(self.job, &output.port, path, spec, self.waker.clone()));
        }
    }

    /// Is readable when [`Outputs::wants_pause`] may have changed.
    pub fn waker(&self) -> Option<BorrowedFd<'_>> {
        self.waker.as_ref().map(|waker| waker.as_fd())
    }

    /// Whether a window wants the job to be paused.
    pub fn wants_pause(&self) -> bool {
        // Before the look: a change after that wakes again.
        let _ = self.waker.as_ref().map(|waker| waker.read());
        self.windows.iter().any(Window::pauses)
    }

    /// Reports what has happened to windows.
    pub fn tell_windows(&mut self, events: &mut EventLog) -> io::Result<()> {
        let warnings: Vec<String> = self.windows.iter().flat_map(Window::warnings).collect();
        let warnings: Vec<Event> = warnings.into_iter().map(|message| Event::warning(message, None)).collect();
        events.append(&warnings)
    }

    /// Ends the windows of a job that has succeeded. Returns false: not all have ended.
    ///
    /// # Errors
    /// Why a file is lost.
    pub fn end_windows(&mut self) -> Result<bool, String> {
        let Some(ended) = self.windows.iter().map(Window::end).collect::<Option<Vec<_>>>() else { return Ok(false) };
        for file in ended {
            self.announcer.discarded.extend(file?);
        }
        Ok(true)
    }

    /// Whether an output has data, or had some.
    pub fn have_data(&mut self) -> bool {
        self.beginning.as_mut().is_some_and(Beginning::is_over)
    }

    /// Commits all outputs after the success of the job, and reports early commits that were changed.
    pub fn commit_all(&mut self, events: &mut EventLog) -> io::Result<()> {
        let released = self.holder.release();
        self.count(released);
        self.announce(events)?;
        events.append(&self.announcer.end(self.watch.outputs))?;
        self.decisions.extend(self.tracker.finish(&existing(self.watch.outputs)));
        self.announce(events)
    }
}

fn new_waker() -> Option<Arc<EventFd>> {
    EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).ok().map(Arc::new)
}

/// The time until an output has data.
#[derive(Debug, Default)]
struct Beginning {
    empty: Vec<PathBuf>,
    over: bool,
}

impl Beginning {
    /// Adds the files of outputs that may exist now.
    fn note(&mut self, decisions: &[Decision]) {
        let opened = decisions.iter().filter_map(|decision| match &decision.what {
            commit::What::Opened(path) => Some(path.to_owned()),
            _ => None,
        });
        if !self.over {
            self.empty.extend(opened);
        }
    }

    /// Whether an output has data, or had some.
    fn is_over(&mut self) -> bool {
        let has_data = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() > 0);
        self.over = self.over || self.empty.len() > EMPTY_FILES || self.empty.iter().any(|path| has_data(path));
        if self.over {
            self.empty.clear();
        }
        self.over
    }
}
