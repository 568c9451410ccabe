//! One connection of one stream: sends what the producer writes as it grows, and how it ends.

use std::os::fd::AsFd;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use super::channel::{Channel, PIECE};
use super::frame::{Kind, WHOLE};
use super::notifier::{Notifier, Waker};
use super::outlet::Outlet;
use super::request::{encode_failure, encode_part, Request};
use super::streams::Streams;
use crate::streams::announced_parts::said_part;
use crate::streams::origin::{Failure, Origin, Step};
use crate::streams::part_reader::PartReader;
use crate::streams::producer::Producer;
use crate::streams::source::Source;

/// Milliseconds between two looks at files without notices, and between two looks at events while the reader is slow.
const TICK: u16 = 100;
const SLOW_TICK: u16 = 1000;
/// Bytes of a growing file that are noted at once. Each of many readers keeps as many.
const AHEAD: u64 = PIECE as u64;

/// The objects that all connections need.
pub struct Shared {
    jobs: PathBuf,
    notifier: Option<Notifier>,
    pub streams: Streams,
}

impl Shared {
    /// `jobs`: the directory of the directories of jobs.
    pub fn new(jobs: PathBuf) -> Self {
        // Without notices all that is lost is time.
        Self { jobs, notifier: Notifier::new().ok(), streams: Streams::default() }
    }
}

/// Serves a request, to the end of the stream or of the connection.
pub fn serve(shared: &Shared, channel: Channel, request: Request) {
    let wanted = &request.wanted;
    if let Some(number) = wanted.number {
        return serve_part(shared, channel, &request, number);
    }
    let Ok(socket) = channel.socket.try_clone() else { return };
    let mut outlet = Outlet::new(channel);
    let Ok(known) = shared.streams.take(wanted, socket, || outlet.stay()) else { return };
    let mut source = known.unwrap_or_else(|| {
        let events = shared.jobs.join(&wanted.job).join("events.jsonl");
        let producer = Producer::of_file(&wanted.port, &wanted.path, events.clone());
        if wanted.window {
            Source::of_window(&wanted.path, producer, &events, &wanted.port)
        } else {
            Source::new(&wanted.path, producer)
        }
    });
    let mut sender = Sender { outlet, waker: shared.notifier.as_ref().and_then(|notifier| notifier.waker().ok()) };
    let done = if !source.resume(request.offset) {
        // The stream was abandoned: what was sent can no longer be compared with the file.
        sender.conclude(Kind::Failed, &encode_failure(&Failure::Producer("the stream was abandoned".into())))
    } else if request.part {
        sender.tell_part(&mut source)
    } else {
        sender.send_all(&mut source)
    };
    shared.streams.give_back(wanted, (done != Ok(true)).then_some(source));
}

/// Serves a part that a job has said. Nothing has to be kept of it: the file must not change.
fn serve_part(shared: &Shared, channel: Channel, request: &Request, number: u64) {
    let mut sender = Sender { outlet: Outlet::new(channel), waker: None };
    let wanted = &request.wanted;
    let said = said_part(&shared.jobs.join(&wanted.job).join("events.jsonl"), &wanted.port, number);
    let Some(mut part) = said.and_then(|part| PartReader::at(part, request.offset)) else {
        let message = format!("part {number} of {} is missing, or shorter than the reader has it", wanted.port);
        let _ = sender.conclude(Kind::Failed, &encode_failure(&Failure::Producer(message)));
        return;
    };
    let _ = if request.part { sender.conclude(Kind::Part, &encode_part(None)) } else { sender.send_part(&mut part) };
}

struct Sender {
    outlet: Outlet,
    waker: Option<Waker>,
}

