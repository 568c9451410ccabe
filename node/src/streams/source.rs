//! The file that a producer writes, read once, from the front, while it grows.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::AddWatchFlags;

use crate::protocol::messages::FirstBytes;
use crate::protocol::verify::{Blocks, Difference, Digest};
use crate::protocol::wording::counted;
use crate::streams::acknowledgements::Acknowledgements;
use crate::streams::origin::{cannot_place, Failure, Origin, Step};
use crate::streams::producer::{Producer, State};
use crate::sys::file_id::{file_id, file_id_of};
use crate::sys::pipe::move_bytes;
use crate::sys::remote_file;
use crate::sys::watch::Watch;

/// Bytes that are noted at once, before they are taken: as many as a pipe holds.
const AHEAD: u64 = 1 << 20;
/// When bytes are looked for again that a file system has announced.
const SOON: Duration = Duration::from_millis(1);

/// The next bytes of a file.
pub enum Next<'a> {
    /// A copy of the bytes. The file may have other bytes by now: the comparison at the end uses the copy.
    Noted(&'a [u8]),
    /// The file, a place in it, and the number of bytes from there that do not change any more.
    Final(&'a File, u64, u64),
}

impl Next<'_> {
    pub fn length(&self) -> u64 {
        match self {
            Self::Noted(bytes) => bytes.len() as u64,
            Self::Final(_, _, length) => *length,
        }
    }
}

#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    producer: Producer,
    file: Option<File>,
    /// A notice will come when the file grows.
    growth_armed: bool,
    /// The place of the next byte.
    taken: u64,
    /// The end of all bytes that were ever taken. Beyond `taken` after `resume`; before it if some bytes were left out.
    reached: u64,
    compared: Compared,
    /// The failure of the last attempt to take bytes.
    failure: Option<Failure>,
    window: Option<Reading>,
}

/// The file has a window: the producer discards what was acknowledged.
#[derive(Debug)]
struct Reading {
    /// The producer's events.
    events: PathBuf,
    port: String,
    /// Present while the reader acknowledges.
    told: Option<Acknowledgements>,
    /// The bytes that were acknowledged.
    acknowledged: u64,
}

/// The values that are compared with the file at the end.
#[derive(Debug, Default)]
struct Compared {
    /// The bytes that may be taken before the commit.
    noted: Blocks,
    /// The bytes of the file, when all of them were taken before the commit.
    ended_early: Option<u64>,
}

impl Source {
    /// Reads the file `path` of a producer.
    pub fn new(path: &Path, producer: Producer) -> Self {
        Self {
            producer,
            path: path.to_owned(),
            file: None,
            growth_armed: false,
            taken: 0,
            reached: 0,
            compared: Compared::default(),
            failure: None,
            window: None,
        }
    }

    /// Reads the file of a producer that may discard what was read. The reader never goes back.
    pub fn of_window(path: &Path, producer: Producer, events: &Path, port: &str) -> Self {
        let reading = Reading { events: events.to_owned(), port: port.to_owned(), told: None, acknowledged: 0 };
        Self { window: Some(reading), ..Self::new(path, producer) }
    }

    /// Begins to acknowledge, when the file is opened.
    fn begin_window(&mut self) -> Result<(), Failure> {
        let Some(window) = &mut self.window else { return Ok(()) };
        if window.told.is_some() {
            // The file was made anew before a byte was taken.
            self.compared.noted = Blocks::keeping();
            return Ok(());
        }
        match Acknowledgements::begin(&window.events, &window.port) {
            Ok(Some(told)) => {
                window.told = Some(told);
                self.compared.noted = Blocks::keeping();
                Ok(())
            }
            Ok(None) => {
                self.window = None;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(self.discarded()),
            // Another container, with another user: nothing is discarded without this reader.
            Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
                self.window = None;
                Ok(())
            }
            Err(error) => Err(self.cannot_read(error)),
        }
    }

    fn discarded(&self) -> Failure {
        let path = self.path.display();
        Failure::Producer(format!("the first bytes of {path} are discarded: its other readers have read them"))
    }

    /// Checks that the producer has discarded only what was read.
    fn check_discarded(&self) -> Result<(), Failure> {
        let acknowledged = self.window.as_ref().map_or(0, |window| window.acknowledged);
        if self.producer.discarded > acknowledged {
            Err(self.discarded())
        } else {
            Ok(())
        }
    }

