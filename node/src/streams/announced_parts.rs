//! The parts that a split announces: lines that its command appends to a file.

use std::collections::HashSet;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::protocol::event::{now, Event, PartEvent, Seen};
use crate::protocol::job::PartitionedInput;
use crate::protocol::json::{self, bytes};
use crate::protocol::part::{check, check_name, size, Identity, Part, Piece};
use crate::protocol::verify::Digest;
use crate::sys::file_id::{file_id, file_id_of};
use crate::sys::remote_file;
use crate::sys::tail::Follower;

/// Environment variable with the path of that file.
pub const VARIABLE: &str = "SFIO_PARTS";
/// The most bytes of a line. Together with the rest of its event it is shorter than the longest line of a `Follower`.
const LONGEST: usize = 384 << 10;
/// Bytes of a line that a message quotes.
const EXCERPT: usize = 80;

/// A part that the command has announced.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub number: u64,
    pub name: OsString,
    pub pieces: Vec<Piece>,
}

/// An announced part with the identity of its file.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    said: Said,
    identity: Identity,
    digest: Option<Digest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(with = "bytes")]
    path: OsString,
    extents: Vec<Piece>,
}

/// Parses lines into parts.
#[derive(Debug, Default)]
struct Lines {
    number: u64,
    names: HashSet<OsString>,
}

impl Lines {
    /// Parses the next line.
    ///
    /// # Arguments
    /// * `size` - of the file that is cut
    ///
    /// # Errors
    /// A message with the number of the line, its beginning, and what is wrong with it.
    fn take(&mut self, line: &[u8], size: u64) -> Result<Said, String> {
        self.number += 1;
        self.read(line, size).map_err(|message| {
            let excerpt = String::from_utf8_lossy(&line[..line.len().min(EXCERPT)]);
            let more = if line.len() > EXCERPT { "..." } else { "" };
            format!("{VARIABLE}, line {}: {message}: {excerpt}{more}", self.number)
        })
    }

    fn read(&mut self, line: &[u8], size: u64) -> Result<Said, String> {
        if line.len() > LONGEST {
            return Err(format!("is longer than {LONGEST} bytes"));
        }
        let Line { path: name, extents: pieces } = json::read(line)?;
        check_name(name.as_bytes())?;
        check(&pieces, size)?;
        if !self.names.insert(name.clone()) {
            return Err("path was said before".into());
        }
        Ok(Said { number: self.number, name, pieces })
    }
}

/// Reads the part `number` of `port` from the events of a job. None if there is none, or its pieces are wrong.
pub fn said_part(events: &Path, port: &str, number: u64) -> Option<Part> {
    #[derive(Deserialize)]
    struct Event {
        port: String,
        number: u64,
        #[serde(with = "bytes")]
        path: PathBuf,
        identity: Identity,
        pieces: Vec<Piece>,
        #[serde(default)]
        digest: Option<Digest>,
    }
    let mut follower = Follower::new(events.into());
    while let Some(lines) = follower.lines() {
        for line in lines {
            if Seen::parse(&line).is_none_or(|seen| seen.event != "part") {
                continue;
            }
            let said: Option<Event> = json::read(&line).ok();
            if let Some(said) = said.filter(|said| said.number == number && said.port == port) {
                check(&said.pieces, said.identity.size).ok()?;
                let Event { path: file, identity, pieces, digest, .. } = said;
                return Some(Part { file, identity, pieces, digest });
            }
        }
    }
    None
}

/// Reads the attributes of a file when each later write to it will change its time.
/// Waits only a moment for a file that is written all the time: its change will be seen anyway.
fn settled(path: &Path) -> io::Result<Metadata> {
    let mut found = fs::metadata(path)?;
    for _ in 0..3 {
        let left = Identity::of(&found).settles_in((now() * 1e9) as i64);
        if left.is_zero() || !found.is_file() {
            break;
        }
        std::thread::sleep(left);
        found = fs::metadata(path)?;
    }
    Ok(found)
}

/// Computes the digest of the bytes of a part that are in the file.
///
/// # Errors
/// The error, if they cannot be read, or the file is shorter.
pub fn digest_of(file: &File, pieces: &[Piece]) -> io::Result<Digest> {
    let places = pieces.iter().filter_map(|piece| match piece {
        Piece::Extent { offset, length } => Some((*offset, *length)),
        Piece::Text(_) => None,
    });
    Digest::of(file, places)
}

/// The file that is cut.
#[derive(Debug)]
enum Cut {
    /// The file is final, and had this identity.
    Final {
        identity: Identity,
        /// The path is a link, which the command may replace by a file of its own before the first part is announced.
        is_link: bool,
    },
    /// The file is still written, and is opened when the first part is announced.
    Growing(Option<File>),
}

/// A running split.
#[derive(Debug)]
pub struct Parts<'a> {
    request: &'a PartitionedInput,
    cut: Cut,
    /// The file for the lines as it was made, to detect its replacement.
    file: File,
    follower: Follower,
    lines: Lines,
    /// The directory in which the command begins.
    directory: PathBuf,
}

