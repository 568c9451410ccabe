//! The files that are loaded with a program, as far as they are known before it runs.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use memchr::memmem;
use object::elf::{FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache};
use xxhash_rust::xxh3::Xxh3;

use crate::sys::{ownership, remote_file};

/// The most interpreters of interpreters, as in the kernel.
const DEPTH: usize = 4;

/// Returns a digest of all files that are loaded with a program: 16 hex digits, or an empty text if none is.
///
/// # Arguments
/// * `path` - value of PATH, for interpreters without a directory
pub fn digest(program: &Path, path: &OsString) -> String {
    let mut found = BTreeSet::new();
    let mut program = program.to_owned();
    for _ in 0..DEPTH {
        if let Some(loader) = loader_of(&program) {
            found.extend(libraries(&program, &loader).iter().map(|library| stamp(library.file_name(), library)));
            found.insert(stamp(Some(loader.as_os_str()), &loader));
        }
        match interpreter(&program, path) {
            Some(next) => program = next,
            None => break,
        }
        found.insert(stamp(Some(program.as_os_str()), &program));
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
/// cannot load them.
fn libraries(program: &Path, loader: &Path) -> Vec<PathBuf> {
    // A file may name any program as its loader.
    let is_safe = loader.canonicalize().and_then(|loader| ownership::stranger(&loader, &[], &[]));
    if !matches!(is_safe, Ok(None)) {
        return Vec::new();
    }
    let said = Command::new(loader).arg("--list").arg(program).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.ok().filter(|said| said.status.success()).map(|said| said.stdout).unwrap_or_default();
    said.split(|byte| *byte == b'\n').filter_map(listed).collect()
}

/// Returns the library in a line such as `libc.so.6 => /lib/libc.so.6 (0x7f...)`.
fn listed(line: &[u8]) -> Option<PathBuf> {
    let line = &line[..memmem::rfind(line, b" (0x")?];
    let path = memmem::find(line, b" => ").map_or(line.trim_ascii_start(), |arrow| &line[arrow + 4..]);
    // The kernel gives a library of its own, which is no file.
    path.starts_with(b"/").then(|| path_of(path))
}

/// Returns the program that runs a script, even if `env` has to find it.
fn interpreter(script: &Path, path: &OsString) -> Option<PathBuf> {
    let mut head = Vec::new();
    remote_file::open(script).and_then(|file| file.take(256).read_to_end(&mut head)).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let program = path_of(words.next()?);
    if program.file_name() != Some(OsStr::new("env")) {
        return Some(program);
    }
    let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    which(&OsString::from_vec(name.to_vec()), path)
}

/// Returns a text that distinguishes a loaded file from others with its name.
fn stamp(name: Option<&OsStr>, place: &Path) -> String {
    let what = fs::metadata(place).map_or("none".into(), |found| format!("{} {}", found.len(), mtime_of(&found)));
    format!("{} {what}\n", name.unwrap_or_default().to_string_lossy())
}

/// Returns the program that a shell would run for a name.
pub fn which(name: &OsString, path: &OsString) -> Option<PathBuf> {
    let is_program = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    (!name.is_empty()).then(|| env::split_paths(path).map(|directory| directory.join(name)).find(is_program)).flatten()
}

pub fn mtime_of(found: &Metadata) -> i64 {
    found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec())
}

fn path_of(text: &[u8]) -> PathBuf {
    OsStr::from_bytes(text).into()
}
