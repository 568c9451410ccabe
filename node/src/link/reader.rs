//! The reader's side: a thread that brings what a producer on another machine writes into a pipe.
//!
//! As long as a connection cannot be had, the stream waits: only the producer's `serve` says how it ends.

use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{splice, OFlag, SpliceFFlags};
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::unistd::pipe2;

use super::frame::{read_header, read_payload, record, Kind};
use super::listener::spawn;
use super::request::{decode_failure, Request, Wanted};
use super::secret::random;
use super::{greeting, Trouble};
use crate::job::Link;
use crate::pipe::{has_reader, has_space, widen};
use crate::source::{Failure, Step};
use crate::sys::bytes_in_pipe;

#[derive(Clone, Copy, Debug)]
struct Times {
    /// After such a silence a connection is given up.
    quiet: Duration,
    /// After so long without any progress the stream is.
    patience: Duration,
    /// Between two attempts: the first pause, which is doubled until it is the longest.
    pauses: [Duration; 2],
}

const TIMES: Times = Times {
    quiet: Duration::from_secs(20),
    patience: Duration::from_secs(60),
    pauses: [Duration::from_millis(10), Duration::from_secs(2)],
};

/// What moves at once.
const PIECE: usize = 1 << 20;

/// How the stream has ended.
type Outcome = Arc<Mutex<Option<Result<(), Failure>>>>;

/// A stream as the feeder takes it.
#[derive(Debug)]
pub struct Reader {
    /// Its end, which comes after the outcome, says only that nothing more will come.
    pipe: Option<OwnedFd>,
    taken: u64,
    outcome: Outcome,
}

impl Reader {
    /// Begins to fetch the file `path` that the producer has as the output `port`.
    ///
    /// # Errors
    /// When there can be no pipe or no thread.
    pub fn new(link: &Link, port: &str, path: &Path) -> io::Result<Self> {
        Self::start(link, port, path, TIMES)
    }

    fn start(link: &Link, port: &str, path: &Path, times: Times) -> io::Result<Self> {
        let name: [u8; 16] = random()?;
        let stream = name.iter().map(|byte| format!("{byte:02x}")).collect();
        let wanted = Wanted { stream, job: link.job.clone(), port: port.into(), path: path.into() };
        let (pipe, sink) = pipe2(OFlag::O_CLOEXEC)?;
        widen(&sink);
        let outcome = Outcome::default();
        let told = outcome.clone();
        let mut fetcher = Fetcher { link: link.clone(), request: Request { wanted, offset: 0 }, sink, times };
        spawn("link", move || {
            let ended = fetcher.fetch();
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
            drop(fetcher);
        })?;
        Ok(Self { pipe: Some(pipe), taken: 0, outcome })
    }

    pub fn taken(&self) -> u64 {
        self.taken
    }

    pub fn has_more(&self) -> bool {
        self.pipe.as_ref().is_some_and(|pipe| bytes_in_pipe(pipe) > 0)
    }

    pub fn arrivals(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    fn outcome(&self) -> Option<Result<(), Failure>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// # Errors
    /// When the producer has failed, or cannot be reached.
    pub fn check(&self) -> Result<(), Failure> {
        self.outcome().unwrap_or(Ok(()))
    }

    /// Moves what has come into a pipe.
    pub fn take(&mut self, sink: &OwnedFd) -> Result<Step, Failure> {
        let Some(pipe) = &self.pipe else { return Ok(Step::Unread) };
        let flags = SpliceFFlags::SPLICE_F_NONBLOCK | SpliceFFlags::SPLICE_F_MOVE;
        match splice(pipe, None, sink, None, PIECE, flags) {
            Ok(0) => match self.outcome() {
                Some(outcome) => outcome.map(|()| Step::Complete),
                None => Err(Failure::Producer("what fetches the stream is gone".into())),
            },
            Ok(moved) => {
                self.taken += moved as u64;
                Ok(Step::Moved)
            }
            Err(Errno::EAGAIN) if !self.has_more() => Ok(Step::Waiting),
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(Step::Full),
            Err(Errno::EPIPE) => Ok(Step::Unread),
            Err(error) => Err(Failure::Producer(format!("cannot move a stream: {}", error.desc()))),
        }
    }

    /// Ends the thread, too.
    pub fn close(&mut self) {
        self.pipe = None;
    }
}

struct Fetcher {
    link: Link,
    request: Request,
    sink: OwnedFd,
    times: Times,
}

/// What a connection has brought.
enum Brought {
    End(Result<(), Failure>),
    /// The feeder takes no more.
    Unread,
}

impl Fetcher {
    /// Fetches to the end, by as many connections as it takes.
    fn fetch(&mut self) -> Result<(), Failure> {
        let [shortest, longest] = self.times.pauses;
        let (mut pause, mut last_progress) = (shortest, Instant::now());
        loop {
            let mut progress = false;
            let message = match self.connect_and_fetch(&mut progress) {
                Ok(Brought::End(end)) => return end,
                Ok(Brought::Unread) => return Ok(()),
                Err(Trouble::Refused(message)) => return Err(self.unreachable(&message)),
                Err(Trouble::Broken(message)) => message,
            };
            if progress {
                (pause, last_progress) = (shortest, Instant::now());
            }
            if last_progress.elapsed() >= self.times.patience {
                return Err(self.unreachable(&message));
            }
            thread::sleep(pause);
            pause = longest.min(2 * pause);
        }
    }

