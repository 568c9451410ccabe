//! `sfio-node read`: brings parts of a file into the page cache of this machine, as its driver says, and gives them
//! back. It decides nothing, and nothing depends on it.

mod cache;
mod ranges;
mod workers;

use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::AddWatchFlags;
use nix::sys::resource::{getrusage, UsageWho};
use nix::sys::signalfd::SignalFd;
use nix::unistd::{dup2_stderr, Pid};

use self::cache::{cached, drop_pages, whole_cached};
use self::ranges::Ranges;
use self::workers::Workers;
use crate::processes::usage::own_cpu;
use crate::protocol::event::{now, Event, EventLog, EvictedEvent, ExitEvent, Reason, StartedEvent, Usage};
use crate::protocol::json;
use crate::protocol::liveness;
use crate::protocol::messages::{SessionOrder, SessionSpec};
use crate::protocol::part::Identity;
use crate::protocol::registration::Presence;
use crate::protocol::values::Extent;
use crate::sys::exit::{CANNOT_SET_UP, UNFINISHED};
use crate::sys::remote_file;
use crate::sys::signals;
use crate::sys::tail::Follower;
use crate::sys::watch::{Watcher, ARRIVES};

/// Bytes of one read.
const REQUEST: u64 = 1 << 20;
const MOST_THREADS: u64 = 64;
const CONTROL: &str = "control.jsonl";
/// Time between two looks whether the watched pages are still cached.
const TICK: Duration = Duration::from_secs(1);
/// The most bytes of a file that the kernel keeps as one piece, which it gives back as a whole.
const LARGEST_FOLIO: u64 = 2 << 20;
const LEAST: u64 = 1 << 20;
const BLIND_TICK: Duration = Duration::from_millis(100);

/// Serves a session until its driver ends it.
pub fn run(job: &Path) -> i32 {
    let (presence, mut events) = match Presence::begin(job) {
        Ok(begun) => begun,
        Err(error) => {
            eprintln!("sfio-node: read {}: {error}", job.display());
            return CANNOT_SET_UP;
        }
    };
    // A thread that waits for a storage keeps the files of this process open, even after a kill. Without a standard
    // error no caller waits for its end.
    let _ = File::options().write(true).open("/dev/null").and_then(|null| Ok(dup2_stderr(null)?));
    let mut watcher = Watcher::new().ok();
    let started = now();
    let served = Reader::new(&presence.directory, &mut watcher).and_then(|mut reader| reader.serve(&mut events));
    let (code, reason, message) = match served {
        Ok(reason) => (if reason == Reason::Exited { 0 } else { UNFINISHED }, reason, None),
        Err(message) => (UNFINISHED, Reason::Error, Some(message)),
    };
    let max_rss =
        getrusage(UsageWho::RUSAGE_SELF).map_or(0, |found| u64::try_from(found.max_rss()).unwrap_or(0) * 1024);
    let usage = Usage { max_rss, wrapper_cpu: own_cpu().as_secs_f64(), ..Usage::default() };
    let success = reason == Reason::Exited;
    let exit = ExitEvent {
        code: Some(code),
        success,
        reason,
        message,
        started: Some(started),
        ended: now(),
        usage,
        ..ExitEvent::default()
    };
    presence.end(events, exit, watcher);
    code
}

struct Reader<'a> {
    directory: &'a Path,
    watcher: &'a mut Option<Watcher<()>>,
    alive: File,
    signals: SignalFd,
    session: SessionSpec,
    control: Follower,
    workers: Workers,
    pages: Pages,
    /// No more chunks will be asked for.
    ends: bool,
}

/// The pages of the file in the cache.
struct Pages {
    file: File,
    /// Ranges that were cached before the session, of `LEAST` bytes or more, and were not read again.
    before: Ranges,
    /// Ranges that this session has brought, and not given back.
    ours: Ranges,
    /// Ranges that were given back. The kernel drops what it keeps as one piece when all of it is given back.
    returned: Ranges,
    watched: Vec<Range<u64>>,
    /// Bytes of `watched` that are known to be gone.
    gone: u64,
}

