//! The jobs of a run directory: what happens in them is printed, and what is left of those that were killed is ended.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::inotify::AddWatchFlags;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use super::directory;
use super::lifeline::Lifeline;
use super::output::Output;
use super::readers::{Readers, SESSION};
use crate::inputs::feed::remove_inputs;
use crate::processes::tree;
use crate::protocol::event::{now, Event, ExitEvent, Reason, Seen, ENTRY, FOREIGN};
use crate::protocol::json::{self, ByteString};
use crate::sys::remote_file;
use crate::sys::tail::{is_written, Follower};
use crate::sys::watch::{Watcher, ARRIVES};

/// Time between two looks at files without notices.
pub const LOOK: Duration = Duration::from_millis(250);
/// The same in the first moments after a process has closed the events of a job.
const SOON: Duration = Duration::from_millis(5);
const MOMENT: Duration = Duration::from_millis(100);
/// How long jobs may take to end when the driver is gone.
const FAREWELL: Duration = Duration::from_secs(10);
/// The same for readers, on which nothing depends, before they are killed, and after it.
const FAREWELL_OF_READERS: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Jobs,
    Job(OsString),
}

/// A job that has not ended.
#[derive(Debug)]
struct Running {
    events: Follower,
    /// The process of `exec`, valid as long as the events are open for writing.
    pid: Option<i32>,
    /// An `exit` that is the last event if no process writes any more and nothing follows.
    exit: Option<Vec<u8>>,
    /// A process other than `exec` has written into the events.
    foreign: bool,
}

impl Running {
    fn new(events: PathBuf) -> Self {
        Self { events: Follower::new(events), pid: None, exit: None, foreign: false }
    }

    /// Some new events as they are printed. An `exit` is kept back. Without more events None.
    fn news(&mut self, id: &OsStr) -> Option<String> {
        let mut text = String::new();
        for line in self.events.lines()? {
            // Another process has also written an `exit` after which something comes.
            self.foreign |= self.exit.take().is_some();
            let Some(seen) = Seen::parse(&line).filter(|seen| !seen.names_job()) else {
                self.foreign |= !line.is_empty();
                continue;
            };
            if seen.event == ENTRY {
                continue;
            }
            self.pid = self.pid.or(seen.pid);
            if seen.event == "exit" {
                self.exit = Some(line);
            } else {
                text.push_str(&printed(id, &line));
            }
        }
        Some(text)
    }
}

/// All jobs, and where is printed what happens in them.
pub struct Jobs {
    directory: PathBuf,
    /// Present if the jobs are on this machine.
    lifeline: Option<Lifeline>,
    watcher: Watcher<Token>,
    running: HashMap<OsString, Running>,
    /// Jobs whose events were all printed.
    ended: HashSet<OsString>,
    /// Jobs whose events a process has closed. It may have been `exec`: a process that dies closes a file before it
    /// unlocks it.
    doubtful: HashMap<OsString, Instant>,
    /// Jobs to end by a signal, when their `exec` is known.
    condemned: HashSet<OsString>,
    readers: Readers,
    pub output: Output,
}

impl Jobs {
    /// Makes the directory of the jobs in a run directory.
    ///
    /// # Arguments
    /// * `readable` - others may read the events of the jobs
    /// * `lifeline` - None: the jobs are on other machines
    pub fn new(run_directory: &Path, readable: bool, lifeline: Option<Lifeline>, output: Output) -> io::Result<Self> {
        let directory = run_directory.join("jobs");
        directory::make(&directory, readable)?;
        // Such as with too many instances of this user.
        let mut watcher = Watcher::new().or_else(|_| Watcher::blind())?;
        match watcher.watch(&directory, ARRIVES, Token::Jobs) {
            Err(Errno::ENOSPC) => watcher = Watcher::blind()?,
            watched => watched?,
        }
        let (running, ended, doubtful) = (HashMap::new(), HashSet::new(), HashMap::new());
        let (condemned, readers) = (HashSet::new(), Readers::default());
        Ok(Self { directory, lifeline, watcher, running, ended, doubtful, condemned, readers, output })
    }

