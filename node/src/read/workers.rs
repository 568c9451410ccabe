//! The threads of a session: each reads one chunk at a time, in the order in which they were asked for.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::cache::{cached, read_nothing_ahead, requests, Drain};
use crate::event::Chunk;
use crate::threads::{lock, spawn};

#[derive(Debug)]
struct Asked {
    chunk: u64,
    ranges: Vec<Range<u64>>,
}

/// What has become of a chunk.
pub struct Done {
    pub told: Chunk,
    /// What was brought.
    pub brought: Vec<Range<u64>>,
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
    desk: Mutex<Desk>,
    bell: Condvar,
    /// Readable when something is done.
    news: EventFd,
}

pub struct Workers(Arc<Shared>);

impl Workers {
    /// # Arguments
    /// * `request` - bytes that are read at once
    pub fn start(file: File, size: u64, request: u64, threads: usize) -> io::Result<Self> {
        read_nothing_ahead(&file);
        let news = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let shared = Shared { file, size, request, desk: Mutex::default(), bell: Condvar::new(), news };
        let shared = Arc::new(shared);
        for _ in 0..threads {
            let (shared, drain) = (Arc::clone(&shared), Drain::new(request)?);
            spawn("read", move || shared.work(&drain))?;
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

    /// What has been done since the last call, and whether somebody still reads.
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
    fn work(&self, drain: &Drain) {
        while let Some(asked) = self.next() {
            let done = self.read(drain, &asked);
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

    /// What was cached before is not read.
    fn read(&self, drain: &Drain, asked: &Asked) -> io::Result<Done> {
        let began = Instant::now();
        let before = cached(&self.file, &asked.ranges);
        let (mut count, mut brought) = (0, Vec::new());
        for range in asked.ranges.iter().flat_map(|range| requests(range, self.request, self.size)) {
            let length = range.end - range.start;
            if cached(&self.file, std::slice::from_ref(&range)) != Some(length) {
                count += drain.read(&self.file, &range)?;
                brought.push(range);
            }
        }
        let told = Chunk {
            chunk: asked.chunk,
            bytes: asked.ranges.iter().map(|range| range.end - range.start).sum(),
            cached: before,
            resident: cached(&self.file, &asked.ranges),
            seconds: began.elapsed().as_secs_f64(),
            requests: count,
        };
        Ok(Done { told, brought })
    }
}