impl Pages {
    fn new(file: File, size: u64) -> Self {
        let mut before = Ranges::default();
        whole_cached(&file, 0..size, LEAST).into_iter().for_each(|range| before.insert(range));
        let (ours, returned) = (Ranges::default(), Ranges::default());
        Self { file, before, ours, returned, watched: Vec::new(), gone: 0 }
    }

    /// Takes that a range is in the cache. What was there before the session stays when it ends; what the kernel has
    /// read ahead meanwhile does not.
    fn take(&mut self, range: Range<u64>) {
        let before = self.before.within(&range);
        self.returned.remove(&range);
        self.ours.insert(range);
        before.iter().for_each(|range| self.ours.remove(range));
    }

    fn give_back(&mut self, ranges: &[Range<u64>]) {
        for ours in ranges.iter().flat_map(|range| self.ours.within(range)).collect::<Vec<_>>() {
            self.ours.remove(&ours);
            self.returned.insert(ours.clone());
            let around = ours.start.saturating_sub(LARGEST_FOLIO)..ours.end.saturating_add(LARGEST_FOLIO);
            self.returned.within(&around).iter().for_each(|range| drop_pages(&self.file, range));
        }
    }

    fn watch(&mut self, ranges: Vec<Range<u64>>) {
        (self.watched, self.gone) = (ranges, 0);
    }

    /// Bytes that are watched, were brought, and are not cached any more, if there are more than before.
    fn look(&mut self) -> Option<u64> {
        let ours: Vec<Range<u64>> = self.watched.iter().flat_map(|range| self.ours.within(range)).collect();
        let all: u64 = ours.iter().map(|range| range.end - range.start).sum();
        let gone = all.saturating_sub(cached(&self.file, &ours)?);
        let more = gone > self.gone;
        self.gone = gone;
        more.then_some(gone)
    }
}

impl<'a> Reader<'a> {
    /// # Errors
    /// A message: such as that it is another file.
    fn new(directory: &'a Path, watcher: &'a mut Option<Watcher<()>>) -> Result<Self, String> {
        let path = directory.join("session.json");
        let at = |message: String| format!("{}: {message}", path.display());
        let text = std::fs::read(&path).map_err(|error| at(error.to_string()))?;
        let session: SessionSpec = json::read(&text).map_err(at)?;
        if !(1..=MOST_THREADS).contains(&session.threads) {
            return Err(at(format!("threads: has to be 1 to {MOST_THREADS}")));
        }
        let alive = liveness::open(&directory.join("../.."))?;
        let (signals, _) = signals::take().map_err(|error| format!("signals: {}", error.desc()))?;
        let cannot = |error: std::io::Error| format!("{}: {error}", session.file.display());
        let file = remote_file::open(&session.file).map_err(cannot)?;
        if let Some(watcher) = watcher {
            let _ = watcher.watch(directory, ARRIVES | AddWatchFlags::IN_MODIFY, ());
        }
        let size = session.identity.size;
        let pages = Pages::new(file.try_clone().map_err(cannot)?, size);
        let workers = Workers::start(file, size, REQUEST, session.threads as usize, pages.before.clone());
        let workers = workers.map_err(|error| format!("cannot start threads: {error}"))?;
        let control = Follower::new(directory.join(CONTROL));
        Ok(Self { directory, watcher, alive, signals, session, control, workers, pages, ends: false })
    }