    /// Readable when something has happened.
    pub fn notices(&self) -> BorrowedFd<'_> {
        self.watcher.as_fd()
    }

    pub fn are_noticed(&self) -> bool {
        !self.watcher.is_blind()
    }

    /// Cancels a job by a signal to its `exec`, which may not have begun.
    pub fn terminate(&mut self, id: &OsStr) {
        if !self.ended.contains(id) {
            self.condemned.insert(id.to_owned());
            self.execute(id);
        }
    }

    fn execute(&mut self, id: &OsStr) {
        if let Some(pid) = self.running.get(id).and_then(|running| running.pid) {
            if self.condemned.remove(id) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
    }

    /// Ends all jobs: those on this machine, and what is left of them, for certain.
    ///
    /// # Arguments
    /// * `wait` - waits a moment for jobs on other machines, and looks at them; false: not any longer
    pub fn end(&mut self, wait: impl FnMut(&mut Self) -> bool) {
        if let Some(lifeline) = &mut self.lifeline {
            lifeline.let_go();
            self.take_leave();
        } else {
            self.cancel_all(wait);
        }
    }

    /// Cancels jobs on other machines, and waits for them to end. They end, too, when the run directory is gone.
    fn cancel_all(&mut self, mut wait: impl FnMut(&mut Self) -> bool) {
        for id in self.running.keys() {
            let _ = File::create(self.directory.join(id).join("cancel"));
        }
        while !self.running.is_empty() && wait(self) {}
    }

    /// Waits for the jobs to end, and then ends those that did not.
    fn take_leave(&mut self) {
        let begun = Instant::now();
        // The reader of a session may have begun without any event yet.
        while !self.running.is_empty() || self.readers.is_busy() {
            if begun.elapsed() >= FAREWELL_OF_READERS {
                self.readers.kill();
            }
            // One may wait for a storage that does not answer, and not even be killed.
            let only_readers = self.running.keys().all(|id| self.readers.have(id));
            let patience = if only_readers { 2 * FAREWELL_OF_READERS } else { FAREWELL };
            let left = patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            let left = self.tick().map_or(left, |tick| left.min(tick));
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let _ = poll(&mut [PollFd::new(self.watcher.as_fd(), PollFlags::POLLIN)], timeout);
            self.take_notices();
        }
        for running in self.running.values() {
            if let Some(pid) = running.pid {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        if !self.running.is_empty() {
            // What jobs that have succeeded left behind goes on, as without us.
            let jobs: HashSet<PathBuf> = self.running.keys().map(|id| self.directory.join(id)).collect();
            tree::sweep("SFIO_JOB", |job| jobs.contains(job));
        }
        for id in self.running.keys() {
            remove_inputs(&self.directory.join(id));
        }
    }

    /// The time until the next look at files without notices.
    pub fn tick(&self) -> Option<Duration> {
        let doubt = self.doubtful.values().map(|since| if since.elapsed() < MOMENT { SOON } else { LOOK }).min();
        doubt.or((self.watcher.is_blind() || self.readers.is_busy()).then_some(LOOK))
    }

    /// Prints what has happened.
    pub fn take_notices(&mut self) {
        let (notices, lost) = self.watcher.read();
        let mut changed: Vec<OsString> = Vec::new();
        for id in self.readers.reap() {
            self.reader_has_ended(id);
        }
        for notice in notices {
            match (notice.token, notice.name) {
                (Token::Jobs, Some(name)) => self.welcome(name),
                (Token::Job(id), Some(name)) if name == "events.jsonl" => {
                    if notice.mask.contains(AddWatchFlags::IN_CLOSE_WRITE) {
                        self.doubtful.insert(id.clone(), Instant::now());
                    }
                    if !changed.contains(&id) {
                        changed.push(id);
                    }
                }
                (Token::Job(id), Some(name)) if name == SESSION => self.begin_session(&id),
                _ => {}
            }
        }
        if lost {
            self.welcome_all();
            changed = self.running.keys().cloned().collect();
            self.doubtful.extend(changed.iter().map(|id| (id.clone(), Instant::now())));
        }
        let doubtful: Vec<OsString> = self.doubtful.keys().filter(|id| !changed.contains(id)).cloned().collect();
        for id in changed.into_iter().chain(doubtful) {
            // Asked before the events are read: what is read then is all.
            let closed = self.doubtful.contains_key(&id) && self.is_closed(&id);
            self.pass_on(&id, closed);
        }
    }

    /// Looks for jobs, and for what has happened in them.
    pub fn welcome_all(&mut self) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            self.welcome(entry.file_name());
        }
    }

    /// A job has appeared; its events may be there already.
    fn welcome(&mut self, id: OsString) {
        if self.ended.contains(&id) {
            return;
        }
        let directory = self.directory.join(&id);
        let mask = ARRIVES | AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_CLOSE_WRITE;
        let watched = self.watcher.watch(&directory, mask | AddWatchFlags::IN_ONLYDIR, Token::Job(id.clone()));
        self.begin_session(&id);
        // The user has too many watches. From now on the files are looked at.
        if watched == Err(Errno::ENOSPC) {
            Watcher::blind().into_iter().for_each(|blind| self.watcher = blind);
        }
        // Where others write, there are notices of little, and it is looked at anyway.
        let known = watched.is_ok() || self.watcher.is_blind() || self.lifeline.is_none();
        if known && remote_file::exists(&directory.join("events.jsonl")) {
            let closed = self.is_closed(&id);
            self.pass_on(&id, closed);
        }
    }

    /// Starts the reader of a job, if it is a session on this machine.
    fn begin_session(&mut self, id: &OsStr) {
        if self.lifeline.is_none() || self.ended.contains(id) {
            return;
        }
        if let Err(error) = self.readers.welcome(id, &self.directory.join(id)) {
            self.session_fails(id, Reason::Error, Some(format!("cannot start sfio-node read: {error}")));
        }
    }

    /// Ends a session whose reader has ended. The events may say why, if the reader has begun them.
    fn reader_has_ended(&mut self, id: OsString) {
        if self.ended.contains(&id) {
            return;
        }
        if remote_file::exists(&self.directory.join(&id).join("events.jsonl")) {
            self.doubtful.insert(id, Instant::now());
        } else {
            self.session_fails(&id, Reason::Lost, None);
        }
    }

    /// A session ends without events.
    fn session_fails(&mut self, id: &OsStr, reason: Reason, message: Option<String>) {
        let exit = ExitEvent { reason, message, ended: now(), ..ExitEvent::default() };
        self.ended.insert(id.to_owned());
        self.output.print(&printed(id, Event::Exit(exit).line().as_bytes()));
    }

    /// Whether no process writes the events of a job any more. For jobs on other machines that is unknown.
    fn is_closed(&self, id: &OsStr) -> bool {
        let Some(lifeline) = &self.lifeline else { return false };
        let known = self.running.get(id).and_then(|running| running.events.is_locked());
        let is_written = || File::open(self.directory.join(id).join("events.jsonl")).as_ref().map_or(true, is_written);
        // Another process may have replaced the file before it was read here.
        !known.unwrap_or_else(|| is_written() && !lifeline.store.has_concluded(id))
    }

    /// Prints new events of a job. `closed`: its exec has closed them, which it does only when it ends.
    ///
    /// As long as it has not, an `exit` is not its own.
    fn pass_on(&mut self, id: &OsStr, closed: bool) {
        if self.ended.contains(id) {
            self.doubtful.remove(id);
            return;
        }
        let path = self.directory.join(id).join("events.jsonl");
        let mut running = self.running.remove(id).unwrap_or_else(|| Running::new(path.clone()));
        while let Some(text) = running.news(id) {
            self.output.print(&text);
        }
        // On other machines the writer of an `exit` is unknown.
        let is_own = |lifeline: &Lifeline| closed && lifeline.store.has_ended(id).unwrap_or(true);
        let is_own = self.lifeline.as_ref().is_none_or(is_own);
        running.foreign |= closed && !is_own && running.exit.is_some();
        let exit = running.exit.take_if(|_| is_own);
        let last = match exit {
            Some(exit) => Some(exit),
            None if closed => Some(self.bury(id, &path, &running)),
            None => None,
        };
        if let Some(last) = last {
            if let Some(lifeline) = &self.lifeline {
                lifeline.store.forget(id);
            }
            self.watcher.forget(|token| matches!(token, Token::Job(other) if other == id));
            self.ended.insert(id.to_owned());
            self.doubtful.remove(id);
            self.condemned.remove(id);
            self.output.print(&printed(id, &last));
        } else {
            self.running.insert(id.to_owned(), running);
            self.execute(id);
        }
    }

    /// Ends what is left of a job whose `exec` was killed, and gives its last event.
    fn bury(&self, id: &OsStr, path: &Path, running: &Running) -> Vec<u8> {
        self.kill_processes(id);
        let changed = running.foreign || running.events.is_cut() || !remote_file::exists(path);
        let (reason, message) = match changed {
            true => (Reason::Error, Some(FOREIGN.to_owned())),
            false => (Reason::Lost, None),
        };
        let exit = ExitEvent { success: false, reason, message, ended: now(), ..ExitEvent::default() };
        let line = Event::Exit(exit).line();
        let separator = if running.events.is_torn() { "\n" } else { "" };
        let append = OpenOptions::new().append(true).open(path);
        // Jobs that read from this one learn it there.
        let _ = append.and_then(|mut file| file.write_all(format!("{separator}{line}").as_bytes()));
        line.into_bytes()
    }

    fn kill_processes(&self, id: &OsStr) {
        let directory = self.directory.join(id);
        tree::sweep("SFIO_JOB", |job| job == directory);
        remove_inputs(&directory);
    }
}

