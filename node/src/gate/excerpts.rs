//! Excerpts: files with the first bytes of other files, for a command that should treat both alike.
//!
//! A command that only reads on notices no difference but the end. `fstat` is answered as for the whole file. Every
//! other call that distinguishes the two continues, and is recorded, such as a seek or a read beyond the end of the
//! excerpt.

use std::borrow::Cow;
use std::fs::{self, Metadata};
use std::io::{Error, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;

use nix::errno::Errno;
use nix::libc;

use super::call::Call;
use super::descriptors::{REQUESTS, TELLING};
use super::memory;
use super::resolve::{find, Caller};
use super::syscalls::{named, Named};
use crate::processes::tree;
use crate::protocol::job::Job;
use crate::sys::file_id::{file_id_of, FileId};
use crate::sys::raw::seccomp::Answer;
use crate::sys::raw::stat;
use crate::sys::threads::lock;

/// At most the size of a page on any machine. A page is mapped as a whole.
const PAGE: u64 = 4096;

#[derive(Debug)]
struct Excerpt {
    name: String,
    /// Identities of the file, and of the link that leads to it.
    ids: Vec<FileId>,
    /// Bytes of the excerpt.
    end: u64,
    of: PathBuf,
    told_apart: Mutex<Option<Cow<'static, str>>>,
}

/// All excerpts of a job.
#[derive(Debug)]
pub struct Excerpts {
    excerpts: Vec<Excerpt>,
    /// A process may find other files at the same paths.
    elsewhere: AtomicBool,
}

impl Excerpts {
    /// Examines the excerpts. Returns None if the job has none.
    ///
    /// # Errors
    /// A message that names an excerpt that cannot be read.
    pub fn of(job: &Job) -> Result<Option<Self>, String> {
        let known = |spec: &crate::protocol::messages::Excerpt| {
            let at = |error: Error| format!("excerpt {}: {}: {error}", spec.name, spec.path.display());
            let [link, found] = [fs::symlink_metadata(&spec.path), fs::metadata(&spec.path)];
            let (link, found) = (link.map_err(at)?, found.map_err(at)?);
            let (name, of, end) = (spec.name.clone(), spec.of.clone(), found.len());
            Ok(Excerpt {
                name,
                ids: vec![file_id_of(&link), file_id_of(&found)],
                end,
                of,
                told_apart: Mutex::default(),
            })
        };
        let excerpts = job.rehearsal.excerpts.iter().map(known).collect::<Result<Vec<_>, String>>()?;
        Ok((!excerpts.is_empty()).then(|| Self { excerpts, elsewhere: AtomicBool::default() }))
    }

    /// Returns the bytes of the smallest excerpt.
    pub fn end(&self) -> u32 {
        let end = self.excerpts.iter().map(|excerpt| excerpt.end).min();
        u32::try_from(end.unwrap_or(0)).unwrap_or(u32::MAX)
    }

    /// Returns the excerpts that the command could distinguish from their files, each with the name of the call.
    pub fn told_apart(&self) -> Vec<(String, Cow<'static, str>)> {
        let told = |excerpt: &Excerpt| Some((excerpt.name.clone(), lock(&excerpt.told_apart).clone()?));
        self.excerpts.iter().filter_map(told).collect()
    }

    /// Returns the answer to a call about an excerpt. None if the call continues, or is answered elsewhere.
    pub fn answer(&self, call: &Call) -> Option<Answer> {
        if !call.native || call.number == libc::SYS_io_setup {
            self.all_are_told_apart(call);
            return None;
        }
        if named(call.number) == Some(Named::Elsewhere) {
            self.elsewhere.store(true, Ordering::Relaxed);
        }
        match question(call) {
            Some(Question::What { descriptor, buffer }) => {
                let excerpt = self.opened(call, descriptor)?;
                let described = match call.number {
                    libc::SYS_statx => stat::extended(&excerpt.of, call.arguments[2], call.arguments[3]),
                    _ => stat::plain(&excerpt.of),
                };
                let written = described.map_err(|_| Errno::EIO).and_then(|it| memory::write(call.thread, buffer, &it));
                if written.is_err() {
                    excerpt.is_told_apart(call);
                    return None;
                }
                Some(Answer::Value(0))
            }
            Some(Question::Place { descriptor, place }) => {
                let excerpt = self.opened(call, descriptor)?;
                if place > excerpt.end {
                    excerpt.is_told_apart(call);
                }
                None
            }
            Some(Question::Move { descriptor, offset }) => {
                let excerpt = self.opened(call, descriptor)?;
                let here = tree::value(call.thread, &format!("fdinfo/{descriptor}"), "pos:");
                let here = here.and_then(|here| here.parse::<u64>().ok());
                let place = here.and_then(|here| here.checked_add_signed(offset));
                if place.is_none_or(|place| place > excerpt.end) {
                    excerpt.is_told_apart(call);
                }
                None
            }
            Some(Question::More { descriptor }) => {
                self.opened(call, descriptor)?.is_told_apart(call);
                None
            }
            Some(Question::Named) => {
                self.named(call)?.is_told_apart(call);
                None
            }
            None => None,
        }
    }

    fn opened(&self, call: &Call, descriptor: i32) -> Option<&Excerpt> {
        match fs::metadata(call.open_file(descriptor)) {
            Ok(found) => self.with(&found),
            Err(error) => {
                if error.kind() == ErrorKind::PermissionDenied {
                    self.all_are_told_apart(call);
                }
                None
            }
        }
    }

    fn named(&self, call: &Call) -> Option<&Excerpt> {
        let argument = call.path()?;
        let Some(path) = memory::read_path(call.thread, argument.address) else {
            if memory::is_forbidden(call.thread, argument.address) {
                self.all_are_told_apart(call);
            }
            return None;
        };
        // The target of a link to a descriptor in `/proc` is the path of the excerpt.
        let follow = argument.follow || path.windows(3).any(|part| part == b"fd/");
        let caller = Caller { thread: call.thread, elsewhere: self.elsewhere.load(Ordering::Relaxed) };
        self.with(&find(caller, argument.base, &path, follow).ok()?)
    }

    fn with(&self, found: &Metadata) -> Option<&Excerpt> {
        let id = file_id_of(found);
        self.excerpts.iter().find(|excerpt| excerpt.ids.contains(&id))
    }

    fn all_are_told_apart(&self, call: &Call) {
        self.excerpts.iter().for_each(|excerpt| excerpt.is_told_apart(call));
    }
}

impl Excerpt {
    fn is_told_apart(&self, call: &Call) {
        lock(&self.told_apart).get_or_insert_with(|| call.name());
    }
}

/// The question of a call that may be about an excerpt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// The attributes of the open file.
    What { descriptor: i32, buffer: u64 },
    /// A seek by a distance from the position of the reader.
    Move { descriptor: i32, offset: i64 },
    /// A seek, a read or a mapping at a place of the open file.
    Place { descriptor: i32, place: u64 },
    /// More about the open file than its bytes.
    More { descriptor: i32 },
    /// More about the file at a path than its bytes.
    Named,
}

