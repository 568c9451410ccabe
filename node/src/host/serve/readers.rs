//! The readers of sessions, which are jobs without a command.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::sys::own_program::own_program;

/// The file that makes a job a session. It is renamed into the directory of the job.
pub const SESSION: &str = "session.json";

#[derive(Debug, Default)]
pub struct Readers {
    started: HashSet<OsString>,
    running: Vec<(OsString, Child)>,
}

impl Readers {
    /// Starts the reader of a job, if that is a session and has none.
    ///
    /// # Arguments
    /// * `directory` - of the job
    pub fn welcome(&mut self, id: &OsStr, directory: &Path) -> io::Result<()> {
        if self.started.contains(id) || !directory.join(SESSION).exists() {
            return Ok(());
        }
        self.started.insert(id.to_owned());
        let mut reader = own_program();
        reader.arg("read").arg("--job").arg(directory).stdin(Stdio::null()).stdout(Stdio::null());
        self.adopt(id, reader.spawn()?);
        Ok(())
    }

    pub(super) fn adopt(&mut self, id: &OsStr, reader: Child) {
        self.running.push((id.to_owned(), reader));
    }

    /// Whether a reader is still to be waited for. No notice tells when it has ended.
    pub fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    /// Whether a job is a session.
    pub fn have(&self, id: &OsStr) -> bool {
        self.started.contains(id)
    }

    /// Ends them for certain, also those that are stopped.
    pub fn kill(&mut self) {
        for (_, reader) in &mut self.running {
            let _ = reader.kill();
        }
    }

    /// Waits for those that have ended, and returns their jobs.
    pub fn reap(&mut self) -> Vec<OsString> {
        let mut ended = Vec::new();
        self.running.retain_mut(|(id, reader)| {
            let runs = matches!(reader.try_wait(), Ok(None));
            if !runs {
                ended.push(id.clone());
            }
            runs
        });
        ended
    }
}
