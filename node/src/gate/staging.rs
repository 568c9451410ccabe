//! The place of a gated input, where a command finds nothing before the commit.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, FileTimes, FileType, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{symlink, DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::AT_FDCWD;
use nix::libc::{DT_BLK, DT_CHR, DT_DIR, DT_FIFO, DT_LNK, DT_REG, DT_SOCK, DT_UNKNOWN};
use nix::sys::stat::{utimensat, UtimensatFlags};
use nix::sys::time::TimeSpec;

use super::listing::Entry;
use crate::sys::beside::beside;
use crate::sys::file_id::{file_id, FileId};

/// Removes what an earlier attempt of the job has left at `target`.
pub fn clear(target: &Path) -> io::Result<()> {
    let removed = fs::symlink_metadata(target).and_then(|found| {
        // Files in the directory are links to those of a producer, which keep their own names.
        if found.is_dir() {
            fs::remove_dir_all(target)
        } else {
            fs::remove_file(target)
        }
    });
    unless(ErrorKind::NotFound, removed).map(drop)
}

/// Turns an error of this kind into None.
fn unless<T>(kind: ErrorKind, result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == kind => Ok(None),
        result => result.map(Some),
    }
}

/// Whether two paths, which need not exist yet, are on one file system.
pub fn same_file_system(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| path.ancestors().find_map(|above| fs::metadata(above).ok()).map(|found| found.dev());
    device(one) == device(other)
}

/// Something that has come into a directory.
#[derive(Debug)]
pub enum Arrival {
    /// An entry of a directory.
    Entry { directory: FileId, entry: Entry },
    /// A directory, with the entries for itself and for its parent.
    Directory { path: PathBuf, own: [Entry; 2] },
}

/// A directory that fills with what is committed in that of a producer.
#[derive(Debug)]
pub struct Tree {
    source: PathBuf,
    target: PathBuf,
    /// Entries are reported, for listings that deliver them.
    lists: bool,
    /// The directory has the mode of its source, which need not exist at first.
    adopted: bool,
    /// Files that are in place already.
    placed: HashSet<PathBuf>,
    /// Arrivals that were not reported yet.
    pub arrivals: Vec<Arrival>,
}

impl Tree {
    /// Makes the empty directory.
    ///
    /// # Arguments
    /// * `lists` - arrivals include each entry, not only directories
    pub fn new(source: &Path, target: &Path, lists: bool) -> io::Result<Self> {
        DirBuilder::new().mode(0o755).create(target)?;
        let (source, arrivals) = (source.to_owned(), vec![arrived_directory(target)?]);
        Ok(Self { source, target: target.to_owned(), lists, adopted: false, placed: HashSet::new(), arrivals })
    }

    /// Puts a committed file in place, and the directories above it.
    ///
    /// Does nothing if the producer has removed the file meanwhile.
    pub fn place(&mut self, relative: &Path) -> io::Result<()> {
        let leads_down = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !leads_down || relative == Path::new("") {
            return Ok(());
        }
        if !std::mem::replace(&mut self.adopted, true) {
            self.adopt_mode(Path::new(""))?;
        }
        let mut above: Vec<&Path> = relative.ancestors().skip(1).filter(|path| *path != Path::new("")).collect();
        above.reverse();
        for directory in above {
            self.make_directory(directory)?;
        }
        let found = fs::symlink_metadata(self.source.join(relative));
        unless(ErrorKind::NotFound, found.and_then(|found| self.put(relative, found.file_type()))).map(drop)
    }

    /// Puts everything else in place, because the output is complete.
    pub fn complete(&mut self) -> io::Result<()> {
        self.mirror(Path::new(""))
    }

    /// Gives a directory the mode of its source, and the rights that are needed to fill it.
    fn adopt_mode(&self, relative: &Path) -> io::Result<()> {
        let found = unless(ErrorKind::NotFound, fs::metadata(self.source.join(relative)))?;
        let Some(mode) = found.map(|found| found.permissions().mode() | 0o700) else { return Ok(()) };
        fs::set_permissions(self.target.join(relative), Permissions::from_mode(mode))
    }

