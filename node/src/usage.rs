//! What a job has used.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{getrusage, Usage as Resources, UsageWho};
use nix::sys::time::TimeVal;

use crate::event::Usage;
use crate::sys;

const COUNTERS: [&str; 4] = ["rchar", "wchar", "read_bytes", "write_bytes"];

/// The usage of all processes that this one has waited for, directly or through others. `streamed` and `io` are passed on.
///
/// `/proc/self/io` sums this process and all descendants that were waited for; the single thread's own part, which
/// holds all that the feeders did, is taken off.
pub fn of_job(streamed: u64, io: Option<Duration>) -> Usage {
    // Who is shielded may not look into itself either. The tree is gone.
    sys::shield(false);
    let (all, own) = (counters("/proc/self/io"), counters("/proc/thread-self/io"));
    let of_tree = |index: usize| all[index].saturating_sub(own[index]);
    let children = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let of =
        |resources: Option<&Resources>, time: fn(&Resources) -> TimeVal| resources.map_or(0.0, |r| seconds(time(r)));
    Usage {
        rchar: of_tree(0),
        wchar: of_tree(1),
        read_bytes: of_tree(2),
        write_bytes: of_tree(3),
        user: of(children.as_ref(), Resources::user_time),
        system: of(children.as_ref(), Resources::system_time),
        max_rss: children.map_or(0, |resources| u64::try_from(resources.max_rss()).unwrap_or(0) * 1024),
        streamed,
        wrapper_cpu: own_cpu().as_secs_f64(),
        io: io.map(|io| io.as_secs_f64()),
    }
}

/// The CPU time of this process.
pub fn own_cpu() -> Duration {
    let used = |own: Resources| seconds(own.user_time()) + seconds(own.system_time());
    getrusage(UsageWho::RUSAGE_SELF).map_or(Duration::ZERO, |own| Duration::from_secs_f64(used(own)))
}

fn seconds(time: TimeVal) -> f64 {
    time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6
}

/// The counters of an `io` file, proc(5); zero where the kernel has none.
fn counters(path: &str) -> [u64; COUNTERS.len()] {
    let text = fs::read_to_string(path).unwrap_or_default();
    COUNTERS.map(|name| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        values.next().and_then(|value| value.parse().ok()).unwrap_or(0)
    })
}
