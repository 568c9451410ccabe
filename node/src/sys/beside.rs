//! Names for what is made beside a file of a user.

use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

/// Returns a path in the directory of `path`, for something that belongs to it. Its name is short: a name of a user
/// may be as long as a file system allows.
///
/// # Arguments
/// * `what` - a word that tells it from other things that belong to `path`
pub fn beside(path: &Path, what: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    path.with_file_name(format!(".sfio-{what}-{:016x}", xxh3_64(name.as_encoded_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_has_its_own_name_in_the_same_directory() {
        let names = ["/d/x", "/d/y", "/d/x.tar"].map(Path::new);
        let made = names.iter().flat_map(|name| [beside(name, "end"), beside(name, "whole")]);
        let made: BTreeSet<PathBuf> = made.collect();
        assert_eq!(made.len(), 6);
        assert!(made.iter().all(|path| path.parent() == Some(Path::new("/d"))));
    }
}
