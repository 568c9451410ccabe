//! Counts the bytes that the processes of a job have moved, by the counters of the kernel.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::statfs::statfs;

use crate::processes::snapshot::ProcessId;
use crate::processes::tree::Process;
use crate::protocol::job::Direction;

/// File systems for which the kernel counts the bytes that go to storage, statfs(2): ext4 (and ext2 and ext3), XFS,
/// Btrfs, F2FS, NFS. With musl, nix has no names for some. On others the bytes of all system calls count, also those on
/// pipes.
const ACCOUNTED: [i128; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x6969];

/// The number of processes for which a file is kept open. To open it costs more than to read it.
const KEPT: usize = 32;

/// Time after which a refusal to read the counters of a process is an error.
/// The kernel refuses other users than root for a moment while a process ends or begins another program. It refuses for
/// ever if the program belongs to another user.
const PATIENCE: Duration = Duration::from_millis(200);

/// Bytes read, and bytes written.
type Bytes = [u64; 2];

/// The sum over a tree of processes, which never decreases.
#[derive(Debug)]
pub struct Moved {
    names: [&'static str; 2],
    direction: Direction,
    kept: HashMap<ProcessId, File>,
    /// The counters of each living process when they were last read.
    last: HashMap<ProcessId, Bytes>,
    /// The beginning of the refusal of each process whose counters may not be read.
    refused: HashMap<ProcessId, Instant>,
    /// Bytes of the living processes, and of the ended ones that they have waited for.
    living: Bytes,
    /// Bytes of ended processes that no process of the tree has waited for.
    gone: Bytes,
}

impl Moved {
    /// Begins to count.
    ///
    /// # Arguments
    /// * `path` - any path on the storage
    pub fn new(direction: Direction, path: &Path) -> Self {
        let kind = statfs(path).map(|found| i128::from(found.filesystem_type().0) & 0xFFFF_FFFF);
        let is_accounted = kind.is_ok_and(|kind| ACCOUNTED.contains(&kind));
        let names = if is_accounted { ["read_bytes: ", "write_bytes: "] } else { ["rchar: ", "wchar: "] };
        let (kept, last, refused) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { names, direction, kept, last, refused, living: [0; 2], gone: [0; 2] }
    }

    /// Returns the bytes that `processes` and their ended children have moved. None if one of them has ended just now.
    /// Each process must come after its parent.
    ///
    /// # Errors
    /// The error, if the counters of a process may not be read, and it neither ends nor begins another program.
    pub fn look(&mut self, processes: &[Process]) -> io::Result<Option<u64>> {
        if self.last.len() + self.refused.len() > processes.len() {
            let lives = |id: &ProcessId| processes.iter().any(|process| process.id == *id);
            self.kept.retain(|id, _| lives(id));
            self.last.retain(|id, _| lives(id));
            self.refused.retain(|id, _| lives(id));
        }
        let mut living = [0; 2];
        for process in processes {
            // A parent that has waited for this process has its bytes too, but the parent was read before.
            let Some(bytes) = self.of(process)? else { return Ok(None) };
            living = [living[0] + bytes[0], living[1] + bytes[1]];
        }
        for (index, bytes) in living.into_iter().enumerate() {
            self.gone[index] += self.living[index].saturating_sub(bytes);
        }
        self.living = living;
        let [read, written] = [0, 1].map(|index| self.living[index] + self.gone[index]);
        Ok(Some(match self.direction {
            Direction::Read => read,
            Direction::Write => written,
            Direction::Both => read.max(written),
        }))
    }

    /// Returns the bytes of a process, or None if the process has ended.
    fn of(&mut self, process: &Process) -> io::Result<Option<Bytes>> {
        match self.counters(process) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let since = *self.refused.entry(process.id).or_insert_with(Instant::now);
                if process.vitals.exiting || since.elapsed() < PATIENCE {
                    // The bytes since then are added to those of the parent when it waits for this process.
                    Ok(Some(self.last.get(&process.id).copied().unwrap_or_default()))
                } else {
                    Err(error)
                }
            }
            found => {
                self.refused.remove(&process.id);
                if let Ok(Some(bytes)) = found {
                    self.last.insert(process.id, bytes);
                }
                found
            }
        }
    }

    fn counters(&mut self, process: &Process) -> io::Result<Option<Bytes>> {
        if let Some(file) = self.kept.get(&process.id) {
            return self.read(file);
        }
        let file = match File::open(format!("/proc/{}/io", process.id.pid)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let bytes = self.read(&file);
        if self.kept.len() < KEPT {
            self.kept.insert(process.id, file);
        }
        bytes
    }

    fn read(&self, file: &File) -> io::Result<Option<Bytes>> {
        let mut buffer = [0; 512];
        match file.read_at(&mut buffer, 0) {
            Ok(length) => Ok(parse(&buffer[..length], self.names)),
            Err(error) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn parse(text: &[u8], names: [&str; 2]) -> Option<Bytes> {
    let text = std::str::from_utf8(text).ok()?;
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
    Some([value(names[0])?, value(names[1])?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters() {
        let text = b"rchar: 7\nwchar: 8\nsyscr: 1\nsyscw: 1\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 9\n";
        assert_eq!(parse(text, ["rchar: ", "wchar: "]), Some([7, 8]));
        assert_eq!(parse(text, ["read_bytes: ", "write_bytes: "]), Some([5, 6]));
        assert_eq!(parse(b"", ["rchar: ", "wchar: "]), None);
    }
}
