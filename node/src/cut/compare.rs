//! Compares parts as a rule cuts them with the files that a split has written.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::rule::Rule;
use super::told::Found;
use super::walk::walk;
use crate::protocol::part::{size, Piece};
use crate::protocol::wording::counted;

const BLOCK: u64 = 1 << 20;

pub enum Compared {
    /// The parts, and the number of records, if the rule asks for it.
    Same(Vec<Found>, Option<u64>),
    Different(String),
}

pub struct Comparison {
    of: PathBuf,
    file: File,
    directory: PathBuf,
}

impl Comparison {
    /// Opens the file that was cut.
    ///
    /// # Errors
    /// A message that names the file.
    pub fn new(of: &Path, directory: &Path) -> Result<Self, String> {
        let file = File::open(of).map_err(|error| format!("{}: {error}", of.display()))?;
        Ok(Self { of: of.into(), file, directory: directory.into() })
    }

    /// Returns the parts if the names, sizes and bytes of all are the same, or else the first difference.
    pub fn run(&self, rule: &Rule) -> Result<Compared, String> {
        let (mut parts, mut outcome) = (Vec::new(), Ok(None));
        let records = walk(&self.file, &self.of, rule, &mut |part| {
            if let Some(part) = part {
                outcome = self.difference(&part);
                parts.push(part);
            }
            matches!(outcome, Ok(None))
        })?;
        let difference = match outcome? {
            None => self.surplus(rule, &parts)?,
            found => found,
        };
        Ok(difference.map_or(Compared::Same(parts, records), Compared::Different))
    }

    fn difference(&self, part: &Found) -> Result<Option<String>, String> {
        let path = self.directory.join(&part.name);
        let at = |error: std::io::Error| format!("{}: {error}", path.display());
        let name = part.name.to_string_lossy();
        let file = match File::open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Some(format!("{name}: the split has not written it")));
            }
            opened => opened.map_err(at)?,
        };
        let (real, ours) = (file.metadata().map_err(at)?.len(), size(&part.pieces));
        if real != ours {
            return Ok(Some(format!("{name}: the split has written {}, the rule gives {ours}", counted(real, "byte"))));
        }
        let place = self.first_difference(&file, &part.pieces).map_err(at)?;
        Ok(place.map(|place| format!("{name}: byte {place} is another one")))
    }

    fn first_difference(&self, real: &File, pieces: &[Piece]) -> std::io::Result<Option<u64>> {
        let (mut ours, mut theirs) = (vec![0; BLOCK as usize], vec![0; BLOCK as usize]);
        let mut at = 0;
        for piece in pieces {
            let Piece::Extent { offset, length } = *piece else { continue };
            for begin in (0..length).step_by(BLOCK as usize) {
                let count = BLOCK.min(length - begin) as usize;
                self.file.read_exact_at(&mut ours[..count], offset + begin)?;
                real.read_exact_at(&mut theirs[..count], at)?;
                if ours[..count] != theirs[..count] {
                    let place = ours.iter().zip(&theirs).position(|(one, other)| one != other);
                    return Ok(Some(at + place.unwrap_or(0) as u64));
                }
                at += count as u64;
            }
        }
        Ok(None)
    }

    /// Returns a message about a file that has the name of a part, and is none.
    fn surplus(&self, rule: &Rule, parts: &[Found]) -> Result<Option<String>, String> {
        let names: HashSet<&OsString> = parts.iter().map(|part| &part.name).collect();
        let at = |error: std::io::Error| format!("{}: {error}", self.directory.display());
        let mut more: Vec<OsString> = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(at)? {
            let name = entry.map_err(at)?.file_name();
            if rule.names.matches(&name) && !names.contains(&name) {
                more.push(name);
            }
        }
        Ok(more.iter().min().map(|name| format!("{}: the rule does not give it", name.to_string_lossy())))
    }
}
