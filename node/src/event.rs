//! What happened: the lines of `events.jsonl`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

use crate::job::Input;
use crate::json::{Json, Writer};
use crate::observe::Verdict;
use crate::verify::Part;

#[derive(Debug)]
pub enum Event<'a> {
    Started { pid: i32, command_pid: i32 },
    Opened { port: &'a str, path: &'a Path },
    Closed { port: &'a str, path: &'a Path, closes: u32 },
    Committed { port: &'a str, path: &'a Path, size: u64 },
    Entry { port: &'a str, path: &'a Path, size: u64 },
    Complete { port: &'a str },
    Changed { port: &'a str, path: &'a Path, how: &'a str },
    Unmet { port: &'a str, why: &'a str },
    Stream { name: &'a str, bytes: u64, first: f64, last: f64, part: Option<(&'a Path, Part)> },
    Used(&'a Verdict),
    Warning { message: &'a str, input: Option<&'a Input> },
    Exit(Exit),
}

/// Why a job has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    Exited,
    Cancelled,
    Producer { input: String },
    Rewritten { input: String },
    Driver,
    Lost,
    Error,
}

#[derive(Debug, Default)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub success: bool,
    pub reason: &'static str,
    pub input: Option<String>,
    pub message: Option<String>,
    pub started: Option<f64>,
    pub ended: f64,
    pub usage: Usage,
}

#[derive(Debug, Default)]
pub struct Usage {
    pub rchar: u64,
    pub wchar: u64,
    pub read_bytes: u64,
    pub write_bytes: u64,
    pub user: f64,
    pub system: f64,
    pub max_rss: u64,
    pub streamed: u64,
    pub wrapper_cpu: f64,
    /// Seconds; None where it was not measured.
    pub io: Option<f64>,
}

impl Reason {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Cancelled => "cancelled",
            Self::Producer { .. } => "producer",
            Self::Rewritten { .. } => "rewritten",
            Self::Driver => "driver",
            Self::Lost => "lost",
            Self::Error => "error",
        }
    }

    pub fn input(&self) -> Option<String> {
        match self {
            Self::Producer { input } | Self::Rewritten { input } => Some(input.clone()),
            _ => None,
        }
    }
}

/// The name of the commit of a file in a directory. There may be many, and `serve` does not pass them on.
pub const ENTRY: &str = "entry";

/// What a reader needs of an event that somebody else has written.
#[derive(Debug)]
pub struct Seen {
    pub event: String,
    pub port: Option<String>,
    pub path: Option<PathBuf>,
    pub size: Option<u64>,
    pub success: bool,
    pub pid: Option<i32>,
    /// It names a job, as `serve` does when it passes an event on, and `exec` never.
    pub names_job: bool,
}

impl Seen {
    /// Reads a line; None when it is no event.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let json = Json::parse(line).ok()?;
        let text = |name: &str| json.get(name).and_then(Json::text);
        let string = |name: &str| text(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let integer = |name: &str| json.get(name).and_then(Json::integer);
        Some(Self {
            event: string("event")?,
            port: string("port"),
            path: text("path").map(|bytes| std::ffi::OsStr::from_bytes(bytes).into()),
            size: integer("size").and_then(|size| size.try_into().ok()),
            success: json.get("success") == Some(&Json::Bool(true)),
            pid: integer("pid").and_then(|pid| pid.try_into().ok()),
            names_job: json.get("job").is_some(),
        })
    }
}

/// Seconds since the epoch.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