    /// Gives a link the time of its source.
    fn adopt_time_of_link(&self, relative: &Path) -> io::Result<()> {
        let found = fs::symlink_metadata(self.source.join(relative))?;
        let modified = TimeSpec::new(found.mtime(), found.mtime_nsec());
        let (target, flag) = (self.target.join(relative), UtimensatFlags::NoFollowSymlink);
        // Some file systems keep no times of links that can be set.
        let _ = utimensat(AT_FDCWD, &target, &TimeSpec::UTIME_OMIT, &modified, flag);
        Ok(())
    }

    fn mirror(&mut self, relative: &Path) -> io::Result<()> {
        let source = self.source.join(relative);
        for entry in fs::read_dir(&source)? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, relative.join(entry.file_name()));
            if kind.is_dir() {
                self.make_directory(&path)?;
                self.mirror(&path)?;
            } else {
                self.put(&path, kind)?;
            }
            if kind.is_symlink() {
                self.adopt_time_of_link(&path)?;
            }
        }
        let (found, target) = (fs::metadata(&source)?, self.target.join(relative));
        fs::set_permissions(&target, found.permissions())?;
        File::open(&target)?.set_times(FileTimes::new().set_modified(found.modified()?))
    }

    /// Puts a file or a link in place.
    fn put(&mut self, relative: &Path, kind: FileType) -> io::Result<()> {
        let put = if kind.is_symlink() { self.copy_link(relative)? } else { self.link(relative, kind)? };
        if put {
            self.arrivals.extend(self.arrived(relative));
        }
        Ok(())
    }

    /// Returns false if the file is in place already, or cannot be there.
    fn link(&mut self, relative: &Path, kind: FileType) -> io::Result<bool> {
        if self.placed.contains(relative) {
            return Ok(false);
        }
        let (source, target) = (self.source.join(relative), self.target.join(relative));
        match fs::hard_link(&source, &target) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            // A FIFO, a socket or a device has no copy.
            Err(_) if !kind.is_file() => return Ok(false),
            // Too many links, or a file of another user: a copy appears instead, as a whole.
            Err(_) => copy(&source, &target)?,
            Ok(()) => {}
        }
        self.placed.insert(relative.to_owned());
        Ok(true)
    }

    fn copy_link(&self, relative: &Path) -> io::Result<bool> {
        let mut leads = fs::read_link(self.source.join(relative))?;
        let from = relative.parent().unwrap_or(Path::new(""));
        // A relative link that leads out of the directory would lead elsewhere from here.
        if leads.is_relative() && leaves(from, &leads) {
            leads = self.source.join(from).join(leads);
        }
        let made = unless(ErrorKind::AlreadyExists, symlink(leads, self.target.join(relative)))?;
        Ok(made.is_some())
    }

    fn make_directory(&mut self, relative: &Path) -> io::Result<()> {
        let target = self.target.join(relative);
        if unless(ErrorKind::AlreadyExists, DirBuilder::new().create(&target))?.is_some() {
            self.adopt_mode(relative)?;
            self.arrivals.push(arrived_directory(&target)?);
            self.arrivals.extend(self.arrived(relative));
        }
        Ok(())
    }

    fn arrived(&self, relative: &Path) -> Option<Arrival> {
        let path = self.lists.then(|| self.target.join(relative))?;
        let (directory, name) = (file_id(path.parent()?)?, path.file_name()?);
        Some(Arrival::Entry { directory, entry: entry(name, &path)? })
    }
}

/// Whether a relative path leads out of the directory that `from` is relative to.
fn leaves(from: &Path, path: &Path) -> bool {
    let mut depth = from.components().count() as i64;
    path.components().any(|part| {
        depth += match part {
            Component::ParentDir => -1,
            Component::Normal(_) => 1,
            _ => 0,
        };
        depth < 0
    })
}

fn copy(source: &Path, target: &Path) -> io::Result<()> {
    let (part, found) = (beside(target, "copy"), fs::metadata(source)?);
    let copied = fs::copy(source, &part)
        .and_then(|_| File::open(&part)?.set_times(FileTimes::new().set_modified(found.modified()?)))
        .and_then(|()| fs::rename(&part, target));
    if copied.is_err() {
        let _ = fs::remove_file(&part);
    }
    copied
}

fn arrived_directory(path: &Path) -> io::Result<Arrival> {
    let own = |name: &str, path: &Path| entry(OsStr::new(name), path).ok_or(io::Error::from(ErrorKind::NotFound));
    let above = path.parent().unwrap_or(Path::new("/"));
    Ok(Arrival::Directory { path: path.to_owned(), own: [own(".", path)?, own("..", above)?] })
}