    /// Continues at `offset`, because the bytes after it were lost. False if they were never taken.
    /// All watches have to be set again.
    pub fn resume(&mut self, offset: u64) -> bool {
        let known = offset <= self.reached;
        if known {
            self.taken = offset;
        }
        self.growth_armed = false;
        self.producer.watches_are_gone();
        known
    }

    /// Returns the path of the file and the open file, if it is committed and has the size of its commit.
    fn whole(&self) -> Result<Option<(&Path, File)>, Failure> {
        self.check()?;
        let State::Committed(size) = self.producer.state else { return Ok(None) };
        if self.producer.discarded > 0 {
            return Err(self.discarded());
        }
        self.producer.check_links()?;
        let path = self.path.display();
        match remote_file::open(&self.path).and_then(|file| Ok((file.metadata()?.len(), file))) {
            Ok((found, file)) if found == size => Ok(Some((&self.path, file))),
            Ok((found, _)) => {
                let message = format!("{path} was committed with {}, and has {found}", counted(size, "byte"));
                Err(Failure::Rewritten(message))
            }
            Err(error) => Err(self.cannot_read(error)),
        }
    }

    fn cannot_read(&self, error: io::Error) -> Failure {
        let message = format!("cannot read {}: {error}", self.path.display());
        match error.raw_os_error().map(Errno::from_raw) {
            // The limits of this process, and of its machine.
            Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM) => Failure::Job(message),
            _ => Failure::Producer(message),
        }
    }

    /// Takes bytes by `transfer`, which gets the next bytes, and returns how many of them it has moved. A transfer that
    /// refers to the pages of a growing file would give the reader what is written or discarded there later. No
    /// comparison finds bytes that are written back in between.
    ///
    /// # Arguments
    /// * `ahead` - how many bytes may be noted before they are taken
    /// * `most` - the most bytes to take
    pub fn take_by(
        &mut self,
        ahead: u64,
        most: u64,
        transfer: impl FnOnce(Next) -> nix::Result<usize>,
    ) -> Result<Step, Failure> {
        let result = self.take_some(ahead, most, transfer);
        self.failure = result.as_ref().err().cloned();
        result
    }

    fn take_some(
        &mut self,
        ahead: u64,
        most: u64,
        transfer: impl FnOnce(Next) -> nix::Result<usize>,
    ) -> Result<Step, Failure> {
        self.compared.noted.keep();
        let most = self.ahead(ahead)?.min(most);
        let Some(file) = self.file.as_ref() else { return Ok(Step::Waiting) };
        if most == 0 {
            self.compared.noted.forget_kept();
            return self.at_end();
        }
        let moved = transfer(match self.compared.noted.kept(self.taken) {
            [] => Next::Final(file, self.taken, most),
            kept => Next::Noted(&kept[..most.min(kept.len() as u64) as usize]),
        });
        self.took(moved)
    }

    fn took(&mut self, moved: nix::Result<usize>) -> Result<Step, Failure> {
        match moved {
            Ok(0) => self.at_end(),
            Ok(moved) => {
                self.taken += moved as u64;
                self.reached = self.reached.max(self.taken);
                Ok(Step::Moved)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Step::Full),
            Err(Errno::EPIPE) => Ok(Step::Unread),
            Err(error) => Err(self.cannot_read(error.into())),
        }
    }

    /// Returns how many bytes may be taken now. Before the commit they are noted first, and kept: a reader gets these,
    /// also a second time.
    fn ahead(&mut self, ahead: u64) -> Result<u64, Failure> {
        let Some(file) = &self.file else { return Ok(0) };
        let size = file.metadata().map_or(0, |file| file.len());
        if matches!(self.producer.state, State::Committed(_)) && self.window.is_none() {
            return Ok(size.saturating_sub(self.taken));
        }
        let end = size.min(self.taken + ahead);
        if self.compared.noted.bytes() <= self.taken && self.taken < end {
            self.compared.noted.note(file, end).map_err(|error| self.cannot_read(error))?;
        }
        // Of a file that was cut there is less: no more may be promised.
        let most = self.compared.noted.bytes().min(size).saturating_sub(self.taken);
        if most > 0 && self.compared.noted.kept(self.taken).is_empty() {
            // The reader has lost them, or has gone to another place.
            self.compared.noted.keep_again(file, self.taken).map_err(|place| self.rewritten(&place))?;
        }
        Ok(most)
    }

    /// Decides, after all bytes of the file were taken, whether there will be more.
    fn at_end(&mut self) -> Result<Step, Failure> {
        self.file.iter().for_each(|file| remote_file::refresh(file, &self.path));
        let Some(open) = self.file.as_ref() else { return Ok(Step::Waiting) };
        let Ok(file) = open.metadata() else { return Ok(Step::Waiting) };
        let (path, reached) = (self.path.display(), self.reached);
        let rewritten = |how: String| Err(Failure::Rewritten(format!("{path} {how}")));
        if file.len() < reached {
            return rewritten(format!("was cut after {} of it had been streamed", counted(reached, "byte")));
        }
        if file_id(&self.path).is_some_and(|named| named != file_id_of(&file)) {
            if reached > 0 {
                return rewritten(format!("was replaced after {} of it had been streamed", counted(reached, "byte")));
            }
            (self.file, self.growth_armed) = (None, false);
            self.compared = Compared::default();
            return Ok(Step::Moved);
        }
        if file.len() > self.taken {
            if remote_file::is_remembered(open) {
                // The size may come before the bytes.
                thread::sleep(SOON);
            }
            return Ok(Step::Moved);
        }
        if self.producer.finish() {
            return Ok(Step::Moved);
        }
        match self.producer.state {
            State::Committed(size) if file.len() != size => {
                rewritten(format!("was committed with {}, and has {}", counted(size, "byte"), file.len()))
            }
            // A program that knows the size of its file goes to the end at most.
            State::Committed(size) if self.taken > size => {
                let beyond = format!("it has gone to byte {}, and {path} has {size}", self.taken);
                Err(Failure::Unstreamable(format!("the command has to start again with the file: {beyond}")))
            }
            State::Committed(_) => {
                self.check_discarded()?;
                self.compared.noted.compare_from(self.producer.discarded);
                self.compare(open).map(|()| Step::Complete)
            }
            State::Writing if self.producer.is_closed() => {
                // What was left out is compared, too.
                let noted = &mut self.compared.noted;
                noted.note(open, file.len()).map_err(|error| self.cannot_read(error))?;
                if self.compared.noted.bytes() < file.len() {
                    return Ok(Step::Moved);
                }
                self.compared.ended_early = Some(file.len());
                Ok(Step::Complete)
            }
            _ => Ok(Step::Waiting),
        }
    }

    fn compare(&self, file: &File) -> Result<(), Failure> {
        self.compared.noted.difference(file).map_or(Ok(()), |place| Err(self.rewritten(&place)))
    }

    fn rewritten(&self, place: &Difference) -> Failure {
        let path = self.path.display();
        Failure::Rewritten(format!("{path} was written again {place} after these had been streamed"))
    }

    /// Returns what is still to be compared with the final file when its rest will not be taken. None if there is
    /// nothing.
    ///
    /// # Errors
    /// A failure, if the file is final already and has other bytes than those that were taken.
    pub fn left_to_compare(&mut self) -> Result<Option<FirstBytes>, Failure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        match self.producer.state {
            _ if self.compared.ended_early.is_none() && (self.reached == 0 || self.compared.noted.bytes() == 0) => {
                Ok(None)
            }
            // A failure is reported elsewhere, and a reader that has left may have had enough.
            State::Failed(_) => Ok(None),
            State::Committed(size) if self.compared.ended_early.is_some_and(|bytes| bytes != size) => {
                let message = format!("{} was written again after it was closed", self.path.display());
                Err(Failure::Rewritten(message))
            }
            State::Committed(_) => {
                self.check_discarded()?;
                self.compared.noted.compare_from(self.producer.discarded);
                let file = remote_file::open(&self.path).map_err(|error| self.cannot_read(error))?;
                self.compare(&file).map(|()| None)
            }
            State::Silent | State::Writing => {
                let start = self.window.as_ref().map(|window| window.acknowledged);
                start.into_iter().for_each(|start| self.compared.noted.compare_from(start));
                Ok(Some(FirstBytes {
                    bytes: self.compared.noted.bytes(),
                    digest: Digest(self.compared.noted.digest()),
                    whole: self.compared.ended_early.is_some(),
                    start,
                }))
            }
        }
    }
}

