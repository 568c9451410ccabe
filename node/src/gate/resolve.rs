//! Resolves a path of another process, as the kernel would.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::libc;

use crate::sys::file_id::{file_id, FileId};

/// The number of symbolic links that the kernel follows.
const LINKS: usize = 40;

/// Where a relative path begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The working directory of the process.
    Working,
    /// A descriptor of a directory.
    Descriptor(i32),
}

impl Base {
    pub fn of(argument: u64) -> Self {
        match argument as i32 {
            libc::AT_FDCWD => Self::Working,
            descriptor => Self::Descriptor(descriptor),
        }
    }
}

/// A process that uses a path. `elsewhere`: its absolute paths may lead to other files than those of this process.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub thread: u32,
    pub elsewhere: bool,
}

/// Returns the attributes of the file that a path leads to.
pub fn find(caller: Caller, base: Base, path: &[u8], follow: bool) -> io::Result<Metadata> {
    let path = of_root(caller, base, path);
    let path = path.here(path.path.as_os_str());
    if follow {
        fs::metadata(path)
    } else {
        fs::symlink_metadata(path)
    }
}

/// Finds the first name on the way of a path that lies in one of some directories.
///
/// # Arguments
/// * `follow` - a symbolic link at the end of the path is followed
/// * `concerned` - whether a directory is one of them
///
/// # Returns
/// The directory and the name in it. None: the path leads elsewhere, or its process may not be examined.
pub fn locate(
    caller: Caller,
    base: Base,
    path: &[u8],
    mut follow: bool,
    concerned: impl Fn(FileId) -> bool,
) -> Option<(FileId, OsString)> {
    let mut path = of_root(caller, base, path);
    for _ in 0..LINKS * 4 {
        let (parent, name) = split(&path.path)?;
        follow |= name.slash;
        if name.is_itself {
            // A path such as `missing/..` needs the names before its end.
            if file_id(path.here(path.path.as_os_str())).is_some() {
                return None;
            }
            path.path = parent;
            follow = true;
            continue;
        }
        match file_id(path.here(parent.as_os_str())) {
            Some(directory) if concerned(directory) => return Some((directory, name.text)),
            Some(_) if follow => {
                let target = fs::read_link(path.here(parent.join(&name.text).as_os_str())).ok()?;
                path = if target.is_absolute() {
                    of_root(caller, base, target.as_os_str().as_bytes())
                } else {
                    Rooted { path: parent.join(target), ..path }
                };
            }
            Some(_) => return None,
            None => {
                path.path = parent;
                follow = true;
            }
        }
    }
    None
}

/// A path, and the directory where it begins, as this process finds them.
struct Rooted {
    root: PathBuf,
    /// Relative to the root.
    path: PathBuf,
}

impl Rooted {
    fn here(&self, path: &OsStr) -> PathBuf {
        self.root.join(path)
    }
}

fn of_root(Caller { thread, elsewhere }: Caller, base: Base, path: &[u8]) -> Rooted {
    let root = match base {
        // A path through `/proc` takes longer.
        _ if path.starts_with(b"/") && !elsewhere => "/".into(),
        _ if path.starts_with(b"/") => format!("/proc/{thread}/root"),
        Base::Working => format!("/proc/{thread}/cwd"),
        Base::Descriptor(descriptor) => format!("/proc/{thread}/fd/{descriptor}"),
    };
    let start = path.iter().take_while(|byte| **byte == b'/').count();
    let path = Path::new(OsStr::from_bytes(&path[start..]));
    // These paths depend on the process that uses them.
    let own = [("proc/self", ""), ("proc/thread-self", ""), ("dev/fd", "fd"), ("dev/stdin", "fd/0")];
    let of_thread = own.into_iter().find_map(|(own, entry)| Some((entry, path.strip_prefix(own).ok()?)));
    let path = match of_thread {
        Some((entry, rest)) if start > 0 => {
            let entry = Path::new("proc").join(thread.to_string()).join(entry);
            // A slash at the end would demand a directory.
            if rest.as_os_str().is_empty() {
                entry
            } else {
                entry.join(rest)
            }
        }
        _ => path.to_owned(),
    };
    Rooted { root: root.into(), path }
}

