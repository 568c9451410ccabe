//! `sfio-node programs`: prints stamps that distinguish programs here from others with the same name.

mod loads;

use std::collections::HashMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::loads::{digest, mtime_of, which, Program};
use crate::protocol::json;

/// A stamp that changes when a program changes, or a file that is loaded with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Stamp {
    size: u64,
    /// Nanoseconds since the epoch.
    mtime: i64,
    /// A digest of the files that the dynamic loader would load, and of the interpreter of a script. Empty if there is
    /// neither.
    loads: String,
}

/// Prints a line for each word: the stamp of the file that a shell would run for it, or a dash.
pub fn run(words: &[OsString]) -> i32 {
    let mut programs = Programs::new(env::var_os("PATH").unwrap_or_default());
    let lines: String = words.iter().map(|word| programs.line(word)).collect();
    i32::from(io::stdout().write_all(lines.as_bytes()).is_err())
}

/// The time that all loaders together have to list libraries. The driver waits for a minute.
const LOADERS: Duration = Duration::from_secs(20);

struct Programs {
    path: OsString,
    until: Instant,
    known: HashMap<(PathBuf, bool), Stamp>,
}

impl Programs {
    fn new(path: OsString) -> Self {
        Self { path, until: Instant::now() + LOADERS, known: HashMap::new() }
    }

    fn line(&mut self, word: &OsString) -> String {
        match self.stamp(word) {
            Some(stamp) => json::write(&stamp) + "\n",
            None => "-\n".into(),
        }
    }

    fn stamp(&mut self, word: &OsString) -> Option<Stamp> {
        let (file, is_named) = (self.named(word)?, !is_path(word));
        if let Some(known) = self.known.get(&(file.clone(), is_named)) {
            return Some(known.clone());
        }
        let found = fs::metadata(&file).ok().filter(Metadata::is_file)?;
        let loads = digest(Program { file: file.clone(), is_named }, &self.path, self.until);
        let stamp = Stamp { size: found.size(), mtime: mtime_of(&found), loads };
        self.known.insert((file, is_named), stamp.clone());
        Some(stamp)
    }

    fn named(&self, word: &OsString) -> Option<PathBuf> {
        if is_path(word) {
            return Some(word.into());
        }
        which(word, &self.path)
    }
}

fn is_path(word: &OsStr) -> bool {
    word.as_bytes().contains(&b'/')
}
