//! A window: bytes of an output that all readers have read are discarded, and the job is paused when the slowest reader
//! is too far behind. The file keeps its size and its name.
//!
//! The bytes are read once more before they are discarded, and compared with what the readers have read. The file must
//! be written front to back, and nothing but the readers may read it.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{park_timeout, JoinHandle};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{fallocate, FallocateFlags, OFlag};
use nix::sys::eventfd::EventFd;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::statvfs::{fstatvfs, statvfs};
use nix::unistd::{lseek, Whence};
use sha1::{Digest, Sha1};
use xxhash_rust::xxh3::xxh3_64;

use crate::processes::open_files::descriptors;
use crate::processes::tree::descendants;
use crate::protocol::messages::WindowSpec;
use crate::protocol::verify::block;
use crate::streams::acknowledgements::Readers;
use crate::sys::file_id::{file_id_of, FileId};
use crate::sys::threads::{lock, spawn};

/// Blocks have another length in tests. A window has as many blocks then.
const MEBIBYTE: u64 = 1 << 20;
/// The blocks that a window has also on a small disk: only whole blocks are discarded.
const LEAST_BLOCKS: u64 = 2;
/// Bytes a second. All writers together fill no disk faster: until then, one question of the free space is enough.
const FASTEST: u64 = 32_000_000_000;
/// The longest time between two questions of the free space. On a network file system each is a message.
const LONGEST: Duration = Duration::from_secs(1);
/// Time between two looks at the file and its readers.
const LOOK: Duration = Duration::from_millis(5);
/// Time between two looks for other programs that have the file open.
const SEARCH: Duration = Duration::from_millis(200);
/// A reader that has taken nothing for so long may wait for something else that the paused job writes.
const PATIENCE: Duration = Duration::from_secs(5);
/// Readers that have not begun for so long may wait for something that the paused job holds, or may never begin.
const PATIENCE_AT_START: Duration = Duration::from_secs(30);
/// Why a window is lifted.
const NO_READER: &str = "its readers have not begun after 30 s: the job goes on, and more is kept";
const IDLE_READER: &str = "its reader has taken nothing for 5 s: the job goes on, and more is kept";

/// A file that is not there as a whole: its first bytes are discarded. The checksum is that of all of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discarded {
    pub path: PathBuf,
    pub bytes: u64,
    pub sha1: String,
}

/// The window of one file.
pub struct Window {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The job is to be paused.
    pauses: AtomicBool,
    /// The job has succeeded: the file has all its bytes.
    ends: AtomicBool,
    /// Wakes the thread that pauses the job.
    waker: Option<Arc<EventFd>>,
    warnings: Mutex<Vec<String>>,
    /// The file, unless nothing was discarded. The error: bytes are lost that were needed.
    outcome: OnceLock<Result<Option<Discarded>, String>>,
}

impl Shared {
    fn set_pauses(&self, pauses: bool) {
        if self.pauses.swap(pauses, Ordering::Relaxed) != pauses {
            let _ = self.waker.as_ref().map(|waker| waker.write(1));
        }
    }
}

impl Window {
    /// Begins the window of the file `path` of an output.
    ///
    /// # Arguments
    /// * `job` - the directory of the job
    /// * `waker` - is written to when [`Window::pauses`] has changed
    pub fn begin(
        job: &Path,
        port: &str,
        path: &Path,
        spec: &WindowSpec,
        waker: Option<Arc<EventFd>>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared { waker, ..Shared::default() });
        let (readers, path) = (Readers::new(job, port), path.to_owned());
        let (size, of_thread) = (spec.size.get() / MEBIBYTE * block(), Arc::clone(&shared));
        let (expected, waits) = (spec.readers.get() as usize, spec.waits);
        let thread = spawn("window", move || {
            let work = || Written::open(path, readers, expected, waits).map(|file| file.serve(size, &of_thread));
            let outcome = work().unwrap_or_else(|why| {
                lock(&of_thread.warnings).push(why);
                Ok(None)
            });
            let _ = of_thread.outcome.set(outcome);
        })?;
        Ok(Self { shared, thread })
    }

    /// Whether the job is to be paused.
    pub fn pauses(&self) -> bool {
        self.shared.pauses.load(Ordering::Relaxed)
    }

    /// Returns what was not reported yet.
    pub fn warnings(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.shared.warnings))
    }

    /// Says that the job has succeeded, and returns the file, unless nothing was discarded. Without an answer, ask again.
    ///
    /// # Errors
    /// Why the file is lost.
    pub fn end(&self) -> Option<Result<Option<Discarded>, String>> {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.shared.outcome.get().cloned()
    }
}

