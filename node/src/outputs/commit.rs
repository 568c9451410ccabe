//! The rules of commit: facts about files in, decisions out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::protocol::job::{Commit, Dependency, Kind, Output, Rule};
use crate::protocol::wording::{counted, how_often};

/// A fact about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The file exists.
    Exists,
    /// The file was closed after writing, and not because its writer died.
    Closed,
    /// The file or directory was removed or moved away, with everything below it.
    Gone,
}

/// A consequence for the driver. `port` is the index of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub port: usize,
    pub what: What,
}

/// The kinds of decisions. `Unmet`: the job has ended before the condition of a rule, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Opened(PathBuf),
    Closed { path: PathBuf, closes: u32 },
    Committed(PathBuf),
    Complete,
    Unmet(String),
}

#[derive(Debug, Default)]
struct File {
    rule: Option<usize>,
    closes: u32,
    committed: bool,
    /// The file was removed after its commit. A removed file does not count until it is closed again.
    removed: bool,
}

/// How far a rule has got.
#[derive(Debug, Default)]
struct Progress {
    closes: u64,
    /// Committed files that exist.
    committed: u64,
    /// Entries of `fileDeps` that are not committed yet.
    awaited: Vec<Dependency>,
    /// The files that existed when the last of `awaited` was committed have been committed, too.
    released: bool,
}

#[derive(Debug)]
struct Tracked {
    output: Output,
    /// Files by path. Plain names are compared at a fraction of the cost of paths.
    files: BTreeMap<OsString, File>,
    rules: Vec<Progress>,
    complete: bool,
}

/// Applies the commit rules of a job's outputs.
///
/// Each file is opened and committed at most once. Each output is complete at most once, and after its files.
#[derive(Debug)]
pub struct Tracker {
    outputs: Vec<Tracked>,
}

impl Tracker {
    pub fn new(outputs: &[Output]) -> Self {
        let track = |output: &Output| {
            let progress = |rule: &Rule| match &rule.commit {
                Commit::File(deps) => Progress { awaited: deps.clone(), ..Progress::default() },
                _ => Progress::default(),
            };
            let rules = output.rules.iter().map(progress).collect();
            Tracked { output: output.clone(), files: BTreeMap::new(), rules, complete: false }
        };
        Self { outputs: outputs.iter().map(track).collect() }
    }

    pub fn handle(&mut self, path: &Path, fact: Fact) -> Vec<Decision> {
        self.handle_all(&[path.to_owned()], fact)
    }

    /// Handles the same fact about several files. An output that becomes complete by one of them contains all of them.
    pub fn handle_all(&mut self, paths: &[PathBuf], fact: Fact) -> Vec<Decision> {
        let mut decisions = Vec::new();
        for path in paths {
            self.note(path, fact, &mut decisions);
        }
        self.propagate(&mut decisions);
        decisions
    }

    fn note(&mut self, path: &Path, fact: Fact, decisions: &mut Vec<Decision>) {
        for port in 0..self.outputs.len() {
            if fact == Fact::Gone {
                self.outputs[port].remove(path);
                continue;
            }
            let Some(rule) = self.outputs[port].output.rule_of(path) else { continue };
            self.open(port, path, rule, decisions);
            if fact == Fact::Closed {
                self.close(port, path, decisions);
            }
        }
        let of_an_output = || self.outputs.iter().any(|tracked| tracked.output.rule_of(path).is_some());
        if fact == Fact::Closed && !of_an_output() {
            self.meet(path);
        }
    }

    /// Returns how often `path` was closed, or 0 if its closes do not count.
    pub fn closes(&self, path: &Path) -> u32 {
        let files = self.outputs.iter().filter_map(|tracked| tracked.files.get(path.as_os_str()));
        files.map(|file| file.closes).max().unwrap_or(0)
    }