impl<'a> Parts<'a> {
    /// Makes the file for the lines, and reads the identity of the file that is cut.
    ///
    /// # Errors
    /// A message that names the field.
    pub fn begin(request: &'a PartitionedInput) -> Result<Self, String> {
        let at = |field: &str, path: &Path, why: String| format!("partitions[0].{field}: {}: {why}", path.display());
        let cut = if request.grows {
            Cut::Growing(None)
        } else {
            let of = settled(&request.of).map_err(|error| at("of", &request.of, error.to_string()))?;
            if !of.is_file() {
                return Err(at("of", &request.of, "is no regular file".into()));
            }
            let is_link = fs::symlink_metadata(&request.of).is_ok_and(|found| found.is_symlink());
            Cut::Final { identity: Identity::of(&of), is_link }
        };
        let made = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&request.file);
        let file = made.map_err(|error| at("file", &request.file, error.to_string()))?;
        let (follower, lines) = (Follower::new(request.file.clone()), Lines::default());
        let directory = env::current_dir().unwrap_or_else(|_| "/".into());
        Ok(Self { request, cut, file, follower, lines, directory })
    }

    /// Returns the path of the file to which the command appends lines.
    pub fn file(&self) -> &Path {
        &self.request.file
    }

    /// Returns the parts that were announced since the last call.
    ///
    /// # Errors
    /// A message about a wrong line, or about what was done to the file.
    pub fn read(&mut self) -> Result<Vec<Found>, String> {
        if self.follower.is_cut() {
            return Err(format!("{VARIABLE}: {}: lines that were said are gone", self.file().display()));
        }
        let mut found = Vec::new();
        while let Some(lines) = self.follower.lines() {
            for line in lines {
                let identity = self.look()?;
                let said = self.lines.take(&line, identity.size)?;
                let digest = self.digest(&said.pieces)?;
                found.push(Found { said, identity, digest });
            }
        }
        Ok(found)
    }

    /// Returns the identity of the file that is cut: the first one of a final file, the present one of a growing file.
    fn look(&mut self) -> Result<Identity, String> {
        let announced = self.lines.number > 0;
        let file = match &mut self.cut {
            Cut::Final { identity, is_link } => {
                let is_own = || fs::symlink_metadata(&self.request.of).is_ok_and(|found| found.is_file());
                if *is_link && !announced && is_own() {
                    let of = settled(&self.request.of).map_err(|error| cannot_read(&self.request.of, &error))?;
                    *identity = Identity::of(&of);
                }
                return Ok(*identity);
            }
            Cut::Growing(Some(file)) => file,
            Cut::Growing(none) => {
                let opened =
                    remote_file::open(&self.request.of).map_err(|error| cannot_read(&self.request.of, &error))?;
                none.insert(opened)
            }
        };
        file.metadata().map(|of| Identity::of(&of)).map_err(|error| cannot_read(&self.request.of, &error))
    }

    /// Returns a digest that distinguishes the bytes of a part from those of another attempt. None for a final file.
    fn digest(&self, pieces: &[Piece]) -> Result<Option<Digest>, String> {
        let Cut::Growing(Some(file)) = &self.cut else { return Ok(None) };
        digest_of(file, pieces).map(Some).map_err(|error| cannot_read(&self.request.of, &error))
    }

    /// Returns the event that announces a part.
    pub fn event<'e>(&'e self, found: &'e Found) -> Event<'e> {
        let Found { said, identity, digest } = found;
        Event::Part(PartEvent {
            port: &self.request.port,
            number: said.number,
            name: json::ByteString(&*said.name),
            size: size(&said.pieces),
            path: json::ByteString(&*self.request.of),
            identity,
            pieces: &said.pieces,
            digest: *digest,
        })
    }

    /// Checks the split, after its command has succeeded and all lines were read.
    ///
    /// # Errors
    /// A message, if the parts cannot be trusted.
    pub fn end(&self) -> Result<(), String> {
        let path = self.file().display();
        if self.file.metadata().ok().as_ref().map(file_id_of) != file_id(self.file()) {
            return Err(format!("{VARIABLE}: {path} was replaced: lines have to be appended"));
        }
        if self.follower.is_torn() {
            let line = self.lines.number + 1;
            return Err(format!("{VARIABLE}, line {line}: has no newline at its end"));
        }
        let both = self.lines.names.iter().find(|name| fs::symlink_metadata(self.directory.join(name)).is_ok());
        if let Some(name) = both {
            let name = name.to_string_lossy();
            return Err(format!("{VARIABLE}: {name} is a part, and was written as a file, too: it can be one of both"));
        }
        let of = &self.request.of;
        let changed = match fs::metadata(of).map(|now| Identity::of(&now)) {
            Ok(now) => self.difference(&now),
            Err(_) => Some("is gone"),
        };
        match changed.filter(|_| self.lines.number > 0) {
            Some(how) => Err(format!("{} {how} [SFIO-P006]", of.display())),
            None => Ok(()),
        }
    }

    /// Returns how the file has changed. In a file that grew, rewritten bytes are detected by the feeder of the
    /// command.
    fn difference(&self, now: &Identity) -> Option<&'static str> {
        match &self.cut {
            Cut::Final { identity, .. } => identity.difference(now),
            Cut::Growing(file) => Identity::of(&file.as_ref()?.metadata().ok()?).replaced(now),
        }
    }
}

fn cannot_read(of: &Path, error: &io::Error) -> String {
    format!("cannot read {}: {error}", of.display())
}
