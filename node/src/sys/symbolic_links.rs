//! Finds symbolic links that lead to a file, and links that lead elsewhere on the other side of a mount.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sys::file_id::{file_id, file_id_of, FileId};

/// Whether a symbolic link in or below `directory` leads to the same file as `place`. `place` itself does not count.
pub fn lead_to(directory: &Path, place: &Path) -> bool {
    let Some(wanted) = file_id(place) else { return false };
    search(directory, wanted, fs::symlink_metadata(place).ok().as_ref().map(file_id_of))
}

/// Links on a way to a file, as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Returns the first absolute path to which a symbolic link leads, on the way to a file that has another path where it
/// was made. There the link may lead to another file than here.
///
/// # Arguments
/// * `path` - of the file, here
/// * `named` - its path where it was made
pub fn leads_elsewhere(path: &Path, named: &Path) -> Option<PathBuf> {
    let (mut path, mut named) = (path.to_owned(), named.to_owned());
    for _ in 0..MOST_LINKS {
        if path == named {
            return None;
        }
        // Directories above these are of this side alone.
        let shared = path.components().rev().zip(named.components().rev()).take_while(|(here, there)| here == there);
        let shared = shared.count();
        let on_way: Vec<_> = path.ancestors().take(shared).collect();
        let (link, leads) = on_way.into_iter().rev().find_map(|place| Some((place, fs::read_link(place).ok()?)))?;
        if leads.is_absolute() {
            return Some(leads);
        }
        let rest = path.strip_prefix(link).ok()?.to_owned();
        let above = named.ancestors().nth(rest.components().count() + 1)?.to_owned();
        // Without a slash at the end, which would follow the next link.
        let leads: PathBuf = leads.components().chain(rest.components()).collect();
        named = above.join(&leads);
        path = link.parent()?.join(&leads);
    }
    None
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
    fn a_link_leads_elsewhere() {
        let directory = tempfile::tempdir().unwrap();
        let job = directory.path().join("job");
        fs::create_dir(&job).unwrap();
        fs::write(job.join("real"), "").unwrap();
        symlink("/elsewhere/real", job.join("absolute")).unwrap();
        symlink("absolute", job.join("chain")).unwrap();
        symlink("real", job.join("relative")).unwrap();
        symlink("/elsewhere", job.join("above")).unwrap();
        let found = |name: &str| leads_elsewhere(&job.join(name), &Path::new("/there/job").join(name));
        assert_eq!(found("absolute"), Some(PathBuf::from("/elsewhere/real")));
        assert_eq!(found("chain"), Some(PathBuf::from("/elsewhere/real")));
        assert_eq!(found("above/real"), Some(PathBuf::from("/elsewhere")));
        assert_eq!(found("relative"), None);
        assert_eq!(found("real"), None);
        assert_eq!(found("missing"), None);
        // The same paths on both sides lead to the same files.
        assert_eq!(leads_elsewhere(&job.join("absolute"), &job.join("absolute")), None);
    }

    #[test]
    fn links_in_a_circle_lead_nowhere() {
        let directory = tempfile::tempdir().unwrap();
        symlink("circle", directory.path().join("circle")).unwrap();
        assert_eq!(leads_elsewhere(&directory.path().join("circle"), Path::new("/there/circle")), None);
    }
}
