//! Byte streams: feeds the file that a producer writes to a command, through a FIFO or its standard input.
//!
//! The reader gets each byte once, and the end only when the producer's events say that the file is committed.

mod caught;
mod limiter;
mod netted;
mod openings;
mod place;
mod progress;
mod sharers;
mod stalls;
mod stutter;
mod whole;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::sys::inotify::AddWatchFlags;
use nix::unistd::pipe2;

use self::limiter::Limiter;
use self::netted::Netted;
use self::openings::Openings;
use self::place::Place;
use self::progress::Progress;
use self::sharers::doing;
use self::stalls::{Doing, Stalls};
use self::stutter::Stutter;
use self::whole::Whole;
use crate::gate::{Handler, Streams};
use crate::inputs::placement::{remove_memory, remove_target};
use crate::link::Reader;
use crate::processes::tree::Process;
use crate::protocol::event::{now, DrainedEvent, Event, FedEvent, StreamEvent, StreamPart, StreamWait};
use crate::protocol::fd_store::Client;
use crate::protocol::job::{Access, Input, Job, Rate, Target};
use crate::streams::origin::{Failure, Origin, Step};
use crate::streams::part_reader::PartReader;
use crate::streams::producer::Producer;
use crate::streams::source::Source;
use crate::sys::file_id::{file_id, FileId};
use crate::sys::pipe::{guard_fifo, has_reader, has_space, make_fifo, remove_fifo, remove_link, widen};
use crate::sys::raw::bytes_in_pipe;
use crate::sys::watch::Watcher;

/// A reader that takes little at a time makes space page by page. When less than `LITTLE` could be moved into a pipe
/// of the full size, the feeder waits for so long instead of being woken for each page: the reader still has plenty.
pub const PAUSE: Duration = Duration::from_micros(200);
const LITTLE: u64 = 64 << 10;
/// A producer that writes little at a time wakes the feeder by each write, and the feeder the reader. When all was fed that
/// there was, and that was less than `LITTLE`, the feeder lets bytes gather for so long: on busy cores each wake costs both
/// programs their caches.
const GATHER: Duration = Duration::from_millis(2);
/// Who has got nothing over a link for so long had nothing to feed.
const ON_ITS_WAY: Duration = Duration::from_millis(250);
/// That all was fed is told no sooner after it was told before.
const BETWEEN: Duration = Duration::from_millis(250);
/// After so many bytes the other inputs get their turn.
const TURN: u64 = 16 << 20;

/// What a watch on behalf of a feeder is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Growth,
    Fifo,
    /// The directory of a FIFO: the kernel merges a notice with an equal one before it, and those of the directory keep two
    /// openings apart.
    Beside,
    Events,
}

/// What a feeder waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    Reader,
    Space,
    /// More space than there is: see `PAUSE`.
    Pause,
    /// Its time: see `Limiter`.
    Time,
    /// More data that is likely written already: see `GATHER`.
    Gathering,
    /// More data, or word from the producer.
    Data,
}

/// Who has to know of a stream, by the number of the input.
#[derive(Clone, Debug)]
pub struct Registration {
    pub number: u32,
    /// Where `serve` has the write end of it, too.
    pub store: Option<Rc<Client>>,
    pub streams: Arc<Streams>,
    pub handler: Arc<Handler>,
}

impl Registration {
    fn add(&self, fifo: &Path) {
        file_id(fifo).iter().for_each(|fifo| self.streams.add(self.number as usize, *fifo));
    }

    fn add_to_net(&self, pipe: FileId, fifo: Option<&Path>) {
        let number = self.number as usize;
        self.streams.add(number, pipe);
        self.handler.table.net.add(number, pipe, fifo.and_then(Path::parent).and_then(file_id));
    }
}

/// What was told of it last.
#[derive(Debug, Default)]
struct Drained {
    bytes: u64,
    /// When it may be told again.
    next: Option<Instant>,
}

