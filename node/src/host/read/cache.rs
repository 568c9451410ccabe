//! Brings bytes of a file into the page cache, and gives them back.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::fcntl::{fcntl, posix_fadvise, splice, FcntlArg, OFlag, PosixFadviseAdvice, SpliceFFlags};
use nix::unistd::pipe2;

use crate::sys::raw::{cached_bytes, page_size};

/// A pipe through which pages go without being copied: splice(2) to a device that takes all, in requests as large as
/// the pipe.
#[derive(Debug)]
pub struct Drain {
    pipe: OwnedFd,
    sink: OwnedFd,
    null: File,
}

impl Drain {
    pub fn new(request: u64) -> io::Result<Self> {
        let (pipe, sink) = pipe2(OFlag::O_CLOEXEC)?;
        // Refused beyond the system's limits; requests are then smaller.
        let _ = fcntl(&sink, FcntlArg::F_SETPIPE_SZ(request as i32));
        Ok(Self { pipe, sink, null: OpenOptions::new().write(true).open("/dev/null")? })
    }

    /// Reads a range of a file, and returns by how many calls.
    ///
    /// # Errors
    /// That of the file, also when it ends before.
    pub fn read(&self, file: &File, range: &Range<u64>) -> io::Result<u64> {
        let (mut at, mut requests) = (range.start as i64, 0);
        while (at as u64) < range.end {
            let most = (range.end - at as u64) as usize;
            let mut moved = match splice(file, Some(&mut at), &self.sink, None, most, SpliceFFlags::SPLICE_F_MOVE) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Err(Errno::EINTR) => 0,
                Err(Errno::EINVAL) => copy(file, &mut at, most)?,
                moved => moved?,
            };
            requests += 1;
            while moved > 0 {
                match splice(&self.pipe, None, &self.null, None, moved, SpliceFFlags::SPLICE_F_MOVE) {
                    Err(Errno::EINTR) => {}
                    gone => moved -= gone?,
                }
            }
        }
        Ok(requests)
    }
}

/// For a file system that cannot splice: reads, and throws away. Returns what is in the pipe.
fn copy(file: &File, at: &mut i64, most: usize) -> io::Result<usize> {
    let mut buffer = vec![0; most.min(1 << 18)];
    let count = nix::sys::uio::pread(file, &mut buffer, *at)?;
    if count == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    *at += count as i64;
    Ok(0)
}

/// Counts the bytes of ranges that are in the cache. A kernel that does not tell gives None.
pub fn cached(file: &File, ranges: &[Range<u64>]) -> Option<u64> {
    ranges
        .iter()
        .map(|range| Some(cached_bytes(file, range.start, range.end - range.start)?.min(range.end - range.start)))
        .sum()
}

/// Gives the whole pages in a range back.
pub fn drop_pages(file: &File, range: &Range<u64>) {
    let _ = posix_fadvise(
        file,
        range.start as i64,
        (range.end - range.start) as i64,
        PosixFadviseAdvice::POSIX_FADV_DONTNEED,
    );
}

/// Finds the parts of a file, of at least `least` bytes each, that are in the cache as a whole. The calls are few
/// where little or all of the file is.
pub fn whole_cached(file: &File, range: Range<u64>, least: u64) -> Vec<Range<u64>> {
    let length = range.end - range.start;
    match cached(file, std::slice::from_ref(&range)) {
        None | Some(0) => Vec::new(),
        Some(found) if found == length => vec![range],
        Some(_) if length <= least => Vec::new(),
        Some(_) => {
            let middle = range.start + (length / 2).next_multiple_of(least);
            let halves = [range.start..middle, middle..range.end];
            halves.into_iter().flat_map(|half| whole_cached(file, half, least)).collect()
        }
    }
}

/// A range in requests: each ends where a whole one does in the file, and consists of whole pages.
pub fn requests(range: &Range<u64>, request: u64, size: u64) -> impl Iterator<Item = Range<u64>> {
    let page = page_size();
    let (begin, end) = (range.start / page * page, range.end.next_multiple_of(page).min(size));
    let mut at = if range.is_empty() { end } else { begin };
    std::iter::from_fn(move || {
        let start = at;
        at = (start / request + 1).saturating_mul(request).min(end);
        (start < end).then_some(start..at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_whole() {
        let page = page_size();
        let all = |range: Range<u64>| {
            requests(&range, 4 * page, 10 * page + 7).map(|found| (found.start, found.end)).collect::<Vec<_>>()
        };
        assert_eq!(all(0..1), [(0, page)]);
        assert_eq!(all(page + 1..9 * page), [(page, 4 * page), (4 * page, 8 * page), (8 * page, 9 * page)]);
        assert_eq!(all(10 * page + 6..10 * page + 7), [(10 * page, 10 * page + 7)]);
        assert_eq!(all(5..5), []);
    }
}
