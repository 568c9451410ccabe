//! The file beside `job.json` with the limits of a running job that the driver has changed.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::protocol::json;
use crate::protocol::messages::JobLimits;

/// Replaced as a whole each time: what stands in it counts, however many changes that were.
pub const LIMIT: &str = "limit";

/// Replaces it in the directory of a job.
pub fn replace_limits(directory: &Path, text: &[u8]) -> io::Result<()> {
    let new = directory.join("limit.new");
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?.write_all(text)?;
    fs::rename(new, directory.join(LIMIT))
}

#[derive(Debug)]
pub struct LimitFile {
    path: PathBuf,
    /// The text at the last look.
    last: Vec<u8>,
}

impl LimitFile {
    /// # Arguments
    /// * `directory` - of the job
    pub fn new(directory: &Path) -> Self {
        Self { path: directory.join(LIMIT), last: Vec::new() }
    }

    /// Reads the limits, if the text is new.
    ///
    /// # Errors
    /// A message, once, when it cannot be read: nothing has changed then.
    pub fn look(&mut self) -> Result<Option<JobLimits>, String> {
        let (text, found) = match fs::read(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => (error.to_string().into_bytes(), Err(error.to_string())),
            Ok(text) => (text.clone(), json::read(&text)),
        };
        if text == self.last {
            return Ok(None);
        }
        self.last = text;
        found.map(Some).map_err(|why| format!("its limits are as before: {}: {why}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    #[test]
    fn what_the_limits_can_be() {
        let read = |text: &str| json::read::<JobLimits>(text.as_bytes());
        assert_eq!(read(r#"{"rate": 7}"#).unwrap().rate, NonZeroU64::new(7));
        for none in ["{}", r#"{"rate": null}"#] {
            assert_eq!(read(none).unwrap().rate, None);
        }
        for (wrong, word) in [
            (r#"{"rate": 0}"#, "rate: "),
            (r#"{"rate": "7"}"#, "rate: "),
            (r#"{"other": 1}"#, "other: unknown field"),
            (r#"{"rate": 7"#, "EOF"),
            ("", "EOF"),
        ] {
            let message = read(wrong).unwrap_err();
            assert!(message.starts_with(word), "{message}");
        }
    }
}