#[derive(Debug)]
pub struct Feeder {
    pub input: Input,
    pub need: Need,
    /// None: it has no limit.
    limiter: Option<Limiter>,
    /// Of a file that is fed as if it were being written.
    stutter: Option<Stutter>,
    origin: Box<dyn Origin>,
    sink: Option<OwnedFd>,
    registration: Registration,
    /// What takes the place of the FIFO, when it is wanted.
    whole: Option<Whole>,
    /// Of a stream under the net.
    netted: Option<Netted>,
    /// The pipe has the size that was asked for.
    wide: bool,
    /// Until when bytes gather.
    gathered: Instant,
    fifo: Option<PathBuf>,
    /// As it was made.
    place: Option<Place>,
    openings: Openings,
    first: f64,
    last: f64,
    drained: Drained,
    progress: Progress,
    stalls: Stalls,
    /// Since when there is nothing to feed.
    waits: Option<Instant>,
    finished: bool,
    /// The command was given the end.
    complete: bool,
    /// The command has read a part only, or what is not committed yet, and that has to be compared with the file.
    partly: bool,
    /// So many bytes were in the pipe when nobody read any more.
    unread: u64,
    /// How the stream has ended was told.
    reported: bool,
}

impl Feeder {
    /// Makes the FIFO or the pipe; the read end of a pipe is returned, for the command.
    ///
    /// # Errors
    /// A message that names the input.
    pub fn new(input: Input, mut registration: Registration) -> Result<(Self, Option<OwnedFd>), String> {
        let at = |error: io::Error| format!("input {}: {error}", input.name);
        let (sink, fifo, reader) = match &input.target {
            Target::Stdin => {
                let (reader, sink) = pipe2(OFlag::O_CLOEXEC).map_err(|error| at(error.into()))?;
                fcntl(&sink, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|error| at(error.into()))?;
                (sink, None, Some(reader))
            }
            Target::Fifo(path) => {
                let named =
                    |error: io::Error| format!("input {}: cannot make FIFO {}: {error}", input.name, path.display());
                remove_link(path);
                (make_fifo(path).map_err(named)?, Some(path.clone()), None)
            }
            Target::File(path) => return Err(format!("input {}: {} is no stream", input.name, path.display())),
        };
        let origin: Box<dyn Origin> = match &input.access {
            Access::Events(events) => {
                Box::new(Source::new(&input.path, Producer::of_input(&input, events), input.verify))
            }
            Access::Replay => Box::new(Source::new(&input.path, Producer::of_replay(&input.path), input.verify)),
            Access::Link(link) => {
                Box::new(Reader::new(link, &input.port, &input.path, input.verify, input.limit).map_err(at)?)
            }
            Access::Part(part) => match &input.home {
                Some(home) => Box::new(Reader::of_part(home, &input.port, &input.path).map_err(at)?),
                None => Box::new(PartReader::new(part.clone())),
            },
        };
        registration.store = registration.store.filter(|store| store.keep(registration.number, &sink).is_ok());
        let netted = if input.net { Some(Netted::new(&sink).map_err(at)?) } else { None };
        match &netted {
            Some(netted) => registration.add_to_net(netted.id, fifo.as_deref()),
            None => fifo.iter().for_each(|fifo| registration.add(fifo)),
        }
        let place = fifo.as_deref().map(Place::of);
        // Refused beyond the system's limits; the pipe then stays smaller.
        let wide = widen(&sink);
        let feeder = Self {
            need: if reader.is_some() { Need::Data } else { Need::Reader },
            limiter: input.limit.map(Limiter::new),
            stutter: (input.access == Access::Replay).then(Stutter::new),
            origin,
            sink: Some(sink),
            registration,
            whole: None,
            netted,
            wide,
            gathered: Instant::now(),
            fifo,
            place,
            openings: Openings::default(),
            first: 0.0,
            last: 0.0,
            drained: Drained::default(),
            progress: Progress::new(Instant::now()),
            stalls: Stalls::new(Instant::now()),
            waits: None,
            finished: false,
            complete: false,
            partly: false,
            unread: 0,
            reported: false,
            input,
        };
        Ok((feeder, reader))
    }

    /// Bytes given to the command.
    pub fn streamed(&self) -> u64 {
        self.origin.taken()
    }

    /// When it may be fed again, or something is to be told of it, if it waits for that.
    pub fn due(&self) -> Option<Instant> {
        match self.need {
            Need::Time => {
                let stutter = self.stutter.as_ref().map(|stutter| stutter.until);
                stutter.or(self.limiter.as_ref().map(|limiter| limiter.until))
            }
            Need::Gathering => Some(self.gathered),
            _ => self.drained.next.filter(|_| self.has_news()),
        }
    }

    /// Whether its time has come, if it waits for that.
    pub fn is_due(&self) -> bool {
        matches!(self.need, Need::Time | Need::Gathering) && self.due().is_some_and(|due| due <= Instant::now())
    }

