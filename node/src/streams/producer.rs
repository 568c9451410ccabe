//! The state of a producer, as its events tell it to a consumer.

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use nix::sys::inotify::AddWatchFlags;

use crate::protocol::event::{Seen, ENTRY, FOREIGN};
use crate::protocol::job::{Gate, Input, Kind, LocalProducer};
use crate::streams::origin::Failure;
use crate::sys::file_id::file_id;
use crate::sys::symbolic_links;
use crate::sys::tail::Follower;
use crate::sys::watch::{Watch, ARRIVES};

/// How far the producer is with the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The events have not named the file yet.
    Silent,
    Writing,
    /// The file is committed and final, with this number of bytes.
    Committed(u64),
    /// The producer has ended without a commit of the file.
    Failed(String),
}

#[derive(Debug)]
pub struct Producer {
    pub state: State,
    port: String,
    /// The path of the file or directory here, and in the events.
    path: PathBuf,
    named: PathBuf,
    /// The files of a directory that were committed and not taken yet, relative to it. For a file there are none.
    committed: Option<Vec<PathBuf>>,
    events: Events,
    /// The file is taken to be complete after this number of closes, even before its commit.
    pub closes: Option<NonZeroU32>,
    is_closed: bool,
    /// The first bytes that are not in the committed file any more.
    pub discarded: u64,
    /// The file is written by no process any more. The commit comes when all of it was taken, or is needed as a whole.
    replays: bool,
}

/// The events of the producer.
#[derive(Debug)]
struct Events {
    path: PathBuf,
    follower: Follower,
    watched: bool,
    /// The writer of the events has another `serve`, which may be gone, too. Then only the lock of the file tells.
    locks: bool,
}

impl Events {
    /// Watches the events, or the nearest directory in which they will appear.
    fn watch(&mut self, watch: &mut Watch) {
        if self.watched {
            return;
        }
        let closed = if self.locks { AddWatchFlags::IN_CLOSE_WRITE } else { AddWatchFlags::empty() };
        self.watched = watch(&self.path, AddWatchFlags::IN_MODIFY | closed).is_ok();
        if !self.watched {
            let mut above = self.path.ancestors().skip(1);
            let _ = above.any(|directory| watch(directory, ARRIVES).is_ok());
        }
    }
}

impl Producer {
    /// Returns the producer of a file on this machine, with the `serve` of this process.
    pub fn of_file(port: &str, path: &Path, events: PathBuf) -> Self {
        Self {
            state: State::Silent,
            port: port.to_owned(),
            path: path.to_owned(),
            named: path.to_owned(),
            committed: None,
            events: Events { follower: Follower::new(events.clone()), path: events, watched: false, locks: false },
            closes: None,
            is_closed: false,
            discarded: 0,
            replays: false,
        }
    }

    /// Whether the file was closed often enough to be taken to be complete.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the producer of a complete file, which is streamed as if it were being written.
    pub fn of_replay(path: &Path) -> Self {
        let mut producer = Self::of_file("", path, PathBuf::new());
        producer.events.watched = true;
        Self { state: State::Writing, replays: true, ..producer }
    }

    /// Commits a replayed file, because all of it was taken, or it is needed as a whole. Returns whether the state has
    /// changed.
    pub fn finish(&mut self) -> bool {
        if !self.replays || self.is_final() {
            return false;
        }
        self.state = match fs::metadata(&self.path) {
            Ok(file) => State::Committed(file.len()),
            Err(error) => State::Failed(format!("cannot read {}: {error}", self.path.display())),
        };
        true
    }

    /// Returns the producer of a byte stream.
    pub fn of_input(input: &Input, local: &LocalProducer) -> Self {
        let mut producer = Self::of_file(&input.port, &input.path, local.events.clone());
        producer.events.locks = local.lock;
        Self { named: local.named.clone(), closes: local.closes, ..producer }
    }

    /// Returns the producer of a file or a directory, which is committed as a whole when the output is complete.
    pub fn of_gate(gate: &Gate) -> Self {
        let committed = (gate.kind == Kind::Directory).then(Vec::new);
        let mut producer = Self::of_file(&gate.port, &gate.path, gate.events.clone());
        producer.events.locks = gate.lock;
        Self { named: gate.named().to_owned(), committed, ..producer }
    }

    /// Checks that no symbolic link on the way to the output leads elsewhere than where the producer runs.
    ///
    /// # Errors
    /// The failure of a command that has to start again with the file.
    pub fn check_links(&self) -> Result<(), Failure> {
        symbolic_links::leads_elsewhere(&self.path, &self.named).map_or(Ok(()), |leads| {
            let (named, leads) = (self.named.display(), leads.display());
            Err(Failure::Unstreamable(format!("{named} is a link to {leads}, which may be another file here")))
        })
    }

