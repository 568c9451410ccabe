//! Finds the symbolic links in a directory that lead to a file.

use std::fs;
use std::path::Path;

use crate::sys::file_id::{file_id, file_id_of, FileId};

/// Whether a symbolic link in or below `directory` leads to the same file as `place`. `place` itself does not count.
pub fn lead_to(directory: &Path, place: &Path) -> bool {
    let Some(wanted) = file_id(place) else { return false };
    search(directory, wanted, fs::symlink_metadata(place).ok().as_ref().map(file_id_of))
}

fn search(directory: &Path, wanted: FileId, except: Option<FileId>) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_symlink() => {
            file_id(entry.path()) == Some(wanted) && entry.metadata().ok().as_ref().map(file_id_of) != except
        }
        Ok(kind) if kind.is_dir() => search(&entry.path(), wanted, except),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_found_at_any_depth() {
        let base = tempfile::tempdir().unwrap();
        let [file, other, inner] = ["file", "other", "outer/inner"].map(|name| base.path().join(name));
        fs::write(&file, "").unwrap();
        fs::write(&other, "").unwrap();
        fs::create_dir_all(&inner).unwrap();
        let place = inner.join("place");
        symlink(&file, &place).unwrap();
        let found = || lead_to(&base.path().join("outer"), &place);
        symlink(&other, inner.join("elsewhere")).unwrap();
        symlink("/none", inner.join("nowhere")).unwrap();
        symlink(&inner, inner.join("circle")).unwrap();
        assert!(!found());
        symlink("../../file", inner.join("link")).unwrap();
        assert!(found());
        assert!(!lead_to(&file, &place) && !lead_to(Path::new("/none"), &place));
        assert!(lead_to(&inner, &file) && !lead_to(&inner, Path::new("/none")));
    }
}
