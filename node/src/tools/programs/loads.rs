//! The files that are loaded with a program, as far as they are known before it runs.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Instant;

use memchr::memmem;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;
use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache};
use xxhash_rust::xxh3::Xxh3;

use crate::sys::{ownership, remote_file};

/// The most interpreters of interpreters, as in the kernel.
const DEPTH: usize = 4;
/// The most bytes that a loader may print.
const MOST: usize = 4 << 20;

/// A program.
pub struct Program {
    pub file: PathBuf,
    /// A shell finds the program by its name. The user runs the programs there in any case.
    pub is_named: bool,
}

/// Returns a digest of all files that are loaded with a program: 16 hex digits, or an empty text if none is.
///
/// # Arguments
/// * `path` - value of PATH, for interpreters without a directory
/// * `until` - the end of the time that loaders have
pub fn digest(mut program: Program, path: &OsString, until: Instant) -> String {
    let mut found = BTreeSet::new();
    for _ in 0..DEPTH {
        if let Some(loader) = loader_of(&program.file) {
            let listed = libraries(&program, &loader, until);
            found.extend(listed.iter().map(|library| stamp(library.file_name(), library)));
            found.insert(stamp(Some(loader.as_os_str()), &loader));
        }
        match interpreter(&program, path) {
            Some(next) => program = next,
            None => break,
        }
        found.insert(stamp(Some(program.file.as_os_str()), &program.file));
    }
    let mut digest = Xxh3::new();
    found.iter().for_each(|each| digest.update(each.as_bytes()));
    if found.is_empty() {
        String::new()
    } else {
        format!("{:016x}", digest.digest())
    }
}

/// Returns the dynamic loader that an ELF file names. None: the file is another one, a library, or static.
fn loader_of(program: &Path) -> Option<PathBuf> {
    let bytes = ReadCache::new(remote_file::open(program).ok()?);
    match FileKind::parse(&bytes).ok()? {
        FileKind::Elf32 => named::<FileHeader32<Endianness>>(&bytes),
        FileKind::Elf64 => named::<FileHeader64<Endianness>>(&bytes),
        _ => None,
    }
}

fn named<Elf: FileHeader<Endian = Endianness>>(bytes: &ReadCache<File>) -> Option<PathBuf> {
    let header = Elf::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let mut segments = header.program_headers(endian, bytes).ok()?.iter();
    segments.find_map(|segment| segment.interpreter(endian, bytes).ok().flatten()).map(path_of)
}

/// Returns the libraries of a program as its loader lists them, without running the program. Empty if the loader
/// cannot load them, or should not be asked.
fn libraries(program: &Program, loader: &Path, until: Instant) -> Vec<PathBuf> {
    // The loader looks for libraries beside the file itself.
    let Ok(file) = program.file.canonicalize() else { return Vec::new() };
    // Data may name any program as their loader, and a loader can be misled by what it loads.
    let is_safe = program.is_named || (is_program(&file) && is_own(&file) && is_own(loader));
    let said = if is_safe { ask(loader, &file, until) } else { None };
    said.unwrap_or_default().split(|byte| *byte == b'\n').filter_map(listed).collect()
}

/// Whether only this user and root could replace a file.
fn is_own(file: &Path) -> bool {
    matches!(file.canonicalize().and_then(|file| ownership::stranger(&file, &[], &[])), Ok(None))
}

/// Returns what a loader prints. None: the loader has failed, has printed too much, or has not ended in time.
fn ask(loader: &Path, program: &Path, until: Instant) -> Option<Vec<u8>> {
    let mut command = Command::new(loader);
    command.arg("--list").arg(program).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut asked = command.process_group(0).spawn().ok()?;
    let said = asked.stdout.take().and_then(|pipe| read_until(pipe, until));
    // A loader prints until its end.
    let _ = killpg(Pid::from_raw(i32::try_from(asked.id()).ok()?), Signal::SIGKILL);
    let succeeded = asked.wait().is_ok_and(|status| status.success());
    said.filter(|_| succeeded)
}

fn read_until(mut pipe: ChildStdout, until: Instant) -> Option<Vec<u8>> {
    let mut said = Vec::new();
    let mut piece = vec![0; 64 << 10];
    while said.len() < MOST {
        let left = PollTimeout::try_from(until.saturating_duration_since(Instant::now())).ok()?;
        if poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], left) == Ok(0) {
            return None;
        }
        match pipe.read(&mut piece).ok()? {
            0 => return Some(said),
            count => said.extend_from_slice(&piece[..count]),
        }
    }
    None
}

/// Returns the library in a line such as `libc.so.6 => /lib/libc.so.6 (0x7f...)`.
fn listed(line: &[u8]) -> Option<PathBuf> {
    let line = &line[..memmem::rfind(line, b" (0x")?];
    let path = memmem::find(line, b" => ").map_or(line.trim_ascii_start(), |arrow| &line[arrow + 4..]);
    // The kernel gives a library of its own, which is no file.
    path.starts_with(b"/").then(|| path_of(path))
}

/// Returns the program that runs a script, even if `env` has to find it.
fn interpreter(script: &Program, path: &OsString) -> Option<Program> {
    let mut head = Vec::new();
    remote_file::open(&script.file).and_then(|file| file.take(256).read_to_end(&mut head)).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let file = path_of(words.next()?);
    if file.file_name() != Some(OsStr::new("env")) {
        return Some(Program { file, is_named: script.is_named });
    }
    let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    let file = which(&OsString::from_vec(name.to_vec()), path)?;
    Some(Program { file, is_named: script.is_named || !name.contains(&b'/') })
}

/// Returns a text that distinguishes a loaded file from others with its name.
fn stamp(name: Option<&OsStr>, place: &Path) -> String {
    let what = fs::metadata(place).map_or("none".into(), |found| format!("{} {}", found.len(), mtime_of(&found)));
    format!("{} {what}\n", name.unwrap_or_default().to_string_lossy())
}

/// Returns the program that a shell would run for a name.
pub fn which(name: &OsString, path: &OsString) -> Option<PathBuf> {
    let mut files = env::split_paths(path).map(|directory| directory.join(name));
    (!name.is_empty()).then(|| files.find(|file| is_program(file))).flatten()
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

pub fn mtime_of(found: &Metadata) -> i64 {
    found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec())
}

fn path_of(text: &[u8]) -> PathBuf {
    OsStr::from_bytes(text).into()
}
