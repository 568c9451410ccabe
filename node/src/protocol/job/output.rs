//! What a job writes, and which rules hold for it.

use std::fmt::{self, Display, Formatter};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::fields::{absolute_path, Kind};
use crate::protocol::json::{or_default, ByteString};
use crate::protocol::pattern::Pattern;

/// An output that is watched.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "OutputFields")]
pub struct Output {
    pub port: String,
    pub root: PathBuf,
    pub kind: Kind,
    pub globs: Vec<Pattern>,
    pub rules: Vec<Rule>,
    /// In which bursts its files grow is told.
    pub phases: bool,
    /// All that happens to its files is told, since the job is observed.
    pub tells_all: bool,
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

type Globs = Vec<ByteString<PathBuf>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputFields {
    port: String,
    #[serde(deserialize_with = "absolute_path")]
    root: PathBuf,
    kind: Kind,
    globs: Option<Globs>,
    #[serde(default, deserialize_with = "or_default")]
    rules: Vec<RuleFields>,
    #[serde(default, deserialize_with = "or_default")]
    phases: bool,
    #[serde(default, deserialize_with = "or_default")]
    closes: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RuleFields {
    #[serde(default, deserialize_with = "or_default")]
    globs: Globs,
    committed: Committed,
    closes: Option<NonZeroU64>,
    #[serde(default, deserialize_with = "or_default")]
    file_deps: Globs,
    n_files: Option<NonZeroU64>,
}

#[derive(Clone, Copy, Deserialize)]
enum Committed {
    #[serde(rename = "on_termination")]
    Termination,
    #[serde(rename = "on_close")]
    Close,
    #[serde(rename = "on_file")]
    File,
    #[serde(rename = "on_n_files")]
    NFiles,
}

impl TryFrom<OutputFields> for Output {
    type Error = String;

    fn try_from(fields: OutputFields) -> Result<Self, String> {
        let OutputFields { port, root, kind, globs: own, rules, phases, closes } = fields;
        let mut globs = patterns(own.as_deref().unwrap_or_default(), &root)?;
        let mut read = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            let mut rule = rule.read(&root).map_err(|message| format!("rules[{index}]: {message}"))?;
            if own.is_none() {
                globs.extend(rule.globs.iter().cloned());
                if kind == Kind::Directory {
                    // Without globs of its own, those of a directory's rules say where the directory is.
                    rule.globs.clear();
                }
            }
            read.push(rule);
        }
        Ok(Self { port, root, kind, globs, rules: read, phases, tells_all: closes })
    }
}

impl RuleFields {
    fn read(&self, root: &Path) -> Result<Rule, String> {
        let closes = self.closes.map_or(1, |closes| u32::try_from(closes.get()).unwrap_or(u32::MAX));
        let commit = match self.committed {
            Committed::Termination => Commit::Termination,
            Committed::Close => Commit::Close(closes),
            Committed::NFiles => Commit::NFiles(self.n_files.ok_or("nFiles: is missing with on_n_files")?.get()),
            Committed::File if self.file_deps.is_empty() => {
                return Err("fileDeps: at least one port or glob with on_file".into());
            }
            Committed::File => {
                Commit::File(patterns(&self.file_deps, root)?.into_iter().map(Dependency::Glob).collect())
            }
        };
        Ok(Rule { globs: patterns(&self.globs, root)?, commit })
    }
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

    /// Whether `path` is among the `fileDeps` of a rule.
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

    /// Whether closes are told: where a rule needs them, or somebody wants to know.
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