fn question(call: &Call) -> Option<Question> {
    let [first, second, third, fourth, fifth, sixth] = call.arguments;
    let descriptor = first as i32;
    if let Some((descriptor, buffer)) = call.described().zip(call.answer_address()) {
        return Some(Question::What { descriptor, buffer });
    }
    let at = |place: u64| Some(Question::Place { descriptor, place });
    match call.number {
        libc::SYS_lseek => match third as i32 {
            libc::SEEK_SET => at(second),
            libc::SEEK_CUR => Some(Question::Move { descriptor, offset: second as i64 }),
            _ => Some(Question::More { descriptor }),
        },
        // Reads at the position of the reader.
        libc::SYS_preadv2 if fourth as i64 == -1 => None,
        libc::SYS_pread64 | libc::SYS_preadv | libc::SYS_preadv2 => at(fourth),
        libc::SYS_mmap if fourth & libc::MAP_ANONYMOUS as u64 != 0 => None,
        libc::SYS_mmap => {
            // The last page of a mapping must begin before the end of the file. What follows the end in a page is not
            // of the file.
            let last = sixth.saturating_add(second).saturating_sub(1) / PAGE * PAGE;
            Some(Question::Place { descriptor: fifth as i32, place: last + u64::from(last > 0) })
        }
        libc::SYS_sendfile => Some(Question::More { descriptor: second as i32 }),
        libc::SYS_ioctl if !REQUESTS.contains(&(second as u32)) => None,
        number if TELLING.iter().any(|(other, _)| *other == number) && named(number).is_none() => {
            Some(Question::More { descriptor })
        }
        number => {
            let by_path = matches!(named(number)?, Named::Path { .. } | Named::At { .. });
            (by_path && call.asks_for_more()).then_some(Question::Named)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    struct Excerpted {
        directory: tempfile::TempDir,
        excerpts: Excerpts,
    }

    impl Excerpted {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let inside = |name: &str| directory.path().join(name);
            fs::write(inside("whole"), "abcdef").unwrap();
            fs::write(inside("first"), "abc").unwrap();
            symlink("first", inside("link")).unwrap();
            let text = format!(
                r#"{{"name": "n", "rehearsal": {{"excerpts": [{{"name": "e", "path": "{0}/link", "of": "{0}/whole"}}]}}}}"#,
                directory.path().display()
            );
            let job = Job::read(text.as_bytes()).unwrap();
            let excerpts = Excerpts::of(&job).unwrap().unwrap();
            Self { directory, excerpts }
        }

        fn open(&self, name: &str) -> File {
            File::open(self.directory.path().join(name)).unwrap()
        }

        /// Returns the call that has distinguished the excerpt from its file.
        fn told(&self) -> Option<String> {
            self.excerpts.told_apart().pop().map(|(_, call)| call.into_owned())
        }
    }

    fn call(number: i64, arguments: [u64; 6]) -> Call {
        Call { id: 0, thread: std::process::id(), native: true, number, arguments }
    }

    #[test]
    fn what_tells_them_apart_is_remembered_and_goes_on() {
        let path = |excerpted: &Excerpted, name: &str| {
            std::ffi::CString::new(excerpted.directory.path().join(name).to_str().unwrap()).unwrap()
        };
        let at = libc::AT_FDCWD as u64;
        for (name, expected) in [("first", true), ("link", true), ("whole", false)] {
            let excerpted = Excerpted::new();
            let path = path(&excerpted, name);
            let stat = call(libc::SYS_newfstatat, [at, path.as_ptr() as u64, 0, 0, 0, 0]);
            let opens = call(libc::SYS_openat, [at, path.as_ptr() as u64, 0, 0, 0, 0]);
            assert_eq!((excerpted.excerpts.answer(&opens), excerpted.told()), (None, None));
            assert_eq!(excerpted.excerpts.answer(&stat), None);
            assert_eq!(excerpted.told().is_some(), expected, "{name}");
        }
        for (number, second, third, expected) in [
            (libc::SYS_lseek, 0, libc::SEEK_HOLE, Some("lseek")),
            (libc::SYS_lseek, u64::MAX, libc::SEEK_END, Some("lseek")),
            (libc::SYS_lseek, 3, libc::SEEK_SET, None),
            (libc::SYS_lseek, 4, libc::SEEK_SET, Some("lseek")),
            (libc::SYS_lseek, 3, libc::SEEK_CUR, None),
            (libc::SYS_lseek, 4, libc::SEEK_CUR, Some("lseek")),
            (libc::SYS_ioctl, libc::FIONREAD, 0, Some("ioctl")),
            (libc::SYS_fgetxattr, 0, 0, Some("fgetxattr")),
            (libc::SYS_pread64, 0, 9, None),
        ] {
            let excerpted = Excerpted::new();
            let file = excerpted.open("first");
            let asks = call(number, [file.as_raw_fd() as u64, second, third as u64, 0, 0, 0]);
            assert_eq!(excerpted.excerpts.answer(&asks), None);
            assert_eq!(excerpted.told().as_deref(), expected, "{number}");
        }
        for (number, arguments, expected) in [
            (libc::SYS_pread64, |file: u64| [file, 0, 9, 3, 0, 0], false),
            (libc::SYS_pread64, |file| [file, 0, 9, 4, 0, 0], true),
            (libc::SYS_preadv2, |file| [file, 0, 1, u64::MAX, u64::MAX, 0], false),
            (libc::SYS_mmap, |file| [0, 3, 1, libc::MAP_PRIVATE as u64, file, 0], false),
            (libc::SYS_mmap, |file| [0, 4096, 1, libc::MAP_PRIVATE as u64, file, 0], false),
            (libc::SYS_mmap, |file| [0, 8192, 1, libc::MAP_PRIVATE as u64, file, 0], true),
            (libc::SYS_mmap, |file| [0, 1, 1, libc::MAP_PRIVATE as u64, file, 4096], true),
            (libc::SYS_mmap, |file| [0, 4096, 1, libc::MAP_PRIVATE as u64, file, 4096], true),
            (libc::SYS_sendfile, |file| [1, file, 9, 9, 0, 0], true),
            (libc::SYS_io_setup, |_| [0; 6], true),
        ] as [(i64, fn(u64) -> [u64; 6], bool); 10]
        {
            let excerpted = Excerpted::new();
            let file = excerpted.open("first");
            assert_eq!(excerpted.excerpts.answer(&call(number, arguments(file.as_raw_fd() as u64))), None);
            assert_eq!(excerpted.told().is_some(), expected, "{number} {:?}", arguments(7));
        }
        let excerpted = Excerpted::new();
        excerpted.excerpts.answer(&Call { native: false, ..call(libc::SYS_read, [0; 6]) });
        assert!(excerpted.told().is_some(), "calls of 32 bits are not understood");
    }
}
