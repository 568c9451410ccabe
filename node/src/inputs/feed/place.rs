//! Where a FIFO was made.

use std::fs::symlink_metadata;
use std::io::ErrorKind;
use std::path::Path;

use crate::sys::file_id::{file_id_of, FileId};

#[derive(Debug)]
pub struct Place {
    fifo: Option<FileId>,
    directory: Option<FileId>,
}

impl Place {
    pub fn of(fifo: &Path) -> Self {
        Self { fifo: id(fifo).unwrap_or_default(), directory: directory(fifo) }
    }

    /// Whether a FIFO is where it was made. Its command may have removed it.
    pub fn is_still(&self, fifo: &Path) -> bool {
        self.directory == directory(fifo) && id(fifo).is_ok_and(|found| found.is_none() || found == self.fifo)
    }
}

fn directory(fifo: &Path) -> Option<FileId> {
    fifo.parent().and_then(|directory| id(directory).ok().flatten())
}

/// What is there, itself; None: nothing.
fn id(path: &Path) -> std::io::Result<Option<FileId>> {
    match symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(|found| Some(file_id_of(&found))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir, remove_dir, remove_file, rename, write};

    #[test]
    fn what_is_something_else() {
        let base = tempfile::tempdir().unwrap();
        let (directory, moved) = (base.path().join("in"), base.path().join("moved"));
        let fifo = directory.join("fifo");
        create_dir(&directory).unwrap();
        write(&fifo, "as made").unwrap();
        let place = Place::of(&fifo);
        assert!(place.is_still(&fifo));
        rename(&fifo, &moved).unwrap();
        assert!(place.is_still(&fifo), "it was removed");
        write(&fifo, "another").unwrap();
        assert!(!place.is_still(&fifo));
        remove_file(&fifo).unwrap();
        std::os::unix::fs::symlink(&moved, &fifo).unwrap();
        assert!(!place.is_still(&fifo), "a link to it is not what was made");
        rename(&moved, &fifo).unwrap();
        assert!(place.is_still(&fifo));
        rename(&directory, &moved).unwrap();
        assert!(!place.is_still(&fifo));
        create_dir(&directory).unwrap();
        assert!(!place.is_still(&fifo), "another directory");
        remove_dir(&directory).unwrap();
        rename(&moved, &directory).unwrap();
        assert!(place.is_still(&fifo));
    }
}