struct Name {
    text: OsString,
    /// The name ends with a slash, as that of a directory.
    slash: bool,
    /// The name is `.` or `..`, so that the path is that of a directory.
    is_itself: bool,
}

/// Splits a path into its directory and its last name. Returns None if it has no name.
fn split(path: &Path) -> Option<(PathBuf, Name)> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/')? + 1;
    let start = bytes[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    let text = &bytes[start..end];
    let name = Name {
        text: OsStr::from_bytes(text).to_owned(),
        slash: end < bytes.len(),
        is_itself: matches!(text, b"." | b".."),
    };
    Some((OsStr::from_bytes(&bytes[..start]).into(), name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn ways_to_a_directory() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let gated = root.join("gated");
        fs::create_dir_all(gated.join("inside")).unwrap();
        fs::create_dir(root.join("other")).unwrap();
        fs::write(root.join("other/file"), "").unwrap();
        for (target, link) in [
            ("../gated", "other/up"),
            ("gated/name", "direct"),
            ("direct", "second"),
            ("loop", "loop"),
            ("other/up/deep/er", "far"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        symlink(gated.join("name"), root.join("absolute")).unwrap();
        let target = file_id(&gated).unwrap();
        let find = |path: &str, follow: bool| {
            let path = path.replace('~', root.to_str().unwrap());
            let find = |elsewhere: bool| {
                let caller = Caller { thread: std::process::id(), elsewhere };
                locate(caller, Base::Working, path.as_bytes(), follow, |found| found == target)
            };
            assert_eq!(find(false), find(true), "{path}");
            find(false).map(|(_, name)| name.into_string().unwrap())
        };
        for (path, expected) in [
            ("~/gated/name", Some("name")),
            ("~/gated/name/", Some("name")),
            ("~/gated/name/below/it", Some("name")),
            ("~/gated/missing/..", Some("missing")),
            ("~//other/./../gated/name", Some("name")),
            ("~/other/up/name", Some("name")),
            ("~/second", Some("name")),
            ("~/absolute", Some("name")),
            ("~/far", Some("deep")),
            ("~/gated", None),
            ("~/gated/", None),
            ("~/gated/.", None),
            ("~/gated/inside", Some("inside")),
            ("~/gated/inside/..", None),
            ("~/loop", None),
            ("~/other/file", None),
            ("~/other/missing/gated/name", None),
            ("/", None),
            ("", None),
            ("no-such-file", None),
        ] {
            assert_eq!(find(path, true).as_deref(), expected, "{path}");
        }
        assert_eq!(find("~/second", false), None);
        assert_eq!(find("~/gated/name", false).as_deref(), Some("name"));
    }

    #[test]
    fn relative_to_a_descriptor() {
        use std::os::fd::AsRawFd;
        let directory = tempfile::tempdir().unwrap();
        let open = fs::File::open(directory.path()).unwrap();
        let target = file_id(directory.path()).unwrap();
        let find = |path: &str| {
            let base = Base::Descriptor(open.as_raw_fd());
            let caller = Caller { thread: std::process::id(), elsewhere: false };
            assert_eq!(super::find(caller, base, path.as_bytes(), true).is_ok(), path == ".", "{path}");
            locate(caller, base, path.as_bytes(), true, |found| found == target)
        };
        assert_eq!(find("name"), Some((target, "name".into())));
        assert_eq!(find("."), None);
        for own in ["/proc/self/fd", "/proc/thread-self/fd", "/dev/fd"] {
            assert_eq!(find(&format!("{own}/{}/name", open.as_raw_fd())), Some((target, "name".into())), "{own}");
        }
    }
}
