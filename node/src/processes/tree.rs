//! Reads processes and their states from `/proc`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::processes::snapshot::{ProcessId, ProcessState};

const PF_EXITING: u64 = 0x4;

/// USER_HZ of proc(5), the same on all supported architectures.
const TICKS_PER_SECOND: u64 = 100;

/// A process as `/proc/PID/stat` shows it.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pub id: ProcessId,
    pub parent: i32,
    pub group: i32,
    pub vitals: ProcessState,
    /// CPU time of the process and of the children that it has waited for.
    pub cpu: Duration,
    /// The process has ended, and its parent has not waited for it yet.
    pub zombie: bool,
    /// At least its first thread waits as for a device.
    waiting: bool,
    /// At least its first thread waits, but not for a device.
    asleep: bool,
    threads: u64,
}

/// Reads one process. Returns None if it has ended.
pub fn read(pid: i32) -> Option<Process> {
    read_stat(pid, &File::open(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether a process has certainly ended. Another process may have its number now.
pub fn is_gone(id: ProcessId) -> bool {
    match File::open(format!("/proc/{}/stat", id.pid)) {
        Ok(file) => read_stat(id.pid, &file).is_none_or(|process| process.id != id),
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

/// Whether a process exits, or has ended.
pub fn is_exiting(id: ProcessId) -> bool {
    read(id.pid).is_none_or(|process| process.id != id || process.vitals.exiting)
}

/// Reads the `stat` file of a process or of a thread.
fn read_stat(pid: i32, file: &File) -> Option<Process> {
    let mut buffer = [0_u8; 1024];
    let length = file.read_at(&mut buffer, 0).ok()?;
    parse(pid, &buffer[..length])
}

/// Returns the value of the line that begins with `name` in a file of a process or of a thread.
pub fn value(process: impl Display, file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{process}/{file}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned())
}

/// Reads the threads of a process, each with its own number.
fn threads(pid: i32) -> impl Iterator<Item = Process> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let thread = entry.file_name().to_str()?.parse().ok()?;
        read_stat(thread, &File::open(entry.path().join("stat")).ok()?)
    })
}

/// Parses a `stat` line, proc(5). The name in parentheses may hold any character.
fn parse(pid: i32, line: &[u8]) -> Option<Process> {
    let after_name = line.iter().rposition(|byte| *byte == b')')? + 2;
    let text = std::str::from_utf8(line.get(after_name..)?).ok()?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    // proc(5) counts from 1, and the state is its third field.
    let field = |number: usize| fields.get(number - 3).copied();
    let number = |at: usize| field(at).and_then(|value| value.parse::<u64>().ok());
    let state = field(3)?;
    let zombie = matches!(state, "Z" | "X" | "x");
    let threads = number(20)?;
    let ticks: u64 = (14..=17).filter_map(number).sum();
    Some(Process {
        id: ProcessId { pid, start: number(22)? },
        parent: field(4)?.parse().ok()?,
        cpu: Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND),
        group: field(5)?.parse().ok()?,
        zombie,
        // D is an uninterruptible wait. I is a wait like D that does not count in the load average; clients of Lustre
        // wait so.
        waiting: matches!(state, "D" | "I"),
        // A stopped process may be anywhere in its program.
        asleep: !matches!(state, "R" | "D" | "T" | "t"),
        threads,
        vitals: ProcessState {
            exiting: zombie || number(9)? & PF_EXITING != 0,
            resting: state == "S" && threads == 1,
            standing: matches!(state, "T" | "t"),
            runnable: state == "R",
            turns: None,
            status: field(52).and_then(|value| value.parse().ok()).unwrap_or(0),
            reaped_faults: number(11)?,
        },
    })
}

/// Returns all descendants of this process.
///
/// Follows `/proc/PID/task/TID/children` where the kernel has it, otherwise reads every process of the machine.
pub fn descendants() -> Vec<Process> {
    let own = Pid::this().as_raw();
    if Path::new("/proc/thread-self/children").exists() {
        return follow(children_of_threads(own), |pid| Some((read(pid)?, children_of_threads(pid))));
    }
    let all: HashMap<i32, Process> = everybody().filter_map(|pid| Some((pid, read(pid)?))).collect();
    let children =
        |parent: i32| all.values().filter(|child| child.parent == parent).map(|child| child.id.pid).collect();
    follow(children(own), |pid| Some((*all.get(&pid)?, children(pid))))
}

