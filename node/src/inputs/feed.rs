//! Byte streams: feeds the file that a producer writes to a command, through a FIFO or its standard input.
//!
//! The reader gets each byte once, and the end only when the producer's events say that the file is committed.

mod caught;
mod fifo;
mod netted;
mod observation;
mod openings;
mod sharers;
mod stalls;
mod stutter;
mod whole;
mod write_end;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::sys::inotify::AddWatchFlags;
use nix::unistd::pipe2;

use self::fifo::Fifo;
pub use self::fifo::Wait;
use self::netted::Netted;
use self::observation::Observation;
use self::sharers::doing;
use self::stalls::{Doing, LATEST};
use self::stutter::Stutter;
use self::whole::Whole;
pub use self::write_end::Registration;
use self::write_end::WriteEnd;
use crate::inputs::placement::{origin_of_part, remove_memory, remove_target};
use crate::link::Reader;
use crate::processes::tree::Process;
use crate::protocol::event::{now, Event, FedEvent, StreamEvent, StreamPart, StreamWait};
use crate::protocol::job::{Access, Input, Job, Target};
use crate::protocol::results;
use crate::streams::origin::{Failure, Origin, Step};
use crate::streams::producer::Producer;
use crate::streams::source::Source;
use crate::sys::ownership::open_own;
use crate::sys::pipe::{has_reader, make_fifo, remove_fifo, remove_link};
use crate::sys::raw::bytes_in_pipe;
use crate::sys::watch::Watcher;

/// Pause of the feeder when less than `LITTLE` could be moved into a pipe of the full size.
///
/// A reader that takes little at a time makes space page by page. Without the pause each page would wake the feeder.
/// The reader still has plenty in the pipe.
pub const PAUSE: Duration = Duration::from_micros(200);
const LITTLE: u64 = 64 << 10;
/// Bytes after which the other inputs get their turn.
const TURN: u64 = 16 << 20;

/// A producer that writes little at a time wakes the feeder by each write, and the feeder the reader. When less than
/// `LITTLE` was fed, and nothing is left, the feeder lets bytes gather for this time.
/// On busy cores each wake costs both programs their caches.
const GATHER: Duration = Duration::from_millis(2);

/// The thing for which a feeder waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    Nothing,
    Reader,
    Space,
    /// More space than there is: see `PAUSE`.
    Pause,
    /// The moment for the next piece of a replay.
    Time(Instant),
    /// More data that is likely written already, until this moment: see `GATHER`.
    Gathering(Instant),
    /// More data, or word from the producer.
    Data,
}

/// How the stream has ended.
#[derive(Debug, Default)]
struct Ending {
    /// Nothing will be fed any more.
    finished: bool,
    /// The command was given the end.
    complete: bool,
    /// The command has read a part only, or bytes that are not committed yet. These have to be compared with the file.
    partly: bool,
    /// Bytes in the pipe when the command had closed it.
    unread: u64,
    /// The end was told.
    reported: bool,
}

#[derive(Debug)]
pub struct Feeder {
    pub input: Input,
    pub need: Need,
    /// The source of the bytes.
    origin: Box<dyn Origin>,
    pipe: WriteEnd,
    /// Present while the FIFO of the stream is there. A stream into the standard input has none.
    fifo: Option<Fifo>,
    /// Present for a stream under the net.
    netted: Option<Netted>,
    /// Present for a complete file that is fed as if it were being written.
    stutter: Option<Stutter>,
    told: Observation,
    ending: Ending,
}

impl Feeder {
    /// Makes the FIFO or the pipe; the read end of a pipe is returned, for the command.
    ///
    /// # Errors
    /// A message that names the input.
    pub fn new(input: Input, registration: Registration) -> Result<(Self, Option<OwnedFd>), String> {
        let at = |error: io::Error| format!("input from {}: {error}", input.name);
        let (sink, fifo, reader) = match &input.target {
            Target::Stdin => {
                let (reader, sink) = pipe2(OFlag::O_CLOEXEC).map_err(|error| at(error.into()))?;
                fcntl(&sink, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|error| at(error.into()))?;
                (sink, None, Some(reader))
            }
            Target::Fifo(path) => {
                let named = |error: io::Error| {
                    format!("input from {}: cannot make FIFO {}: {error}", input.name, path.display())
                };
                remove_link(path);
                (make_fifo(path).map_err(named)?, Some(path), None)
            }
            Target::File(path) => return Err(format!("input from {}: {} is no stream", input.name, path.display())),
        };
        let origin = origin_of(&input).map_err(at)?;
        let netted = if input.net.is_some() { Some(Netted::new(&sink).map_err(at)?) } else { None };
        let pipe = WriteEnd::new(sink, registration);
        match &netted {
            Some(netted) => pipe.registration.add_to_net(netted.id, fifo.map(PathBuf::as_path)),
            None => fifo.iter().for_each(|fifo| pipe.registration.add(fifo)),
        }
        let feeder = Self {
            need: if reader.is_some() { Need::Data } else { Need::Reader },
            origin,
            pipe,
            fifo: fifo.map(|path| Fifo::new(path)),
            netted,
            stutter: (input.access == Access::Replay).then(Stutter::new),
            told: Observation::new(),
            ending: Ending::default(),
            input,
        };
        Ok((feeder, reader))
    }