    /// Commits the files `existing`, which a job has left that ended with a success code, and completes all outputs.
    pub fn finish(&mut self, existing: &[PathBuf]) -> Vec<Decision> {
        let mut decisions = Vec::new();
        let unmet: Vec<_> = self.outputs.iter().map(|tracked| tracked.unmet(existing)).collect();
        for port in 0..self.outputs.len() {
            for path in existing {
                if let Some(rule) = self.outputs[port].output.rule_of(path) {
                    self.open(port, path, rule, &mut decisions);
                    self.commit(port, path, &mut decisions);
                }
            }
        }
        for (port, unmet) in unmet.into_iter().enumerate() {
            decisions.extend(unmet.into_iter().map(|why| Decision { port, what: What::Unmet(why) }));
            self.complete(port, &mut decisions);
        }
        decisions
    }

    fn open(&mut self, port: usize, path: &Path, rule: Option<usize>, decisions: &mut Vec<Decision>) {
        let files = &mut self.outputs[port].files;
        if !files.contains_key(path.as_os_str()) {
            files.insert(path.into(), File { rule, ..File::default() });
            decisions.push(Decision { port, what: What::Opened(path.to_owned()) });
        }
    }

    fn close(&mut self, port: usize, path: &Path, decisions: &mut Vec<Decision>) {
        let tracked = &mut self.outputs[port];
        if !tracked.output.tells_closes() {
            return;
        }
        let Some(file) = tracked.files.get_mut(path.as_os_str()) else { return };
        file.closes += 1;
        decisions.push(Decision { port, what: What::Closed { path: path.to_owned(), closes: file.closes } });
        let Some(rule) = file.rule else { return };
        tracked.rules[rule].closes += 1;
        if std::mem::take(&mut file.removed) {
            tracked.rules[rule].committed += 1;
        }
        let due = match &tracked.output.rules[rule].commit {
            Commit::Termination => false,
            Commit::Close(closes) => file.closes >= *closes,
            Commit::File(_) => tracked.rules[rule].awaited.is_empty(),
            Commit::NFiles(_) => true,
        };
        if due {
            self.commit(port, path, decisions);
        }
    }

    fn commit(&mut self, port: usize, path: &Path, decisions: &mut Vec<Decision>) {
        let tracked = &mut self.outputs[port];
        let Some(file) = tracked.files.get_mut(path.as_os_str()).filter(|file| !file.committed) else { return };
        file.committed = true;
        if let Some(rule) = file.rule {
            tracked.rules[rule].committed += 1;
        }
        decisions.push(Decision { port, what: What::Committed(path.to_owned()) });
        self.meet(path);
    }

    /// Removes `path`, which is committed, from what rules wait for.
    fn meet(&mut self, path: &Path) {
        for waiting in &mut self.outputs {
            let Ok(name) = path.strip_prefix(&waiting.output.root) else { continue };
            let met = |dep: &Dependency| matches!(dep, Dependency::Glob(glob) if glob.matches_anywhere(name));
            waiting.rules.iter_mut().for_each(|rule| rule.awaited.retain(|dep| !met(dep)));
        }
    }

    fn complete(&mut self, port: usize, decisions: &mut Vec<Decision>) {
        if std::mem::replace(&mut self.outputs[port].complete, true) {
            return;
        }
        decisions.push(Decision { port, what: What::Complete });
        let done = Dependency::Port(self.outputs[port].output.port.clone());
        for waiting in &mut self.outputs {
            waiting.rules.iter_mut().for_each(|rule| rule.awaited.retain(|dep| *dep != done));
        }
    }

    /// Follows dependencies until nothing changes.
    fn propagate(&mut self, decisions: &mut Vec<Decision>) {
        loop {
            let before = decisions.len();
            for port in 0..self.outputs.len() {
                for path in self.released(port) {
                    self.commit(port, &path, decisions);
                }
                if self.outputs[port].is_complete() {
                    // A directory is committed as a whole, with the entries that were closed.
                    for path in self.outputs[port].closed_entries() {
                        self.commit(port, &path, decisions);
                    }
                    self.complete(port, decisions);
                }
            }
            if decisions.len() == before {
                return;
            }
        }
    }

