//! A gated input: puts in place what its producer has committed.

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::symlink;

use super::staging::{self, Tree};
use super::table::GateTable;
use crate::protocol::job::{Gate, Kind};
use crate::streams::origin::{cannot_place, Failure};
use crate::streams::producer::{Producer, State};
use crate::sys::file_id::{file_id, FileId};

/// How committed files appear.
#[derive(Debug)]
enum Target {
    /// A whole file or directory, under a name.
    Link { directory: FileId, name: OsString },
    /// Files one by one, in a directory.
    Tree { number: usize, tree: Tree },
}

#[derive(Debug)]
pub struct GatedInput {
    pub spec: Gate,
    pub producer: Producer,
    target: Target,
    /// The whole input is there.
    pub open: bool,
}

impl GatedInput {
    /// Prepares the place of the input.
    ///
    /// # Errors
    /// A message that names the input.
    pub fn new(spec: &Gate, table: &GateTable) -> Result<Self, String> {
        let target = stage(spec, table)
            .map_err(|error| format!("input from {}: cannot make {}: {error}", spec.name, spec.target.display()))?;
        Ok(Self { spec: spec.clone(), producer: Producer::of_gate(spec), target, open: false })
    }

    /// Puts in place what is committed by now, and returns whether anything has come.
    ///
    /// # Errors
    /// The reason why the command must not continue.
    pub fn advance(&mut self, table: &GateTable) -> Result<bool, Failure> {
        self.producer.read();
        let (target, path) = (&self.spec.target, &self.spec.path);
        let files = self.producer.take_committed();
        let complete = match &self.producer.state {
            State::Committed(_) => true,
            State::Failed(message) => return Err(Failure::Producer(message.clone())),
            State::Silent | State::Writing => false,
        };
        match &mut self.target {
            Target::Tree { number, tree } => {
                for file in &files {
                    tree.place(file).map_err(cannot_place(target))?;
                }
                if complete {
                    tree.complete().map_err(cannot_place(target))?;
                }
                tree.arrivals.drain(..).for_each(|arrival| table.arrive(*number, arrival));
                if complete {
                    table.complete_tree(*number);
                }
            }
            Target::Link { directory, name } if complete => {
                self.producer.check_links()?;
                symlink(path, target).map_err(cannot_place(target))?;
                table.open_file(*directory, name);
            }
            Target::Link { .. } => {}
        }
        self.open = complete;
        Ok(complete || !files.is_empty())
    }

    /// Removes what was put in place.
    pub fn clean_up(&self) {
        let _ = staging::clear(&self.spec.target);
    }
}

fn stage(spec: &Gate, table: &GateTable) -> io::Result<Target> {
    staging::clear(&spec.target)?;
    if spec.kind == Kind::Directory && staging::same_file_system(&spec.path, &spec.target) {
        let mut tree = Tree::new(&spec.path, &spec.target, spec.delivers())?;
        let number = table.hold_tree(spec.delivers());
        tree.arrivals.drain(..).for_each(|root| table.arrive(number, root));
        return Ok(Target::Tree { number, tree });
    }
    let above = spec.target.parent().and_then(file_id);
    let (Some(directory), Some(name)) = (above, spec.target.file_name()) else {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    };
    table.hold_file(directory, name);
    Ok(Target::Link { directory, name: name.to_owned() })
}
