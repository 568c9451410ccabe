//! The outputs of a job, and their rules.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use crate::protocol::json::ByteString;
use crate::protocol::messages::{Committed, Kind, OutputRule, WatchedOutput, WindowSpec};
use crate::protocol::pattern::Pattern;

/// An output that is watched.
#[derive(Clone, Debug)]
pub struct Output {
    pub port: String,
    pub root: PathBuf,
    pub kind: Kind,
    pub globs: Vec<Pattern>,
    pub rules: Vec<Rule>,
    /// All that happens to its files is told, since the job is observed.
    pub tells_all: bool,
    /// Bytes are discarded when all readers have them.
    pub window: Option<WindowSpec>,
}

/// A commit rule, for the files that match `globs` (all, when there is none).
#[derive(Clone, Debug)]
pub struct Rule {
    pub globs: Vec<Pattern>,
    pub commit: Commit,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    Termination,
    Close(u32),
    File(Vec<Dependency>),
    NFiles(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency {
    Port(String),
    Glob(Pattern),
}

impl Display for Dependency {
    fn fmt(&self, formatter: &mut Formatter) -> fmt::Result {
        match self {
            Self::Port(port) => formatter.write_str(port),
            Self::Glob(glob) => glob.fmt(formatter),
        }
    }
}

impl TryFrom<WatchedOutput> for Output {
    type Error = String;

    fn try_from(output: WatchedOutput) -> Result<Self, String> {
        let WatchedOutput { port, root, kind, globs: own, rules, closes, window } = output;
        let mut globs = patterns(&own, &root)?;
        let mut read = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let mut rule = rule_of(rule, &root).map_err(|message| format!("rules[{index}]: {message}"))?;
            if own.is_empty() {
                globs.extend(rule.globs.iter().cloned());
                if kind == Kind::Directory {
                    // Without globs of its own, those of a directory's rules say where the directory is.
                    rule.globs.clear();
                }
            }
            read.push(rule);
        }
        let is_late = read.iter().all(|rule| rule.commit == Commit::Termination);
        if window.is_some() && (kind != Kind::File || !is_late) {
            return Err("window: goes with the kind file and on_termination".into());
        }
        Ok(Self { port, root, kind, globs, rules: read, tells_all: closes, window })
    }
}

fn rule_of(rule: &OutputRule, root: &Path) -> Result<Rule, String> {
    let closes = rule.closes.map_or(1, |closes| u32::try_from(closes.get()).unwrap_or(u32::MAX));
    let commit = match rule.committed {
        Committed::OnTermination => Commit::Termination,
        Committed::OnClose => Commit::Close(closes),
        Committed::OnNFiles => Commit::NFiles(rule.n_files.ok_or("n_files: is missing with on_n_files")?.get()),
        Committed::OnFile if rule.file_deps.is_empty() => {
            return Err("file_deps: at least one port or glob with on_file".into());
        }
        Committed::OnFile => Commit::File(patterns(&rule.file_deps, root)?.into_iter().map(Dependency::Glob).collect()),
    };
    Ok(Rule { globs: patterns(&rule.globs, root)?, commit })
}

fn patterns(globs: &[ByteString<PathBuf>], root: &Path) -> Result<Vec<Pattern>, String> {
    globs.iter().map(|ByteString(glob)| Pattern::new(glob, root)).collect()
}

impl Output {
    /// Takes for a port, and not for a glob, what depends on one of `ports`.
    pub(super) fn name_ports(&mut self, ports: &[String]) {
        for rule in &mut self.rules {
            let Commit::File(dependencies) = &mut rule.commit else { continue };
            for dependency in dependencies {
                let port = ports.iter().find(|port| **port == dependency.to_string());
                *dependency = port.map_or_else(|| dependency.clone(), |port| Dependency::Port(port.clone()));
            }
        }
    }

    /// The rule that holds for the file `path`: None when the file is not of this output, Some(None) when it is and
    /// no rule names it.
    pub fn rule_of(&self, path: &Path) -> Option<Option<usize>> {
        let relative = path.strip_prefix(&self.root).ok()?;
        let entry = match self.kind {
            Kind::Directory => self.globs.iter().find_map(|glob| glob.below(relative))?,
            _ => self.globs.iter().any(|glob| glob.matches(relative)).then_some(relative)?,
        };
        let holds = |rule: &Rule| rule.globs.is_empty() || rule.globs.iter().any(|glob| glob.matches_anywhere(entry));
        Some(self.rules.iter().position(holds))
    }

    /// Whether `path` is among the `file_deps` of a rule.
    pub fn awaits(&self, path: &Path) -> bool {
        let Ok(relative) = path.strip_prefix(&self.root) else { return false };
        self.awaited_globs().any(|glob| glob.matches_anywhere(relative))
    }

    /// Whether it has to be known when `path` is closed.
    pub fn concerns(&self, path: &Path) -> bool {
        self.rule_of(path).is_some() || self.awaits(path)
    }

    fn awaited_globs(&self) -> impl Iterator<Item = &Pattern> {
        self.rules
            .iter()
            .flat_map(|rule| match &rule.commit {
                Commit::File(dependencies) => dependencies.as_slice(),
                _ => &[],
            })
            .filter_map(|dependency| match dependency {
                Dependency::Glob(glob) => Some(glob),
                Dependency::Port(_) => None,
            })
    }

    /// Whether files of this output, or those it waits for, can lie in the directory `path`.
    pub fn reaches(&self, path: &Path) -> bool {
        let Ok(relative) = path.strip_prefix(&self.root) else { return false };
        let leads = self.globs.iter().chain(self.awaited_globs()).any(|glob| glob.leads_through(relative));
        let within = |glob: &Pattern| glob.matches(relative) || glob.below(relative).is_some();
        leads || (self.kind == Kind::Directory && self.globs.iter().any(within))
    }

    /// Whether a rule counts closes, or waits for other files: else the files are committed at termination.
    pub fn commits_early(&self) -> bool {
        self.rules.iter().any(|rule| rule.commit != Commit::Termination)
    }

    /// Whether closes are told, because a rule or an observation needs them.
    pub fn tells_closes(&self) -> bool {
        self.tells_all || self.commits_early()
    }

    /// Whether the file `path` of a directory is committed by its first close: then only that is told.
    pub fn commits_at_close(&self, path: &Path) -> bool {
        let at_close = |rule: usize| matches!(self.rules[rule].commit, Commit::Close(1) | Commit::NFiles(_));
        self.kind == Kind::Directory && self.rule_of(path).flatten().is_some_and(at_close)
    }

    /// Whether the closes of one file are counted.
    pub fn counts_closes(&self) -> bool {
        self.tells_all || self.rules.iter().any(|rule| matches!(rule.commit, Commit::Close(closes) if closes > 1))
    }
}