    /// Bytes given to the command.
    pub fn streamed(&self) -> u64 {
        self.origin.taken()
    }

    /// The moment when the stream may be fed again, if it waits for one.
    pub fn due(&self) -> Option<Instant> {
        match self.need {
            Need::Time(moment) | Need::Gathering(moment) => Some(moment),
            _ => None,
        }
    }

    /// Whether the moment has come for which the stream waits.
    pub fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    /// The side for which the stream waits.
    fn waits(&self) -> Option<StreamWait> {
        match self.need {
            Need::Nothing => None,
            Need::Reader => Some(StreamWait::Opening),
            Need::Data | Need::Gathering(_) if self.pipe.unread().unwrap_or(0) == 0 => Some(StreamWait::Producer),
            Need::Data | Need::Gathering(_) | Need::Space | Need::Pause | Need::Time(_) => Some(StreamWait::Reader),
        }
    }

    /// When to look whether the command waits for more.
    pub fn look_due(&self) -> Option<Instant> {
        if self.ending.finished {
            return None;
        }
        // Nothing else tells that the command has taken the last bytes that it may get.
        let may_ask = || (self.need == Need::Data && self.left() == 0).then(|| Instant::now() + LATEST);
        self.told.stalls.due().or_else(may_ask)
    }

    /// Finds what the command does that reads the stream.
    pub fn doing(&self, processes: &[Process]) -> Doing {
        self.pipe.sink.as_ref().map_or(Doing::Unseen, |sink| doing(processes, sink))
    }

    /// The command was looked at.
    pub fn looked(&mut self, doing: Doing, cost: Duration) {
        self.told.stalls.looked(doing, Instant::now(), cost);
    }