/// The line that is printed for a job's event.
fn printed(id: &OsStr, line: &[u8]) -> String {
    let event = String::from_utf8_lossy(line);
    let members = event.trim_ascii().trim_start_matches('{');
    format!("{{\"job\":{},{members}\n", json::write(&ByteString(id)))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::protocol::registration::Presence;

    #[test]
    fn a_job_that_is_first_seen_before_its_last_event_is_not_lost() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().canonicalize().unwrap();
        let mut jobs = Jobs::new(&run, false, Some(Lifeline::new(&run).unwrap()), Output::new()).unwrap();
        for (name, events) in [("empty", &[][..]), ("warned", &[Event::warning("w", None)])] {
            let (id, path) = (OsStr::new(name), run.join("jobs").join(name));
            fs::create_dir(&path).unwrap();
            let (presence, mut log) = Presence::begin(&path).unwrap();
            log.append(events).unwrap();
            presence.store.iter().for_each(|store| store.end());
            jobs.welcome_all();
            assert!(!jobs.ended.contains(id), "{name}");
            presence.end::<()>(log, ExitEvent { code: Some(0), success: true, ..ExitEvent::default() }, None);
            jobs.take_notices();
            assert!(jobs.ended.contains(id), "{name}");
            let text = fs::read_to_string(path.join("events.jsonl")).unwrap();
            assert_eq!(text.matches("\"exit\"").count(), 1, "{text}");
        }
    }

    #[test]
    fn a_stopped_reader_without_events_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().canonicalize().unwrap();
        let mut jobs = Jobs::new(&run, false, Some(Lifeline::new(&run).unwrap()), Output::new()).unwrap();
        let mut sleep = Command::new("sleep");
        let reader = sleep.arg("600").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(reader.id()).unwrap());
        kill(pid, Signal::SIGSTOP).unwrap();
        jobs.readers.adopt(OsStr::new("session"), reader);
        jobs.end(|_| false);
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    }
}