impl Origin for Source {
    fn taken(&self) -> u64 {
        self.taken
    }

    fn can_go(&self) -> bool {
        true
    }

    fn go_to(&mut self, place: u64) {
        self.taken = place;
    }

    fn has_more(&self) -> bool {
        self.file.as_ref().and_then(|file| file.metadata().ok()).is_some_and(|file| file.len() > self.taken)
    }

    fn is_final(&self) -> bool {
        matches!(self.producer.state, State::Committed(_))
    }

    fn watch_events(&mut self, watch: &mut Watch) {
        self.producer.watch(watch);
    }

    fn watch_growth(&mut self, watch: &mut Watch) -> bool {
        let Some(file) = self.file.as_ref().filter(|_| !self.growth_armed) else { return false };
        let open_file = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let grows = AddWatchFlags::IN_MODIFY | AddWatchFlags::IN_ONESHOT;
        self.growth_armed = watch(&open_file, grows).is_ok();
        self.growth_armed
    }

    fn growth_notice(&mut self) {
        self.growth_armed = false;
    }

    fn read_events(&mut self) {
        self.producer.read();
    }

    fn want_whole(&mut self) {
        self.producer.finish();
        // Bytes that are not acknowledged stay, and the producer does not wait for them.
        self.window.iter_mut().for_each(|window| window.told = None);
    }

