//! Observes what the calls of a job do to files. Delays the calls, and changes nothing.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::acts::{act_of, may_have_heirs, Unseen};
use super::call::Call;
use super::observation::{Act, InputFile, Observation};
use crate::processes::open_files::positions;
use crate::processes::tree::Process;
use crate::protocol::event::now;
use crate::protocol::event::UsedEvent;
use crate::protocol::job::{Job, ObservedInput, Target};
use crate::sys::file_id::{file_id, file_id_of, FileId};
use crate::sys::raw::seccomp::{self, Answer};
use crate::sys::threads::lock;

/// The most files of inputs that are searched for.
const FILES: usize = 100_000;

/// Observes how the inputs of a job are read.
#[derive(Debug)]
pub struct Observer {
    inputs: Vec<ObservedInput>,
    /// Files of the inputs that exist before the command starts.
    files: Vec<InputFile>,
    ids: HashSet<FileId>,
    observation: Mutex<Observation>,
}

impl Observer {
    /// Returns None if the job is not observed.
    pub fn of(job: &Job) -> Option<Self> {
        let inputs = job.observation.reads.clone()?;
        let mut observation = Observation::default();
        if let Some(file) = standard_input(job) {
            observation.note(file, Act::Open { reads: true, writes: false, by: None }, now());
        }
        let files = files_of(&inputs);
        let ids = files.iter().map(|file| file.id).collect();
        Some(Self { inputs, files, ids, observation: Mutex::new(observation) })
    }

    /// Answers a call, and records what it does.
    pub fn answer(&self, listener: &OwnedFd, call: &Call, answer: Answer) {
        let seen = act_of(call);
        // A thread that waits for the end of the command, and then for this lock, finds what is recorded here.
        let mut observation = lock(&self.observation);
        let seen = match seen {
            Ok(Some((file, Act::Open { reads, writes, by: Some(by) })))
                if observation.has_only_looked(file, by) && may_have_heirs(by.thread) =>
            {
                Ok(Some((file, Act::Open { reads, writes, by: None })))
            }
            seen => seen,
        };
        if !seccomp::answer(listener, call.id, answer) {
            return;
        }
        match seen {
            Ok(Some((file, act))) => observation.note(file, act, now()),
            Ok(None) => {}
            Err(Unseen) => observation.lose_sight(),
        }
    }

    /// Says that calls are not reported, or not understood.
    pub fn lose_sight(&self) {
        lock(&self.observation).lose_sight();
    }

    /// Records at which positions `processes` read the inputs.
    ///
    /// # Arguments
    /// * `written` - the job has written something
    pub fn look(&self, processes: &[Process], written: bool) {
        let positions = positions(processes, &self.ids);
        lock(&self.observation).look(positions, written, now());
    }

    /// Returns the verdicts, after the command has ended.
    pub fn verdicts(&self) -> Vec<UsedEvent> {
        // Inputs behind the gate did not exist at the start. Others may be gone.
        let mut files = files_of(&self.inputs);
        files.extend(self.files.iter().cloned());
        files.sort();
        files.dedup();
        lock(&self.observation).verdicts(&files)
    }
}

/// Returns the file that the command finds open as its standard input.
fn standard_input(job: &Job) -> Option<FileId> {
    match &job.command.stdin {
        Some(path) => file_id(path),
        None if job.inputs.iter().any(|input| input.target == Target::Stdin) => None,
        None => file_id(Path::new("/proc/self/fd/0")),
    }
}

fn files_of(inputs: &[ObservedInput]) -> Vec<InputFile> {
    let mut files = Vec::new();
    for input in inputs {
        let mut directories = HashSet::new();
        let mut paths = vec![input.path.clone()];
        while let Some(path) = paths.pop().filter(|_| files.len() < FILES) {
            let Ok(found) = fs::metadata(&path) else { continue };
            let id = file_id_of(&found);
            if found.is_dir() && directories.insert(id) {
                paths.extend(entries(&path));
            } else if !found.is_file() {
                continue;
            }
            files.push(InputFile { name: input.name.clone(), path, id });
        }
    }
    files
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path())
}
