//! The resources that a job has used.

use std::fs;
use std::time::Duration;

use nix::sys::resource::{getrusage, Usage as Resources, UsageWho};
use nix::sys::time::TimeVal;

use crate::protocol::event::{Paused, Usage};
use crate::sys::raw;

/// Looks at a job become less frequent if they would take more than one part in this many of the time.
pub const THRIFT: u32 = 100;

const COUNTERS: [&str; 4] = ["rchar", "wchar", "read_bytes", "write_bytes"];

/// The resources used up to a moment by this process, and by all descendants that were waited for.
///
/// A process can have the past of another program: `docker exec` becomes the program that it starts, and a shell may do
/// so.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    own: Duration,
    /// CPU time of the processes that were waited for.
    user: Duration,
    system: Duration,
    counters: [u64; COUNTERS.len()],
}

impl Spent {
    /// Returns the resources used by now. A shielded process may not read its own counters, and gets zeros.
    ///
    /// `/proc/self/io` sums this process and all descendants that were waited for. The part of this thread is
    /// subtracted: it includes all that the feeders did.
    pub fn by_now() -> Self {
        let (all, own) = (counters("/proc/self/io"), counters("/proc/thread-self/io"));
        let children = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
        let of =
            |time: fn(&Resources) -> TimeVal| children.as_ref().map_or(Duration::ZERO, |found| duration(time(found)));
        Self {
            own: own_cpu(),
            user: of(Resources::user_time),
            system: of(Resources::system_time),
            counters: std::array::from_fn(|index| all[index].saturating_sub(own[index])),
        }
    }

    /// Returns what a job that this process ran has used since `before`. The other arguments are copied into the
    /// result.
    pub fn of_job(
        before: &Self,
        streamed: u64,
        parts: Option<u64>,
        io: Option<Duration>,
        held: Option<Duration>,
        paused: Option<Paused>,
    ) -> Usage {
        // The processes of the job have ended, so none can inspect this process any more.
        raw::shield(false);
        let now = Self::by_now();
        let since = |of: fn(&Self) -> Duration| of(&now).saturating_sub(of(before)).as_secs_f64();
        let of_tree = |index: usize| now.counters[index].saturating_sub(before.counters[index]);
        let children = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
        Usage {
            rchar: of_tree(0),
            wchar: of_tree(1),
            read_bytes: of_tree(2),
            write_bytes: of_tree(3),
            user: since(|spent| spent.user),
            system: since(|spent| spent.system),
            max_rss: children.map_or(0, |resources| u64::try_from(resources.max_rss()).unwrap_or(0) * 1024),
            streamed,
            parts,
            wrapper_cpu: since(|spent| spent.own),
            io: io.map(|io| io.as_secs_f64()),
            held: held.map(|held| held.as_secs_f64()),
            paused: paused.map(|paused| paused.paused),
            pauses: paused.map(|paused| paused.pauses),
        }
    }
}

/// Returns the CPU time of this process.
pub fn own_cpu() -> Duration {
    cpu(UsageWho::RUSAGE_SELF)
}

/// Returns the CPU time of this thread.
pub fn thread_cpu() -> Duration {
    cpu(UsageWho::RUSAGE_THREAD)
}

fn cpu(who: UsageWho) -> Duration {
    let used = |own: Resources| duration(own.user_time()) + duration(own.system_time());
    getrusage(who).map_or(Duration::ZERO, used)
}

pub fn duration(time: TimeVal) -> Duration {
    Duration::new(time.tv_sec().unsigned_abs(), time.tv_usec().unsigned_abs() as u32 * 1000)
}

/// Reads the counters of an `io` file, proc(5). A counter that the kernel does not have is zero.
fn counters(path: &str) -> [u64; COUNTERS.len()] {
    let text = fs::read_to_string(path).unwrap_or_default();
    COUNTERS.map(|name| {
        let mut values = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        values.next().and_then(|value| value.parse().ok()).unwrap_or(0)
    })
}
