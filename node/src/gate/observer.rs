//! Sees what the calls of a job do to files. It delays them, and changes nothing.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use nix::libc::{self, seccomp_notif};

use super::calls::{asks, named, Named};
use super::resolve::{find, identity, identity_of, Base, Caller, Identity};
use super::{filter, memory};
use crate::event::now;
use crate::job::{Job, Observed, Target};
use crate::observe::{Act, InputFile, Observation, Opener, Verdict, Whence};
use crate::sys::seccomp::{self, Answer};
use crate::tree::{self, Process};

/// So many files of inputs are looked for.
const FILES: usize = 100_000;

/// One call, as it came.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    id: u64,
    thread: u32,
    /// Its number is one of the native interface.
    native: bool,
    number: i64,
    arguments: [u64; 6],
}

impl From<seccomp_notif> for Call {
    fn from(notice: seccomp_notif) -> Self {
        let (data, native) = (notice.data, filter::is_native(&notice.data));
        Self { id: notice.id, thread: notice.pid, native, number: i64::from(data.nr), arguments: data.args }
    }
}

impl Call {
    pub fn is_native(&self) -> bool {
        self.native
    }
}

/// What a call does cannot be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unseen;

type Sight = Result<Option<(Identity, Act)>, Unseen>;

/// Who sees how the inputs of a job are read.
#[derive(Debug)]
pub struct Observer {
    inputs: Vec<Observed>,
    /// Files of the inputs that are there before the command starts.
    files: Vec<InputFile>,
    identities: HashSet<Identity>,
    observation: Mutex<Observation>,
    /// Calls that wait at the gate.
    held: Mutex<HashMap<u64, Call>>,
}

impl Observer {
    /// None: the job is not observed.
    pub fn of(job: &Job) -> Option<Self> {
        let inputs = job.observed.clone()?;
        let mut observation = Observation::default();
        if let Some(file) = standard_input(job) {
            observation.note(file, Act::Open { reads: true, writes: false, by: None }, now());
        }
        let (files, held) = (files_of(&inputs), Mutex::default());
        let identities = files.iter().map(|file| file.identity).collect();
        Some(Self { inputs, files, identities, observation: Mutex::new(observation), held })
    }

    /// Answers a call, and keeps in mind what it does.
    pub fn answer(&self, listener: &OwnedFd, call: &Call, answer: Answer) {
        let sight = look(call);
        // Whoever waits for the end of the command, and then for this lock, finds what is noted here.
        let mut observation = lock(&self.observation);
        let sight = match sight {
            Ok(Some((file, Act::Open { reads, writes, by: Some(by) })))
                if observation.has_only_looked(file, by) && may_have_heirs(by.thread) =>
            {
                Ok(Some((file, Act::Open { reads, writes, by: None })))
            }
            sight => sight,
        };
        if !seccomp::answer(listener, call.id, answer) {
            return;
        }
        match sight {
            Ok(Some((file, act))) => observation.note(file, act, now()),
            Ok(None) => {}
            Err(Unseen) => observation.lose_sight(),
        }
    }

    /// A call waits at the gate.
    pub fn hold(&self, call: Call) {
        lock(&self.held).insert(call.id, call);
    }

    /// It waits no more.
    pub fn release(&self, id: u64) -> Option<Call> {
        lock(&self.held).remove(&id)
    }

    /// Forgets those that were interrupted.
    pub fn prune(&self, is_waiting: impl Fn(u64) -> bool) {
        lock(&self.held).retain(|id, _| is_waiting(*id));
    }

    /// Calls are not told, or not understood.
    pub fn lose_sight(&self) {
        lock(&self.observation).lose_sight();
    }

    /// Looks where those of `processes` are who read the inputs.
    ///
    /// # Arguments
    /// * `written` - the job has written something
    pub fn look(&self, processes: &[Process], written: bool) {
        let places = tree::places(processes, &self.identities);
        lock(&self.observation).look(places, written, now());
    }