/// Returns the processes `next` and all their descendants. `look` returns a process and its children, or None if it
/// ended.
fn follow(mut next: Vec<i32>, mut look: impl FnMut(i32) -> Option<(Process, Vec<i32>)>) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    while let Some(pid) = next.pop() {
        if found.iter().any(|process| process.id.pid == pid) {
            continue;
        }
        if let Some((process, children)) = look(pid) {
            found.push(process);
            next.extend(children);
        }
    }
    found
}

/// Reads the descendants of this process repeatedly. Keeps files open: to open a file of `/proc` costs more than to
/// read it.
#[derive(Debug)]
pub struct Descendants {
    /// The children of the thread that starts all processes. None: each look reads every process of the machine.
    own: Option<File>,
    kept: HashMap<i32, Kept>,
}

/// Open files of a process, which never show a later process with the same number.
#[derive(Debug)]
struct Kept {
    stat: File,
    /// The children of its first thread.
    children: File,
    /// The place in the kernel where the process sleeps.
    channel: Option<File>,
    /// Times for which it ran and waited for a processor.
    turns: Option<File>,
}

/// Wait channels of a frozen process in both versions of the freezer, proc(5).
const FREEZERS: [&str; 3] = ["get_signal", "do_freezer_trap", "__refrigerator"];

/// Wait channel of a process that runs, waits for a processor, or may not be examined, proc(5).
const NOWHERE: &str = "0";

/// The number of processes whose files are kept open.
const KEPT: usize = 32;

impl Descendants {
    /// Must be called in the first thread: it starts all processes, and inherits the orphans of the tree.
    pub fn new() -> Self {
        Self { own: File::open("/proc/thread-self/children").ok(), kept: HashMap::new() }
    }

    /// Reads all descendants as they are now.
    pub fn look(&mut self) -> Vec<Process> {
        let Some(first) = self.own.as_ref().map(children) else { return descendants() };
        let found = follow(first, |pid| {
            let process = self.read(pid)?;
            let kept = self.kept.get(&pid).filter(|_| process.threads <= 1);
            Some((process, kept.map_or_else(|| children_of_threads(pid), |kept| children(&kept.children))))
        });
        if self.kept.len() > found.len() {
            self.kept.retain(|pid, _| found.iter().any(|process| process.id.pid == *pid));
        }
        found
    }

    /// Reads one process as it is now. Returns None if it has ended.
    pub fn read(&mut self, pid: i32) -> Option<Process> {
        if let Some(process) = self.kept.get(&pid).and_then(|kept| read_stat(pid, &kept.stat)) {
            return Some(process);
        }
        self.kept.remove(&pid);
        if self.kept.len() >= KEPT {
            return read(pid);
        }
        let stat = File::open(format!("/proc/{pid}/stat")).ok()?;
        let process = read_stat(pid, &stat)?;
        if let Ok(children) = File::open(format!("/proc/{pid}/task/{pid}/children")) {
            let open = |name: &str| File::open(format!("/proc/{pid}/{name}")).ok();
            self.kept.insert(pid, Kept { stat, children, channel: open("wchan"), turns: open("schedstat") });
        }
        Some(process)
    }

    /// Adds facts to each of `processes` that its `stat` does not tell, of its first thread at least.
    ///
    /// - A frozen process looks like a sleeping one, and becomes `standing`.
    /// - A process that lost its processor on its way to sleep waits nowhere yet, and is not `resting`.
    /// - `turns` are the times for which it ran and waited for a processor.
    pub fn look_closer(&self, processes: &mut [Process]) {
        for process in processes.iter_mut().filter(|process| !process.zombie) {
            let kept = self.kept.get(&process.id.pid);
            if process.asleep || process.waiting {
                let channel = kept.map(|kept| kept.channel.as_ref());
                if let Some(channel) = read_text(process.id.pid, "wchan", channel) {
                    process.vitals.standing |= FREEZERS.contains(&&*channel);
                    process.vitals.resting &= channel != NOWHERE;
                }
            }
            let turns = kept.map(|kept| kept.turns.as_ref());
            process.vitals.turns = read_text(process.id.pid, "schedstat", turns).and_then(|text| parse_turns(&text));
        }
    }
}

