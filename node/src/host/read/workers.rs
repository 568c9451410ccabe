//! The threads of a session: each reads one chunk at a time, in the order in which they were asked for.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::cache::{cached, requests, Drain};
use super::ranges::Ranges;
use crate::protocol::event::ChunkEvent;
use crate::sys::threads::{lock, spawn};

#[derive(Debug)]
struct Asked {
    chunk: u64,
    ranges: Vec<Range<u64>>,
}

/// The outcome of a chunk.
pub struct Done {
    pub told: ChunkEvent,
    /// Where it is.
    pub ranges: Vec<Range<u64>>,
    /// Ranges that were cached before the session, and are read again because a part of them was gone.
    pub again: Vec<Range<u64>>,
}

#[derive(Default)]
struct Desk {
    asked: VecDeque<Asked>,
    done: Vec<io::Result<Done>>,
    /// Threads that read.
    busy: usize,
    closed: bool,
}

struct Shared {
    file: File,
    size: u64,
    request: u64,
    before: Ranges,
    /// Whether it was tried if pages stay.
    tried: AtomicBool,
    desk: Mutex<Desk>,
    bell: Condvar,
    /// Readable when something is done.
    news: EventFd,
}

pub struct Workers(Arc<Shared>);

impl Workers {
    /// # Arguments
    /// * `request` - bytes that are read at once
    /// * `before` - what was cached before the session
    pub fn start(file: File, size: u64, request: u64, threads: usize, before: Ranges) -> io::Result<Self> {
        let news = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let tried = AtomicBool::new(false);
        let shared = Shared { file, size, request, before, tried, desk: Mutex::default(), bell: Condvar::new(), news };
        let shared = Arc::new(shared);
        for _ in 0..threads {
            let shared = Arc::clone(&shared);
            let file = opened_anew(&shared.file)?;
            spawn("read", move || shared.work(&file))?;
        }
        Ok(Self(shared))
    }

    pub fn ask(&self, chunk: u64, ranges: Vec<Range<u64>>) {
        lock(&self.0.desk).asked.push_back(Asked { chunk, ranges });
        self.0.bell.notify_one();
    }

    /// Nothing more is begun; what is being read is read to its end.
    pub fn close(&self) {
        let mut desk = lock(&self.0.desk);
        desk.asked.clear();
        desk.closed = true;
        self.0.bell.notify_all();
    }

    /// Returns the chunks done since the last call, and whether a thread still reads.
    pub fn done(&self) -> (Vec<io::Result<Done>>, bool) {
        let _ = self.0.news.read();
        let mut desk = lock(&self.0.desk);
        (std::mem::take(&mut desk.done), desk.busy > 0)
    }
}

impl AsFd for Workers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.news.as_fd()
    }
}

impl Shared {
    fn work(&self, file: &File) {
        while let Some(asked) = self.next() {
            let done = self.read(file, &asked);
            let mut desk = lock(&self.desk);
            desk.busy -= 1;
            desk.done.push(done);
            let _ = self.news.write(1);
        }
    }

    fn next(&self) -> Option<Asked> {
        let mut desk = lock(&self.desk);
        loop {
            if desk.closed {
                return None;
            }
            if let Some(asked) = desk.asked.pop_front() {
                desk.busy += 1;
                return Some(asked);
            }
            desk = self.bell.wait(desk).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }

    /// Reads a chunk. Ranges that were cached before the session are left out if they still are. Bytes that were read
    /// ahead since then are read: they may be on their way.
    fn read(&self, file: &File, asked: &Asked) -> io::Result<Done> {
        let began = Instant::now();
        let found = cached(&self.file, &asked.ranges);
        if found == Some(0) && !self.tried.swap(true, Relaxed) && !self.keeps(file, &asked.ranges)? {
            let told = ChunkEvent { chunk: asked.chunk, resident: Some(0), ..ChunkEvent::default() };
            return Ok(Done { told, ranges: Vec::new(), again: Vec::new() });
        }
        // For this chunk alone: large pipes are few for each user, and most threads of most sessions wait.
        let drain = Drain::new(self.request)?;
        let before: Vec<_> = asked.ranges.iter().flat_map(|range| self.before.within(range)).collect();
        let all = before.iter().map(|range| range.end - range.start).sum();
        let stays = cached(&self.file, &before) == Some(all);
        let mut count = 0;
        for range in asked.ranges.iter().flat_map(|range| requests(range, self.request, self.size)) {
            if !stays || self.before.within(&range) != [range.clone()] {
                count += drain.read(file, &range)?;
            }
        }
        let told = ChunkEvent {
            chunk: asked.chunk,
            bytes: asked.ranges.iter().map(|range| range.end - range.start).sum(),
            cached: found,
            resident: cached(&self.file, &asked.ranges),
            seconds: began.elapsed().as_secs_f64(),
            requests: count,
        };
        Ok(Done { told, ranges: asked.ranges.clone(), again: if stays { Vec::new() } else { before } })
    }

    /// Whether the pages stay that programs read: some file systems keep only what is spliced.
    fn keeps(&self, file: &File, ranges: &[Range<u64>]) -> io::Result<bool> {
        let Some(range) = ranges.iter().find(|range| !range.is_empty()) else { return Ok(true) };
        let byte = range.start..range.start + 1;
        file.read_at(&mut [0], byte.start)?;
        Ok(cached(file, &[byte]) != Some(0))
    }
}

/// The same file in an opening of its own: the kernel keeps for each how far it reads ahead.
fn opened_anew(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).or_else(|_| file.try_clone())
}