    /// Returns the files of a directory that were committed since the last call, relative to it.
    pub fn take_committed(&mut self) -> Vec<PathBuf> {
        self.committed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Watches the events, or the nearest directory in which they will appear. Must be called until they exist.
    pub fn watch(&mut self, watch: &mut Watch) {
        self.events.watch(watch);
    }

    /// Says that the watches have to be set again.
    pub fn watches_are_gone(&mut self) {
        self.events.watched = self.replays;
    }

    /// Reads new events.
    pub fn read(&mut self) {
        // After a commit no event changes the state, and a busy reader would read the events each time.
        if self.replays || matches!(self.state, State::Committed(_)) {
            return;
        }
        self.read_lines();
        if self.events.locks && !self.is_final() && !self.events.follower.is_written() {
            // Nothing follows what is there now.
            self.read_lines();
            if !self.is_final() {
                self.state = State::Failed(format!("the producer of {} is gone", self.path.display()));
            }
        }
        if self.events.follower.is_cut() && !matches!(self.state, State::Committed(_)) {
            self.state = State::Failed(format!("{}: {FOREIGN}", self.path.display()));
        }
    }

    fn is_final(&self) -> bool {
        matches!(self.state, State::Committed(_) | State::Failed(_))
    }

    fn read_lines(&mut self) {
        while let Some(lines) = self.events.follower.lines() {
            lines.iter().filter_map(|line| Seen::parse(line)).for_each(|seen| self.note(&seen));
        }
    }

    fn note(&mut self, seen: &Seen) {
        if self.is_final() {
            return;
        }
        if let Some(files) = &mut self.committed {
            if seen.port.as_ref() == Some(&self.port) {
                match seen.event.as_str() {
                    ENTRY => files.extend(
                        seen.path.iter().filter_map(|path| path.strip_prefix(&self.named).ok()).map(Path::to_owned),
                    ),
                    "complete" => self.state = State::Committed(0),
                    _ => {}
                }
                return;
            }
        }
        let ours = || {
            let names = |path: &PathBuf| *path == self.named || same_file(path, &self.path);
            seen.port.as_ref() == Some(&self.port) && seen.path.as_ref().is_some_and(names)
        };
        match seen.event.as_str() {
            "opened" | "closed" if ours() => {
                self.state = State::Writing;
                self.is_closed |= self.closes.is_some_and(|closes| seen.closes >= Some(closes.get()));
            }
            "committed" if ours() => {
                self.state = State::Committed(seen.size.unwrap_or(0));
                self.discarded = seen.discarded.unwrap_or(0);
            }
            "exit" => {
                let how = if seen.success { "ended without committing" } else { "failed before committing" };
                self.state = State::Failed(format!("the producer {how} {}", self.path.display()));
            }
            _ => {}
        }
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    one.file_name() == other.file_name() && file_id(one).is_some_and(|id| Some(id) == file_id(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::Write;

    use crate::sys::write_lock;

    struct Told {
        _directory: tempfile::TempDir,
        events: PathBuf,
    }

    impl Told {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            Self { events: directory.path().join("events"), _directory: directory }
        }

        fn write(&self, lines: &str) {
            let mut file = OpenOptions::new().append(true).create(true).open(&self.events).unwrap();
            file.write_all(lines.as_bytes()).unwrap();
        }

        fn lock(&self) -> File {
            let file = OpenOptions::new().append(true).create(true).open(&self.events).unwrap();
            assert_eq!(write_lock::lock(&file), Ok(true));
            file
        }

        fn producer(&self, locks: bool) -> Producer {
            let mut producer = Producer::of_file("p", Path::new("/here/f"), self.events.clone());
            producer.events.locks = locks;
            Producer { named: "/there/f".into(), ..producer }
        }
    }

    const OPENED: &str = "{\"event\":\"opened\",\"port\":\"p\",\"path\":\"/there/f\"}\n";
    const COMMITTED: &str = "{\"event\":\"committed\",\"port\":\"p\",\"path\":\"/there/f\",\"size\":3}\n";
    const EXIT: &str = "{\"event\":\"exit\",\"success\":true}\n";

    fn gone() -> State {
        State::Failed("the producer of /here/f is gone".into())
    }

    #[test]
    fn what_was_said_before_holds() {
        for (locks, lines, expected) in [
            (true, OPENED.to_owned(), gone()),
            (false, OPENED.to_owned(), State::Writing),
            (true, format!("{OPENED}{COMMITTED}"), State::Committed(3)),
            (true, format!("{OPENED}{COMMITTED}{EXIT}"), State::Committed(3)),
            (true, format!("{OPENED}{}", COMMITTED.trim_end()), gone()),
            (true, EXIT.to_owned(), State::Failed("the producer ended without committing /here/f".into())),
        ] {
            let told = Told::new();
            told.write(&lines);
            let mut producer = told.producer(locks);
            producer.read();
            assert_eq!(producer.state, expected, "{lines}");
            told.write(COMMITTED);
            producer.read();
            assert_eq!(producer.state, if locks { expected } else { State::Committed(3) }, "{lines}");
        }
    }

    #[test]
    fn who_ends_while_it_is_looked_at_is_not_gone() {
        for number in 0..100 {
            let told = Told::new();
            let lock = told.lock();
            told.write(OPENED);
            let mut producer = told.producer(true);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    (0..number % 50).for_each(|_| std::thread::yield_now());
                    told.write(&format!("{COMMITTED}{EXIT}"));
                    drop(lock);
                });
                while !producer.is_final() {
                    producer.read();
                }
            });
            assert_eq!(producer.state, State::Committed(3));
        }
    }
}