/// Reads a short file of a process. `kept`: the file of a process with kept files, if that file could be opened.
fn read_text(pid: i32, name: &str, kept: Option<Option<&File>>) -> Option<String> {
    let mut buffer = [0; 96];
    let length = match kept {
        Some(file) => file?.read_at(&mut buffer, 0).ok()?,
        None => File::open(format!("/proc/{pid}/{name}")).ok()?.read_at(&mut buffer, 0).ok()?,
    };
    std::str::from_utf8(&buffer[..length]).ok().map(str::to_owned)
}

/// Parses the times run and waited of a `schedstat` line. None if the kernel does not count: it then says that there
/// was no turn.
fn parse_turns(line: &str) -> Option<(Duration, Duration)> {
    let mut numbers = line.split_ascii_whitespace().map_while(|number| number.parse().ok());
    let (ran, waited, turns) = (numbers.next()?, numbers.next()?, numbers.next()?);
    (turns > 0).then_some((Duration::from_nanos(ran), Duration::from_nanos(waited)))
}

/// Returns for how long all threads of a process have waited for a processor. Zero if the kernel does not tell.
pub fn waited(process: &Process) -> Duration {
    let pid = process.id.pid;
    let of = |path: String| {
        fs::read_to_string(path).ok().and_then(|text| parse_turns(&text)).map_or(Duration::ZERO, |(_, waited)| waited)
    };
    if process.threads <= 1 {
        return of(format!("/proc/{pid}/schedstat"));
    }
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| of(format!("{}/schedstat", thread.path().display()))).sum()
}

/// Adds each thread of a process to `all`, with the times for which it ran and waited for a processor.
pub fn add_threads(pid: i32, all: &mut BTreeMap<ProcessId, ProcessState>) {
    for mut thread in threads(pid) {
        let path = format!("/proc/{pid}/task/{}/schedstat", thread.id.pid);
        thread.vitals.turns = fs::read_to_string(path).ok().and_then(|text| parse_turns(&text));
        all.insert(thread.id, thread.vitals);
    }
}

/// Reads the numbers in a `children` file.
fn children(file: &File) -> Vec<i32> {
    let (mut text, mut buffer) = (Vec::new(), [0_u8; 1024]);
    while let Ok(count @ 1..) = file.read_at(&mut buffer, text.len() as u64) {
        text.extend(&buffer[..count]);
        if count < buffer.len() / 2 {
            break;
        }
    }
    let numbers = text.split(u8::is_ascii_whitespace);
    numbers.filter_map(|number| std::str::from_utf8(number).ok()?.parse().ok()).collect()
}

/// Whether a process has children. True if the kernel does not tell.
pub fn may_have_children(pid: i32) -> bool {
    !Path::new("/proc/thread-self/children").exists() || !children_of_threads(pid).is_empty()
}

fn children_of_threads(pid: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let files = threads.filter_map(|thread| File::open(thread.path().join("children")).ok());
    files.flat_map(|file| children(&file)).collect()
}

/// Returns the numbers of all processes of the machine.
fn everybody() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a thread of one of `processes` waits for a device: the disk, the journal or the server of a file system.
pub fn waits_for_device(processes: &[Process]) -> bool {
    let waits = |process: &Process| process.waiting && !is_held(process.id.pid);
    processes.iter().any(|process| waits(process) || (process.threads > 1 && a_thread_waits(process.id.pid)))
}

fn a_thread_waits(pid: i32) -> bool {
    threads(pid).any(|thread| thread.waiting && !is_held(thread.id.pid))
}

/// Whether a thread waits for the answer to a call that the gate holds, which looks like a wait for a device.
fn is_held(thread: i32) -> bool {
    fs::read_to_string(format!("/proc/{thread}/wchan")).is_ok_and(|channel| channel.contains("seccomp"))
}