impl Sender {
    /// Returns whether the reader has seen how the stream ended, or wants no more of it: it said so.
    ///
    /// # Errors
    /// When the connection is broken.
    fn send_all(&mut self, source: &mut Source) -> nix::Result<bool> {
        while !self.outlet.heed()? {
            source.read_events();
            self.acknowledge(source);
            match self.send_some(source)? {
                Err(failure) => return self.fail(&failure),
                Ok(Step::Moved) => {}
                Ok(Step::Full) => self.wait_for(source, false)?,
                Ok(Step::Unread) => return Err(Errno::EPIPE),
                // The file has become shorter than the record that was begun: another connection will see why.
                Ok(Step::Waiting | Step::Complete) if self.outlet.left > 0 => return Err(Errno::EPIPE),
                Ok(Step::Complete) => return self.conclude(Kind::Committed, &source.taken().to_be_bytes()),
                Ok(Step::Waiting) => {
                    if self.waker.as_ref().is_some_and(|waker| waker.watch(source)) {
                        // Watched only now: look once more at what was written in between.
                        continue;
                    }
                    self.wait_for(source, true)?;
                }
            }
        }
        Ok(true)
    }

    /// Lets the producer discard what the reader has taken. The sockets need no more of that.
    fn acknowledge(&mut self, source: &mut Source) {
        match self.outlet.taken.take() {
            Some(WHOLE) => source.close(false),
            taken => taken.into_iter().for_each(|place| source.acknowledge(place)),
        }
    }

    /// The same of a part.
    fn send_part(&mut self, part: &mut PartReader) -> nix::Result<bool> {
        while !self.outlet.heed()? {
            let step = if part.has_more() {
                part.take_by(|file, ahead| self.outlet.send_piece(file, ahead))
            } else {
                // The comparison with the file may take long.
                self.outlet.meanwhile(|| part.take_by(|_, _| Ok(0)))?
            };
            match step {
                Err(failure) => return self.fail(&failure),
                Ok(Step::Moved) => {}
                Ok(Step::Full) => self.wait(false)?,
                Ok(Step::Complete) => return self.conclude(Kind::Committed, &part.taken().to_be_bytes()),
                Ok(Step::Waiting | Step::Unread) => return Err(Errno::EPIPE),
            }
        }
        Ok(true)
    }

    /// The reader wants no more.
    fn tell_part(&mut self, source: &mut Source) -> nix::Result<bool> {
        source.read_events();
        match self.outlet.meanwhile(|| source.left_to_compare())? {
            Ok(part) => self.conclude(Kind::Part, &encode_part(part.as_ref())),
            Err(failure) => self.conclude(Kind::Failed, &encode_failure(&failure)),
        }
    }

    /// # Errors
    /// When the connection is broken.
    fn send_some(&mut self, source: &mut Source) -> nix::Result<Result<Step, Failure>> {
        match source.check().and_then(|()| source.open()) {
            Err(failure) => return Ok(Err(failure)),
            Ok(false) => return Ok(Ok(Step::Waiting)),
            Ok(true) => {}
        }
        if source.is_final() && !source.has_more() && self.outlet.left == 0 {
            // The comparison with the file may take long.
            return self.outlet.meanwhile(|| source.take_by(AHEAD, u64::MAX, |_| Ok(0)));
        }
        Ok(source.take_by(AHEAD, u64::MAX, |next| self.outlet.send(next)))
    }

    /// Waits for the reader, or for news of the file.
    fn wait_for(&mut self, source: &mut Source, at_end: bool) -> nix::Result<()> {
        let waited = self.wait(at_end);
        if self.waker.as_ref().is_some_and(Waker::was_woken) {
            source.growth_notice();
        }
        waited
    }

    /// Waits for the reader, or for news of the file.
    ///
    /// # Arguments
    /// * `at_end` - there is nothing to send. Otherwise nothing may be sent
    fn wait(&mut self, at_end: bool) -> nix::Result<()> {
        let (events, milliseconds) =
            if at_end { (PollFlags::POLLIN, TICK) } else { (PollFlags::POLLIN | PollFlags::POLLOUT, SLOW_TICK) };
        if at_end {
            self.outlet.keep_alive()?;
        }
        let waker = self.waker.iter().map(|waker| PollFd::new(waker.as_fd(), PollFlags::POLLIN));
        let mut descriptors: Vec<PollFd> =
            std::iter::once(PollFd::new(self.outlet.channel.socket.as_fd(), events)).chain(waker).collect();
        let _ = poll(&mut descriptors, PollTimeout::from(milliseconds));
        Ok(())
    }