    /// What was seen, when the command has ended.
    pub fn verdicts(&self) -> Vec<Verdict> {
        // What comes through the gate was not there at the start; what was there may be gone.
        let mut files = files_of(&self.inputs);
        files.extend(self.files.iter().cloned());
        files.sort();
        files.dedup();
        lock(&self.observation).verdicts(&files)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file that the command finds open as its standard input.
fn standard_input(job: &Job) -> Option<Identity> {
    match &job.stdin {
        Some(path) => identity(path),
        None if job.inputs.iter().any(|input| input.target == Target::Stdin) => None,
        None => identity(Path::new("/proc/self/fd/0")),
    }
}

fn files_of(inputs: &[Observed]) -> Vec<InputFile> {
    let mut files = Vec::new();
    for input in inputs {
        let mut directories = HashSet::new();
        let mut paths = vec![input.path.clone()];
        while let Some(path) = paths.pop().filter(|_| files.len() < FILES) {
            let Ok(found) = fs::metadata(&path) else { continue };
            let identity = identity_of(&found);
            if found.is_dir() && directories.insert(identity) {
                paths.extend(entries(&path));
            } else if !found.is_file() {
                continue;
            }
            files.push(InputFile { name: input.name.clone(), path, identity });
        }
    }
    files
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// What a call is about to do.
fn look(call: &Call) -> Sight {
    let arguments = &call.arguments;
    let reads_at = |descriptor: usize, position: usize| match arguments[position] {
        0 => Ok(None),
        _ => at_descriptor(call, descriptor, Act::ReadAt),
    };
    match call.number {
        _ if !call.native => Err(Unseen),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => open(call, arguments[1]),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_creat => at_path(call, Base::Working, 0, true, Act::Open { reads: false, writes: true, by: None }),
        libc::SYS_openat => open(call, arguments[2]),
        libc::SYS_openat2 => open_how(call),
        libc::SYS_execveat if arguments[4] & libc::AT_EMPTY_PATH as u64 != 0 => at_descriptor(call, 0, Act::Execute),
        libc::SYS_execve | libc::SYS_execveat => at_name(call, Act::Execute),
        libc::SYS_mmap if arguments[3] & libc::MAP_ANONYMOUS as u64 == 0 => at_descriptor(call, 4, Act::Map),
        libc::SYS_lseek => seek(call),
        libc::SYS_pread64 | libc::SYS_preadv => at_descriptor(call, 0, Act::ReadAt),
        // From where the reader is.
        libc::SYS_preadv2 if arguments[3] as i64 == -1 => Ok(None),
        libc::SYS_preadv2 => at_descriptor(call, 0, Act::ReadAt),
        libc::SYS_sendfile => reads_at(1, 2),
        libc::SYS_copy_file_range | libc::SYS_splice => reads_at(0, 1),
        libc::SYS_io_uring_setup | libc::SYS_io_setup | libc::SYS_open_by_handle_at => Err(Unseen),
        number if asks(number, arguments) => at_name(call, Act::Ask),
        _ => Ok(None),
    }
}

fn open(call: &Call, flags: u64) -> Sight {
    let flags = flags as i32;
    let has = |wanted: i32| flags & wanted == wanted;
    // This is no opening, or one that fails, for the file is there.
    if has(libc::O_CREAT | libc::O_EXCL) {
        return Ok(None);
    }
    if has(libc::O_PATH) {
        return at_name(call, Act::Ask);
    }
    let access = flags & libc::O_ACCMODE;
    let (reads, writes) = (access != libc::O_WRONLY, access != libc::O_RDONLY || has(libc::O_TRUNC));
    let opening = |by| Act::Open { reads, writes, by };
    Ok(at_name(call, opening(None))?.map(|(file, act)| match act {
        Act::List => (file, act),
        _ => (file, opening(opener(call.thread, file))),
    }))
}

/// Who opens a file; None where its process has it open, or cannot be looked at.
fn opener(thread: u32, file: Identity) -> Option<Opener> {
    let mut open = fs::read_dir(format!("/proc/{thread}/fd")).ok()?.flatten();
    if open.any(|descriptor| identity(&descriptor.path()) == Some(file)) {
        return None;
    }
    let read = value(thread, "io", "rchar:")?.parse().ok()?;
    let faults = tree::read(thread.try_into().ok()?)?.vitals.reaped_faults;
    Some(Opener { thread, read, faults })
}

/// Whether there may be children that have what a thread has opened before, but for those that it has waited for.
fn may_have_heirs(thread: u32) -> bool {
    // Nobody waits for the children of those who ignore their ends.
    let ignored = value(thread, "status", "SigIgn:").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    let waits = ignored.is_some_and(|ignored| ignored & (1 << (libc::SIGCHLD - 1)) == 0);
    !waits || thread.try_into().is_ok_and(tree::may_have_children)
}

/// A value in a file of a process.
fn value(thread: u32, file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{thread}/{file}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

/// `openat2` has its flags in a `struct open_how`, with ways of resolving a path that are not those of other calls.
fn open_how(call: &Call) -> Sight {
    let mut how = [0; 24];
    memory::read(call.thread, call.arguments[2] as usize, &mut how).map_err(|_| Unseen)?;
    let word = |number: usize| u64::from_ne_bytes(how[8 * number..][..8].try_into().unwrap_or_default());
    if word(2) & libc::RESOLVE_IN_ROOT != 0 {
        return Err(Unseen);
    }
    open(call, word(0))
}

/// `lseek`: to ask where the reader is, and to go where it is already, is no move.
fn seek(call: &Call) -> Sight {
    let [_, offset, whence, ..] = call.arguments;
    let (offset, whence) = (offset as i64, whence as i32);
    if (offset, whence) == (0, libc::SEEK_CUR) {
        return Ok(None);
    }
    let Some(file) = of_descriptor(call, 0)? else { return Ok(None) };
    let position = position(call).unwrap_or(-1);
    let (target, by) = match whence {
        libc::SEEK_SET => (offset, Whence::Start),
        libc::SEEK_CUR => (position.saturating_add(offset), Whence::Here),
        libc::SEEK_END => ((file.len() as i64).saturating_add(offset), Whence::Beyond),
        // To data or to a hole: only the file system knows where that is.
        _ => (i64::MAX, Whence::Beyond),
    };
    // The call fails where it would lead to before the start.
    let moves = target >= 0 && target != position;
    Ok(moves.then(|| (identity_of(&file), Act::Seek { from: position, to: target, by })))
}

fn position(call: &Call) -> Option<i64> {
    tree::place(call.thread.try_into().ok()?, call.arguments[0] as i32)?.try_into().ok()
}

/// The call does something to the file of a descriptor.
fn at_descriptor(call: &Call, argument: usize, act: Act) -> Sight {
    Ok(of_descriptor(call, argument)?.map(|file| (identity_of(&file), act)))
}

fn of_descriptor(call: &Call, argument: usize) -> Result<Option<Metadata>, Unseen> {
    match fs::metadata(format!("/proc/{}/fd/{}", call.thread, call.arguments[argument] as i32)) {
        Ok(found) => Ok(Some(found).filter(Metadata::is_file)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Unseen),
        Err(_) => Ok(None),
    }
}

/// The call does something to the file that its path leads to.
fn at_name(call: &Call, act: Act) -> Sight {
    match named(call.number) {
        Some(Named::Path { path, follow }) => at_path(call, Base::Working, path, follow.holds(&call.arguments), act),
        Some(Named::At { directory, path, follow }) => {
            at_path(call, Base::of(call.arguments[directory]), path, follow.holds(&call.arguments), act)
        }
        _ => Ok(None),
    }
}

fn at_path(call: &Call, base: Base, argument: usize, follow: bool, act: Act) -> Sight {
    let address = call.arguments[argument];
    let Some(path) = memory::read_path(call.thread, address) else {
        let forbidden = memory::read(call.thread, address as usize, &mut [0]) == Err(Errno::EPERM);
        return if forbidden { Err(Unseen) } else { Ok(None) };
    };
    // A process may have entered another mount namespace unseen.
    let caller = Caller { thread: call.thread, elsewhere: true };
    // Who asks what a symbolic link is asks for what the input is, which may be one.
    let Ok(found) = find(caller, base, &path, follow || act == Act::Ask) else { return Ok(None) };
    let act = match act {
        _ if found.is_file() => Some(act),
        Act::Open { .. } if found.is_dir() => Some(Act::List),
        _ => None,
    };
    Ok(act.map(|act| (identity_of(&found), act)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, SeekFrom, Write};
    use std::os::fd::AsRawFd;

    fn call(number: i64, arguments: [u64; 6]) -> Call {
        Call { id: 0, thread: std::process::id(), native: true, number, arguments }
    }

    #[test]
    fn seeks() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        file.seek(SeekFrom::Start(4)).unwrap();
        let moves = |offset: i64, whence: i32| {
            let arguments = [file.as_raw_fd() as u64, offset as u64, whence as u64, 0, 0, 0];
            look(&call(libc::SYS_lseek, arguments)).unwrap().map(|(_, act)| act)
        };
        for (offset, whence, expected) in [
            (0, libc::SEEK_CUR, false),
            (1, libc::SEEK_CUR, true),
            (-5, libc::SEEK_CUR, false),
            (4, libc::SEEK_SET, false),
            (0, libc::SEEK_SET, true),
            (-6, libc::SEEK_END, false),
            (-11, libc::SEEK_END, false),
            (0, libc::SEEK_END, true),
            (0, libc::SEEK_HOLE, true),
        ] {
            let moved = moves(offset, whence).is_some_and(|act| matches!(act, Act::Seek { from: 4, .. }));
            assert_eq!(moved, expected, "{offset} {whence}");
        }
    }

    #[test]
    fn openings() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let text = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let flags = |flags: i32| {
            let arguments = [libc::AT_FDCWD as u64, text.as_ptr() as u64, flags as u64, 0, 0, 0];
            look(&call(libc::SYS_openat, arguments)).unwrap().map(|(_, act)| match act {
                Act::Open { reads, writes, by } => Act::Open { reads, writes, by: by.filter(|by| by.read == 0) },
                other => other,
            })
        };
        let opening = |reads: bool, writes: bool| Some(Act::Open { reads, writes, by: None });
        for (wanted, expected) in [
            (libc::O_RDONLY | libc::O_CLOEXEC, opening(true, false)),
            (libc::O_RDWR, opening(true, true)),
            (libc::O_WRONLY | libc::O_APPEND, opening(false, true)),
            (libc::O_RDONLY | libc::O_TRUNC, opening(true, true)),
            (libc::O_PATH, Some(Act::Ask)),
            (libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, None),
            (libc::O_RDWR | libc::O_CREAT, opening(true, true)),
        ] {
            assert_eq!(flags(wanted), expected, "{wanted:o}");
        }
        let foreign = Call { native: false, ..call(libc::SYS_openat, [0; 6]) };
        assert_eq!(look(&foreign), Err(Unseen));
    }

    #[test]
    fn openers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let file = identity(&path).unwrap();
        let who = move || opener(u32::try_from(nix::unistd::gettid().as_raw()).unwrap(), file).map(|by| by.thread);
        let other = std::thread::spawn(who).join().unwrap();
        assert!(other.is_some() && who().is_some() && other != who());
        let open = fs::File::open(&path).unwrap();
        assert_eq!((std::thread::spawn(who).join().unwrap(), who()), (None, None));
        drop(open);
    }

    #[test]
    fn heirs() {
        let mut child = std::process::Command::new("sleep").arg("10").spawn().unwrap();
        assert!(may_have_heirs(std::process::id()));
        assert!(!may_have_heirs(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(may_have_heirs(child.id()));
    }

    #[test]
    fn files_of_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let inside = |name: &str| directory.path().join(name);
        fs::create_dir(inside("d")).unwrap();
        fs::write(inside("a"), "").unwrap();
        fs::write(inside("d/b"), "").unwrap();
        for (target, link) in [("../a", "d/link"), ("../d", "d/loop"), ("nowhere", "d/broken")] {
            std::os::unix::fs::symlink(target, inside(link)).unwrap();
        }
        let input = |path: &str| Observed { name: path.into(), path: inside(path) };
        let files = files_of(&[input("d"), input("a"), input("missing")]);
        let mut paths: Vec<PathBuf> = files.into_iter().map(|file| file.path).collect();
        paths.sort();
        assert_eq!(paths, [inside("a"), inside("d"), inside("d/b"), inside("d/link")]);
    }
}