impl Event<'_> {
    /// The event's line, with its newline.
    pub fn line(&self) -> String {
        let mut writer = Writer::new();
        let path = |path: &Path| path.as_os_str().as_bytes().to_vec();
        match self {
            Self::Started { pid, command_pid } => {
                writer.text("event", b"started").plain("pid", pid).plain("command_pid", command_pid)
            }
            Self::Opened { port, path: file } => {
                writer.text("event", b"opened").text("port", port.as_bytes()).text("path", &path(file))
            }
            Self::Closed { port, path: file, closes } => writer
                .text("event", b"closed")
                .text("port", port.as_bytes())
                .text("path", &path(file))
                .plain("closes", closes),
            Self::Committed { port, path: file, size } => writer
                .text("event", b"committed")
                .text("port", port.as_bytes())
                .text("path", &path(file))
                .plain("size", size),
            Self::Entry { port, path: file, size } => writer
                .text("event", ENTRY.as_bytes())
                .text("port", port.as_bytes())
                .text("path", &path(file))
                .plain("size", size),
            Self::Complete { port } => writer.text("event", b"complete").text("port", port.as_bytes()),
            Self::Changed { port, path: file, how } => writer
                .text("event", b"changed")
                .text("port", port.as_bytes())
                .text("path", &path(file))
                .text("how", how.as_bytes()),
            Self::Unmet { port, why } => writer
                .text("event", b"warning")
                .text("message", format!("output {port}: {why}: committed only now").as_bytes()),
            Self::Stream { name, bytes, first, last, part } => {
                writer
                    .text("event", b"stream")
                    .text("name", name.as_bytes())
                    .plain("bytes", bytes)
                    .plain("seconds", last - first)
                    .plain("first", first)
                    .plain("last", last);
                match part {
                    Some((file, part)) => {
                        writer.plain("part", part.write(Writer::new().text("path", &path(file))).finish())
                    }
                    None => &mut writer,
                }
            }
            Self::Used(verdict) => writer
                .text("event", b"used")
                .text("name", verdict.name.as_bytes())
                .text("path", &path(&verdict.path))
                .plain("opens", verdict.opens)
                .plain("sequential", verdict.reasons.is_empty())
                .plain("reasons", format_args!("{:?}", verdict.reasons))
                .plain("first", verdict.first)
                .plain("last", verdict.last)
                .plain("touched", verdict.touched)
                .plain("read", verdict.read.map_or("null".into(), |read| read.to_string()))
                .plain("whole", verdict.whole)
                .plain("directory", verdict.directory),
            Self::Warning { message, input } => {
                let writer = writer.text("event", b"warning").text("message", message.as_bytes());
                match input {
                    Some(input) => writer.text("input", input.name.as_bytes()).text("port", input.port.as_bytes()),
                    None => writer,
                }
            }
            Self::Exit(exit) => exit.write(writer.text("event", b"exit")),
        };
        let mut line = writer.plain("time", now()).finish();
        line.push('\n');
        line
    }
}

impl Exit {
    fn write<'w>(&self, writer: &'w mut Writer) -> &'w mut Writer {
        for (name, value) in [("code", self.code), ("signal", self.signal)] {
            if let Some(value) = value {
                writer.plain(name, value);
            }
        }
        writer.plain("success", self.success).text("reason", self.reason.as_bytes());
        for (name, value) in [("input", &self.input), ("message", &self.message)] {
            if let Some(value) = value {
                writer.text(name, value.as_bytes());
            }
        }
        match self.started {
            Some(started) => writer.plain("started", started),
            None => writer.plain("started", "null"),
        };
        writer.plain("ended", self.ended).plain("usage", self.usage.object())
    }
}

impl Usage {
    fn object(&self) -> String {
        let mut writer = Writer::new();
        writer
            .plain("rchar", self.rchar)
            .plain("wchar", self.wchar)
            .plain("read_bytes", self.read_bytes)
            .plain("write_bytes", self.write_bytes)
            .plain("user", self.user)
            .plain("system", self.system)
            .plain("max_rss", self.max_rss)
            .plain("streamed", self.streamed)
            .plain("wrapper_cpu", self.wrapper_cpu);
        if let Some(io) = self.io {
            writer.plain("io", io);
        }
        writer.finish()
    }
}

/// The open `events.jsonl` of a job. That it is open for writing, and locked, says that the job's `exec` lives.
///
/// The job, which has the same user, can write into it, too. That cannot be prevented, but it is seen.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    file: Flock<File>,
    /// What was written here: so many bytes, with this hash.
    written: u64,
    hash: Sha256,
}

/// Why a job fails in whose events others have written.
pub const FOREIGN: &str = "somebody else than sfio-node has changed its events";

