//! `sfio-node guard`: ends the processes that a killed `exec` has left paused.
//!
//! A paused process cannot end by itself, and `serve`, which would end it, may be gone at the same time.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{ChildStdin, Stdio};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use crate::processes::snapshot::ProcessId;
use crate::processes::tree;
use crate::sys::own_program::own_program;
use crate::sys::raw;

/// The connection of `exec` to its guard.
#[derive(Debug)]
pub struct Watchdog {
    told: ChildStdin,
    /// The line that was sent last.
    last: String,
}

impl Watchdog {
    /// Starts the guard of a job, given by its directory. Must be called before this process becomes a subreaper, so
    /// that the guard does not become its child.
    pub fn start(job: &Path) -> std::io::Result<Self> {
        let mut program = own_program();
        // Signals of the terminal do not reach another process group. The guard keeps no output open whose end a reader
        // awaits.
        program.arg("guard").arg("--job").arg(job).process_group(0);
        program.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        raw::disown(&mut program);
        let mut child = program.spawn()?;
        let told = child.stdin.take().ok_or_else(|| std::io::Error::other("no pipe"))?;
        child.wait()?;
        Ok(Self { told, last: String::new() })
    }

    /// Tells the guard which processes to end if `exec` dies, before these processes are paused. The list stays when
    /// they continue, because `serve` would end them, too.
    pub fn tell<'a>(&mut self, paused: impl Iterator<Item = &'a ProcessId>) {
        let line = paused.map(|id| format!("{}:{} ", id.pid, id.start)).collect();
        if line != self.last {
            // Without a guard everything else works as before.
            let _ = self.told.write_all(format!("{line}\n").as_bytes());
            self.last = line;
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.tell([].iter());
    }
}

/// Guards the job in directory `job`. The `exec` of the job writes the paused processes to the standard input of this
/// process.
pub fn run(job: &Path) -> i32 {
    let mut paused = Vec::new();
    for line in BufReader::new(std::io::stdin()).lines().map_while(Result::ok) {
        paused = line.split_ascii_whitespace().filter_map(parse).collect();
    }
    if !paused.is_empty() {
        for id in paused.into_iter().filter(|id| !tree::is_gone(*id)) {
            let _ = kill(Pid::from_raw(id.pid), Signal::SIGKILL);
        }
        tree::sweep("SFIO_JOB", |directory| directory == job);
    }
    0
}

fn parse(word: &str) -> Option<ProcessId> {
    let (pid, start) = word.split_once(':')?;
    Some(ProcessId { pid: pid.parse().ok()?, start: start.parse().ok()? })
}
