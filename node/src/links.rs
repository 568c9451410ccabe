//! Which files the links in a directory lead to.

use std::fs;
use std::path::Path;

use crate::file_id::{file_id, FileId};

/// Whether a symbolic link in `directory`, or below, leads to a file.
pub fn lead_to(directory: &Path, wanted: FileId) -> bool {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_symlink() => file_id(entry.path()) == Some(wanted),
        Ok(kind) if kind.is_dir() => lead_to(&entry.path(), wanted),
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
        let wanted = file_id(&file).unwrap();
        let found = || lead_to(&base.path().join("outer"), wanted);
        symlink(&other, inner.join("elsewhere")).unwrap();
        symlink("/none", inner.join("nowhere")).unwrap();
        symlink(&inner, inner.join("circle")).unwrap();
        assert!(!found());
        symlink("../../file", inner.join("link")).unwrap();
        assert!(found());
        assert!(!lead_to(&file, wanted) && !lead_to(Path::new("/none"), wanted));
    }
}