    fn acknowledge(&mut self, place: u64) {
        let Some(window) = &mut self.window else { return };
        if let Some(told) = &mut window.told {
            told.add(place, self.compared.noted.blocks());
            window.acknowledged = told.bytes();
        }
    }

    fn close(&mut self, _asks: bool) {
        self.window.iter_mut().for_each(|window| window.told = None);
    }

    fn check(&self) -> Result<(), Failure> {
        match (&self.failure, &self.producer.state) {
            (Some(failure), _) => Err(failure.clone()),
            (None, State::Failed(message)) => Err(Failure::Producer(message.clone())),
            _ => Ok(()),
        }
    }

    /// Opens the producer's file when its events have named it. A file that lies there before may belong to an earlier
    /// run.
    fn open(&mut self) -> Result<bool, Failure> {
        if self.file.is_some() {
            return Ok(true);
        }
        if self.producer.state == State::Silent {
            return Ok(false);
        }
        self.producer.check_links()?;
        match remote_file::open(&self.path) {
            Ok(file) => {
                self.check_discarded()?;
                self.begin_window()?;
                self.file = Some(file);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::NotFound && self.producer.state == State::Writing => {
                self.producer.finish();
                self.check().map(|()| false)
            }
            Err(error) => Err(self.cannot_read(error)),
        }
    }

    fn has_ended_early(&self) -> bool {
        self.compared.ended_early.is_some()
    }

    fn take(&mut self, sink: &OwnedFd, most: u64) -> Result<Step, Failure> {
        self.take_by(AHEAD, most, |next| match next {
            Next::Noted(bytes) => nix::unistd::write(sink, bytes),
            Next::Final(file, place, length) => move_bytes(file, &mut (place as i64), length, sink),
        })
    }

    fn part(&mut self) -> Poll<Result<Option<FirstBytes>, Failure>> {
        self.read_events();
        Poll::Ready(self.left_to_compare())
    }

    /// Makes a link to the file when that is committed.
    fn bring_whole(&mut self, part: &Path, place: &Path) -> Result<bool, Failure> {
        let Some((path, _)) = self.whole()? else { return Ok(false) };
        let _ = fs::remove_file(part);
        symlink(path, part).map_err(cannot_place(place))?;
        Ok(true)
    }

    fn whole_file(&self) -> Result<Option<File>, Failure> {
        Ok(self.whole()?.map(|(_, file)| file))
    }

    fn is_to_stay(&self, _place: &Path) -> bool {
        // Of a file that is still written with a window, bytes may go at any time.
        self.producer.discarded == 0 && (self.window.is_none() || self.is_final())
    }

    fn leave_file(&self, place: &Path) -> Result<(), Failure> {
        let _ = symlink(&self.path, place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::pipe::fifo_of_tests;
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::num::NonZeroU32;
    use std::os::unix::fs::FileExt;

    struct Producing {
        directory: tempfile::TempDir,
        source: Source,
    }

    impl Producing {
        fn new(content: &[u8], event: &str) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let [path, events] = ["file", "events"].map(|name| directory.path().join(name));
            fs::write(&path, content).unwrap();
            let producer = Producer::of_file("p", &path, events);
            let mut producing = Self { directory, source: Source::new(&path, producer) };
            producing.tell(event, content.len());
            assert_eq!(producing.source.open(), Ok(true));
            producing
        }

        fn tell(&mut self, event: &str, size: usize) {
            self.say(event, &format!(r#""size":{size}"#));
        }

        fn say(&mut self, event: &str, how: &str) {
            let [path, events] = ["file", "events"].map(|name| self.directory.path().join(name));
            let line = format!(r#"{{"event":"{event}","port":"p","path":"{}",{how}}}"#, path.display());
            let mut events = OpenOptions::new().append(true).create(true).open(events).unwrap();
            events.write_all((line + "\n").as_bytes()).unwrap();
            self.source.read_events();
        }

        fn take(&mut self, most: usize) -> Result<(Step, Vec<u8>), Failure> {
            let mut bytes = Vec::new();
            let step = self.source.take_by(AHEAD, most as u64, |next| {
                match next {
                    Next::Noted(noted) => bytes.extend(noted),
                    Next::Final(file, place, length) => {
                        bytes.resize(length as usize, 0);
                        let read = file.read_at(&mut bytes, place).unwrap();
                        bytes.truncate(read);
                    }
                }
                Ok(bytes.len())
            })?;
            Ok((step, bytes))
        }

        fn rewrite(&self, offset: u64) {
            let file = OpenOptions::new().write(true).open(self.directory.path().join("file")).unwrap();
            file.write_all_at(b"x", offset).unwrap();
        }
    }

    #[test]
    fn a_producer_is_not_blamed_for_too_many_open_files() {
        let source = Producing::new(b"a", "opened").source;
        assert!(matches!(source.cannot_read(Errno::EMFILE.into()), Failure::Job(_)));
        assert!(matches!(source.cannot_read(Errno::EIO.into()), Failure::Producer(_)));
    }

    #[test]
    fn a_window_whose_file_is_made_anew_before_a_byte_is_taken_has_one_reader() {
        let directory = tempfile::tempdir().unwrap();
        let [path, events, window, new] = ["file", "events", "window", "new"].map(|name| directory.path().join(name));
        fs::create_dir(&window).unwrap();
        fs::write(&path, b"").unwrap();
        let source = Source::of_window(&path, Producer::of_file("p", &path, events.clone()), &events, "p");
        let mut producing = Producing { directory, source };
        producing.tell("opened", 0);
        assert_eq!(producing.source.open(), Ok(true));
        fs::write(&new, b"abc").unwrap();
        fs::rename(&new, &path).unwrap();
        assert_eq!(producing.take(9), Ok((Step::Moved, vec![])));
        assert_eq!(producing.source.open(), Ok(true));
        assert_eq!(fs::read_dir(&window).unwrap().count(), 1);
        assert_eq!(producing.take(9), Ok((Step::Moved, b"abc".to_vec())));
    }

    #[test]
    fn no_more_is_taken_of_a_file_that_is_cut_than_is_there() {
        let mut producing = Producing::new(b"abcdef", "opened");
        assert_eq!(producing.take(4), Ok((Step::Moved, b"abcd".to_vec())));
        let file = OpenOptions::new().write(true).open(producing.directory.path().join("file")).unwrap();
        file.set_len(5).unwrap();
        let mut most = None;
        let taken = producing.source.take_by(AHEAD, u64::MAX, |next| {
            most = Some(next.length());
            Ok(1)
        });
        assert_eq!((taken, most), (Ok(Step::Moved), Some(1)));
        file.set_len(3).unwrap();
        assert!(matches!(producing.take(4), Err(Failure::Rewritten(_))));
    }

    #[test]
    fn what_is_closed_as_often_as_it_was_before_is_taken_to_be_complete() {
        for (content, then, is_same) in [("abcdef", "", true), ("", "", true), ("", "more", false), ("abc", "d", false)]
        {
            let mut producing = Producing::new(content.as_bytes(), "opened");
            producing.source.producer.closes = NonZeroU32::new(2);
            if !content.is_empty() {
                assert_eq!(producing.take(9), Ok((Step::Moved, content.as_bytes().to_vec())));
            }
            producing.say("closed", r#""closes":1"#);
            assert_eq!(producing.take(9), Ok((Step::Waiting, vec![])));
            producing.say("closed", r#""closes":2"#);
            assert_eq!(producing.take(9), Ok((Step::Complete, vec![])));
            assert!(producing.source.has_ended_early());
            let part = producing.source.left_to_compare().unwrap().unwrap();
            assert_eq!((part.bytes, part.whole), (content.len() as u64, true));
            let path = producing.directory.path().join("file");
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(then.as_bytes()).unwrap();
            assert_eq!(part.is_of(&File::open(&path).unwrap()).unwrap(), is_same);
            producing.tell("committed", content.len() + then.len());
            assert_eq!(producing.source.left_to_compare().is_ok(), is_same);
        }
    }

    #[test]
    fn a_part_is_told_before_the_commit_and_compared_after_it() {
        let mut producing = Producing::new(b"abcdef", "opened");
        assert_eq!(producing.source.left_to_compare(), Ok(None), "nothing was taken");
        assert_eq!(producing.take(4), Ok((Step::Moved, b"abcd".to_vec())));
        let part = producing.source.left_to_compare().unwrap().unwrap();
        assert_eq!(part.bytes, 6);
        let path = producing.directory.path().join("file");
        assert!(part.is_of(&File::open(&path).unwrap()).unwrap());
        producing.tell("committed", 6);
        assert_eq!(producing.source.left_to_compare(), Ok(None), "it is the same");
        producing.rewrite(0);
        assert!(matches!(producing.source.left_to_compare(), Err(Failure::Rewritten(_))));
        assert!(!part.is_of(&File::open(&path).unwrap()).unwrap());
        let mut producing = Producing::new(b"abcdef", "committed");
        assert_eq!(producing.take(4), Ok((Step::Moved, b"abcd".to_vec())));
        assert_eq!(producing.source.left_to_compare(), Ok(None), "it was final when it was taken");
    }

    #[test]
    fn a_pipe_has_the_bytes_that_are_compared_whatever_is_written_meanwhile() {
        let mut producing = Producing::new(&[7; 5000], "opened");
        let (from, to) = fifo_of_tests();
        assert_eq!(producing.source.take(&to, 4000), Ok(Step::Moved));
        producing.rewrite(1);
        let mut bytes = [0; 5000];
        assert_eq!(nix::unistd::read(&from, &mut bytes), Ok(4000));
        assert_eq!(bytes[..4000], [7; 4000]);
        let file = OpenOptions::new().write(true).open(producing.directory.path().join("file")).unwrap();
        file.write_all_at(&[7], 1).unwrap();
        assert_eq!(producing.source.take(&to, 4000), Ok(Step::Moved));
        producing.tell("committed", 5000);
        assert_eq!(producing.source.take(&to, 4000), Ok(Step::Complete));
    }

    #[test]
    fn what_is_taken_again_is_what_was_taken_before_or_fails() {
        for changed in [false, true] {
            let mut producing = Producing::new(&[7; 5000], "opened");
            assert_eq!(producing.take(9000), Ok((Step::Moved, vec![7; 5000])));
            assert_eq!(producing.take(1), Ok((Step::Waiting, vec![])));
            assert!(producing.source.resume(100));
            if changed {
                producing.rewrite(4000);
                assert!(matches!(producing.take(9000), Err(Failure::Rewritten(_))));
            } else {
                assert_eq!(producing.take(9000), Ok((Step::Moved, vec![7; 4900])));
            }
        }
    }

    #[test]
    fn one_byte_in_the_middle_of_a_large_file_is_found_and_none_after_the_commit_is_read_twice() {
        let size = 9 << 20;
        for (patched, found) in [(true, true), (false, false)] {
            let mut producing = Producing::new(&vec![7; size], "opened");
            while producing.take(1 << 20).unwrap().0 == Step::Moved {}
            if patched {
                producing.rewrite(5_000_001);
            }
            producing.tell("committed", size);
            assert_eq!(matches!(producing.take(1), Err(Failure::Rewritten(_))), found);
        }
        let mut producing = Producing::new(&vec![7; size], "committed");
        while producing.take(1 << 20).unwrap().0 == Step::Moved {}
        assert_eq!(producing.source.compared.noted.bytes(), 0);
    }
}
