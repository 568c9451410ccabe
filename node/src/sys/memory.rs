//! The memory that is available to this process, and whether a file fits into it.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;
use serde::Serialize;

const CGROUPS: &str = "/sys/fs/cgroup";

/// Names of the limit and the usage file of a cgroup, and of two lines of its `memory.stat`, for each version of
/// cgroups.
const VERSION_2: [&str; 4] = ["memory.max", "memory.current", "active_file", "inactive_file"];
const VERSION_1: [&str; 4] =
    ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file", "total_inactive_file"];

/// The available memory of the machine, and the lowest memory limit of the cgroups of this process. In bytes; None
/// where unknown.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Available {
    #[serde(skip_serializing_if = "Option::is_none")]
    available: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

impl Available {
    pub fn find() -> Self {
        let limit = limit_of(Path::new(CGROUPS), &read("/proc/self/cgroup"));
        Self { available: available(&read("/proc/meminfo")), limit }
    }
}

/// Returns the bytes that are left in a file system, for users other than root. Without inodes, nothing is left.
pub fn space(directory: &Path) -> u64 {
    match statvfs(directory) {
        Ok(found) if found.files() > 0 && found.files_available() == 0 => 0,
        _ => free(directory).unwrap_or(0),
    }
}

/// Returns the memory that this process can still take, in bytes.
pub fn unused() -> u64 {
    let limited = limited(Path::new(CGROUPS), &read("/proc/self/cgroup"));
    available(&read("/proc/meminfo")).into_iter().chain(limited).min().unwrap_or(u64::MAX)
}

/// Returns the bytes that are free for users other than root in the file system of a directory.
pub fn free(directory: &Path) -> nix::Result<u64> {
    let found = statvfs(directory)?;
    Ok(match found.blocks() {
        // A tmpfs without a limit has no blocks.
        0 => u64::MAX,
        _ => found.blocks_available().saturating_mul(found.fragment_size()),
    })
}

/// Whether a file of `size` bytes fits into the tmpfs `directory`.
/// The file may take at most half of the available memory, because the job and other processes need the rest.
pub fn has_room(directory: &Path, size: u64) -> bool {
    let space = free(directory).unwrap_or(0);
    size <= space && size <= unused() / 2
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns `MemAvailable` of `/proc/meminfo` in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the lowest memory limit of the cgroups of this process, in bytes.
fn limit_of(mount: &Path, cgroups: &str) -> Option<u64> {
    groups_of(mount, cgroups).iter().filter_map(|(group, [limit, ..])| number(group, limit)).min()
}

/// Returns the memory that is left below the limits of the cgroups of this process, in bytes.
fn limited(mount: &Path, cgroups: &str) -> Option<u64> {
    groups_of(mount, cgroups).iter().filter_map(|(group, names)| left(group, *names)).min()
}

/// Returns the memory cgroups of this process and their ancestors, of versions 2 and 1, with the names of their files.
/// Inside a container the path of a cgroup may not exist. The mount itself is then the cgroup of the container.
///
/// # Arguments
/// * `cgroups` - content of `/proc/self/cgroup`
fn groups_of(mount: &Path, cgroups: &str) -> Vec<(PathBuf, [&'static str; 4])> {
    let groups = cgroups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let path = path.strip_prefix('/')?;
        match controllers {
            "" => Some((mount.to_owned(), path, VERSION_2)),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                Some((mount.join("memory"), path, VERSION_1))
            }
            _ => None,
        }
    });
    groups
        .flat_map(|(mount, path, names)| {
            let above = |group: &Path| group.starts_with(&mount);
            let group = mount.join(path);
            group
                .ancestors()
                .take_while(|group| above(group))
                .map(|group| (group.to_owned(), names))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn left(group: &Path, [limit, current, active, inactive]: [&str; 4]) -> Option<u64> {
    let limit = number(group, limit)?;
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    // Cached file pages do not count: the kernel reclaims them.
    let cached = |name: &str| {
        let value = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
    };
    let used = number(group, current)?.saturating_sub(cached(active) + cached(inactive));
    Some(limit.saturating_sub(used))
}

/// Returns the number in a file of a cgroup, or None if the file is missing or says `max`.
fn number(group: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(group.join(name)).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_available() {
        assert_eq!(available("MemTotal:  9 kB\nMemAvailable:    7 kB\n"), Some(7 << 10));
        assert_eq!(available("MemTotal:  9 kB\n"), None);
        let directory = tempfile::tempdir().unwrap();
        assert!(has_room(directory.path(), 0) && !has_room(directory.path(), 1 << 60));
        assert!(!has_room(Path::new("/none"), 1));
    }

    #[test]
    fn limits_of_cgroups() {
        let mount = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = mount.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limited = |cgroups: &str| limited(mount.path(), cgroups);
        assert_eq!(limited("0::/a/b\n"), None);
        write("a/memory.max", "1000\n");
        write("a/memory.current", "700\n");
        write("a/memory.stat", "anon 300\nactive_file 150\ninactive_file 50\nactive_file_x 1\n");
        assert_eq!(limited("0::/a/b\n"), Some(500));
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "7\n");
        assert_eq!(limited("0::/a/b\n"), Some(500));
        write("a/b/memory.max", "100\n");
        assert_eq!(limited("0::/a/b\n"), Some(93));
        assert_eq!(limited("0::/a\n1:name=systemd:/a/b\n"), Some(500));
        write("memory/c/memory.limit_in_bytes", "90\n");
        write("memory/c/memory.usage_in_bytes", "80\n");
        write("memory/c/memory.stat", "active_file 79\ntotal_active_file 10\ntotal_inactive_file 5\n");
        assert_eq!(limited("0::/a\n9:cpu,memory:/c/d\n"), Some(25));
        write("memory/c/memory.usage_in_bytes", "800\n");
        assert_eq!(limited("9:memory:/c\n"), Some(0));
        assert_eq!(limit_of(mount.path(), "0::/a/b\n9:cpu,memory:/c/d\n"), Some(90));
        assert_eq!(limit_of(mount.path(), "0::/a\n"), Some(1000));
        assert_eq!(limit_of(mount.path(), "0::/c\n"), None);
    }
}