    /// Returns files whose dependencies have just been met. A file that appears later is committed when it is closed.
    fn released(&mut self, port: usize) -> Vec<PathBuf> {
        let tracked = &mut self.outputs[port];
        let mut released = Vec::new();
        for (index, rule) in tracked.output.rules.iter().enumerate() {
            let progress = &mut tracked.rules[index];
            if !matches!(rule.commit, Commit::File(_)) || !progress.awaited.is_empty() || progress.released {
                continue;
            }
            progress.released = true;
            let held = tracked.files.iter().filter(|(_, file)| file.rule == Some(index) && !file.committed);
            released.extend(held.map(|(path, _)| PathBuf::from(path)));
        }
        released
    }
}

impl Tracked {
    /// Forgets `path` and what was below it: a file that takes the place of one begins anew. Commits stay.
    fn remove(&mut self, path: &Path) {
        let mut inside = path.as_os_str().to_owned();
        inside.push("/");
        let from = self.files.range(inside.clone()..).map(|(name, _)| name);
        let below = from.take_while(|name| name.as_bytes().starts_with(inside.as_bytes())).cloned();
        for name in below.chain([path.into()]).collect::<Vec<OsString>>() {
            let Some(file) = self.files.get_mut(&name) else { continue };
            if !file.committed {
                self.files.remove(&name);
            } else if !std::mem::replace(&mut file.removed, true) {
                file.rule.into_iter().for_each(|rule| self.rules[rule].committed -= 1);
            }
        }
    }

    /// Returns a message for each rule whose condition was not met by a job that has left the files `existing`.
    fn unmet(&self, existing: &[PathBuf]) -> Vec<String> {
        if self.complete {
            return Vec::new();
        }
        let rules = self.output.rules.iter().enumerate();
        rules.filter_map(|(index, rule)| self.unmet_by(index, rule, existing)).collect()
    }

    fn unmet_by(&self, index: usize, rule: &Rule, existing: &[PathBuf]) -> Option<String> {
        let of_rule = || existing.iter().filter(|path| self.output.rule_of(path) == Some(Some(index)));
        let waits = |path: &&PathBuf| self.files.get(path.as_os_str()).is_none_or(|file| !file.committed);
        match &rule.commit {
            Commit::NFiles(promised) => {
                let found = of_rule().count() as u64;
                (found < *promised)
                    .then(|| format!("on_n_files promised {}, found {found} at the end", counted(*promised, "file")))
            }
            Commit::Close(promised) if *promised > 1 => {
                let path = of_rule().find(waits)?;
                let is_whole = self.output.kind == Kind::Directory;
                let closes = self.files.get(path.as_os_str()).map_or(0, |file| u64::from(file.closes));
                let found = if is_whole { self.rules[index].closes } else { closes };
                let name = if is_whole { &self.output.root } else { path }.file_name().unwrap_or_default();
                let what = if is_whole { "its files were".into() } else { format!("{} was", name.to_string_lossy()) };
                Some(format!("on_close:{promised} never came, {what} closed {}", how_often(found)))
            }
            Commit::File(_) => {
                of_rule().find(waits)?;
                let awaited: Vec<String> = self.rules[index].awaited.iter().map(ToString::to_string).collect();
                (!awaited.is_empty()).then(|| format!("on_file waited for {} to the end", awaited.join(", ")))
            }
            _ => None,
        }
    }

    fn is_complete(&self) -> bool {
        if self.complete || self.output.kind == Kind::File {
            return !self.complete && self.files.values().any(|file| file.committed);
        }
        let holds = |(rule, progress): (&Rule, &Progress)| match &rule.commit {
            Commit::Termination => false,
            // One close says nothing about a directory as a whole.
            Commit::Close(closes) => {
                self.output.kind == Kind::Directory && *closes > 1 && progress.closes >= u64::from(*closes)
            }
            Commit::File(_) => progress.awaited.is_empty(),
            Commit::NFiles(number) => progress.committed >= *number,
        };
        !self.rules.is_empty() && self.output.rules.iter().zip(&self.rules).all(holds)
    }