/// Decides when a job is paused. No clock.
#[derive(Debug, Default)]
struct Pacing {
    pauses: bool,
    /// The bytes that were kept at the last decision.
    kept: u64,
    /// The bytes that the slowest reader had at a moment, since when it has no more. None: a reader had not begun.
    since: (Option<u64>, Duration),
    /// The job goes on until the slowest reader has caught up.
    lifted: bool,
}

impl Pacing {
    /// Returns why the window is lifted now, because a pause does not help.
    ///
    /// # Arguments
    /// * `kept` - bytes of the file that are not discarded
    /// * `read` - bytes that all readers have; None: a reader has not begun
    /// * `reading` - all readers go on, or will begin
    fn decide(
        &mut self,
        now: Duration,
        size: u64,
        kept: u64,
        read: Option<u64>,
        reading: bool,
    ) -> Option<&'static str> {
        // The job writes as much until it is paused, or twice as much.
        let grown = kept.saturating_sub(self.kept) * 2;
        self.kept = kept;
        if read != self.since.0 || !self.pauses {
            self.since = (read, now);
        }
        let (patience, why) = read.map_or((PATIENCE_AT_START, NO_READER), |_| (PATIENCE, IDLE_READER));
        let gives_up = self.pauses && now >= self.since.1 + patience;
        self.lifted = gives_up || (self.lifted && kept > size / 2);
        let spare = if self.pauses { size / 4 } else { grown.min(size / 4) };
        self.pauses = reading && !self.lifted && kept > size - spare;
        gives_up.then_some(why)
    }
}

/// The size of a window that is bounded by half of the room for its file: files of several runs share a disk.
///
/// # Arguments
/// * `size` - bytes without the bound
/// * `left`, `free` - bytes of the file that are kept now, and bytes that are free on its disk
/// * `is_told` - the file system says how much it holds
fn bounded(size: u64, left: u64, free: u64, is_told: bool) -> u64 {
    if !is_told {
        return size;
    }
    size.min((left.saturating_add(free) / 2).max(LEAST_BLOCKS * block()))
}

/// The free space of the disk of a file.
struct Free {
    bytes: u64,
    /// The file system says how much it holds: some in user space do not, and neither does ramfs.
    is_told: bool,
    /// Until then, no writer can have filled the disk.
    until: Instant,
}

impl Free {
    fn of(file: &File) -> Option<Self> {
        let disk = fstatvfs(file).ok()?;
        let bytes = disk.blocks_available() * disk.fragment_size();
        let lasts = Duration::from_micros(bytes / (FASTEST / 1_000_000)).min(LONGEST);
        Some(Self { bytes, is_told: disk.blocks() > 0, until: Instant::now() + lasts })
    }
}

/// The file of a window.
struct Written {
    file: File,
    id: FileId,
    path: PathBuf,
    readers: Readers,
    expected: usize,
    /// The job is also paused before all readers have begun.
    waits: bool,
    discarded: u64,
    sha1: Sha1,
    buffer: Vec<u8>,
    /// Tells that a program has closed the file that could only read it.
    inotify: Inotify,
    closes: usize,
    searched: Instant,
    free: Option<Free>,
    /// Nothing more is discarded.
    stays: bool,
    /// Bytes are lost that were needed, and why.
    lost: Option<String>,
}

