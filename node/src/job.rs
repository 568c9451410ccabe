//! What `exec` shall do: `job.json`, read and checked.

use std::ffi::{OsStr, OsString};
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::json::Json;
use crate::pattern::Pattern;
use crate::verify::Verify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Files,
    Directory,
}

/// A byte stream into the command.
#[derive(Clone, Debug)]
pub struct Input {
    pub name: String,
    pub port: String,
    /// Where the producer has the file.
    pub path: PathBuf,
    pub access: Access,
    pub target: Target,
    /// How much of it is compared with the file at the commit.
    pub verify: Verify,
}

/// How the file of a producer, and what is told of it, are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The producer runs here: these are its events.
    Events(PathBuf),
    Link(Link),
}

/// The `serve` of the machine where a producer runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub address: SocketAddr,
    /// The producer's job there.
    pub job: OsString,
    /// The file of the key.
    pub key: PathBuf,
    /// It speaks TLS, and so shall we.
    pub tls: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Fifo(PathBuf),
    Stdin,
}

/// An input at which the command is held until it is committed.
#[derive(Clone, Debug)]
pub struct Gate {
    pub name: String,
    pub port: String,
    pub path: PathBuf,
    pub events: PathBuf,
    pub target: PathBuf,
    /// A file or a directory.
    pub kind: Kind,
    /// A listing of the directory delivers entries as they are committed.
    pub delivers: bool,
}

/// An input file or directory of which is told how it is read.
#[derive(Clone, Debug)]
pub struct Observed {
    pub name: String,
    pub path: PathBuf,
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Commit {
    Termination,
    Close(u32),
    File(Vec<Dependency>),
    NFiles(u64),
}

/// A commit rule, for the files that match `globs` (all, when there is none).
#[derive(Clone, Debug)]
pub struct Rule {
    pub globs: Vec<Pattern>,
    pub commit: Commit,
}

/// An output that is watched.
#[derive(Clone, Debug)]
pub struct Output {
    pub port: String,
    pub root: PathBuf,
    pub kind: Kind,
    pub globs: Vec<Pattern>,
    pub rules: Vec<Rule>,
    /// The job is observed: all closes are told.
    pub observed: bool,
}

#[derive(Debug, Default)]
pub struct Job {
    pub success_codes: Vec<i32>,
    pub stdin: Option<PathBuf>,
    pub stdout: Option<PathBuf>,
    pub stderr: Option<PathBuf>,
    pub outputs: Vec<Output>,
    pub inputs: Vec<Input>,
    pub gates: Vec<Gate>,
    /// None: the job is not observed.
    pub observed: Option<Vec<Observed>>,
    /// Time in I/O is asked for.
    pub measure: bool,
}

impl Job {
    /// Reads `job.json`.
    ///
    /// # Errors
    /// One message that names the file, the field and what is wrong with it.
    pub fn load(path: &Path) -> Result<Self, String> {
        let at = |message: String| format!("{}: {message}", path.display());
        let bytes = std::fs::read(path).map_err(|error| at(error.to_string()))?;
        Self::read(&bytes).map_err(at)
    }