    /// # Errors
    /// A message, when it cannot go on.
    fn serve(&mut self, events: &mut EventLog) -> Result<Reason, String> {
        let pid = Pid::this().as_raw();
        let whole = 0..self.session.identity.size;
        let cached = cached(&self.pages.file, std::slice::from_ref(&whole));
        tell(events, &[Event::Started(StartedEvent { pid, command_pid: pid, cached })])?;
        self.compare()?;
        loop {
            if let Some(reason) = liveness::ending(self.directory, &self.alive, &self.signals) {
                return Ok(reason);
            }
            self.take_orders()?;
            let (done, busy) = self.workers.done();
            for done in done {
                let done = done.map_err(|error| format!("cannot read {}: {error}", self.session.file.display()))?;
                done.again.iter().for_each(|range| self.pages.before.remove(range));
                done.ranges.into_iter().for_each(|range| self.pages.take(range));
                tell(events, &[Event::Chunk(done.told)])?;
                self.compare()?;
            }
            if self.ends && !busy {
                return Ok(Reason::Exited);
            }
            if let Some(bytes) = self.pages.look() {
                tell(events, &[Event::Evicted(EvictedEvent { bytes })])?;
            }
            self.wait();
        }
    }

    fn wait(&mut self) {
        let news: Vec<BorrowedFd> = [self.alive.as_fd(), self.signals.as_fd(), self.workers.as_fd()]
            .into_iter()
            .chain(self.watcher.iter().map(AsFd::as_fd))
            .collect();
        let mut descriptors: Vec<PollFd> = news.into_iter().map(|news| PollFd::new(news, PollFlags::POLLIN)).collect();
        let tick =
            if self.watcher.is_none() { Some(BLIND_TICK) } else { (!self.pages.watched.is_empty()).then_some(TICK) };
        let timeout = tick.map_or(PollTimeout::NONE, |tick| PollTimeout::try_from(tick).unwrap_or(PollTimeout::ZERO));
        let _ = poll(&mut descriptors, timeout);
        self.watcher.iter_mut().for_each(|watcher| drop(watcher.read()));
    }

    fn compare(&self) -> Result<(), String> {
        let path = self.session.file.display();
        let now = self.pages.file.metadata().map_err(|error| format!("{path}: {error}"))?;
        match self.session.identity.difference(&Identity::of(&now)) {
            Some(how) => Err(format!("{path} {how}")),
            None => Ok(()),
        }
    }

    fn take_orders(&mut self) -> Result<(), String> {
        while let Some(lines) = self.control.lines() {
            for line in lines {
                let obeyed = self.obey(&line);
                obeyed.map_err(|message| format!("{CONTROL}: {message}: {}", String::from_utf8_lossy(&line)))?;
            }
        }
        Ok(())
    }

    /// Does what a line of `control.jsonl` says.
    ///
    /// # Errors
    /// What is wrong with the line.
    fn obey(&mut self, line: &[u8]) -> Result<(), String> {
        let size = self.session.identity.size;
        let ranges =
            |extents: Vec<Extent>| extents.into_iter().map(|extent| range(extent, size)).collect::<Result<Vec<_>, _>>();
        let SessionOrder { read, drop, watch, end } = json::read(line)?;
        match (read, drop, watch, end) {
            (Some((chunk, extents)), None, None, false) => {
                let ranges = ranges(extents)?;
                if !self.ends {
                    self.workers.ask(chunk, ranges);
                }
            }
            (None, Some(extents), None, false) => self.pages.give_back(&ranges(extents)?),
            (None, None, Some(extents), false) => self.pages.watch(ranges(extents)?),
            (None, None, None, true) => {
                self.ends = true;
                self.workers.close();
            }
            _ => return Err("has to have one of read, drop, watch and end".into()),
        }
        Ok(())
    }
}

fn range((offset, length): Extent, size: u64) -> Result<Range<u64>, String> {
    let end = offset.checked_add(length).filter(|end| *end <= size);
    let outside = || format!("extent [{offset}, {length}] is outside the file, which has {size} bytes");
    Ok(offset..end.ok_or_else(outside)?)
}

fn tell(events: &mut EventLog, told: &[Event]) -> Result<(), String> {
    events.append(told).map_err(|error| format!("events.jsonl: {error}"))
}
