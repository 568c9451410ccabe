//! Makes the parts that a command needs as files before the command starts, in memory where there is room.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{symlink, DirBuilderExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::link::Reader;
use crate::protocol::job::{CutPart, Input, Target};
use crate::protocol::memory_directory;
use crate::protocol::results;
use crate::streams::origin::{Failure, Origin};
use crate::streams::part_reader::PartReader;
use crate::streams::part_writer::{PartWriter, Trouble};
use crate::sys::beside::beside;
use crate::sys::file_id::file_id;
use crate::sys::memory;

/// A part that is there as a file.
#[derive(Debug)]
pub struct Placed {
    name: String,
    bytes: u64,
    /// Where the command finds it.
    target: PathBuf,
    /// Where it is, if it is in memory.
    memory: Option<PathBuf>,
    /// The file stays after the job.
    stays: bool,
}

/// Why there is no such file.
#[derive(Debug)]
pub enum NotPlaced {
    Failed(Trouble),
    /// The job is to end.
    Interrupted,
}

impl From<io::Error> for NotPlaced {
    fn from(error: io::Error) -> Self {
        Self::Failed(Trouble::Write(error))
    }
}

impl Placed {
    /// Makes the file, unless the input is no part or no file.
    ///
    /// # Arguments
    /// * `job` - the directory of the job, in that of its run
    /// * `number` - of the input
    /// * `interrupted` - asked now and then
    pub fn new(
        input: &Input,
        job: &Path,
        number: usize,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Self>, NotPlaced> {
        let (Some(part), Target::File(target)) = (input.part(), &input.target) else { return Ok(None) };
        // What an earlier attempt has left.
        forgive(fs::remove_file(target))?;
        let memory = place_in_memory(input, part, job, number, interrupted)?;
        if memory.is_none() {
            write(input, part, target, interrupted)?;
        }
        let (name, bytes, target) = (input.name.clone(), part.part.size(), target.clone());
        Ok(Some(Self { name, bytes, target, memory, stays: false }))
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The command has succeeded. If an output refers to the file, it stays, on disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn leave_file(&mut self) -> Result<(), Failure> {
        if !results::refer_to(&self.target) {
            return Ok(());
        }
        if let Some(memory) = self.memory.as_ref().filter(|memory| file_id(memory) == file_id(&self.target)) {
            let whole = beside(&self.target, "whole");
            let made = fs::copy(memory, &whole).and_then(|_| fs::rename(&whole, &self.target));
            made.map_err(|error| Trouble::Write(error).failure(&self.target))?;
        }
        self.stays = true;
        Ok(())
    }

    /// Removes what is not to be left.
    pub fn clean_up(&self) {
        if !self.stays {
            remove_target(&self.target);
        }
    }
}

/// Removes the file that an input was, or the link to it; also when its `exec` can no longer do it.
pub fn remove_target(target: &Path) {
    let _ = fs::remove_file(beside(target, "whole"));
    let _ = fs::remove_file(target);
}

/// Removes what a job, given by its directory, has in memory.
pub fn remove_memory(job: &Path) {
    let _ = memory_directory::of_job(job).map(fs::remove_dir_all);
}

/// Makes the file in memory, and a link to it. Without room it returns None.
fn place_in_memory(
    input: &Input,
    part: &CutPart,
    job: &Path,
    number: usize,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Option<PathBuf>, NotPlaced> {
    let Target::File(target) = &input.target else { return Ok(None) };
    let Ok(file) = prepare(job, number, target, part.part.size()) else { return Ok(None) };
    match write(input, part, &file, interrupted) {
        Ok(()) => {
            symlink(&file, target)?;
            Ok(Some(file))
        }
        Err(NotPlaced::Failed(Trouble::Write(error))) if is_lack_of_room(&error) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A place in memory for a file of `size` bytes that has the name of `target`.
fn prepare(job: &Path, number: usize, target: &Path, size: u64) -> io::Result<PathBuf> {
    let lacks = |what: &str| io::Error::new(ErrorKind::StorageFull, what.to_owned());
    let run = job.ancestors().nth(2).ok_or_else(|| lacks("no run"))?;
    let (name, job) = target.file_name().zip(job.file_name()).ok_or_else(|| lacks("no name"))?;
    let directory = memory_directory::directory(run)?;
    if !memory::has_room(&directory, size) {
        return Err(lacks("no room"));
    }
    let directory = directory.join(job).join(number.to_string());
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    Ok(directory.join(name))
}

fn is_lack_of_room(error: &io::Error) -> bool {
    let errors = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG, Errno::ENOMEM];
    errors.iter().any(|errno| error.raw_os_error() == Some(*errno as i32))
}

/// Opens a part that is fed to an input, or made for it.
pub fn origin_of_part(input: &Input, part: &CutPart) -> io::Result<Box<dyn Origin>> {
    Ok(match &part.home {
        Some(home) => Box::new(Reader::of_part(home, &input.port, &input.path)?),
        None => Box::new(PartReader::new(part.part.clone())),
    })
}

/// Writes a file, all of it or nothing.
fn write(input: &Input, part: &CutPart, path: &Path, interrupted: &mut dyn FnMut() -> bool) -> Result<(), NotPlaced> {
    let mut origin = origin_of_part(input, part)?;
    match PartWriter::write(path, &mut *origin, interrupted) {
        Ok(true) => Ok(()),
        Ok(false) => Err(NotPlaced::Interrupted),
        Err(trouble) => Err(NotPlaced::Failed(trouble)),
    }
}

fn forgive(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
