//! The reader's side: a thread that brings what a producer on another machine writes into a pipe.
//!
//! As long as a connection cannot be had, the stream waits: only the producer's `serve` says how it ends.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use nix::errno::Errno;
use nix::fcntl::{splice, OFlag, SpliceFFlags};
use nix::unistd::pipe2;

use super::fetcher::{End, Fetcher, Orders, Times, TIMES};
use super::frame::WHOLE;
use super::request::{Request, Wanted};
use crate::protocol::job::{Home, Link};
use crate::protocol::results;
use crate::streams::origin::{cannot_place, Failure, Origin, Step};
use crate::streams::part_writer::PartWriter;
use crate::sys::pipe::widen;
use crate::sys::random::random;
use crate::sys::raw::bytes_in_pipe;
use crate::sys::threads::spawn;

/// Bytes that are moved at once.
const PIECE: usize = 1 << 20;

/// How the stream has ended.
type Outcome = Arc<OnceLock<End>>;

/// A stream as the feeder takes it.
#[derive(Debug)]
pub struct Reader {
    link: Link,
    wanted: Wanted,
    /// The pipe from the fetcher. Its end comes after the outcome, and means only that no more bytes follow.
    pipe: Option<OwnedFd>,
    taken: u64,
    outcome: Outcome,
    orders: Arc<Orders>,
    copy: Option<Copy>,
    /// The copy, when it is complete.
    whole: Option<File>,
}

/// The whole file, for a command that asks for more than its bytes.
#[derive(Debug)]
struct Copy {
    reader: Box<Reader>,
    file: OwnedFd,
}

impl Reader {
    /// Begins to fetch the file `path` that the producer has as the output `port`.
    ///
    /// # Errors
    /// When there can be no pipe or no thread.
    pub fn new(link: &Link, port: &str, path: &Path, window: bool) -> io::Result<Self> {
        Self::start(link, Wanted::of(link, port, path, None, window), TIMES)
    }

    /// Begins to fetch a part that the job there has said; `path` is for messages.
    ///
    /// # Errors
    /// When there can be no pipe or no thread.
    pub fn of_part(home: &Home, port: &str, path: &Path) -> io::Result<Self> {
        Self::start(&home.link, Wanted::of(&home.link, port, path, Some(home.number), false), TIMES)
    }

    fn start(link: &Link, wanted: Wanted, times: Times) -> io::Result<Self> {
        let name: [u8; 16] = random()?;
        let wanted = Wanted { stream: name.iter().map(|byte| format!("{byte:02x}")).collect(), ..wanted };
        let (pipe, sink) = pipe2(OFlag::O_CLOEXEC)?;
        widen(&sink);
        let (outcome, orders) = (Outcome::default(), Arc::new(Orders::new()?));
        let told = outcome.clone();
        let mut fetcher = Fetcher {
            link: link.clone(),
            request: Request { wanted: wanted.clone(), offset: 0, part: false },
            sink,
            times,
            orders: orders.clone(),
            progress: false,
            acknowledged: 0,
        };
        spawn("link", move || {
            let ended = fetcher.fetch();
            let _ = told.set(ended);
            drop(fetcher);
        })?;
        let (link, pipe) = (link.clone(), Some(pipe));
        Ok(Self { link, wanted, pipe, taken: 0, outcome, orders, copy: None, whole: None })
    }

    /// Fetches the file anew, from its first byte, into `part`.
    fn copy(&self, part: &Path) -> io::Result<Copy> {
        let _ = fs::remove_file(part);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(part)?;
        Ok(Copy { reader: Box::new(self.again()?), file: file.into() })
    }

    fn again(&self) -> io::Result<Self> {
        Self::start(&self.link, self.wanted.clone(), TIMES)
    }
}