fn entry(name: &OsStr, path: &Path) -> Option<Entry> {
    let found = fs::symlink_metadata(path).ok()?;
    let kind = match found.file_type() {
        kind if kind.is_dir() => DT_DIR,
        kind if kind.is_symlink() => DT_LNK,
        kind if kind.is_file() => DT_REG,
        kind if kind.is_fifo() => DT_FIFO,
        kind if kind.is_socket() => DT_SOCK,
        kind if kind.is_char_device() => DT_CHR,
        kind if kind.is_block_device() => DT_BLK,
        _ => DT_UNKNOWN,
    };
    Some(Entry { name: name.to_owned(), number: found.ino(), kind })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::net::UnixListener;

    /// Returns the names that have come since the last call.
    fn arrived(tree: &mut Tree) -> Vec<String> {
        let name = |arrival| match arrival {
            Arrival::Entry { entry, .. } => entry.name.into_string().ok(),
            Arrival::Directory { .. } => None,
        };
        let mut names: Vec<String> = tree.arrivals.drain(..).filter_map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_tree_fills() {
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (directory.path().join("source"), directory.path().join("target"));
        fs::create_dir_all(source.join("deep/er")).unwrap();
        fs::create_dir(source.join("empty")).unwrap();
        for (directory, mode) in [("deep", 0o750), ("empty", 0o500), ("", 0o711)] {
            fs::set_permissions(source.join(directory), Permissions::from_mode(mode)).unwrap();
        }
        for file in ["a", "deep/er/b", "c"] {
            fs::write(source.join(file), file).unwrap();
        }
        symlink("../a", source.join("deep/inside")).unwrap();
        mkfifo(&source.join("fifo"), Mode::S_IRUSR).unwrap();
        let _socket = UnixListener::bind(source.join("socket")).unwrap();
        symlink("../../elsewhere", source.join("deep/outside")).unwrap();
        let (link, day) = (source.join("deep/outside"), TimeSpec::new(86400, 0));
        utimensat(AT_FDCWD, &link, &day, &day, UtimensatFlags::NoFollowSymlink).unwrap();
        let mut tree = Tree::new(&source, &target, true).unwrap();
        assert!(matches!(&tree.arrivals[..], [Arrival::Directory { path, .. }] if *path == target));
        let place = |tree: &mut Tree, path: &str| tree.place(Path::new(path)).map(|()| arrived(tree)).unwrap();
        assert_eq!(place(&mut tree, "deep/er/b"), ["b", "deep", "er"]);
        let mode = |path: &str| fs::metadata(target.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(""), mode("deep")), (0o711, 0o750));
        for (path, expected) in [
            ("deep/er/b", None),
            ("deep/outside", Some("outside")),
            ("gone", None),
            ("../a", None),
            ("", None),
            ("/a", None),
        ] {
            assert_eq!(place(&mut tree, path), Vec::from_iter(expected));
        }
        tree.complete().unwrap();
        assert_eq!(arrived(&mut tree), ["a", "c", "empty", "fifo", "inside", "socket"]);
        let kind = |path: &str| entry(OsStr::new(path), &target.join(path)).unwrap().kind;
        assert_eq!(["a", "empty", "fifo", "socket"].map(kind), [DT_REG, DT_DIR, DT_FIFO, DT_SOCK]);
        assert_eq!((mode(""), mode("deep"), mode("empty")), (0o711, 0o750, 0o500));
        assert_eq!(fs::read_to_string(target.join("deep/er/b")).unwrap(), "deep/er/b");
        assert_eq!(fs::read_to_string(target.join("deep/inside")).unwrap(), "a");
        assert_eq!(fs::read_link(target.join("deep/outside")).unwrap(), source.join("deep/../../elsewhere"));
        let times = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        assert_eq!(times(&target.join("deep")), times(&source.join("deep")));
        assert_eq!(fs::symlink_metadata(target.join("deep/outside")).unwrap().mtime(), 86400);
        clear(&target).unwrap();
        assert!(!target.exists() && source.join("a").exists());
        clear(&target).unwrap();
    }

    #[test]
    fn copies_are_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (source, target) = (directory.path().join("a"), directory.path().join("b"));
        fs::write(&source, "text").unwrap();
        copy(&source, &target).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "text");
        assert!(copy(&directory.path().join("missing"), &target).is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