    fn unreachable(&self, message: &str) -> Failure {
        let (path, address) = (self.request.wanted.path.display(), self.link.address);
        Failure::Producer(format!("cannot read {path} from {address}: {message}"))
    }

    fn connect_and_fetch(&mut self, progress: &mut bool) -> Result<Brought, Trouble> {
        let stream = greeting::connect(&self.link.address, &self.link.key)?;
        greeting::ask(&stream, &self.request)?;
        stream.set_read_timeout(Some(self.times.quiet))?;
        let brought = self.bring(&stream, progress)?;
        let _ = (&stream).write_all(&record(Kind::Done, b""));
        Ok(brought)
    }

    fn bring(&mut self, stream: &TcpStream, progress: &mut bool) -> Result<Brought, Trouble> {
        let mut from = stream;
        loop {
            if !has_reader(&self.sink) {
                return Ok(Brought::Unread);
            }
            let header = read_header(&mut from)?;
            match header.kind {
                Kind::Data => {
                    if !self.receive(stream, header.length as usize, progress)? {
                        return Ok(Brought::Unread);
                    }
                }
                Kind::Keepalive => *progress = true,
                Kind::Committed => {
                    let size = read_payload(&mut from, header)?;
                    return Ok(Brought::End(self.compare(&size)));
                }
                Kind::Failed => {
                    let failure = decode_failure(&read_payload(&mut from, header)?);
                    return Ok(Brought::End(Err(failure)));
                }
                other => return Err(Trouble::Broken(format!("{other:?} came instead of data"))),
            }
        }
    }

    fn compare(&self, size: &[u8]) -> Result<(), Failure> {
        if size == self.request.offset.to_be_bytes() {
            Ok(())
        } else {
            Err(self.unreachable(&format!("it was committed with another size than {}", self.request.offset)))
        }
    }

