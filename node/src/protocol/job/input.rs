//! What a job reads.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::fields::{absolute_path, path, path_or_null, Kind};
use super::limit::{Rate, StreamLimit};
use crate::protocol::json::{bytes, optional_path, or_default};
use crate::protocol::part::Part;
use crate::protocol::verify::Verify;

/// A byte stream into the command, or a part of a file.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "InputFields")]
pub struct Input {
    pub name: String,
    /// What it is called where its limit changes, and where it is told what was fed of it.
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
    /// It is fed no faster at first.
    pub limit: Rate,
    /// It is told when all that there was has been fed.
    pub phases: bool,
    /// It is not declared to be streamable: where the command does more than read it in order, it gets the file.
    pub net: bool,
    /// Until so many bytes of it were read, calls do what they do with a pipe; only with `net`.
    pub pipe: u64,
    /// It ends when it was closed after writing so often, and not only at the commit; then its bytes are still to be compared.
    pub closes: Option<NonZeroU32>,
    /// The command gets at most so many bytes as a stream: the job starts again with a file that has more.
    pub most: Option<u64>,
    /// A part comes from the machine where it was said; None: it is read here.
    pub home: Option<Home>,
}

/// Where a part is read that is not seen here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    pub link: Link,
    /// Of the part, as the job there has said it.
    pub number: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputFields {
    name: String,
    #[serde(default)]
    id: Option<String>,
    port: String,
    #[serde(default, deserialize_with = "path_or_null")]
    path: Option<PathBuf>,
    #[serde(default, deserialize_with = "path_or_null")]
    named: Option<PathBuf>,
    #[serde(default, deserialize_with = "or_default")]
    lock: bool,
    #[serde(default, deserialize_with = "optional_path")]
    events: Option<PathBuf>,
    link: Option<Link>,
    part: Option<Part>,
    number: Option<u64>,
    target: Target,
    verify: Option<Verify>,
    memory: Option<bool>,
    limit: Option<StreamLimit>,
    #[serde(default, deserialize_with = "or_default")]
    phases: bool,
    #[serde(default, deserialize_with = "or_default")]
    net: bool,
    #[serde(default, deserialize_with = "or_default")]
    pipe: u64,
    #[serde(default, deserialize_with = "or_default")]
    replay: bool,
    closes: Option<NonZeroU32>,
    most: Option<u64>,
}

impl TryFrom<InputFields> for Input {
    type Error = &'static str;

    fn try_from(fields: InputFields) -> Result<Self, &'static str> {
        let InputFields { name, id, port, path, named, lock, events, link, part, number, target, .. } = fields;
        let InputFields { verify, memory, limit, phases, net, pipe, replay, closes, most, .. } = fields;
        if events.is_none() && (named.is_some() || lock) {
            return Err("\"named\" and \"lock\" go with \"events\"");
        }
        if events.is_none() && closes.is_some() {
            return Err("\"closes\" goes with \"events\"");
        }
        if events.is_none() && net && !replay {
            return Err("\"net\" goes with \"events\" or \"replay\"");
        }
        if pipe > 0 && !net {
            return Err("\"pipe\" goes with \"net\"");
        }
        if replay && (limit.is_some() || phases) {
            return Err("\"limit\" and \"phases\" do not go with \"replay\"");
        }
        if most.is_some() && events.is_none() && link.is_none() {
            return Err("\"most\" goes with \"events\" or \"link\"");
        }
        if part.is_some() && (limit.is_some() || phases || id.is_some()) {
            return Err("\"limit\", \"phases\" and \"id\" do not go with \"part\"");
        }
        let is_file = matches!(target, Target::File(_));
        if part.is_none() && is_file {
            return Err("target: \"file\" goes with \"part\"");
        }
        if memory.is_some() && !is_file {
            return Err("\"memory\" goes with the target {\"file\": PATH}");
        }
        if part.is_some() && (path.is_some() || verify.is_some()) {
            return Err("\"path\" and \"verify\" do not go with \"part\"");
        }
        let (access, home) = match (events, link, part, number) {
            (None, None, None, None) if replay => (Access::Replay, None),
            _ if replay => return Err("\"events\", \"link\" and \"part\" do not go with \"replay\""),
            (Some(events), None, None, None) => (Access::Events(events), None),
            (None, Some(link), None, None) => (Access::Link(link), None),
            (None, None, Some(part), None) => (Access::Part(part), None),
            (None, Some(link), Some(part), Some(number)) => (Access::Part(part), Some(Home { link, number })),
            (.., Some(_)) => return Err("\"number\" goes with \"link\" and \"part\""),
            _ => return Err(
                "exactly one of \"events\", \"link\", \"part\" and \"replay\"; or \"link\", \"part\" and \"number\"",
            ),
        };
        let path = match &access {
            Access::Part(part) => part.file.clone(),
            _ => path.ok_or("missing field `path`")?,
        };
        let named = named.unwrap_or_else(|| path.clone());
        let (verify, memory, limit) =
            (verify.unwrap_or_default(), memory.unwrap_or(true), limit.and_then(|limit| limit.rate));
        let id = id.unwrap_or_else(|| name.clone());
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

/// The `serve` of the machine where a producer runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    pub address: SocketAddr,
    /// The producer's job there.
    #[serde(deserialize_with = "name_of_job")]
    pub job: OsString,
    /// The file of the certificate of the run.
    #[serde(deserialize_with = "path")]
    pub certificate: PathBuf,
    /// Whether all that is said is inside TLS; else the handshake only.
    #[serde(default, deserialize_with = "or_default")]
    pub tls: bool,
}