    fn read(bytes: &[u8]) -> Result<Self, String> {
        let json = Json::parse(bytes)?;
        let fields = Fields::new(&json, String::new(), &JOB_FIELDS)?;
        fields.text("name")?;
        let mut success_codes = Vec::new();
        for code in fields.list("successCodes")? {
            success_codes.push(code.whole(i64::from(i32::MIN))? as i32);
        }
        if success_codes.is_empty() {
            success_codes.push(0);
        }
        let outputs = fields.list("outputs")?;
        let mut ports = Vec::new();
        for output in &outputs {
            ports.push(Fields::new(output.json, output.at.clone(), &OUTPUT_FIELDS)?.text("port")?);
        }
        let observed = fields.optional("observed").is_some();
        let job = Self {
            success_codes,
            stdin: fields.optional_path("stdin")?,
            stdout: fields.optional_path("stdout")?,
            stderr: fields.optional_path("stderr")?,
            outputs: outputs.iter().map(|output| read_output(output, &ports, observed)).collect::<Result<_, _>>()?,
            inputs: fields.list("inputs")?.iter().map(read_input).collect::<Result<_, _>>()?,
            gates: fields.list("gates")?.iter().map(read_gate).collect::<Result<_, _>>()?,
            observed: match fields.list("observed")?.iter().map(read_observed).collect::<Result<_, _>>()? {
                inputs if observed => Some(inputs),
                _ => None,
            },
            measure: fields.flag("measure")?,
        };
        let streamed = job.inputs.iter().filter(|input| input.target == Target::Stdin).count();
        if streamed + usize::from(job.stdin.is_some()) > 1 {
            return Err("inputs: at most one of \"stdin\" and the targets {\"stdin\": true}".into());
        }
        Ok(job)
    }
}

const JOB_FIELDS: [&str; 10] =
    ["name", "successCodes", "stdin", "stdout", "stderr", "outputs", "inputs", "gates", "observed", "measure"];
const OUTPUT_FIELDS: [&str; 5] = ["port", "root", "kind", "globs", "rules"];
const RULE_FIELDS: [&str; 5] = ["globs", "committed", "closes", "fileDeps", "nFiles"];
const GATE_FIELDS: [&str; 7] = ["name", "port", "path", "events", "target", "kind", "mode"];
const INPUT_FIELDS: [&str; 7] = ["name", "port", "path", "events", "link", "target", "verify"];

fn read_input(value: &Value) -> Result<Input, String> {
    let fields = Fields::new(value.json, value.at.clone(), &INPUT_FIELDS)?;
    let target = fields.required("target")?;
    let target = match (target.json.get("fifo").and_then(Json::text), target.json.get("stdin")) {
        (Some(path), None) => Target::Fifo(path_of(path)),
        (None, Some(Json::Bool(true))) => Target::Stdin,
        _ => return Err(target.error("{\"fifo\": PATH} or {\"stdin\": true}")),
    };
    Ok(Input {
        name: fields.text("name")?,
        port: fields.text("port")?,
        path: fields.path("path")?,
        access: read_access(&fields)?,
        target,
        verify: read_verify(&fields)?,
    })
}

fn read_verify(fields: &Fields) -> Result<Verify, String> {
    let Some(value) = fields.optional("verify") else { return Ok(Verify::default()) };
    value.json.text().and_then(Verify::parse).ok_or_else(|| value.error("full or samples"))
}

fn read_access(fields: &Fields) -> Result<Access, String> {
    match (fields.optional_path("events")?, fields.optional("link")) {
        (Some(events), None) => Ok(Access::Events(events)),
        (None, Some(link)) => read_link(&link).map(Access::Link),
        _ => Err(format!("{}: exactly one of \"events\" and \"link\"", fields.at)),
    }
}

fn read_link(value: &Value) -> Result<Link, String> {
    let fields = Fields::new(value.json, value.at.clone(), &["address", "job", "key", "tls"])?;
    let address = fields.text("address")?.parse();
    let job = fields.path("job")?;
    Ok(Link {
        address: address.map_err(|_| fields.place("address") + ": has to be IP:PORT")?,
        job: name_of_job(&job).ok_or_else(|| fields.place("job") + ": has to be the name of a job")?.to_owned(),
        key: fields.path("key")?,
        tls: fields.flag("tls")?,
    })
}

/// The name of a job's directory, if `path` is one.
pub fn name_of_job(path: &Path) -> Option<&OsStr> {
    path.file_name().filter(|name| *name == path.as_os_str())
}

fn read_observed(value: &Value) -> Result<Observed, String> {
    let fields = Fields::new(value.json, value.at.clone(), &["name", "path"])?;
    let path = fields.path("path")?;
    if !path.is_absolute() {
        return Err(fields.required("path")?.error("an absolute path"));
    }
    Ok(Observed { name: fields.text("name")?, path })
}

fn read_gate(value: &Value) -> Result<Gate, String> {
    let fields = Fields::new(value.json, value.at.clone(), &GATE_FIELDS)?;
    let target = fields.path("target")?;
    if !target.is_absolute() || target.file_name().is_none() {
        return Err(fields.required("target")?.error("an absolute path"));
    }
    let kind = match fields.text("kind")?.as_str() {
        "file" => Kind::File,
        "directory" => Kind::Directory,
        _ => return Err(fields.required("kind")?.error("file or directory")),
    };
    let mode = fields.optional("mode");
    let delivers = match mode.as_ref().map(|mode| mode.json.text().unwrap_or_default()) {
        None | Some(b"update") => false,
        Some(b"no_update") if kind == Kind::Directory => true,
        _ => return Err(fields.required("mode")?.error("update, or no_update with the kind directory")),
    };
    Ok(Gate {
        name: fields.text("name")?,
        port: fields.text("port")?,
        path: fields.path("path")?,
        events: fields.path("events")?,
        target,
        kind,
        delivers,
    })
}

fn read_output(value: &Value, ports: &[String], observed: bool) -> Result<Output, String> {
    let fields = Fields::new(value.json, value.at.clone(), &OUTPUT_FIELDS)?;
    let root = fields.path("root")?;
    if !root.is_absolute() {
        return Err(fields.required("root")?.error("an absolute path"));
    }
    let kind = match fields.text("kind")?.as_str() {
        "file" => Kind::File,
        "files" => Kind::Files,
        "directory" => Kind::Directory,
        _ => return Err(fields.required("kind")?.error("file, files or directory")),
    };
    let own = fields.optional("globs");
    // Without globs of its own, those of a directory's rules say where the directory is.
    let entries_named = kind != Kind::Directory || own.is_some();
    let mut globs = fields.globs("globs", &root)?;
    let mut rules = Vec::new();
    for rule in fields.list("rules")? {
        let fields = Fields::new(rule.json, rule.at.clone(), &RULE_FIELDS)?;
        let mut rule = Rule { globs: fields.globs("globs", &root)?, commit: read_commit(&fields, &root, ports)? };
        if own.is_none() {
            globs.extend(rule.globs.iter().cloned());
        }
        if !entries_named {
            rule.globs.clear();
        }
        rules.push(rule);
    }
    Ok(Output { port: fields.text("port")?, root, kind, globs, rules, observed })
}

fn read_commit(fields: &Fields, root: &Path, ports: &[String]) -> Result<Commit, String> {
    let committed = fields.required("committed")?;
    match committed.json.text().unwrap_or_default() {
        b"on_termination" => Ok(Commit::Termination),
        b"on_close" => {
            let closes = fields.optional("closes").map_or(Ok(1), |closes| closes.whole(1))?;
            Ok(Commit::Close(u32::try_from(closes).unwrap_or(u32::MAX)))
        }
        b"on_n_files" => Ok(Commit::NFiles(fields.required("nFiles")?.whole(1)? as u64)),
        b"on_file" => {
            let mut dependencies = Vec::new();
            for dependency in fields.list("fileDeps")? {
                let text = dependency.json.text().ok_or_else(|| dependency.error("a port or a glob"))?;
                let port = ports.iter().find(|port| port.as_bytes() == text).cloned();
                dependencies.push(match port {
                    Some(port) => Dependency::Port(port),
                    None => Dependency::Glob(dependency.glob(root)?),
                });
            }
            if dependencies.is_empty() {
                return Err(format!("{}: fileDeps: at least one port or glob with on_file", fields.at));
            }
            Ok(Commit::File(dependencies))
        }
        _ => Err(committed.error("on_termination, on_close, on_file or on_n_files")),
    }
}

/// A value and where it stands, such as `outputs[0].rules[1].closes`.
struct Value<'a> {
    json: &'a Json,
    at: String,
}

