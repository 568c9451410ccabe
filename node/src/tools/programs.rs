//! `sfio-node programs`: prints stamps that distinguish programs here from others with the same name.

mod loads;

use std::collections::HashMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Serialize;

use self::loads::{digest, mtime_of, which};
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

struct Programs {
    path: OsString,
    known: HashMap<PathBuf, Stamp>,
}

impl Programs {
    fn new(path: OsString) -> Self {
        Self { path, known: HashMap::new() }
    }

    fn line(&mut self, word: &OsString) -> String {
        match self.stamp(word) {
            Some(stamp) => json::write(&stamp) + "\n",
            None => "-\n".into(),
        }
    }

    fn stamp(&mut self, word: &OsString) -> Option<Stamp> {
        let file = self.named(word)?;
        if let Some(known) = self.known.get(&file) {
            return Some(known.clone());
        }
        let found = fs::metadata(&file).ok().filter(Metadata::is_file)?;
        let loads = digest(&file, &self.path);
        let stamp = Stamp { size: found.size(), mtime: mtime_of(&found), loads };
        self.known.insert(file, stamp.clone());
        Some(stamp)
    }

    fn named(&self, word: &OsString) -> Option<PathBuf> {
        if word.as_bytes().contains(&b'/') {
            return Some(word.into());
        }
        which(word, &self.path)
    }
}