/// Opens a file to be read, at its beginning.
fn opened_again(file: &impl AsRawFd) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl Origin for Reader {
    fn taken(&self) -> u64 {
        self.taken
    }

    fn has_more(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| bytes_in_pipe(pipe) > 0)
    }

    fn arrivals(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    fn acknowledge(&mut self, place: u64) {
        self.orders.acknowledge(place);
    }

    /// The file is fetched from its first byte: nothing more of it may be discarded.
    fn want_whole(&mut self) {
        if self.wanted.window {
            self.orders.acknowledge(WHOLE);
        }
    }

    fn check(&self) -> Result<(), Failure> {
        self.outcome.get().cloned().unwrap_or(Ok(None)).map(drop)
    }

    fn take(&mut self, sink: &OwnedFd, most: u64) -> Result<Step, Failure> {
        let Some(pipe) = &self.pipe else { return Ok(Step::Unread) };
        if most == 0 {
            // What comes before the outcome is in the pipe then.
            let outcome = self.outcome.get().cloned();
            return if self.has_more() {
                Ok(Step::Moved)
            } else {
                outcome.map_or(Ok(Step::Waiting), |end| end.map(|_| Step::Complete))
            };
        }
        let flags = SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE;
        match splice(pipe, None, sink, None, most.min(PIECE as u64) as usize, flags) {
            Ok(0) => match self.outcome.get().cloned() {
                Some(outcome) => outcome.map(|_| Step::Complete),
                None => Err(Failure::Job("what fetches the stream is gone".into())),
            },
            Ok(moved) => {
                self.taken += moved as u64;
                Ok(Step::Moved)
            }
            Err(Errno::EAGAIN) if !self.has_more() => Ok(Step::Waiting),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Step::Full),
            Err(Errno::EPIPE) => Ok(Step::Unread),
            Err(error) => Err(Failure::Job(format!("cannot move a stream: {}", error.desc()))),
        }
    }

    /// Ends the thread, too, when it knows what is still to be compared, if that is wanted.
    fn close(&mut self, asks: bool) {
        if asks {
            self.orders.leave();
        }
        self.pipe = None;
        if asks {
            self.orders.hurry();
        }
    }

    fn part(&mut self) -> Poll<End> {
        self.outcome.get().cloned().map_or(Poll::Pending, Poll::Ready)
    }

    fn bring_whole(&mut self, part: &Path, place: &Path) -> Result<bool, Failure> {
        if self.copy.is_none() {
            self.copy = Some(self.copy(part).map_err(cannot_place(place))?);
        }
        let Some(Copy { reader, file }) = &mut self.copy else { return Ok(false) };
        loop {
            match reader.take(file, u64::MAX)? {
                Step::Moved => {}
                Step::Complete => break,
                Step::Full | Step::Waiting | Step::Unread => return Ok(false),
            }
        }
        let whole = opened_again(file).map_err(cannot_place(place))?;
        (self.copy, self.whole) = (None, Some(whole));
        Ok(true)
    }

    fn whole_file(&self) -> Result<Option<File>, Failure> {
        let cannot = |error| Failure::Job(format!("cannot open a copy of {}: {error}", self.wanted.path.display()));
        self.whole.as_ref().map(opened_again).transpose().map_err(cannot)
    }

    fn whole_arrivals(&self) -> Option<BorrowedFd<'_>> {
        self.copy.as_ref()?.reader.arrivals()
    }

    /// Decides as for a part that is read here.
    fn is_to_stay(&self, place: &Path) -> bool {
        self.wanted.number.is_none() || results::refer_to(place)
    }

    fn leave_file(&self, place: &Path) -> Result<(), Failure> {
        if self.wanted.number.is_none() {
            return Ok(());
        }
        let mut reader = self.again().map_err(cannot_place(place))?;
        PartWriter::write(place, &mut reader, &mut || false).map(drop).map_err(|trouble| trouble.failure(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::path::PathBuf;
    use std::sync::mpsc;
    use std::thread::{self, JoinHandle};
    use std::time::{Duration, Instant};

    use crate::link::frame::{read_header, record, Kind};
    use crate::link::handshake;
    use crate::link::tls::certificate_file;

    // Longer than a handshake takes on a busy machine.
    const HASTY: Times = Times {
        quiet: Duration::from_secs(1),
        patience: Duration::from_secs(1),
        pauses: [Duration::from_millis(1), Duration::from_millis(5)],
    };

    struct Setting {
        listener: TcpListener,
        certificate: PathBuf,
        _directory: tempfile::TempDir,
    }

    impl Setting {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let certificate = certificate_file(&directory, "a");
            Self { listener: TcpListener::bind("127.0.0.1:0").unwrap(), certificate, _directory: directory }
        }

        fn reader(&self) -> Reader {
            self.reader_of(self.listener.local_addr().unwrap())
        }

        fn reader_of(&self, address: SocketAddr) -> Reader {
            let link = Link { address, job: "j".into(), certificate: self.certificate.clone(), tls: false };
            let wanted = Wanted::of(&link, "p", Path::new("/a"), None, false);
            Reader::start(&link, wanted, HASTY).unwrap()
        }

        /// Admits a reader for each of `words`, says them, and hangs up; returns what offsets were asked for.
        fn speak(&self, words: Vec<Vec<u8>>) -> JoinHandle<Vec<u64>> {
            let (listener, run) = (self.listener.try_clone().unwrap(), self.certificate.clone());
            let say = move |words: Vec<u8>| {
                let stream = listener.accept().unwrap().0;
                let (mut channel, request) = handshake::receive_stream(stream, &run, false).unwrap();
                channel.stream().write_all(&words).unwrap();
                request.offset
            };
            thread::spawn(move || words.into_iter().map(say).collect())
        }
    }

    /// All that comes, and how it ends.
    fn read(reader: &mut Reader) -> (Vec<u8>, Result<(), Failure>) {
        let mut bytes = Vec::new();
        File::from(reader.pipe.take().unwrap()).read_to_end(&mut bytes).unwrap();
        (bytes, reader.check())
    }

    /// The same of a sender that says these words, each by a connection of its own; and what offsets it was asked for.
    fn hear(words: Vec<Vec<u8>>) -> (Vec<u8>, Result<(), Failure>, Vec<u64>) {
        let setting = Setting::new();
        let sender = setting.speak(words);
        let (bytes, end) = read(&mut setting.reader());
        (bytes, end, sender.join().unwrap())
    }

    fn committed(size: u64) -> Vec<u8> {
        record(Kind::Committed, &size.to_be_bytes())
    }

    #[test]
    fn another_size_is_no_end() {
        let words = [record(Kind::Data, b"abc"), committed(4)].concat();
        assert!(matches!(hear(vec![words]).1, Err(Failure::Producer(_))));
    }

    #[test]
    fn a_copy_of_the_whole_file_can_be_opened_when_it_is_complete() {
        let setting = Setting::new();
        let words = [record(Kind::Data, b"abc"), committed(3)].concat();
        let sender = setting.speak(vec![words.clone(), words]);
        let mut reader = setting.reader();
        assert!(reader.whole_file().unwrap().is_none());
        let directory = tempfile::tempdir().unwrap();
        let [part, place] = ["part", "place"].map(|name| directory.path().join(name));
        while !reader.bring_whole(&part, &place).unwrap() {
            thread::yield_now();
        }
        fs::rename(part, place).unwrap();
        for _ in 0..2 {
            let mut text = String::new();
            reader.whole_file().unwrap().unwrap().read_to_string(&mut text).unwrap();
            assert_eq!(text, "abc");
        }
        sender.join().unwrap();
    }

    #[test]
    fn a_sender_with_nothing_to_say_is_told_at_once_that_nothing_more_is_taken() {
        let setting = Setting::new();
        let mut reader = setting.reader();
        let stream = setting.listener.accept().unwrap().0;
        let (mut channel, _) = handshake::receive_stream(stream, &setting.certificate, false).unwrap();
        reader.close(false);
        assert_eq!(read_header(&mut channel.stream()).unwrap().kind, Kind::Done);
    }

    #[test]
    fn without_progress_it_is_given_up() {
        let setting = Setting::new();
        let begun = Instant::now();
        let (listener, run) = (setting.listener.try_clone().unwrap(), setting.certificate.clone());
        thread::spawn(move || {
            let silent = listener.incoming().map(|stream| handshake::receive_stream(stream.unwrap(), &run, false));
            silent.collect::<Vec<_>>()
        });
        let (_, Err(Failure::Producer(message))) = read(&mut setting.reader()) else { panic!("it did not fail") };
        assert!(message.starts_with("cannot read /a from 127.0.0.1:"), "{message}");
        assert!(begun.elapsed() >= HASTY.patience);
    }

    #[test]
    fn the_command_leaves_an_old_stream_and_the_sender_is_not_there_at_once() {
        let setting = Setting::new();
        let mut reader = setting.reader();
        let (listener, run) = (setting.listener.try_clone().unwrap(), setting.certificate.clone());
        let (old, is_old) = mpsc::channel();
        thread::spawn(move || {
            let accept = || handshake::receive_stream(listener.accept().unwrap().0, &run, false).unwrap();
            let (mut channel, _) = accept();
            let begun = Instant::now();
            while begun.elapsed() <= HASTY.patience {
                channel.stream().write_all(&record(Kind::Keepalive, b"")).unwrap();
                thread::sleep(HASTY.quiet / 10);
            }
            old.send(()).unwrap();
            drop(listener.accept().unwrap());
            let (mut channel, request) = accept();
            assert!(request.part);
            channel.stream().write_all(&record(Kind::Part, b"{}")).unwrap();
        });
        is_old.recv().unwrap();
        reader.close(true);
        let ended = loop {
            match reader.part() {
                Poll::Ready(ended) => break ended,
                Poll::Pending => thread::yield_now(),
            }
        };
        assert_eq!(ended, Ok(None));
    }
}