    /// How far it is, if it is time to tell it, and another thing than before.
    pub fn progress(&mut self) -> Option<Event<'_>> {
        if self.ending.finished || !self.input.progress {
            return None;
        }
        let (bytes, waits) = (self.streamed(), self.waits());
        let told = self.told.progress(bytes, waits)?;
        let (stalled, waits) = (told.stalled, told.waits);
        let last = self.told.times().map(|(_, last)| last);
        Some(Event::Fed(FedEvent { name: &self.input.id, bytes, last, stalled, waits }))
    }

    /// Descriptors that become readable when there is more to feed.
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
        let Some(fifo) = &mut self.fifo else {
            return Ok(self.netted.is_none() || self.origin.whole_file()?.is_some());
        };
        fifo.whole.get_or_insert_with(|| Whole::of(&fifo.path)).advance(&mut *self.origin, &fifo.path)
    }

    /// Whether the command waits for the whole file.
    pub fn is_wanted_whole(&self) -> bool {
        self.fifo.as_ref().is_some_and(|fifo| fifo.whole.is_some())
    }

    /// Whether a process has the stream open, and has not got its end.
    pub fn is_read(&self) -> bool {
        !self.ending.finished && self.pipe.has_reader()
    }

    pub fn sink(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.sink.as_ref().map(AsFd::as_fd)
    }

    /// Watches the FIFO and the producer's events; `token` makes the watcher's token.
    pub fn arm<T: Clone + PartialEq>(&mut self, watcher: &mut Watcher<T>, token: &impl Fn(Wait) -> T) {
        if let Some(fifo) = &mut self.fifo {
            fifo.arm(watcher, token);
        }
        self.origin.watch_events(&mut |path, mask| watcher.watch(path, mask, token(Wait::Events)));
    }

    /// Openings may not have been told.
    pub fn notices_were_lost(&mut self) {
        self.fifo.iter_mut().for_each(|fifo| fifo.openings.told = false);
    }

    /// The command has opened (or closed) its FIFO.
    pub fn fifo_notice(&mut self, mask: AddWatchFlags) -> Result<(), Failure> {
        // Under the net it does not count what was read. A look at the pipe would open it, which makes a notice again.
        let is_netted = self.netted.is_some();
        // Of an empty stream, the end is all that a command can get.
        let has_consumed = !is_netted && (self.ending.complete || self.consumed() > 0);
        self.fifo.as_mut().map_or(Ok(()), |fifo| fifo.notice(mask, has_consumed, is_netted))
    }

    /// The command is paused, or goes on.
    pub fn pause(&mut self, paused: bool) {
        self.fifo.iter_mut().for_each(|fifo| fifo.openings.pause(paused));
    }

    fn consumed(&self) -> u64 {
        let netted = self.netted.as_ref();
        let unread = || self.pipe.unread().unwrap_or_else(|| netted.map_or(0, Netted::unread));
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
        if !self.ending.finished {
            let (waits, before) = (self.waits(), self.streamed());
            self.told.stalls.wait(waits, Instant::now());
            self.feed(watcher, token)?;
            if self.input.window && !self.ending.finished {
                let consumed = self.consumed();
                self.origin.acknowledge(consumed);
            }
            let fed = self.ending.finished || self.streamed() > before;
            self.told.stalls.fed(fed, Instant::now());
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
                    if self.ending.finished {
                        self.give_end(watcher, token);
                        self.ending.complete = true;
                        self.ending.partly = self.origin.has_ended_early();
                        self.origin.close(self.ending.partly);
                    }
                    self.leave();
                    return Ok(());
                }
                Need::Space => {
                    let moved = self.streamed() - before;
                    if self.pipe.wide && 0 < moved && moved < LITTLE && self.origin.has_more() {
                        self.need = Need::Pause;
                        return Ok(());
                    }
                    if self.streamed() - started >= TURN || !self.pipe.has_space() {
                        return Ok(());
                    }
                }
                Need::Reader | Need::Pause | Need::Time(_) | Need::Gathering(_) => return Ok(()),
                Need::Data if (1..LITTLE).contains(&(self.streamed() - started)) && self.left() > 0 => {
                    self.need = Need::Gathering(Instant::now() + GATHER);
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

    /// Bytes that the command may still get as a stream.
    fn left(&self) -> u64 {
        self.input.most.map_or(u64::MAX, |most| most.saturating_sub(self.streamed()))
    }

    /// One step: moves bytes until the pipe is full or the file ends.
    fn feed_some(&mut self) -> Result<Need, Failure> {
        if !self.origin.open()? {
            return Ok(Need::Data);
        }
        let Some(sink) = &self.pipe.sink else { return Ok(Need::Nothing) };
        if !has_reader(sink) {
            return Ok(self.without_reader());
        }
        // A command that opens a stream under the net again finds there what was fed.
        if let Some(fifo) = self.fifo.as_mut().filter(|_| self.origin.taken() == 0 && self.netted.is_none()) {
            if fifo.may_be_a_look()? {
                return Ok(Need::Pause);
            }
        }
        let left = self.left();
        if left == 0 && self.origin.has_more() {
            // The command may end, or work for long, and never ask for these bytes.
            let is_asked = self.origin.is_final() && self.told.stalls.is_asked();
            return if is_asked { Err(self.outgrown()) } else { Ok(Need::Data) };
        }
        let mut most = left;
        if let Some(stutter) = &mut self.stutter {
            let Some(piece) = stutter.next(bytes_in_pipe(sink), self.origin.has_more(), Instant::now()) else {
                return Ok(Need::Time(stutter.until));
            };
            most = left.min(piece);
        }
        let before = self.origin.taken();
        let step = self.origin.take(sink, most)?;
        self.stutter.iter_mut().for_each(|stutter| stutter.fed(self.origin.taken() - before));
        match step {
            Step::Moved => {
                self.told.moved();
                Ok(Need::Space)
            }
            Step::Full => Ok(Need::Space),
            Step::Unread => Ok(self.without_reader()),
            Step::Waiting => Ok(Need::Data),
            Step::Complete => {
                self.ending.finished = true;
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
        // A command that opens a stream under the net again asks for that before.
        let fifo = self.fifo.as_ref().filter(|fifo| self.netted.is_none() && !fifo.is_replaced());
        let guard = fifo.zip(watcher).and_then(|(fifo, watcher)| fifo.guard(watcher, token).ok());
        match (fifo, &guard) {
            (Some(fifo), Some(_)) => self.pipe.registration.add(&fifo.path),
            (Some(fifo), None) => drop(remove_fifo(&fifo.path)),
            _ => {}
        }
        self.pipe.end(guard);
    }

    /// Ends the stream because the rest is not read.
    pub fn leave(&mut self) {
        if !std::mem::replace(&mut self.ending.finished, true) {
            self.told.stalls.end();
            self.need = Need::Nothing;
            let consumed = self.consumed();
            self.ending.unread = self.streamed().saturating_sub(consumed);
            self.ending.partly = consumed > 0 || self.netted.as_ref().is_some_and(Netted::was_moved);
            self.origin.close(self.ending.partly);
        }
    }

    /// Whether the stream has ended, and its end is not reported yet.
    pub fn is_leaving(&self) -> bool {
        self.ending.finished && !self.ending.reported
    }

    /// How the stream has ended, once.
    pub fn report(&mut self) -> Result<Option<Event<'_>>, Failure> {
        if !self.is_leaving() {
            return Ok(None);
        }
        let mut part = None;
        if self.ending.partly {
            let Poll::Ready(found) = self.origin.part() else { return Ok(None) };
            part = found?;
        }
        self.ending.reported = true;
        let (first, last) = self.told.times().unwrap_or_else(|| (now(), now()));
        let part = part.map(|part| StreamPart::of(self.input.named(), part));
        let Input { name, id, .. } = &self.input;
        let place = self.netted.as_ref().and_then(Netted::place);
        let unread = if self.stutter.is_some() { self.ending.unread } else { 0 };
        let bytes = place.unwrap_or_else(|| self.streamed() - unread);
        let seconds = last - first;
        let (waited, behind) = (self.told.stalls.reader.as_secs_f64(), self.told.stalls.bytes.as_secs_f64());
        Ok(Some(Event::Stream(StreamEvent { name, id: Some(id), bytes, seconds, first, last, waited, behind, part })))
    }

    /// The command has succeeded. If it has not opened the stream, that has to be there still: it may have read
    /// something else under that name.
    ///
    /// # Errors
    /// When something else is in the place of the FIFO, or of its directory.
    pub fn check_unopened(&self) -> Result<(), Failure> {
        match &self.fifo {
            Some(fifo) if !self.ending.complete && self.streamed() == 0 => fifo.check_unopened(),
            _ => Ok(()),
        }
    }

    /// The command has succeeded: puts a link to the file in the place of the FIFO, if all of it was given. The
    /// command may have made an output of its input's name.
    ///
    /// # Errors
    /// When a file that has to be there cannot be made.
    pub fn leave_file(&mut self) -> Result<(), Failure> {
        if self.ending.complete || self.input.part().is_some() {
            self.put_away(true)
        } else {
            Ok(())
        }
    }

    /// Whether an output refers to the stream, and needs the whole file before [`Self::clean_up`] leaves a link to it.
    ///
    /// # Arguments
    /// * `early` - outputs are committed or collected before all inputs are committed
    pub fn is_output(&self, early: bool) -> bool {
        let needs_file = match self.input.access {
            // A link would lead to another host.
            Access::Link(_) => true,
            Access::Events(_) => early && !self.ending.complete,
            Access::Replay | Access::Part(_) => false,
        };
        // Of a file with a window, bytes may be gone.
        let Some(fifo) = self.fifo.as_ref().filter(|_| needs_file && !self.input.window) else { return false };
        !fifo.is_replaced() && self.check_unopened().is_ok() && results::refer_to(&fifo.path)
    }

    /// Removes the FIFO, and what has taken its place unless the job has succeeded: then a link to the file is left.
    pub fn clean_up(&mut self, success: bool) {
        let _ = self.put_away(success);
    }

    fn put_away(&mut self, success: bool) -> Result<(), Failure> {
        let Some(fifo) = self.fifo.take() else { return Ok(()) };
        let stays = success && self.origin.is_to_stay(&fifo.path);
        let was_there = remove_fifo(&fifo.path);
        match &fifo.whole {
            Some(whole) if !stays => whole.remove(&fifo.path, &self.input.access),
            _ if stays && was_there => return self.origin.leave_file(&fifo.path),
            _ => {}
        }
        Ok(())
    }
}

/// Opens what is fed to an input.
fn origin_of(input: &Input) -> io::Result<Box<dyn Origin>> {
    Ok(match &input.access {
        Access::Events(local) if input.window => {
            Box::new(Source::of_window(&input.path, Producer::of_input(input, local), &local.events, &input.port))
        }
        Access::Events(local) => Box::new(Source::new(&input.path, Producer::of_input(input, local))),
        Access::Replay => Box::new(Source::new(&input.path, Producer::of_replay(&input.path))),
        Access::Link(link) => Box::new(Reader::new(link, &input.port, &input.path, input.window)?),
        Access::Part(part) => origin_of_part(input, part)?,
    })
}

/// Removes what was made for the inputs of a job, given by its directory, when its `exec` can no longer do it.
pub fn remove_inputs(directory: &Path) {
    // Another user may have put a directory in the place of a run directory that is gone.
    let is_ours = directory.ancestors().nth(2).is_some_and(|run| open_own(run).is_ok());
    let Some(job) = is_ours.then(|| Job::load(&directory.join("job.json")).ok()).flatten() else { return };
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