impl EventLog {
    /// # Errors
    /// When it cannot be opened, or has events: then the job was started before, or somebody else has written them.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
        if file.metadata()?.len() > 0 {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "it has events already"));
        }
        Ok(Self { path: path.to_owned(), file, written: 0, hash: Sha256::new() })
    }

    /// Appends events in one write, so that a reader never sees them torn for long.
    pub fn append(&mut self, events: &[Event]) -> io::Result<()> {
        let text: String = events.iter().map(Event::line).collect();
        if text.is_empty() {
            return Ok(());
        }
        self.file.write_all(text.as_bytes())?;
        self.written += text.len() as u64;
        self.hash.update(text.as_bytes());
        Ok(())
    }

    /// Whether all that is in the file, as far as its size says, was written here. Costs next to nothing.
    pub fn is_ours(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.len() == self.written && found.nlink() > 0)
    }

    /// Whether all that is in the file was written here, byte for byte, and those who look for it find this file.
    pub fn is_intact(&self) -> bool {
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        let same = self.file.metadata().map(identity).ok() == fs::symlink_metadata(&self.path).map(identity).ok();
        same && self.is_ours() && self.read_back().is_ok_and(|hash| hash == self.hash.clone().finalize()[..])
    }

    fn read_back(&self) -> io::Result<Vec<u8>> {
        let (mut hash, mut buffer, mut at) = (Sha256::new(), [0; 1 << 14], 0);
        while at < self.written {
            let count = self.file.read_at(&mut buffer, at)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            hash.update(&buffer[..count]);
            at += count as u64;
        }
        Ok(hash.finalize().to_vec())
    }

    /// The last event. When this returns nobody writes any more.
    pub fn conclude(mut self, exit: Exit) -> io::Result<()> {
        let torn = self.file.metadata().is_ok_and(|found| {
            let mut last = [b'\n'];
            let end = found.len();
            end > 0 && self.file.read_at(&mut last, end - 1).is_ok() && last != [b'\n']
        });
        if torn {
            // What somebody else has left.
            self.file.write_all(b"\n")?;
        }
        self.append(&[Event::Exit(exit)])?;
        // Before it is closed: who hears of the close looks whether it is locked.
        self.file.unlock().map(drop).map_err(|(_, error)| error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let text = Event::Committed { port: "p", path: Path::new("/o/a b\n"), size: 3 }.line();
        assert!(text.starts_with(r#"{"event":"committed","port":"p","path":"/o/a b\n","size":3,"time":"#), "{text}");
        let seen = Seen::parse(text.as_bytes()).unwrap();
        assert_eq!((seen.event.as_str(), seen.path, seen.size), ("committed", Some("/o/a b\n".into()), Some(3)));
        let text = Event::Changed { port: "p", path: Path::new("/o/a"), how: "removed" }.line();
        assert!(text.starts_with(r#"{"event":"changed","port":"p","path":"/o/a","how":"removed","time":"#), "{text}");
        let text = Event::Unmet { port: "p", why: "on_n_files promised 3 files, 2 are there at the end" }.line();
        assert!(
            text.starts_with(r#"{"event":"warning","message":"output p: on_n_files promised 3 files, 2 "#),
            "{text}"
        );
        let mut verdict = Verdict {
            name: "r".into(),
            path: "/i/r".into(),
            opens: 2,
            reasons: vec!["mapped", "opened again"],
            first: 1.5,
            last: 2.0,
            touched: 1.0,
            read: None,
            whole: false,
            directory: false,
        };
        let start = r#"{"event":"used","name":"r","path":"/i/r","opens":2,"sequential":"#;
        for (sequential, reasons) in [("false", r#"["mapped", "opened again"]"#), ("true", "[]")] {
            let text = Event::Used(&verdict).line();
            let read = verdict.read.map_or("null", |_| "4.5");
            let times = format!(r#""first":1.5,"last":2,"touched":1,"read":{read},"whole":false,"directory":false,"#);
            let expected = format!(r#"{start}{sequential},"reasons":{reasons},{times}"time":"#);
            assert!(text.starts_with(&expected), "{text}");
            verdict.reasons.clear();
            verdict.read = Some(4.5);
        }
        let exit = Exit { code: Some(0), success: true, reason: Reason::Exited.name(), ..Exit::default() };
        let text = Event::Exit(exit).line();
        let start =
            r#"{"event":"exit","code":0,"success":true,"reason":"exited","started":null,"ended":0,"usage":{"rchar":0,"#;
        assert!(text.starts_with(start), "{text}");
        assert!(Seen::parse(text.as_bytes()).is_some_and(|seen| seen.success && !seen.names_job));
        assert!(Seen::parse(b"{\"event\":\"exit\",\"job\":\"b\"}").is_some_and(|seen| seen.names_job));
    }

    #[test]
    fn what_others_write_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let log = |number: u32| {
            let path = directory.path().join(number.to_string());
            let mut log = EventLog::open(&path).unwrap();
            log.append(&[Event::Complete { port: "a" }]).unwrap();
            log.append(&[Event::Complete { port: "b" }]).unwrap();
            assert!(log.is_ours() && log.is_intact());
            (log, path)
        };
        let write = |path: &Path| OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
        let cut = |path: &Path| OpenOptions::new().write(true).open(path).unwrap().set_len(3).unwrap();
        let remove = |path: &Path| fs::remove_file(path).unwrap();
        let replace = |path: &Path| fs::rename(path, path.with_extension("x")).and(fs::write(path, "")).unwrap();
        let rewrite = |path: &Path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(b"X", 1).unwrap();
        };
        type Attack = (fn(&Path), bool);
        let attacks: [Attack; 5] = [(write, false), (cut, false), (remove, false), (replace, true), (rewrite, true)];
        for (number, (attack, same_size)) in (0..).zip(attacks) {
            let (log, path) = log(number);
            attack(&path);
            assert_eq!((log.is_ours(), log.is_intact()), (same_size, false), "{number}");
            assert!(log.conclude(Exit::default()).is_ok());
        }
        let (log, path) = log(9);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"event\"").unwrap();
        log.conclude(Exit::default()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().last().unwrap().starts_with("{\"event\":\"exit\""), "{text}");
        assert_eq!(EventLog::open(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    }
}