    /// A reader that is slow must not see this only after all that was sent: it shall come again.
    fn fail(&mut self, failure: &Failure) -> nix::Result<bool> {
        if self.outlet.has_sent {
            self.outlet.reset();
            return Err(Errno::EPIPE);
        }
        self.conclude(Kind::Failed, &encode_failure(failure))
    }

    /// Says how the stream ended, and waits until the reader has heard it.
    fn conclude(&mut self, kind: Kind, payload: &[u8]) -> nix::Result<bool> {
        self.outlet.say(kind, payload)?;
        Ok(self.outlet.is_dismissed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::unix::fs::FileExt;
    use std::thread;

    use nix::sys::socket::{setsockopt, sockopt};

    use crate::link::frame::{read_header, read_payload, record, HEADER};
    use crate::link::request::Wanted;

    #[test]
    fn a_reader_gets_the_bytes_that_are_compared_whatever_is_written_meanwhile() {
        let directory = tempfile::tempdir().unwrap();
        let [path, events] = ["file", "events"].map(|name| directory.path().join(name));
        let content = vec![7u8; 200_000];
        fs::write(&path, &content).unwrap();
        let say = |event: &str| {
            let line = format!(r#"{{"event":"{event}","port":"p","path":"{}","size":200000}}"#, path.display());
            OpenOptions::new().append(true).create(true).open(&events).unwrap().write_all((line + "\n").as_bytes())
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sending = listener.accept().unwrap().0;
        setsockopt(&sending, sockopt::SndBuf, &5000).unwrap();
        let mut sender = Sender { outlet: Outlet::new(Channel::plain(sending)), waker: None };
        let mut source = Source::new(&path, Producer::of_file("p", &path, events.clone()));
        let step = |sender: &mut Sender, source: &mut Source| sender.send_some(source).unwrap().unwrap();
        say("opened").unwrap();
        source.read_events();
        while step(&mut sender, &mut source) == Step::Moved {}
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[8], 199_999).unwrap();
        let (mut got, mut read) = (vec![0; HEADER + content.len()], 0);
        while read < got.len() {
            read += reader.read(&mut got[read..]).unwrap();
            while step(&mut sender, &mut source) == Step::Moved {}
        }
        file.write_all_at(&[7], 199_999).unwrap();
        say("committed").unwrap();
        source.read_events();
        assert_eq!(step(&mut sender, &mut source), Step::Complete);
        assert!(got[HEADER..] == content);
    }

    #[test]
    fn who_dies_or_leaves_or_says_nonsense_while_the_sender_waits_is_let_go() {
        // Another connection goes on with the stream, unless the reader has said that it wants no more.
        type Act = fn(&mut TcpStream);
        let ways: [(Act, bool); 4] = [
            (|reader| reader.shutdown(Shutdown::Both).unwrap(), true),
            (|reader| reader.write_all(&record(Kind::Done, b"")).unwrap(), false),
            (|reader| reader.write_all(&record(Kind::Keepalive, b"")).unwrap(), true),
            (|reader| reader.write_all(b"GET / HTTP/1.1").unwrap(), true),
        ];
        for (leave, goes_on) in ways {
            let directory = tempfile::tempdir().unwrap();
            let (path, jobs) = (directory.path().join("file"), directory.path().join("jobs"));
            fs::write(&path, "abc").unwrap();
            fs::create_dir_all(jobs.join("j")).unwrap();
            let event = format!(r#"{{"event":"opened","port":"p","path":"{}"}}"#, path.display());
            fs::write(jobs.join("j/events.jsonl"), event + "\n").unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let channel = Channel::plain(listener.accept().unwrap().0);
            let wanted = Wanted { path, ..Wanted::of_test() };
            let (request, shared) = (Request { wanted: wanted.clone(), offset: 0, part: false }, Shared::new(jobs));
            thread::scope(|scope| {
                scope.spawn(|| serve(&shared, channel, request));
                let header = read_header(&mut reader).unwrap();
                assert_eq!((header.kind, read_payload(&mut reader, header).unwrap()), (Kind::Data, b"abc".to_vec()));
                leave(&mut reader);
            });
            assert_eq!(shared.streams.take(&wanted, reader, || Ok(())).unwrap().is_some(), goes_on);
        }
    }
}