/// Whether a job's directory can have this name, among those of the other jobs.
pub fn is_name_of_job(name: &OsStr) -> bool {
    Path::new(name).file_name() == Some(name)
}

/// Reads the name of a job's directory.
pub fn name_of_job<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OsString, D::Error> {
    let name: OsString = bytes::deserialize(deserializer)?;
    if is_name_of_job(&name) {
        Ok(name)
    } else {
        Err(D::Error::custom("has to be the name of a job"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    Fifo(#[serde(deserialize_with = "path")] PathBuf),
    #[serde(deserialize_with = "only_true")]
    Stdin,
    /// A regular file, which is there before the command.
    File(#[serde(deserialize_with = "absolute_path")] PathBuf),
}

fn only_true<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    bool::deserialize(deserializer)?.then_some(()).ok_or_else(|| D::Error::custom("has to be true"))
}

/// A file with the first bytes of another one, of which the command gets to know what it would of that.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Excerpt {
    pub name: String,
    /// As the command finds it.
    #[serde(deserialize_with = "absolute_path")]
    pub path: PathBuf,
    #[serde(deserialize_with = "absolute_path")]
    pub of: PathBuf,
}

/// A file that the command cuts into parts, of which it says where they are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    /// The output that the parts are.
    pub port: String,
    #[serde(deserialize_with = "absolute_path")]
    pub of: PathBuf,
    /// Where the command says it.
    #[serde(deserialize_with = "absolute_path")]
    pub file: PathBuf,
    /// It is still written, and need not be there yet.
    #[serde(default, deserialize_with = "or_default")]
    pub grows: bool,
}

/// An input at which the command is held until it is committed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    pub name: String,
    pub port: String,
    /// As it is opened here.
    #[serde(deserialize_with = "path")]
    pub path: PathBuf,
    #[serde(default, deserialize_with = "path_or_null")]
    named: Option<PathBuf>,
    /// As that of an input.
    #[serde(default, deserialize_with = "or_default")]
    pub lock: bool,
    #[serde(deserialize_with = "path")]
    pub events: PathBuf,
    #[serde(deserialize_with = "absolute_path")]
    pub target: PathBuf,
    /// A file or a directory.
    pub kind: Kind,
    mode: Option<Mode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    Update,
    NoUpdate,
}

impl Gate {
    /// The path as the producer has it.
    pub fn named(&self) -> &Path {
        self.named.as_ref().unwrap_or(&self.path)
    }

    /// A listing of the directory delivers entries as they are committed.
    pub fn delivers(&self) -> bool {
        self.mode == Some(Mode::NoUpdate)
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

/// An input file or directory of which is told how it is read.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observed {
    pub name: String,
    #[serde(deserialize_with = "absolute_path")]
    pub path: PathBuf,
}