/// Whether a thread of a process does not sleep.
pub fn a_thread_goes_on(pid: i32) -> bool {
    threads(pid).any(|thread| !thread.asleep)
}

/// Returns the state of each process by its identity.
pub fn vitals(processes: &[Process]) -> BTreeMap<ProcessId, ProcessState> {
    processes.iter().map(|process| (process.id, process.vitals)).collect()
}

/// Sends `signal` to each of `processes` that has not ended.
pub fn signal_all<'a>(processes: impl IntoIterator<Item = &'a Process>, signal: Signal) {
    for process in processes.into_iter().filter(|process| !process.zombie) {
        let _ = kill(Pid::from_raw(process.id.pid), signal);
    }
}

/// Kills every process whose environment has `variable` with a value that `selects` picks, until none is left.
/// Gives up after one second: a process that survives so long is stuck in the kernel.
pub fn sweep(variable: &str, selects: impl Fn(&Path) -> bool) {
    let mut quiet = 0;
    for _ in 0..100 {
        let (found, is_sure) = with_environment(variable, &selects);
        let killed = found.into_iter().filter(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).is_ok()).count();
        quiet = if killed > 0 || !is_sure { 0 } else { quiet + 1 };
        // One look may miss a process: its parent forked after the list was read, and ended before its turn came.
        if quiet == 2 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// The processes whose environment has `variable` with a value that `selects` picks, and whether all environments were
/// known.
fn with_environment(variable: &str, selects: &impl Fn(&Path) -> bool) -> (Vec<i32>, bool) {
    let prefix = format!("{variable}=");
    let (mut found, mut is_sure) = (Vec::new(), true);
    for pid in everybody() {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        is_sure &= !(environment.is_empty() && is_in_exec(pid));
        let entries = environment.split(|byte| *byte == 0);
        let mut values = entries.filter_map(|entry| entry.strip_prefix(prefix.as_bytes()));
        if values.any(|value| selects(Path::new(std::ffi::OsStr::from_bytes(value)))) {
            found.push(pid);
        }
    }
    (found, is_sure)
}

/// Whether a process is within `execve`: it has a program already, but neither arguments nor an environment.
fn is_in_exec(pid: i32) -> bool {
    let bare = |name| fs::read(format!("/proc/{pid}/{name}")).is_ok_and(|read| read.is_empty());
    bare("cmdline") && bare("environ") && fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let mut fields = vec!["0"; 50];
        for (number, value) in [
            (3, "S"),
            (4, "7"),
            (5, "42"),
            (9, "4194308"),
            (11, "33"),
            (14, "40"),
            (15, "2"),
            (16, "1000"),
            (17, "8"),
            (20, "1"),
            (22, "555"),
            (52, "256"),
        ] {
            fields[number - 3] = value;
        }
        let line = format!("42 (a) Z (b)) {}\n", fields.join(" "));
        let process = parse(42, line.as_bytes()).unwrap();
        assert_eq!((process.id, process.parent, process.group), (ProcessId { pid: 42, start: 555 }, 7, 42));
        assert_eq!(
            process.vitals,
            ProcessState { exiting: true, resting: true, status: 256, reaped_faults: 33, ..ProcessState::default() }
        );
        assert!(!process.waiting);
        assert_eq!(process.cpu, Duration::from_millis(10_500));
        for state in ["D", "I"] {
            fields[0] = state;
            let line = format!("42 (a) D (b)) {}\n", fields.join(" "));
            assert!(waits_for_device(&[parse(42, line.as_bytes()).unwrap()]));
        }
        assert!(parse(1, b"1 (cut").is_none());
    }

    #[test]
    fn what_is_just_being_forked_is_swept() {
        let directory = tempfile::tempdir().unwrap();
        for attempt in 0..100 {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "sleep 30; :"]).env("SFIO_SWEPT", directory.path());
            let mut child = command.spawn().unwrap();
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_micros(800 + 20 * attempt) {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            sweep("SFIO_SWEPT", |place| place == directory.path());
            std::thread::sleep(Duration::from_millis(5));
            let (left, _) = with_environment("SFIO_SWEPT", &|place: &Path| place == directory.path());
            assert_eq!(left, [] as [i32; 0], "in attempt {attempt}");
        }
    }
}