    /// All that there is was fed, and that is not told yet.
    fn has_news(&self) -> bool {
        let fed = self.complete || self.need == Need::Data;
        self.input.phases && fed && self.streamed() > self.drained.bytes
    }

    /// That all was fed that there is, if it is time to tell it.
    pub fn drained(&mut self) -> Option<Event<'_>> {
        let time = Instant::now();
        let early = !self.complete && self.drained.next.is_some_and(|next| time < next);
        if !self.has_news() || early {
            return None;
        }
        self.drained = Drained { bytes: self.streamed(), next: Some(time + BETWEEN) };
        Some(Event::Drained(DrainedEvent { name: &self.input.id, bytes: self.drained.bytes, last: self.last }))
    }

    /// For whom or what it waits.
    fn waits(&self) -> Option<StreamWait> {
        match self.need {
            Need::Nothing => None,
            Need::Reader => Some(StreamWait::Opening),
            Need::Time => Some(StreamWait::Rate),
            Need::Data | Need::Gathering if self.sink.as_ref().map_or(0, bytes_in_pipe) == 0 => {
                Some(StreamWait::Producer)
            }
            Need::Data | Need::Gathering | Need::Space | Need::Pause => Some(StreamWait::Reader),
        }
    }

    /// When to look whether the command waits for more.
    pub fn look_due(&self) -> Option<Instant> {
        self.stalls.due().filter(|_| !self.finished)
    }

    /// What the command does that reads it.
    pub fn doing(&self, processes: &[Process]) -> Doing {
        self.sink.as_ref().map_or(Doing::Unseen, |sink| doing(processes, sink))
    }

    /// The command was looked at.
    pub fn looked(&mut self, doing: Doing, cost: Duration) {
        self.stalls.looked(doing, Instant::now(), cost);
    }

    /// How far it is, if it is time to tell it, and another thing than before.
    pub fn progress(&mut self) -> Option<Event<'_>> {
        if self.finished || !self.input.phases {
            return None;
        }
        let (bytes, waits) = (self.streamed(), self.waits());
        let state = self.progress.tell(Instant::now(), bytes, waits)?;
        let (stalled, waits, last) = (state.stalled, state.waits, (bytes > 0).then_some(self.last));
        Some(Event::Fed(FedEvent { name: &self.input.id, bytes, last, stalled, waits }))
    }

    /// What has to be waited for until it is readable.
    pub fn arrivals(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let stream = self.origin.arrivals().filter(|_| self.need == Need::Data);
        stream.into_iter().chain(self.origin.whole_arrivals())
    }

    /// The command waits for the whole file: brings it, and says whether it is in the place of the FIFO.
    ///
    /// # Errors
    /// When there will be none.
    pub fn bring_whole(&mut self) -> Result<bool, Failure> {
        self.origin.want_whole();
        let Some(fifo) = &self.fifo else {
            return Ok(self.netted.is_none() || self.origin.whole_file()?.is_some());
        };
        self.whole.get_or_insert_with(|| Whole::of(fifo)).advance(&mut *self.origin, fifo)
    }

    /// Somebody waits for it.
    pub fn is_wanted_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// Whether somebody has the stream open, and has not got its end.
    pub fn is_read(&self) -> bool {
        !self.finished && self.sink.as_ref().is_some_and(has_reader)
    }

    pub fn sink(&self) -> Option<BorrowedFd<'_>> {
        self.sink.as_ref().map(AsFd::as_fd)
    }

    /// Watches the FIFO and the producer's events; `token` makes the watcher's token.
    pub fn arm<T: Clone + PartialEq>(&mut self, watcher: &mut Watcher<T>, token: &impl Fn(Wait) -> T) {
        if let Some(fifo) = &self.fifo {
            let mask = AddWatchFlags::IN_OPEN | AddWatchFlags::IN_CLOSE_NOWRITE;
            self.openings.told = watcher.watch(fifo, mask, token(Wait::Fifo)).is_ok();
            let _ = fifo.parent().map(|above| watcher.watch(above, mask, token(Wait::Beside)));
        }
        self.origin.watch_events(&mut |path, mask| watcher.watch(path, mask, token(Wait::Events)));
    }

    /// Openings may not have been told.
    pub fn notices_were_lost(&mut self) {
        self.openings.told = false;
    }

    /// The command has opened (or closed) its FIFO.
    pub fn fifo_notice(&mut self, mask: AddWatchFlags) -> Result<(), Failure> {
        let fifo = self.fifo.as_deref().unwrap_or(Path::new(""));
        let opened = self.openings.notice(mask);
        // Who opens a stream under the net has asked for that.
        if opened
            && self.netted.is_none()
            && (self.openings.are_several(fifo) || (self.openings.is_again() && self.consumed() > 0))
        {
            return Err(reopened(fifo));
        }
        Ok(())
    }

    /// Feeds at another rate from now on. The bytes of a part have none.
    pub fn keep_to(&mut self, rate: Rate) {
        if self.input.part().is_some() || self.stutter.is_some() {
            return;
        }
        self.origin.keep_to(rate);
        match (&mut self.limiter, rate) {
            (Some(limiter), Some(rate)) => limiter.change(rate),
            (limiter, rate) => *limiter = rate.map(Limiter::new),
        }
    }

    /// The command is paused, or goes on.
    pub fn pause(&mut self, paused: bool) {
        self.openings.pause(paused);
    }

    fn consumed(&self) -> u64 {
        let netted = self.netted.as_ref();
        let unread = || match &self.sink {
            Some(sink) => bytes_in_pipe(sink),
            None => netted.map_or(0, Netted::unread),
        };
        netted.and_then(Netted::place).unwrap_or_else(|| self.streamed().saturating_sub(unread()))
    }

    /// The producer's events may have grown.
    pub fn read_events<T: Clone + PartialEq>(&mut self, watcher: Option<&mut Watcher<T>>, token: &impl Fn(Wait) -> T) {
        if let Some(watcher) = watcher {
            self.origin.watch_events(&mut |path, mask| watcher.watch(path, mask, token(Wait::Events)));
        }
        self.origin.read_events();
    }

    /// Feeds what can be fed. Says in `need` what it waits for, and returns an event when the stream has ended well.
    pub fn pump<T: Clone + PartialEq>(
        &mut self,
        watcher: Option<&mut Watcher<T>>,
        token: &impl Fn(Wait) -> T,
    ) -> Result<Option<Event<'_>>, Failure> {
        if !self.finished {
            let (waits, before) = (self.waits(), self.streamed());
            self.stalls.wait(waits, Instant::now());
            self.feed(watcher, token)?;
            self.stalls.fed(self.finished || self.streamed() > before, Instant::now());
        }
        self.report()
    }

    fn feed<T: Clone + PartialEq>(
        &mut self,
        mut watcher: Option<&mut Watcher<T>>,
        token: &impl Fn(Wait) -> T,
    ) -> Result<(), Failure> {
        self.origin.check()?;
        let started = self.streamed();
        loop {
            let before = self.streamed();
            self.need = self.feed_some()?;
            match self.need {
                Need::Nothing => {
                    if self.finished {
                        self.give_end(watcher, token);
                        self.complete = true;
                        self.partly = self.origin.has_ended_early();
                        self.origin.close(self.partly);
                    }
                    self.leave();
                    return Ok(());
                }
                Need::Space => {
                    let moved = self.streamed() - before;
                    if self.wide && 0 < moved && moved < LITTLE && self.origin.has_more() {
                        self.need = Need::Pause;
                        return Ok(());
                    }
                    if self.streamed() - started >= TURN || !self.sink.as_ref().is_some_and(has_space) {
                        return Ok(());
                    }
                }
                Need::Reader | Need::Pause | Need::Time | Need::Gathering => return Ok(()),
                Need::Data if (1..LITTLE).contains(&(self.streamed() - started)) && self.left() > 0 => {
                    (self.need, self.gathered) = (Need::Gathering, Instant::now() + GATHER);
                    return Ok(());
                }
                Need::Data => {
                    let Some(watcher) = watcher.as_deref_mut().filter(|_| self.left() > 0) else { return Ok(()) };
                    if !self.origin.watch_growth(&mut |path, mask| watcher.watch(path, mask, token(Wait::Growth))) {
                        return Ok(());
                    }
                    // Armed only now: look once more at what was written in between.
                }
            }
        }
    }

    /// The source has grown: its watch was for one time.
    pub fn growth_notice(&mut self) {
        self.origin.growth_notice();
    }

    /// So many bytes more the command may get as a stream.
    fn left(&self) -> u64 {
        self.input.most.map_or(u64::MAX, |most| most.saturating_sub(self.streamed()))
    }

    /// One step: moves bytes until the pipe is full or the file ends.
    fn feed_some(&mut self) -> Result<Need, Failure> {
        if !self.origin.open()? {
            return Ok(Need::Data);
        }
        let Some(sink) = &self.sink else { return Ok(Need::Nothing) };
        if !has_reader(sink) {
            return Ok(self.without_reader());
        }
        let nothing_fed = self.streamed() == 0;
        // Who opens a stream under the net, closes it without having read, and opens it again finds there what was fed.
        if nothing_fed && self.netted.is_none() {
            let fifo = self.fifo.as_deref();
            if self.openings.may_be_a_look(fifo) {
                return Ok(Need::Pause);
            }
            if let Some(fifo) = fifo.filter(|fifo| self.openings.are_uncounted_and_several(fifo)) {
                return Err(reopened(fifo));
            }
        }
        let mut most = self.left();
        if most == 0 && self.origin.has_more() {
            // Whether the command wants these bytes is known when it has ended. Until the file is final that may be.
            return if self.origin.is_final() { Err(self.outgrown()) } else { Ok(Need::Data) };
        }
        if let Some(limiter) = &mut self.limiter {
            if Instant::now() < limiter.until {
                return Ok(Need::Time);
            }
            // What comes over a link may be on its way.
            let patience = if matches!(self.input.access, Access::Link(_)) { ON_ITS_WAY } else { Duration::ZERO };
            let waited = self.waits.map_or(Duration::ZERO, |since| since.elapsed());
            if self.need == Need::Reader || (self.need == Need::Data && waited >= patience) {
                limiter.idle();
            }
            most = most.min(limiter.most);
        }
        if let Some(stutter) = &mut self.stutter {
            let (unread, now) = (bytes_in_pipe(sink), Instant::now());
            // Its end is given when all was read, so that it is known whether it was.
            if !self.origin.has_more() && stutter.waits_for_reader(unread, now) {
                return Ok(Need::Time);
            }
            let Some(piece) = stutter.next(unread, now) else { return Ok(Need::Time) };
            most = most.min(piece);
        }
        let before = self.streamed();
        let step = self.origin.take(sink, most)?;
        let fed = self.streamed() - before;
        self.limiter.iter_mut().filter(|_| fed > 0).for_each(|limiter| limiter.fed(fed));
        self.stutter.iter_mut().for_each(|stutter| stutter.fed(fed));
        self.waits = self.waits.filter(|_| fed == 0);
        match step {
            Step::Moved => {
                self.last = now();
                if nothing_fed {
                    self.first = self.last;
                }
                let rests = self.limiter.as_ref().is_some_and(|limiter| Instant::now() < limiter.until);
                Ok(if rests { Need::Time } else { Need::Space })
            }
            Step::Full => Ok(Need::Space),
            Step::Unread => Ok(self.without_reader()),
            Step::Waiting => {
                self.waits.get_or_insert_with(Instant::now);
                Ok(Need::Data)
            }
            Step::Complete => {
                self.finished = true;
                Ok(Need::Nothing)
            }
        }
    }

    fn outgrown(&self) -> Failure {
        let (file, most) = (self.input.path.display(), self.input.most.unwrap_or_default());
        Failure::Outgrown(format!("{file} has more bytes than the {most} that may be read as a stream"))
    }

    /// A command may look at its input and open it again, as long as it has read nothing; or it has read enough.
    fn without_reader(&mut self) -> Need {
        if self.fifo.is_some() && self.consumed() == 0 {
            Need::Reader
        } else {
            Need::Nothing
        }
    }

    /// Gives the end of file. A second opening would wait for ever: a FIFO that reports it takes the place.
    fn give_end<T: Clone + PartialEq>(&mut self, watcher: Option<&mut Watcher<T>>, token: &impl Fn(Wait) -> T) {
        let mut guard = None;
        // Who opens a stream under the net again asks for that before.
        let fifo = self
            .fifo
            .as_ref()
            .filter(|_| self.netted.is_none() && !self.whole.as_ref().is_some_and(|whole| whole.there));
        if let (Some(fifo), Some(watcher)) = (fifo, watcher) {
            guard = guard_fifo(fifo, |path| watcher.watch(path, AddWatchFlags::IN_OPEN, token(Wait::Fifo))).ok();
        }
        match (fifo, &guard) {
            (Some(fifo), Some(_)) => self.registration.add(fifo),
            (Some(fifo), None) => {
                remove_fifo(fifo);
            }
            _ => {}
        }
        // Dropping the old sink, and the one that is kept, is the end of file.
        self.sink = guard;
        if let Some(store) = &self.registration.store {
            store.release(self.registration.number);
        }
    }

    /// Nobody reads the rest.
    pub fn leave(&mut self) {
        if !std::mem::replace(&mut self.finished, true) {
            self.stalls.end();
            self.need = Need::Nothing;
            self.unread = self.streamed().saturating_sub(self.consumed());
            self.partly = self.consumed() > 0 || self.netted.as_ref().is_some_and(Netted::was_moved);
            self.origin.close(self.partly);
        }
    }

    /// It is not known yet how the stream has ended.
    pub fn is_leaving(&self) -> bool {
        self.finished && !self.reported
    }

    /// How the stream has ended, once.
    pub fn report(&mut self) -> Result<Option<Event<'_>>, Failure> {
        if !self.is_leaving() {
            return Ok(None);
        }
        let mut part = None;
        if self.partly {
            let Poll::Ready(found) = self.origin.part() else { return Ok(None) };
            part = found?;
        }
        self.reported = true;
        let (first, last) = if self.streamed() == 0 { (now(), now()) } else { (self.first, self.last) };
        let part = part.map(|part| StreamPart::of(&self.input.named, part));
        let Input { name, id, .. } = &self.input;
        let place = self.netted.as_ref().and_then(Netted::place);
        let unread = if self.stutter.is_some() { self.unread } else { 0 };
        let bytes = place.unwrap_or_else(|| self.streamed() - unread);
        let seconds = last - first;
        let (waited, behind) = (self.stalls.reader.as_secs_f64(), self.stalls.bytes.as_secs_f64());
        let lag = self.origin.lag();
        Ok(Some(Event::Stream(StreamEvent {
            name,
            id: Some(id),
            bytes,
            seconds,
            first,
            last,
            waited,
            behind,
            lag,
            part,
        })))
    }

    /// The command has succeeded. If it has not opened the stream, that has to be there still: it may have read something
    /// else under that name.
    ///
    /// # Errors
    /// When something else is in the place of the FIFO, or of its directory.
    pub fn check_unopened(&self) -> Result<(), Failure> {
        let (Some(fifo), Some(place)) = (&self.fifo, &self.place) else { return Ok(()) };
        let is_known = self.openings.were_any() || self.complete || self.streamed() > 0 || self.whole.is_some();
        if is_known || place.is_still(fifo) {
            return Ok(());
        }
        let what = format!("no program has opened the stream {}", fifo.display());
        Err(Failure::Job(format!("{what}, and something else is in its place [SFIO-S027]")))
    }

    /// The command has succeeded: puts a link to the file in the place of the FIFO, if all of it was given. The command may
    /// have made an output of its input's name.
    ///
    /// # Errors
    /// When a file that has to be there cannot be made.
    pub fn leave_file(&mut self) -> Result<(), Failure> {
        if self.complete || self.input.part().is_some() {
            self.put_away(true)
        } else {
            Ok(())
        }
    }

    /// Removes the FIFO, and what has taken its place unless the job has succeeded: then a link to the file is left.
    pub fn clean_up(&mut self, success: bool) {
        let _ = self.put_away(success);
    }

    fn put_away(&mut self, success: bool) -> Result<(), Failure> {
        let Some(fifo) = self.fifo.take() else { return Ok(()) };
        let stays = success && self.origin.is_to_stay(&fifo);
        let was_there = remove_fifo(&fifo);
        match &self.whole {
            Some(whole) if !stays => whole.remove(&fifo, &self.input.access),
            _ if stays && was_there => return self.origin.leave_file(&fifo),
            _ => {}
        }
        Ok(())
    }
}

fn reopened(fifo: &Path) -> Failure {
    Failure::Job(format!("{} was opened again: a byte stream can be read only once", fifo.display()))
}

/// Removes what was made for the inputs of a job, given by its directory, when its `exec` can no longer do it.
pub fn remove_inputs(directory: &Path) {
    let Ok(job) = Job::load(&directory.join("job.json")) else { return };
    for input in &job.inputs {
        match &input.target {
            Target::Fifo(path) => {
                remove_fifo(path);
                Whole::of(path).remove(path, &input.access);
            }
            Target::File(path) => remove_target(path),
            Target::Stdin => {}
        }
    }
    job.remove_scratch();
    remove_memory(directory);
}