impl Written {
    /// # Errors
    /// Why there is no window: a message for people.
    fn open(path: PathBuf, readers: Readers, expected: usize, waits: bool) -> Result<Self, String> {
        let no = |why: &dyn std::fmt::Display| kept(&path, why);
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags.bits()).open(&path);
        let file = file.map_err(|error| match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ELOOP) => no(&"it is a symbolic link"),
            _ => no(&error),
        })?;
        let found = file.metadata().map_err(|error| no(&error))?;
        if !found.is_file() {
            return Err(no(&"it is no regular file"));
        }
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC);
        let inotify = inotify.map_err(|error| no(&error.desc()))?;
        let open_file = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        inotify.add_watch(&open_file, AddWatchFlags::IN_CLOSE_NOWRITE).map_err(|error| no(&error.desc()))?;
        Ok(Self {
            id: file_id_of(&found),
            file,
            path,
            readers,
            expected,
            waits,
            discarded: 0,
            sha1: Sha1::new(),
            buffer: Vec::new(),
            inotify,
            closes: 0,
            searched: Instant::now(),
            free: None,
            stays: false,
            lost: None,
        })
    }

    fn serve(mut self, size: u64, shared: &Shared) -> Result<Option<Discarded>, String> {
        let (start, mut pacing) = (Instant::now(), Pacing::default());
        while !shared.ends.load(Ordering::Relaxed) {
            let there = self.discarded > 0 || self.readers.look() >= self.expected;
            let read = there.then(|| self.readers.acknowledged());
            let before = self.discarded;
            if let Some(why) = self.discard(read.unwrap_or(0)) {
                lock(&shared.warnings).push(kept(&self.path, &why));
                self.stays = true;
            }
            let written = self.file.metadata().map_or(0, |found| found.len());
            let left = written.saturating_sub(self.discarded);
            let room = self.room(size, left);
            let reading = (there || self.waits) && !self.stays && written > room && self.readers.ended() == 0;
            if let Some(why) = pacing.decide(start.elapsed(), room, left, read, reading) {
                lock(&shared.warnings).push(kept(&self.path, &why));
            }
            shared.set_pauses(pacing.pauses);
            if self.discarded == before {
                park_timeout(LOOK);
            }
        }
        shared.set_pauses(false);
        self.end()
    }

    /// The size of the window now, while `left` bytes of the file are kept.
    fn room(&mut self, size: u64, left: u64) -> u64 {
        if left <= LEAST_BLOCKS * block() {
            return size;
        }
        if self.free.as_ref().is_none_or(|free| free.until <= Instant::now()) {
            self.free = Free::of(&self.file);
        }
        self.free.as_ref().map_or(size, |free| bounded(size, left, free.bytes, free.is_told))
    }

    /// Discards the next block if all readers have read it, and returns why nothing more can be discarded.
    fn discard(&mut self, read: u64) -> Option<String> {
        if !self.stays && self.discarded < read {
            if self.discarded == 0 {
                if let Err(why) = self.may_begin() {
                    return Some(why);
                }
                if self.readers.acknowledged() < block() {
                    return None;
                }
            }
            if let Err(error) = self.discard_block() {
                return Some(error.to_string());
            }
        }
        if self.discarded > 0 && self.lost.is_none() && self.searched.elapsed() >= SEARCH {
            self.lost = self.check().err();
        }
        None
    }

    /// Checks that bytes may be discarded, before the first ones are.
    fn may_begin(&mut self) -> Result<(), String> {
        self.check()?;
        if self.closed_by_others() > 0 {
            return Err("another program has read it".into());
        }
        has_holes(self.path.parent().unwrap_or(Path::new("/"))).map_err(|error| match error.raw_os_error() {
            Some(code) if [Errno::ENOSPC as i32, Errno::EDQUOT as i32].contains(&code) => {
                format!("no room to test for holes: {error}")
            }
            _ => format!("no holes: {error}"),
        })?;
        match self.readers.close() {
            Ok(count) if count == self.expected => Ok(()),
            Ok(_) => Err("it has more readers than expected".into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Checks that the file is still only written front to back.
    fn check(&mut self) -> Result<(), String> {
        self.searched = Instant::now();
        let found = self.file.metadata().map_err(|error| error.to_string())?;
        let named = fs::symlink_metadata(&self.path).ok();
        if named.as_ref().map(file_id_of) != Some(self.id) {
            return Err("it was moved or removed".into());
        }
        if found.nlink() != 1 {
            return Err("it has another name, too".into());
        }
        if found.len() < self.discarded {
            return Err("it was cut".into());
        }
        let file = HashSet::from([self.id]);
        let reads = |pid: i32| descriptors(pid, 0o400, &file).is_ok_and(|found| !found.is_empty());
        if descendants().iter().any(|process| reads(process.id.pid)) {
            return Err("the job has it open for reading".into());
        }
        Ok(())
    }

    /// The number of closes by programs that could only read the file, apart from those of the readers.
    fn closed_by_others(&mut self) -> usize {
        while let Ok(events) = self.inotify.read_events() {
            self.closes += events.iter().filter(|event| event.mask.contains(AddWatchFlags::IN_CLOSE_NOWRITE)).count();
        }
        self.closes.saturating_sub(self.readers.ended())
    }

    /// A reader that ends may have closed the file, and not its acknowledgements yet.
    fn was_read_by_others(&mut self) -> bool {
        let mut tries = (0..20).map(|_| {
            let found = self.closed_by_others() > 0;
            if found {
                park_timeout(LOOK * 10);
            }
            found
        });
        tries.all(|found| found)
    }

    fn discard_block(&mut self) -> io::Result<()> {
        self.buffer.resize(block() as usize, 0);
        self.file.read_exact_at(&mut self.buffer, self.discarded)?;
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        // At once: what is written between the two calls is lost unseen.
        fallocate(&self.file, flags, self.discarded as i64, block() as i64)?;
        let same = self.readers.agree(self.discarded / block(), xxh3_64(&self.buffer)).unwrap_or(false);
        if !same && self.lost.is_none() {
            let to = self.discarded + block();
            self.lost = Some(format!("it was written again between byte {} and byte {to}", self.discarded));
        }
        self.sha1.update(&self.buffer);
        self.discarded += block();
        Ok(())
    }

    /// Checks the file, which has all its bytes, and returns what is left of it.
    fn end(mut self) -> Result<Option<Discarded>, String> {
        if self.discarded == 0 {
            return Ok(None);
        }
        let lost = self.lost.take().or_else(|| self.check().err());
        let lost = lost.or_else(|| self.was_read_by_others().then(|| "another program has read it".into()));
        let lost = lost.or_else(|| self.is_written_again().then(|| "it was written again where it was read".into()));
        if let Some(why) = lost {
            let path = self.path.display();
            return Err(format!("{path} cannot have a window, and is lost: {why} [SFIO-N005]"));
        }
        let mut place = self.discarded;
        loop {
            self.buffer.resize(block() as usize, 0);
            let read = self.file.read_at(&mut self.buffer, place).map_err(|error| error.to_string())?;
            if read == 0 {
                break;
            }
            self.sha1.update(&self.buffer[..read]);
            place += read as u64;
        }
        let sha1 = self.sha1.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Some(Discarded { path: self.path, bytes: self.discarded, sha1 }))
    }

    /// Whether there are data where bytes were discarded.
    fn is_written_again(&self) -> bool {
        match lseek(&self.file, 0, Whence::SeekData) {
            Ok(place) => (place as u64) < self.discarded,
            // There are no data at all.
            Err(Errno::ENXIO) => false,
            Err(_) => true,
        }
    }
}

/// Checks that files in a directory can have holes, and that these are seen.
fn has_holes(directory: &Path) -> io::Result<()> {
    let found = statvfs(directory)?;
    // Jobs that write meanwhile must not find a full disk.
    if found.blocks_available().saturating_mul(found.fragment_size()) <= block() {
        return Err(Errno::ENOSPC.into());
    }
    let file = OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_TMPFILE.bits()).open(directory)?;
    file.write_all_at(&vec![1; block() as usize + 1], 0)?;
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, flags, 0, block() as i64)?;
    match lseek(&file, 0, Whence::SeekData)? as u64 {
        place if place == block() => Ok(()),
        _ => Err(io::Error::other("the file system does not tell where they are")),
    }
}