    /// Moves the payload of a record into the pipe, without copying it; false: nobody takes it.
    fn receive(&mut self, stream: &TcpStream, length: usize, progress: &mut bool) -> Result<bool, Trouble> {
        let mut left = length;
        while left > 0 {
            // It is the command that has to go on.
            *progress |= !has_space(&self.sink);
            if !self.wait_for_space(stream)? {
                return Ok(false);
            }
            // The flag is for the pipe only: the socket is waited for, as long as its time limit says.
            match splice(stream, None, &self.sink, None, left, SpliceFFlags::SPLICE_F_NONBLOCK) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(moved) => {
                    left -= moved;
                    self.request.offset += moved as u64;
                    *progress = true;
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EPIPE) => return Ok(false),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Ok(true)
    }

    /// However slow the command is. False: nobody takes it.
    fn wait_for_space(&self, stream: &TcpStream) -> Result<bool, Trouble> {
        // A connection that was reset says so also to one who does not read.
        let mut descriptors =
            [PollFd::new(self.sink.as_fd(), PollFlags::POLLOUT), PollFd::new(stream.as_fd(), PollFlags::empty())];
        loop {
            let _ = poll(&mut descriptors, PollTimeout::NONE);
            let [sink, socket] = descriptors.each_ref().map(|found| found.revents().unwrap_or(PollFlags::empty()));
            if sink.contains(PollFlags::POLLERR) {
                return Ok(false);
            }
            if !socket.is_empty() {
                return Err(Trouble::Broken("the connection was reset".into()));
            }
            if sink.contains(PollFlags::POLLOUT) {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::net::{SocketAddr, TcpListener};
    use std::path::PathBuf;
    use std::thread::JoinHandle;

    const HASTY: Times = Times {
        quiet: Duration::from_millis(50),
        patience: Duration::from_millis(300),
        pauses: [Duration::from_millis(1), Duration::from_millis(5)],
    };

    struct Setting {
        directory: tempfile::TempDir,
        listener: TcpListener,
    }

    impl Setting {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::write(directory.path().join("key"), "ab".repeat(32)).unwrap();
            Self { directory, listener: TcpListener::bind("127.0.0.1:0").unwrap() }
        }

        fn key(&self) -> PathBuf {
            self.directory.path().join("key")
        }

        fn reader(&self, address: SocketAddr) -> Reader {
            let link = Link { address, job: "j".into(), key: self.key() };
            Reader::start(&link, "p", Path::new("/a"), HASTY).unwrap()
        }

        /// Admits a reader for each of `words`, says them, and hangs up; returns what offsets were asked for.
        fn speak(&self, words: Vec<Vec<u8>>) -> (SocketAddr, JoinHandle<Vec<u64>>) {
            let (listener, key) = (self.listener.try_clone().unwrap(), self.key());
            let say = move |words: Vec<u8>| {
                let mut stream = listener.accept().unwrap().0;
                let request = greeting::admit(&stream, &key).unwrap();
                stream.write_all(&words).unwrap();
                request.offset
            };
            let address = self.listener.local_addr().unwrap();
            (address, thread::spawn(move || words.into_iter().map(say).collect()))
        }
    }

    fn read(reader: &mut Reader) -> Vec<u8> {
        let mut bytes = Vec::new();
        File::from(reader.pipe.take().unwrap()).read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn it_goes_on_where_it_was() {
        let setting = Setting::new();
        let words = vec![
            record(Kind::Data, b"abc"),
            record(Kind::Data, b"defgh")[..7].to_vec(),
            record(Kind::Keepalive, b"")[..3].to_vec(),
            [record(Kind::Keepalive, b""), record(Kind::Data, b"fgh")].concat(),
            record(Kind::Committed, &8_u64.to_be_bytes()),
        ];
        let (address, sender) = setting.speak(words);
        let mut reader = setting.reader(address);
        assert_eq!(read(&mut reader), b"abcdefgh");
        assert_eq!(reader.check(), Ok(()));
        assert_eq!(sender.join().unwrap(), [0, 3, 5, 5, 8]);
    }

    #[test]
    fn what_has_come_can_be_taken_until_the_end() {
        let setting = Setting::new();
        let words = [record(Kind::Data, b"abc"), record(Kind::Committed, &3_u64.to_be_bytes())].concat();
        let (address, _sender) = setting.speak(vec![words]);
        let mut reader = setting.reader(address);
        let (target, sink) = pipe2(OFlag::O_CLOEXEC).unwrap();
        let mut step = Step::Waiting;
        while step != Step::Complete {
            let before = reader.taken();
            step = reader.take(&sink).unwrap();
            assert_eq!(step == Step::Moved, reader.taken() > before);
            thread::yield_now();
        }
        drop(sink);
        let mut bytes = Vec::new();
        File::from(target).read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes.as_slice(), reader.taken()), (&b"abc"[..], 3));
    }

    #[test]
    fn a_failure_is_told() {
        let setting = Setting::new();
        let failure = Failure::Rewritten("it was cut".into());
        let words = [record(Kind::Data, b"abc"), record(Kind::Failed, &crate::link::request::encode_failure(&failure))];
        let (address, _sender) = setting.speak(vec![words.concat()]);
        let mut reader = setting.reader(address);
        read(&mut reader);
        assert_eq!(reader.check(), Err(failure));
    }

    #[test]
    fn another_size_is_no_end() {
        let setting = Setting::new();
        let words = [record(Kind::Data, b"abc"), record(Kind::Committed, &4_u64.to_be_bytes())].concat();
        let (address, _sender) = setting.speak(vec![words]);
        let mut reader = setting.reader(address);
        read(&mut reader);
        assert!(matches!(reader.check(), Err(Failure::Producer(_))));
    }

    #[test]
    fn without_progress_it_is_given_up() {
        let setting = Setting::new();
        let begun = Instant::now();
        let (listener, key) = (setting.listener.try_clone().unwrap(), setting.key());
        thread::spawn(move || {
            let silent = listener.incoming().map(|stream| (greeting::admit(stream.as_ref().unwrap(), &key), stream));
            silent.collect::<Vec<_>>()
        });
        let mut reader = setting.reader(setting.listener.local_addr().unwrap());
        read(&mut reader);
        let Err(Failure::Producer(message)) = reader.check() else { panic!("it did not fail") };
        assert!(message.starts_with("cannot read /a from 127.0.0.1:"), "{message}");
        assert!(begun.elapsed() >= HASTY.patience);
    }

    #[test]
    fn nobody_listens() {
        let setting = Setting::new();
        let address = setting.listener.local_addr().unwrap();
        let mut reader = {
            let Setting { directory, listener } = setting;
            drop(listener);
            let link = Link { address, job: "j".into(), key: directory.path().join("key") };
            let mut reader = Reader::start(&link, "p", Path::new("/a"), HASTY).unwrap();
            read(&mut reader);
            reader
        };
        let Err(Failure::Producer(message)) = reader.check() else { panic!("it did not fail") };
        assert!(message.contains("refused"), "{message}");
        reader.close();
    }
}
