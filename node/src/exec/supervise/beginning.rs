//! Finds out when a job begins to write.

use std::fs;
use std::path::{Path, PathBuf};

use crate::outputs::commit::{Decision, What};

/// The most empty files that are examined. A job with more files has written something.
const FILES: usize = 100;

/// The time until an output has data.
#[derive(Debug, Default)]
pub struct Beginning {
    empty: Vec<PathBuf>,
    over: bool,
}

impl Beginning {
    /// Adds the files of outputs that may exist now.
    pub fn note(&mut self, decisions: &[Decision]) {
        let opened = decisions.iter().filter_map(|decision| match &decision.what {
            What::Opened(path) => Some(path.to_owned()),
            _ => None,
        });
        if !self.over {
            self.empty.extend(opened);
        }
    }

    /// Whether an output has data, or had some.
    pub fn is_over(&mut self) -> bool {
        let has_data = |path: &Path| fs::metadata(path).is_ok_and(|file| file.len() > 0);
        self.over = self.over || self.empty.len() > FILES || self.empty.iter().any(|path| has_data(path));
        if self.over {
            self.empty.clear();
        }
        self.over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(path: &Path) -> Decision {
        Decision { port: 0, what: What::Opened(path.into()) }
    }

    #[test]
    fn it_is_over_with_the_first_data() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
        let mut beginning = Beginning::default();
        beginning.note(&[opened(&one), opened(&other)]);
        fs::write(&one, "").unwrap();
        assert!(!beginning.is_over());
        fs::write(&other, "x").unwrap();
        assert!(beginning.is_over());
        fs::write(&other, "").unwrap();
        assert!(beginning.is_over());
    }

    #[test]
    fn so_many_files_are_something() {
        let mut beginning = Beginning::default();
        beginning.note(&vec![opened(Path::new("/none")); FILES]);
        assert!(!beginning.is_over());
        beginning.note(&[opened(Path::new("/none"))]);
        assert!(beginning.is_over());
    }
}