impl Value<'_> {
    fn error(&self, allowed: &str) -> String {
        format!("{}: has to be {allowed}", self.at)
    }

    fn whole(&self, least: i64) -> Result<i64, String> {
        let number = self.json.integer().filter(|number| *number >= least);
        number.ok_or_else(|| self.error(&format!("a whole number, at least {least}")))
    }

    fn glob(&self, root: &Path) -> Result<Pattern, String> {
        let text = self.json.text().ok_or_else(|| self.error("a glob"))?;
        Pattern::new(&path_of(text), root).map_err(|message| format!("{}: {message}", self.at))
    }
}

/// The members of an object of which all names are known.
struct Fields<'a> {
    json: &'a Json,
    at: String,
}

impl<'a> Fields<'a> {
    fn new(json: &'a Json, at: String, known: &[&str]) -> Result<Self, String> {
        let Json::Object(members) = json else { return Err(format!("{at}: has to be an object")) };
        match members.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            Some((name, _)) => Err(format!("{at}: unknown field {name:?}; allowed: {}", known.join(", "))),
            None => Ok(Self { json, at }),
        }
    }

    fn place(&self, name: &str) -> String {
        if self.at.is_empty() {
            name.into()
        } else {
            format!("{}.{name}", self.at)
        }
    }

    fn optional(&self, name: &str) -> Option<Value<'a>> {
        let json = self.json.get(name).filter(|json| **json != Json::Null)?;
        Some(Value { json, at: self.place(name) })
    }

    fn required(&self, name: &str) -> Result<Value<'a>, String> {
        self.optional(name).ok_or_else(|| format!("{}: is missing", self.place(name)))
    }

    fn text(&self, name: &str) -> Result<String, String> {
        let value = self.required(name)?;
        let text = value.json.text().ok_or_else(|| value.error("a string"))?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    fn path(&self, name: &str) -> Result<PathBuf, String> {
        self.required(name)?;
        self.optional_path(name).map(Option::unwrap_or_default)
    }

    fn optional_path(&self, name: &str) -> Result<Option<PathBuf>, String> {
        let Some(value) = self.optional(name) else { return Ok(None) };
        value.json.text().map(|text| Some(path_of(text))).ok_or_else(|| value.error("a path"))
    }

    /// False when it is missing.
    fn flag(&self, name: &str) -> Result<bool, String> {
        match self.optional(name) {
            None => Ok(false),
            Some(Value { json: Json::Bool(flag), .. }) => Ok(*flag),
            Some(value) => Err(value.error("true or false")),
        }
    }

    fn list(&self, name: &str) -> Result<Vec<Value<'a>>, String> {
        let Some(value) = self.optional(name) else { return Ok(Vec::new()) };
        let Json::List(items) = value.json else { return Err(value.error("a list")) };
        Ok(items.iter().enumerate().map(|(index, json)| Value { json, at: format!("{}[{index}]", value.at) }).collect())
    }

    fn globs(&self, name: &str, root: &Path) -> Result<Vec<Pattern>, String> {
        self.list(name)?.iter().map(|glob| glob.glob(root)).collect()
    }
}