fn kept(path: &Path, why: &dyn std::fmt::Display) -> String {
    format!("{} is kept whole, without a window: {why} [SFIO-N004]", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_have_more_time_to_begin() {
        let mut pacing = Pacing::default();
        for (course, seconds, read, expected) in [
            ("they have not begun", 1, None, (true, None)),
            ("still not", 29, None, (true, None)),
            ("now they have", 30, Some(0), (true, None)),
            ("and take nothing", 34, Some(0), (true, None)),
            ("so the job goes on", 35, Some(0), (false, Some(IDLE_READER))),
        ] {
            let lifted = pacing.decide(Duration::from_secs(seconds), 100, 200, read, true);
            assert_eq!((pacing.pauses, lifted), expected, "{course}");
        }
        let mut pacing = Pacing::default();
        for (course, seconds, kept, read, expected) in [
            ("they have not begun", 1, 200, None, (true, None)),
            ("so the job goes on", 31, 200, None, (false, Some(NO_READER))),
            ("for as long as needed", 99, 900, None, (false, None)),
            ("until they have caught up", 100, 60, Some(840), (false, None)),
            ("then it counts again", 101, 50, Some(850), (false, None)),
            ("as before", 102, 150, Some(850), (true, None)),
        ] {
            let lifted = pacing.decide(Duration::from_secs(seconds), 100, kept, read, true);
            assert_eq!((pacing.pauses, lifted), expected, "{course}");
        }
    }

    #[test]
    fn a_fast_job_is_paused_before_the_window_is_full() {
        for (step, at) in [(2, 98), (10, 90), (25, 100), (12, 84)] {
            let mut pacing = Pacing::default();
            let mut looks = (1..).map(|look| look * step);
            let paused = looks.find(|&kept| {
                pacing.decide(Duration::from_secs(1), 100, kept, Some(0), true);
                pacing.pauses
            });
            assert_eq!(paused, Some(at), "{step} between two looks");
        }
    }

    #[test]
    fn a_file_may_have_half_of_its_disk() {
        let block = block();
        for (size, left, free, expected) in [
            (256, 10, 1000, 256),
            (256, 10, 30, 20),
            (256, 20, 20, 20),
            // Files of two runs that have all that is free.
            (256, 20, 0, 10),
            (256, 1, 0, 2),
            (1, 40, 0, 1),
        ] {
            assert_eq!(bounded(size * block, left * block, free * block, true), expected * block, "{left} {free}");
        }
        assert_eq!(bounded(256 * block, 20 * block, 0, false), 256 * block);
    }

    #[test]
    fn the_job_is_paused_until_the_reader_has_come_closer() {
        let mut pacing = Pacing::default();
        let mut paused = |seconds: u64, written: u64, read: u64, reading: bool| {
            let lifted = pacing.decide(Duration::from_secs(seconds), 100, written - read, Some(read), reading);
            (pacing.pauses, lifted.is_some())
        };
        for (course, seconds, written, read, reading, expected) in [
            ("within the window", 0, 75, 0, true, (false, false)),
            ("beyond", 1, 101, 0, true, (true, false)),
            ("still near the end", 2, 101, 20, true, (true, false)),
            ("it moves slowly", 6, 101, 21, true, (true, false)),
            ("close enough", 7, 101, 26, true, (false, false)),
            ("beyond again", 8, 300, 26, true, (true, false)),
            ("a reader has ended", 9, 300, 26, false, (false, false)),
            ("beyond", 10, 300, 30, true, (true, false)),
            ("it takes nothing", 14, 300, 30, true, (true, false)),
            ("so the job goes on", 15, 300, 30, true, (false, true)),
            ("until the reader has caught up", 30, 900, 840, true, (false, false)),
            ("then it counts again", 31, 900, 850, true, (false, false)),
            ("as before", 32, 1000, 850, true, (true, false)),
        ] {
            assert_eq!(paused(seconds, written, read, reading), expected, "{course}");
        }
    }
}