    fn closed_entries(&self) -> Vec<PathBuf> {
        let closed = |file: &File| self.output.kind == Kind::Directory && file.closes > 0 && !file.committed;
        self.files.iter().filter(|(_, file)| closed(file)).map(|(path, _)| path.into()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::pattern::Pattern;

    fn output(port: &str, kind: Kind, glob: &str, rules: Vec<(Vec<&str>, Commit)>) -> Output {
        let root = PathBuf::from("/o");
        let pattern = |text: &str| Pattern::new(Path::new(text), Path::new("/o")).unwrap();
        let rules = rules
            .into_iter()
            .map(|(globs, commit)| Rule { globs: globs.into_iter().map(pattern).collect(), commit })
            .collect();
        let globs = vec![pattern(glob)];
        Output { port: port.into(), globs, root, kind, rules, tells_all: false, window: None }
    }

    /// Runs `script` (lines of `+file`, `!file` for a close, `-file`) and writes decisions as short words.
    fn run(outputs: &[Output], script: &str, end: Option<&[&str]>) -> String {
        let mut tracker = Tracker::new(outputs);
        let mut words = Vec::new();
        let mut note = |decisions: Vec<Decision>| {
            for decision in decisions {
                let name = |path: PathBuf| path.strip_prefix("/o").unwrap().display().to_string();
                words.push(match decision.what {
                    What::Opened(path) => format!("+{}", name(path)),
                    What::Closed { path, closes } => format!("{}:{closes}", name(path)),
                    What::Committed(path) => format!("={}", name(path)),
                    What::Complete => format!("#{}", outputs[decision.port].port),
                    What::Unmet(why) => format!("({})", why.replace(' ', "_")),
                });
            }
        };
        for step in script.split_whitespace() {
            let fact = match &step[..1] {
                "+" => Fact::Exists,
                "!" => Fact::Closed,
                _ => Fact::Gone,
            };
            note(tracker.handle(&Path::new("/o").join(&step[1..]), fact));
        }
        if let Some(existing) = end {
            note(tracker.finish(&existing.iter().map(|name| Path::new("/o").join(name)).collect::<Vec<_>>()));
        }
        words.join(" ")
    }

    #[test]
    fn one_file() {
        let rule = |commit| [output("p", Kind::File, "*.x", vec![(vec![], commit)])];
        for (commit, script, end, expected) in [
            (Commit::Termination, "+a.x !a.x", Some(&["a.x"][..]), "+a.x =a.x #p"),
            (Commit::Termination, "+a.x !a.x", None, "+a.x"),
            (Commit::Close(1), "+a.x !a.x !a.x", Some(&["a.x"]), "+a.x a.x:1 =a.x #p a.x:2"),
            (Commit::Close(2), "+a.x !a.x !a.x", None, "+a.x a.x:1 a.x:2 =a.x #p"),
            (
                Commit::Close(2),
                "+a.x !a.x",
                Some(&["a.x"]),
                "+a.x a.x:1 =a.x (on_close:2_never_came,_a.x_was_closed_once) #p",
            ),
            (Commit::Close(2), "!a.x -a.x !a.x", None, "+a.x a.x:1 +a.x a.x:1"),
            (Commit::Close(1), "+b.y !b.y", Some(&["b.y"]), "#p"),
            (Commit::Close(1), "+a.x", Some(&[]), "+a.x #p"),
            (Commit::Close(2), "!a.x !b.x !b.x", None, "+a.x a.x:1 +b.x b.x:1 b.x:2 =b.x #p"),
        ] {
            assert_eq!(run(&rule(commit.clone()), script, end), expected, "{commit:?} {script}");
        }
    }

    #[test]
    fn many_files() {
        let files = |commit| [output("p", Kind::Files, "*", vec![(vec![], commit)])];
        for (commit, script, end, expected) in [
            (Commit::Close(1), "!a !b", Some(&["a", "b"][..]), "+a a:1 =a +b b:1 =b #p"),
            (Commit::Close(2), "!a !a !b !b", None, "+a a:1 a:2 =a +b b:1 b:2 =b"),
            (Commit::NFiles(2), "!a +b !c +d", None, "+a a:1 =a +b +c c:1 =c #p +d"),
            (
                Commit::NFiles(3),
                "!a !a !b",
                Some(&["a", "b"]),
                "+a a:1 =a a:2 +b b:1 =b (on_n_files_promised_3_files,_found_2_at_the_end) #p",
            ),
            (Commit::NFiles(2), "!a -a !b", None, "+a a:1 =a +b b:1 =b"),
            (Commit::NFiles(2), "!a -a !b !a", None, "+a a:1 =a +b b:1 =b a:2 #p"),
            (Commit::NFiles(1), "!a -a", Some(&[]), "+a a:1 =a #p"),
        ] {
            assert_eq!(run(&files(commit.clone()), script, end), expected, "{commit:?} {script}");
        }
    }

    #[test]
    fn directories() {
        let directory = |commit| [output("d", Kind::Directory, "out", vec![(vec![], commit)])];
        for (commit, script, end, expected) in [
            (Commit::NFiles(2), "!out/a !out/s/b !other", None, "+out/a out/a:1 =out/a +out/s/b out/s/b:1 =out/s/b #d"),
            (Commit::Close(2), "!out/a !out/b +out/c", None, "+out/a out/a:1 +out/b out/b:1 =out/a =out/b #d +out/c"),
            (Commit::Close(1), "!out/a !out/b", Some(&["out/a"][..]), "+out/a out/a:1 =out/a +out/b out/b:1 =out/b #d"),
            (Commit::Termination, "!out/a", Some(&["out/a"][..]), "+out/a =out/a #d"),
            (
                Commit::Close(9),
                "!out/d/a !out/d-x !out/d.y -out/d !out/d/a !out/d-x",
                None,
                "+out/d/a out/d/a:1 +out/d-x out/d-x:1 +out/d.y out/d.y:1 +out/d/a out/d/a:1 out/d-x:2",
            ),
        ] {
            assert_eq!(run(&directory(commit.clone()), script, end), expected, "{commit:?} {script}");
        }
        for (commit, end) in [(Commit::Close(1), ""), (Commit::NFiles(1), " #d")] {
            let narrowed = [output("d", Kind::Directory, "out", vec![(vec!["chr22.*"], commit)])];
            let expected = format!("+out/chr22.v out/chr22.v:1 =out/chr22.v{end} +out/x out/x:1");
            assert_eq!(run(&narrowed, "!out/chr22.v !out/x", None), expected);
        }
    }

    #[test]
    fn other_files() {
        let dependent = |dep| {
            [
                output("data", Kind::File, "d", vec![(vec![], Commit::File(vec![dep]))]),
                output("index", Kind::Files, "i*", vec![(vec![], Commit::Close(1))]),
            ]
        };
        let glob = Dependency::Glob(Pattern::new(Path::new("i1"), Path::new("/o")).unwrap());
        let other = Dependency::Glob(Pattern::new(Path::new("done*"), Path::new("/o")).unwrap());
        for (dep, script, end, expected) in [
            (glob.clone(), "+d !d !i2 !i1", None, "+d d:1 +i2 i2:1 =i2 +i1 i1:1 =i1 =d #data"),
            (glob, "!i1 +d !d", None, "+i1 i1:1 =i1 +d d:1 =d #data"),
            (other.clone(), "+d !d !done", None, "+d d:1 =d #data"),
            (other.clone(), "+d !d +done", None, "+d d:1"),
            (other, "+d !d", Some(&["d"][..]), "+d d:1 =d (on_file_waited_for_done*_to_the_end) #data #index"),
            (
                Dependency::Port("index".into()),
                "+d !i1",
                Some(&["d", "i1"][..]),
                "+d +i1 i1:1 =i1 =d (on_file_waited_for_index_to_the_end) #data #index",
            ),
        ] {
            assert_eq!(run(&dependent(dep.clone()), script, end), expected, "{dep:?} {script}");
        }
    }
}