/// One form for one path, so that they can be compared as texts.
fn path_of(text: &[u8]) -> PathBuf {
    Path::new(OsStr::from_bytes(text)).components().collect()
}

impl Output {
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
        self.observed || self.commits_early()
    }

    /// Whether the file `path` of a directory is committed by its first close: then only that is told.
    pub fn commits_at_close(&self, path: &Path) -> bool {
        let at_close = |rule: usize| matches!(self.rules[rule].commit, Commit::Close(1) | Commit::NFiles(_));
        self.kind == Kind::Directory && self.rule_of(path).flatten().is_some_and(at_close)
    }

    /// Whether the closes of one file are counted.
    pub fn counts_closes(&self) -> bool {
        self.observed || self.rules.iter().any(|rule| matches!(rule.commit, Commit::Close(closes) if closes > 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Job, String> {
        Job::read(text.as_bytes())
    }

    #[test]
    fn page_example() {
        let job = load(
            r#"{"name": "/align/0.1", "successCodes": [0, 3], "stdout": "/o/out",
            "outputs": [{"port": "a", "root": "/o/./", "kind": "file", "rules": [{"globs": ["*.sam"], "committed": "on_close",
              "closes": 2, "fileDeps": [], "nFiles": null}]}],
            "inputs": [{"name": "r", "port": "p", "path": "/p/r.fq", "events": "/RUN/e", "target": {"fifo": "/i/r.fq"}}]}"#,
        )
        .unwrap();
        assert_eq!(job.stdout, Some("/o/out".into()));
        assert_eq!(job.outputs[0].root.as_os_str(), "/o");
        assert_eq!(job.outputs[0].rules[0].commit, Commit::Close(2));
        assert_eq!(job.outputs[0].rule_of(Path::new("/o/x.sam")), Some(Some(0)));
        assert_eq!(job.outputs[0].rule_of(Path::new("/o/x.bam")), None);
        assert_eq!(job.inputs[0].target, Target::Fifo("/i/r.fq".into()));
        assert!(!job.measure);
    }

    #[test]
    fn links() {
        let input = |access: &str| {
            let text = format!(
                r#"{{"name": "n", "inputs": [{{"name": "r", "port": "p", "path": "/p/r", "target": {{"stdin": true}}{access}}}]}}"#
            );
            load(&text).map(|mut job| job.inputs.remove(0).access)
        };
        let link = |address: &str, job: &str| {
            input(&format!(r#", "link": {{"address": "{address}", "job": "{job}", "key": "/RUN/key"}}"#))
        };
        let expected = |address: &str, tls| {
            let address = address.parse().unwrap();
            Access::Link(Link { address, job: "j 1".into(), key: "/RUN/key".into(), tls })
        };
        for address in ["127.0.0.1:80", "[::1]:80"] {
            assert_eq!(link(address, "j 1").unwrap(), expected(address, false));
        }
        let told = |tls: &str| {
            input(&format!(r#", "link": {{"address": "127.0.0.1:80", "job": "j 1", "key": "/RUN/key", "tls": {tls}}}"#))
        };
        assert_eq!(told("true").unwrap(), expected("127.0.0.1:80", true));
        assert_eq!(told("false").unwrap(), expected("127.0.0.1:80", false));
        for (wrong, word) in [
            (link("host:80", "j"), "inputs[0].link.address: has to be IP:PORT"),
            (link("127.0.0.1", "j"), "inputs[0].link.address: has to be IP:PORT"),
            (link("127.0.0.1:1", ".."), "inputs[0].link.job: has to be the name of a job"),
            (link("127.0.0.1:1", "a/b"), "inputs[0].link.job: has to be the name of a job"),
            (input(""), "inputs[0]: exactly one of"),
            (input(r#", "events": "/e", "link": {}"#), "inputs[0]: exactly one of"),
            (told("1"), "inputs[0].link.tls: has to be true or false"),
            (input(r#", "link": {"address": "127.0.0.1:1"}"#), "inputs[0].link.job: is missing"),
        ] {
            let message = wrong.unwrap_err();
            assert!(message.starts_with(word), "{message}");
        }
    }

    #[test]
    fn measuring() {
        assert!(load(r#"{"name": "n", "measure": true}"#).unwrap().measure);
        assert!(!load(r#"{"name": "n", "measure": null}"#).unwrap().measure);
        let message = load(r#"{"name": "n", "measure": 1}"#).unwrap_err();
        assert_eq!(message, "measure: has to be true or false");
    }

    #[test]
    fn observing() {
        let job = load(r#"{"name": "n", "observed": [{"name": "r", "path": "/i/r"}]}"#).unwrap();
        assert_eq!(job.observed.unwrap()[0].path, Path::new("/i/r"));
        let output = r#""outputs": [{"port": "p", "root": "/o", "kind": "file", "globs": ["a"]}]"#;
        for (observed, tells) in [("", false), (r#", "observed": null"#, false), (r#", "observed": []"#, true)] {
            let job = load(&format!(r#"{{"name": "n", {output}{observed}}}"#)).unwrap();
            assert_eq!((job.observed.is_some(), job.outputs[0].tells_closes()), (tells, tells), "{observed}");
            assert!(!job.outputs[0].commits_early());
        }
        for (observed, word) in [("1", "observed: "), (r#"[{"name": "r", "path": "r"}]"#, "observed[0].path: ")] {
            let message = load(&format!(r#"{{"name": "n", "observed": {observed}}}"#)).unwrap_err();
            assert!(message.starts_with(word), "{message}");
        }
    }

    #[test]
    fn gates() {
        let gate = |more: &str| {
            let text = format!(
                r#"{{"name": "n", "gates": [{{"name": "g", "port": "p", "path": "/p/d", "events": "/e", {more}}}]}}"#
            );
            load(&text).map(|mut job| job.gates.remove(0))
        };
        let directory = gate(r#""target": "/t/d", "kind": "directory", "mode": "no_update""#).unwrap();
        assert_eq!((directory.kind, directory.delivers, directory.target), (Kind::Directory, true, "/t/d".into()));
        assert!(!gate(r#""target": "/t/d", "kind": "file""#).unwrap().delivers);
        for (more, word) in [
            (r#""target": "t", "kind": "file""#, "gates[0].target"),
            (r#""target": "/t", "kind": "files""#, "gates[0].kind"),
            (r#""target": "/t", "kind": "file", "mode": "no_update""#, "gates[0].mode"),
            (r#""kind": "file""#, "gates[0].target: is missing"),
        ] {
            let message = gate(more).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn directory_entries() {
        let job = load(
            r#"{"name": "n", "outputs": [{"port": "d", "root": "/o", "kind": "directory", "globs": ["out"],
            "rules": [{"globs": ["chr22.*"], "committed": "on_close"}]}]}"#,
        )
        .unwrap();
        let output = &job.outputs[0];
        assert_eq!(output.rule_of(Path::new("/o/out/chr22.vcf")), Some(Some(0)));
        assert_eq!(output.rule_of(Path::new("/o/out/.hidden")), Some(None));
        assert_eq!(output.rule_of(Path::new("/o/other/chr22.vcf")), None);
        for (directory, reached) in [("/o", true), ("/o/out", true), ("/o/out/deep/er", true), ("/o/other", false)] {
            assert_eq!(output.reaches(Path::new(directory)), reached, "{directory}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (rule, word) in [
            (r#"{"committed": "on_close", "closes": 0}"#, "closes"),
            (r#"{"committed": "on_n_files"}"#, "nFiles"),
            (r#"{"committed": "on_file"}"#, "fileDeps"),
            (r#"{"committed": "on_clos"}"#, "on_close"),
            (r#"{"committed": "on_close", "globs": ["../x"]}"#, "../x"),
            (r#"{"committed": "on_close", "close": 1}"#, "close"),
        ] {
            let text = format!(
                r#"{{"name": "n", "outputs": [{{"port": "p", "root": "/o", "kind": "file", "rules": [{rule}]}}]}}"#
            );
            let message = load(&text).unwrap_err();
            assert!(message.contains(word), "{message}");
        }
    }
}
