//! One connection of one stream: sends what the producer writes as it grows, and how it ends.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

use super::channel::Channel;
use super::credit::Hold;
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
    let mut outlet = Outlet::new(channel, request.offset);
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
        // It was abandoned, and what was sent of it can no longer be compared with the file.
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
    let mut sender = Sender { outlet: Outlet::new(channel, request.offset), waker: None };
    let wanted = &request.wanted;
    let said = said_part(&shared.jobs.join(&wanted.job).join("events.jsonl"), &wanted.port, number);
    let Some(mut part) = said.and_then(|part| PartReader::at(part, request.offset)) else {
        let message = format!("there is no part {number} of {} with so many bytes", wanted.port);
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
                    self.outlet.idle();
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
            return self.outlet.meanwhile(|| source.take_by(|_, _, _| Ok(0)));
        }
        Ok(source.take_by(|file, offset, most| self.outlet.send(file, offset, most)))
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
        let (events, milliseconds) = match self.outlet.hold {
            _ if at_end => (PollFlags::POLLIN, TICK),
            Some(Hold::Credit) => (PollFlags::POLLIN, SLOW_TICK),
            // No sooner: what it is late by is made up for.
            Some(Hold::Time(time)) => (PollFlags::POLLIN, SLOW_TICK.min(in_milliseconds(time))),
            None => (PollFlags::POLLIN | PollFlags::POLLOUT, SLOW_TICK),
        };
        if at_end || self.outlet.hold.is_some() {
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

fn in_milliseconds(time: Duration) -> u16 {
    u16::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread::JoinHandle;
    use std::{fs, thread};

    use crate::link::credit::Credit;
    use crate::link::frame::{read_header, read_payload, record};
    use crate::link::request::Wanted;
    use crate::protocol::job::Rate;

    /// A reader of a committed file, and the thread that sends it.
    struct Setting {
        reader: TcpStream,
        wanted: Wanted,
        sender: Option<JoinHandle<Shared>>,
        _directory: tempfile::TempDir,
    }

    impl Setting {
        fn new(size: usize) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let (path, jobs) = (directory.path().join("file"), directory.path().join("jobs"));
            fs::write(&path, vec![7; size]).unwrap();
            fs::create_dir_all(jobs.join("j")).unwrap();
            let event = format!(r#"{{"event":"committed","port":"p","path":"{}","size":{size}}}"#, path.display());
            fs::write(jobs.join("j/events.jsonl"), event + "\n").unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let channel = Channel::plain(listener.accept().unwrap().0);
            let wanted = Wanted { path, ..Wanted::of_test() };
            let request = Request { wanted: wanted.clone(), offset: 0, part: false };
            let serve_it = move || {
                let shared = Shared::new(jobs);
                serve(&shared, channel, request);
                shared
            };
            Self { reader, wanted, sender: Some(thread::spawn(serve_it)), _directory: directory }
        }

        fn grant(&mut self, end: u64, rate: Rate) {
            self.say(Kind::Credit, &Credit { end, rate }.encode());
        }

        fn say(&mut self, kind: Kind, payload: &[u8]) {
            self.reader.write_all(&record(kind, payload)).unwrap();
        }

        /// Reads `size` bytes of data, behind which nothing follows.
        fn bring(&mut self, size: usize) {
            let mut brought = 0;
            while brought < size {
                let header = read_header(&mut self.reader).unwrap();
                assert_eq!(header.kind, Kind::Data);
                brought += read_payload(&mut self.reader, header).unwrap().len();
            }
            assert_eq!(brought, size);
        }

        fn is_silent(&mut self) -> bool {
            self.reader.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let heard = self.reader.read(&mut [0]);
            self.reader.set_read_timeout(None).unwrap();
            heard.is_err()
        }

        fn end(&mut self, size: u64) {
            let header = read_header(&mut self.reader).unwrap();
            assert_eq!(header.kind, Kind::Committed);
            assert_eq!(read_payload(&mut self.reader, header).unwrap(), size.to_be_bytes());
            self.say(Kind::Done, b"");
            self.sender.take().unwrap().join().unwrap();
        }
    }

    #[test]
    fn nothing_is_sent_beyond_the_credit_and_all_when_the_limit_is_lifted() {
        let mut setting = Setting::new(3_000_000);
        assert!(setting.is_silent(), "nothing was granted");
        setting.grant(1, None);
        setting.bring(1);
        setting.grant(1_500_000, u64::try_into(1_000_000_000).ok());
        setting.bring(1_499_999);
        assert!(setting.is_silent());
        setting.grant(1_600_000, u64::try_into(1).ok());
        setting.bring(64 << 10);
        assert!(setting.is_silent(), "its time has not come");
        setting.grant(u64::MAX, None);
        setting.bring(1_500_000 - (64 << 10));
        setting.end(3_000_000);
    }

    #[test]
    fn who_dies_or_leaves_or_says_nonsense_while_the_sender_waits_for_credit_is_let_go() {
        // Another connection goes on with the stream, unless the reader has said that it wants no more.
        type Act = fn(&mut Setting);
        let ways: [(Act, bool); 4] = [
            (|setting| setting.reader.shutdown(std::net::Shutdown::Both).unwrap(), true),
            (|setting| setting.say(Kind::Done, b""), false),
            (|setting| setting.say(Kind::Keepalive, b""), true),
            (|setting| setting.reader.write_all(b"GET / HTTP/1.1").unwrap(), true),
        ];
        for (leave, goes_on) in ways {
            let mut setting = Setting::new(100_000);
            setting.grant(1000, None);
            setting.bring(1000);
            leave(&mut setting);
            let shared = setting.sender.take().unwrap().join().unwrap();
            assert_eq!(shared.streams.take(&setting.wanted, setting.reader, || Ok(())).unwrap().is_some(), goes_on);
        }
    }
}
