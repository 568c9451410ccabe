//! The inputs of a job.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use crate::protocol::messages::{GatedInput, InputStream, Kind, Link, Mode, PartInput, Verify};
use crate::protocol::part::Part;
use crate::protocol::values::{Rate, Target};

/// A byte stream into the command, or a part of a file.
#[derive(Clone, Debug)]
pub struct Input {
    pub name: String,
    /// The name of the stream in changed limits and in events.
    pub id: String,
    pub port: String,
    /// The file, as it is opened here; with a link, where the producer has it.
    pub path: PathBuf,
    /// The same as the producer has it.
    pub named: PathBuf,
    /// The producer has another `serve`, on this kernel: its events are not locked any more when it is gone.
    pub lock: bool,
    pub access: Access,
    pub target: Target,
    /// How much of it is compared with the file at the commit.
    pub verify: Verify,
    /// A file may be made in memory.
    pub memory: bool,
    /// The rate at the beginning.
    pub limit: Rate,
    /// Whether `drained` and `fed` are told.
    pub phases: bool,
    /// Not declared streamable: a command that does more than read in order gets the file.
    pub net: bool,
    /// The number of bytes until which calls do what they do with a pipe. Only with `net`.
    pub pipe: u64,
    /// The stream ends after this many closes, before the commit. Then the bytes are still to be compared.
    pub closes: Option<NonZeroU32>,
    /// The most bytes of a stream. The job starts again with a larger file.
    pub most: Option<u64>,
    /// The producer is told what was read, and may discard it.
    pub window: bool,
    /// The machine from which a part comes. None stands for a file that is read here.
    pub home: Option<Home>,
}

/// Where a part is read that is not seen here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    pub link: Link,
    /// The number of the part in the events of the job there.
    pub number: u64,
}

impl TryFrom<InputStream> for Input {
    type Error = &'static str;

    fn try_from(stream: InputStream) -> Result<Self, &'static str> {
        let InputStream { name, id, port, path, named, lock, events, link, replay, target, .. } = stream;
        let InputStream { verify, limit, phases, net, pipe, most, closes, window, .. } = stream;
        if events.is_none() && (named.is_some() || lock || closes.is_some()) {
            return Err("\"named\", \"lock\" and \"closes\" go with \"events\"");
        }
        if window && (replay || net || closes.is_some()) {
            return Err("\"window\" does not go with \"replay\", \"net\" and \"closes\"");
        }
        if pipe > 0 && !net {
            return Err("\"pipe\" goes with \"net\"");
        }
        if replay && (limit.is_some() || phases || most.is_some()) {
            return Err("\"limit\", \"phases\" and \"most\" do not go with \"replay\"");
        }
        if matches!(target, Target::File(_)) {
            return Err("target: \"file\" is for parts");
        }
        let access = match (events, link, replay) {
            (Some(events), None, false) => Access::Events(events),
            (None, Some(_), false) if net => return Err("\"net\" does not go with \"link\""),
            (None, Some(link), false) => Access::Link(link),
            (None, None, true) => Access::Replay,
            _ => return Err("exactly one of \"events\", \"link\" and \"replay\""),
        };
        let named = named.unwrap_or_else(|| path.clone());
        let id = id.unwrap_or_else(|| name.clone());
        let (limit, memory, home) = (limit.and_then(|limit| limit.rate), false, None);
        Ok(Self {
            name,
            id,
            port,
            path,
            named,
            lock,
            access,
            target,
            verify,
            memory,
            limit,
            phases,
            net,
            pipe,
            closes,
            most,
            window,
            home,
        })
    }
}

impl TryFrom<PartInput> for Input {
    type Error = String;

    fn try_from(PartInput { name, port, part, target, memory, link, number }: PartInput) -> Result<Self, String> {
        let part = Part::try_from(part).map_err(|message| format!("part: {message}"))?;
        let home = match (link, number) {
            (None, None) => None,
            (Some(link), Some(number)) => Some(Home { link, number }),
            _ => return Err("\"link\" and \"number\" go together".into()),
        };
        if !memory && !matches!(target, Target::File(_)) {
            return Err("\"memory\" goes with the target {\"file\": PATH}".into());
        }
        let (id, path, named) = (name.clone(), part.file.clone(), part.file.clone());
        Ok(Self {
            name,
            id,
            port,
            path,
            named,
            lock: false,
            access: Access::Part(part),
            target,
            verify: Verify::Full,
            memory,
            limit: None,
            phases: false,
            net: false,
            pipe: 0,
            closes: None,
            most: None,
            window: false,
            home,
        })
    }
}

impl Input {
    /// The part that it is, if it is one.
    pub fn part(&self) -> Option<&Part> {
        match &self.access {
            Access::Part(part) => Some(part),
            _ => None,
        }
    }
}

/// How the file of a producer, and what is told of it, are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The producer runs here: these are its events.
    Events(PathBuf),
    Link(Link),
    /// There is no producer: it is cut from a file.
    Part(Part),
    /// There is no producer: the file is complete, and is fed as if it were being written.
    Replay,
}

impl GatedInput {
    /// The path as the producer has it.
    pub fn named(&self) -> &Path {
        self.named.as_ref().unwrap_or(&self.path)
    }

    /// A listing of the directory delivers entries as they are committed.
    pub fn delivers(&self) -> bool {
        self.mode == Mode::NoUpdate
    }

    pub(super) fn check(&self) -> Result<(), &'static str> {
        match self.kind {
            Kind::Files => Err("kind: has to be file or directory"),
            Kind::File if self.delivers() => Err("mode: has to be update, or no_update with the kind directory"),
            _ if self.target.file_name().is_none() => Err("target: has to be an absolute path"),
            _ => Ok(()),
        }
    }
}
