//! The inputs of a job.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use crate::protocol::messages::{GatedInput, InputStream, Kind, Link, Mode, PartInput};
use crate::protocol::part::Part;
use crate::protocol::values::Target;

/// A byte stream into the command, or a part of a file.
#[derive(Clone, Debug)]
pub struct Input {
    pub name: String,
    /// The name of the stream in events.
    pub id: String,
    pub port: String,
    /// The file, as it is opened here; with a link, where the producer has it.
    pub path: PathBuf,
    pub access: Access,
    pub target: Target,
    /// Whether `fed` is told.
    pub progress: bool,
    /// Present for a stream that is not declared streamable.
    pub net: Option<Net>,
    /// The most bytes of a stream. The job starts again with a larger file.
    pub most: Option<u64>,
    /// The producer is told what was read, and may discard it.
    pub window: bool,
}

/// A stream under the net: a command that does more than read in order gets the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// The number of bytes until which calls do what they do with a pipe.
    pub pipe: u64,
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
        let InputStream { progress, net, pipe, most, closes, window, .. } = stream;
        if events.is_none() && (named.is_some() || lock || closes.is_some()) {
            return Err("\"named\", \"lock\" and \"closes\" go with \"events\"");
        }
        if window && (replay || net || closes.is_some()) {
            return Err("\"window\" does not go with \"replay\", \"net\" and \"closes\"");
        }
        if pipe > 0 && !net {
            return Err("\"pipe\" goes with \"net\"");
        }
        if replay && (progress || most.is_some()) {
            return Err("\"progress\" and \"most\" do not go with \"replay\"");
        }
        if matches!(target, Target::File(_)) {
            return Err("target: \"file\" is for parts");
        }
        let named = named.unwrap_or_else(|| path.clone());
        let access = match (events, link, replay) {
            (Some(events), None, false) => Access::Events(LocalProducer { events, named, lock, closes }),
            (None, Some(_), false) if net && target == Target::Stdin => {
                return Err("\"net\" with \"link\" does not go with the target \"stdin\"")
            }
            (None, Some(link), false) => Access::Link(link),
            (None, None, true) => Access::Replay,
            _ => return Err("exactly one of \"events\", \"link\" and \"replay\""),
        };
        let id = id.unwrap_or_else(|| name.clone());
        let net = net.then_some(Net { pipe });
        Ok(Self { name, id, port, path, access, target, progress, net, most, window })
    }
}

impl TryFrom<PartInput> for Input {
    type Error = String;

    fn try_from(PartInput { name, port, part, target, link, number }: PartInput) -> Result<Self, String> {
        let part = Part::try_from(part).map_err(|message| format!("part: {message}"))?;
        let home = match (link, number) {
            (None, None) => None,
            (Some(link), Some(number)) => Some(Home { link, number }),
            _ => return Err("\"link\" and \"number\" go together".into()),
        };
        let (id, path) = (name.clone(), part.file.clone());
        Ok(Self {
            name,
            id,
            port,
            path,
            access: Access::Part(CutPart { part, home }),
            target,
            progress: false,
            net: None,
            most: None,
            window: false,
        })
    }
}

impl Input {
    /// The part that it is, if it is one.
    pub fn part(&self) -> Option<&CutPart> {
        match &self.access {
            Access::Part(part) => Some(part),
            _ => None,
        }
    }

    /// The file as its producer has it.
    pub fn named(&self) -> &Path {
        match &self.access {
            Access::Events(producer) => &producer.named,
            _ => &self.path,
        }
    }
}

/// How the file of a producer, and what is told of it, are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    Events(LocalProducer),
    Link(Link),
    /// There is no producer: it is cut from a file.
    Part(CutPart),
    /// There is no producer: the file is complete, and is fed as if it were being written.
    Replay,
}

/// A producer that runs here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalProducer {
    pub events: PathBuf,
    /// The file as the producer has it.
    pub named: PathBuf,
    /// The producer has another `serve`, on this kernel: its events are not locked any more when it is gone.
    pub lock: bool,
    /// The stream ends after this many closes, before the commit. Then the bytes are still to be compared.
    pub closes: Option<NonZeroU32>,
}

/// A part of a file, as an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutPart {
    pub part: Part,
    /// The machine from which the part comes. None stands for a file that is read here.
    pub home: Option<Home>,
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
