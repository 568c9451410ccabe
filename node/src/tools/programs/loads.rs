//! The files that are loaded with a program, as far as they are known before it runs; see ld.so(8).

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memchr::memmem;
use xxhash_rust::xxh3::Xxh3;

use super::cache;
use super::elf::{self, Kind, Object};
use super::lookup::{head, mtime_of, which};

/// The most interpreters of interpreters, as in the kernel.
const DEPTH: usize = 4;
/// The most libraries of a program.
const MOST: usize = 10_000;

/// Finds libraries as the dynamic loader of this machine does.
pub struct Loader {
    cached: HashMap<Vec<u8>, Vec<PathBuf>>,
    /// Directories of LD_LIBRARY_PATH.
    before: Vec<PathBuf>,
    last: Vec<PathBuf>,
    objects: HashMap<PathBuf, Option<Object>>,
}

impl Loader {
    pub fn of_this_machine() -> Self {
        let arch = env::consts::ARCH;
        let of_musl = fs::read(format!("/etc/ld-musl-{arch}.path")).unwrap_or_default();
        let musl = of_musl.split(|byte| b":\n".contains(byte)).filter(|path| !path.is_empty()).map(path_of);
        let own = ["/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from);
        let multiarch = ["/lib", "/usr/lib"].map(|at| PathBuf::from(format!("{at}/{arch}-linux-gnu")));
        let before = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        Self {
            cached: cache::read(&fs::read("/etc/ld.so.cache").unwrap_or_default()),
            before: env::split_paths(&before).filter(|path| path.is_absolute()).collect(),
            last: musl.chain(own).chain(multiarch).collect(),
            objects: HashMap::new(),
        }
    }

    /// Returns a digest of all files that are loaded with a program: 16 hex digits, or an empty text if none is.
    ///
    /// # Arguments
    /// * `path` - value of PATH, for interpreters without a directory
    pub fn digest(&mut self, program: &Path, path: &OsString) -> String {
        let mut found = BTreeSet::new();
        let mut program = program.to_owned();
        for _ in 0..DEPTH {
            self.libraries(&program, &mut found);
            match interpreter(&program, path) {
                Some(next) => program = next,
                None => break,
            }
            found.insert(stamp(program.as_os_str().as_bytes(), Some(&program)));
        }
        let mut digest = Xxh3::new();
        found.iter().for_each(|each| digest.update(each.as_bytes()));
        if found.is_empty() {
            String::new()
        } else {
            format!("{:016x}", digest.digest())
        }
    }

    /// Adds the stamps of the libraries of a program, and of the loader itself.
    fn libraries(&mut self, program: &Path, found: &mut BTreeSet<String>) {
        let Some(of_program) = self.object(program) else { return };
        if !of_program.interpreter.is_empty() {
            found.insert(stamp(&of_program.interpreter, Some(&path_of(&of_program.interpreter))));
        }
        let mut known = BTreeSet::new();
        let mut waiting = VecDeque::from([(program.to_owned(), of_program.clone())]);
        while let Some((place, object)) = waiting.pop_front() {
            for name in &object.needed {
                if known.len() >= MOST || !known.insert(name.clone()) {
                    continue;
                }
                let library = self.find(name, of_program.kind, [(&place, &object), (program, &of_program)]);
                found.insert(stamp(name, library.as_ref().map(|(place, _)| place.as_path())));
                waiting.extend(library);
            }
        }
    }

    /// Finds a library that an object needs.
    ///
    /// # Arguments
    /// * `needing` - the object, and the program with which it is loaded
    fn find(&mut self, name: &[u8], kind: Kind, needing: [(&Path, &Object); 2]) -> Option<(PathBuf, Object)> {
        let mut places = Vec::new();
        if name.contains(&b'/') {
            places.push(path_of(name));
        } else {
            let [(place, object), _] = needing;
            if object.runpath.is_empty() {
                let below = needing.iter().flat_map(|(place, object)| directories(&object.rpath, place));
                places.extend(below.map(|at| at.join(path_of(name))));
            }
            let of_environment = self.before.iter().cloned();
            let ways = of_environment.chain(directories(&object.runpath, place)).map(|at| at.join(path_of(name)));
            places.extend(ways);
            places.extend(self.cached.get(name).into_iter().flatten().cloned());
            places.extend(self.last.iter().map(|at| at.join(path_of(name))));
        }
        // As in the loader, a library of another machine, or one that cannot be read, is skipped.
        places.into_iter().find_map(|place| {
            let object = self.object(&place).filter(|object| object.kind == kind)?;
            Some((place, object))
        })
    }

    fn object(&mut self, place: &Path) -> Option<Object> {
        self.objects.entry(place.to_owned()).or_insert_with(|| elf::read(place)).clone()
    }
}

/// Returns the directories of a search path in a file, with `$ORIGIN` replaced.
fn directories(path: &[u8], of: &Path) -> Vec<PathBuf> {
    let real = fs::canonicalize(of).ok();
    let origin = real.as_deref().and_then(Path::parent).unwrap_or(Path::new("/")).as_os_str().as_bytes();
    let with_origin = |text: &[u8]| {
        let text = replaced(text, b"${ORIGIN}", origin);
        path_of(&replaced(&text, b"$ORIGIN", origin))
    };
    path.split(|byte| *byte == b':').filter(|text| !text.is_empty()).map(with_origin).collect()
}

fn replaced(text: &[u8], what: &[u8], with: &[u8]) -> Vec<u8> {
    let mut rest = text;
    let mut made = Vec::new();
    while let Some(at) = memmem::find(rest, what) {
        made.extend_from_slice(&rest[..at]);
        made.extend_from_slice(with);
        rest = &rest[at + what.len()..];
    }
    made.extend_from_slice(rest);
    made
}

/// Returns the program that runs a script, even if `env` has to find it.
fn interpreter(script: &Path, path: &OsString) -> Option<PathBuf> {
    let head = head(script, 256).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let program = path_of(words.next()?);
    if program.file_name() != Some(OsStr::new("env")) {
        return Some(program);
    }
    let name = words.find(|word| !word.starts_with(b"-") && !word.contains(&b'='))?;
    which(&OsString::from_vec(name.to_vec()), path)
}

/// Returns a text that distinguishes a loaded file from others with its name. Without a place the file does not exist.
fn stamp(name: &[u8], place: Option<&Path>) -> String {
    let found = place.and_then(|place| fs::metadata(place).ok());
    let what = found.map_or("none".into(), |found| format!("{} {}", found.size(), mtime_of(&found)));
    format!("{} {what}\n", String::from_utf8_lossy(name))
}

fn path_of(text: &[u8]) -> PathBuf {
    OsStr::from_bytes(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_found_from_where_the_file_is() {
        let directory = tempfile::tempdir().unwrap();
        let (file, at) = (directory.path().join("a"), fs::canonicalize(directory.path()).unwrap());
        fs::write(&file, "").unwrap();
        let found = directories(b"$ORIGIN/../lib:${ORIGIN}:/opt::", &file);
        assert_eq!(found, [at.join("../lib"), at, "/opt".into()]);
    }

    #[test]
    fn scripts_name_their_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        let named = |line: &str| {
            fs::write(&script, line).unwrap();
            interpreter(&script, &"/usr/bin:/bin".into())
        };
        assert_eq!(named("#! /opt/perl -w\nmore"), Some("/opt/perl".into()));
        assert!(named("#!/usr/bin/env -S A=1 sh -e\n").unwrap().ends_with("sh"));
        for none in ["", "#!", "#!/usr/bin/env no.such.program", "echo"] {
            assert_eq!(named(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_object_loads_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a");
        let own = fs::read("/proc/self/exe").unwrap();
        let mut loader = Loader::of_this_machine();
        for content in [b"".as_slice(), b"\x7fELF", &own[..64], b"text"] {
            fs::write(&file, content).unwrap();
            loader.objects.clear();
            assert_eq!(loader.digest(&file, &OsString::new()), "");
        }
    }
}
