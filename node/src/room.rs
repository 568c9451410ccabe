//! Whether a file has room in memory.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

/// The files of a cgroup that have its limit and its use, and two lines of its `memory.stat`, in both versions of cgroups.
const VERSION_2: [&str; 4] = ["memory.max", "memory.current", "active_file", "inactive_file"];
const VERSION_1: [&str; 4] =
    ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_active_file", "total_inactive_file"];

/// Whether a file of `size` bytes may be made in the tmpfs of `directory`. Of the memory that is left for the job and others it may take a half at most.
pub fn has_room(directory: &Path, size: u64) -> bool {
    let space = statvfs(directory).map_or(0, |found| match found.blocks() {
        // A tmpfs without a limit.
        0 => u64::MAX,
        _ => found.blocks_available().saturating_mul(found.fragment_size()),
    });
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let limited = limited(Path::new("/sys/fs/cgroup"), &cgroups);
    let memory = available(&memory).into_iter().chain(limited).min().unwrap_or(u64::MAX);
    size <= space && size <= memory / 2
}

/// What is available by `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What is left below the limits of the cgroups of this process, of version 2 and 1, in bytes.
///
/// # Arguments
/// * `cgroups` - `/proc/self/cgroup`
fn limited(mount: &Path, cgroups: &str) -> Option<u64> {
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
    groups.filter_map(|(mount, path, names)| limited_in(&mount, path, names)).min()
}

/// The least that is left in a cgroup and in those above it. Inside of a container its path may not be there: then that is
/// the mount itself.
fn limited_in(mount: &Path, path: &str, names: [&str; 4]) -> Option<u64> {
    let group: PathBuf = mount.join(path);
    let groups = group.ancestors().take_while(|group| group.starts_with(mount));
    groups.filter_map(|group| left(group, names)).min()
}

fn left(group: &Path, [limit, current, active, inactive]: [&str; 4]) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number(limit)?;
    let statistics = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    // The kernel gives back what is only cached.
    let cached = |name: &str| {
        let value = statistics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.and_then(|value| value.parse::<u64>().ok()).unwrap_or(0)
    };
    let used = number(current)?.saturating_sub(cached(active) + cached(inactive));
    Some(limit.saturating_sub(used))
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
    }
}
