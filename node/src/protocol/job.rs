//! `job.json`, which tells `exec` what to do: read and checked.

mod input;
mod output;

use std::fmt::Display;
use std::path::{Path, PathBuf};

pub use self::input::{Access, CutPart, Home, Input, LocalProducer};
pub use self::output::{Commit, Dependency, Output, Rule};
use crate::protocol::json;
use crate::protocol::messages::JobSpec;
pub use crate::protocol::messages::{
    CommandSpec, Direction, GatedInput as Gate, Kind, Link, Mount, ObservationSpec, ObservedInput, PartitionedInput,
    RateLimit, RehearsalSpec,
};
pub use crate::protocol::values::{is_name_of_job, name_of_job, Rate, Target};
use crate::sys::memory::free;
use crate::sys::ownership;

/// A job as `job.json` describes it, checked.
#[derive(Debug, Default)]
pub struct Job {
    pub command: CommandSpec,
    pub outputs: Vec<Output>,
    /// Streams, and then parts.
    pub inputs: Vec<Input>,
    pub gates: Vec<Gate>,
    pub split: Option<PartitionedInput>,
    pub observation: ObservationSpec,
    /// The tree is paused when it moves more.
    pub limit: Option<RateLimit>,
    pub rehearsal: RehearsalSpec,
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

    /// Closes the directories that StreamFlow has made for it to other users; see `ownership::close`.
    pub fn close_directories(&self) -> Result<(), String> {
        let directories = self.command.directories.iter().map(PathBuf::as_path);
        let targets = self.inputs.iter().filter_map(|input| match &input.target {
            Target::Fifo(path) | Target::File(path) => Some(path.as_path()),
            Target::Stdin => None,
        });
        ownership::close(directories, targets)
    }

    /// Removes the directories that have no use after a failure.
    pub fn remove_scratch(&self) {
        self.rehearsal.scratch.iter().for_each(|path| drop(std::fs::remove_dir_all(path)));
    }

    /// Whether less than `bytes` are free where the first of these directories is.
    pub fn scratch_has_less_than(&self, bytes: u64) -> bool {
        self.rehearsal.scratch.first().is_some_and(|path| free(path).is_ok_and(|free| free < bytes))
    }

    /// Whether there is more to notice than that it is cancelled, which is looked for now and then.
    pub fn has_to_be_watched(&self) -> bool {
        let nothing = self.outputs.is_empty() && self.inputs.is_empty() && self.gates.is_empty();
        !nothing || self.split.is_some() || self.limit.is_some()
    }

    /// Whether bytes of an output are discarded when its readers have them.
    pub fn has_window(&self) -> bool {
        self.outputs.iter().any(|output| output.window.is_some())
    }

    /// Reads the text of `job.json`.
    ///
    /// # Errors
    /// One message that names the field and what is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let spec: JobSpec = json::read(bytes)?;
        let JobSpec { name: _, command, outputs, streams, parts, gates, split, observation, limit, rehearsal } = spec;
        let mut outputs: Vec<Output> = each("outputs", outputs)?;
        let ports: Vec<String> = outputs.iter().map(|output| output.port.clone()).collect();
        for output in &mut outputs {
            output.tells_all |= observation.reads.is_some();
            output.name_ports(&ports);
        }
        for (index, gate) in gates.iter().enumerate() {
            gate.check().map_err(|message| format!("gates[{index}].{message}"))?;
        }
        if limit.is_some() && outputs.iter().any(|output| output.window.is_some()) {
            return Err("\"window\" does not go with \"limit\"".into());
        }
        let rehearsal = rehearsal.unwrap_or_default();
        if observation.reads.is_some() && !rehearsal.excerpts.is_empty() {
            return Err("rehearsal.excerpts: not with \"reads\"".into());
        }
        let mut inputs: Vec<Input> = each("streams", streams)?;
        inputs.extend(each::<_, Input>("parts", parts)?);
        let streamed = inputs.iter().filter(|input| input.target == Target::Stdin).count();
        if streamed + usize::from(command.stdin.is_some()) > 1 {
            return Err("at most one of \"stdin\" and the targets {\"stdin\": true}".into());
        }
        Ok(Self { command, outputs, inputs, gates, split, observation, limit, rehearsal })
    }
}

/// Checks the elements of a list.
///
/// # Errors
/// The message of the first wrong element, with its place.
fn each<A, B: TryFrom<A, Error: Display>>(list: &str, elements: Vec<A>) -> Result<Vec<B>, String> {
    let checked = elements
        .into_iter()
        .enumerate()
        .map(|(index, element)| B::try_from(element).map_err(|message| format!("{list}[{index}].{message}")));
    checked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn load(text: &str) -> Result<Job, String> {
        Job::read(text.as_bytes())
    }

    #[test]
    fn paths_are_bytes() {
        let job = load(
            r#"{"name": "n", "command": {"stdin": "/\udcff"}, "outputs": [{"port": "p", "root": "/o\udcfe", "kind": "file", "rules":
            [{"globs": ["a\udc80*"], "committed": "on_file", "file_deps": ["\udc81"]}]}], "streams": [{"name": "r", "port": "p",
            "path": "/\udcc3", "target": {"fifo": "/\udce9"}, "link": {"address": "[::1]:1", "job": "\udc82", "certificate": "/\udc83"}}]}"#,
        )
        .unwrap();
        let path = |bytes: &'static [u8]| Path::new(OsStr::from_bytes(bytes));
        let (output, input) = (&job.outputs[0], &job.inputs[0]);
        assert_eq!((job.command.stdin.as_deref(), output.root.as_path()), (Some(path(b"/\xff")), path(b"/o\xfe")));
        assert_eq!(output.rule_of(path(b"/o\xfe/a\x80b")), Some(Some(0)));
        assert!(output.awaits(path(b"/o\xfe/\x81")));
        assert_eq!((input.path.as_path(), &input.target), (path(b"/\xc3"), &Target::Fifo(path(b"/\xe9").into())));
        let Access::Link(link) = &input.access else { panic!("no link") };
        assert_eq!((link.job.as_bytes(), link.certificate.as_path()), (&b"\x82"[..], path(b"/\x83")));
    }

    #[test]
    fn links() {
        let input = |access: &str| {
            let text = format!(
                r#"{{"name": "n", "streams": [{{"name": "r", "port": "p", "path": "/p/r", "target": {{"stdin": true}}{access}}}]}}"#
            );
            load(&text).map(|mut job| job.inputs.remove(0).access)
        };
        let link = |address: &str, job: &str| {
            input(&format!(
                r#", "link": {{"address": "{address}", "job": "{job}", "certificate": "/RUN/certificate.pem"}}"#
            ))
        };
        for (wrong, word) in [
            (link("host:80", "j"), "streams[0].link.address: invalid socket address syntax"),
            (link("127.0.0.1", "j"), "streams[0].link.address: invalid socket address syntax"),
            (link("127.0.0.1:1", ".."), "streams[0].link.job: has to be the name of a job"),
            (link("127.0.0.1:1", "a/b"), "streams[0].link.job: has to be the name of a job"),
            (input(""), "streams[0].exactly one of"),
            (
                input(r#", "events": "/e", "link": {"address": "[::1]:1", "job": "j", "certificate": "/c"}"#),
                "streams[0].exactly one of",
            ),
            (input(r#", "link": {"address": "127.0.0.1:1"}"#), "streams[0].link: missing field `job`"),
        ] {
            let message = wrong.unwrap_err();
            assert!(message.starts_with(word), "{message}");
        }
    }

    #[test]
    fn parts_of_files() {
        let input = |target: &str, more: &str| {
            let part =
                r#"{"file": "/d/\udcff", "identity": {"inode": 1, "size": 9, "mtime": 2}, "pieces": [[0, 9], "eA=="]}"#;
            let input = format!(r#"{{"name": "r", "port": "p", "part": {part}, "target": {target}{more}}}"#);
            load(&format!(r#"{{"name": "n", "parts": [{input}]}}"#)).map(|mut job| job.inputs.remove(0))
        };
        for target in [r#"{"file": "/i/a"}"#, r#"{"fifo": "/i/a"}"#, r#"{"stdin": true}"#] {
            let input = input(target, "").unwrap();
            let part = input.part().unwrap();
            assert_eq!(part.part.size(), 10);
            assert_eq!(input.path.as_os_str().as_bytes(), &b"/d/\xff"[..]);
        }
        for (target, more, word) in [
            (r#"{"file": "a"}"#, "", "target.file: has to be an absolute path"),
            (r#"{"fifo": "/a"}"#, r#", "number": 1"#, "\"link\" and \"number\" go together"),
            (r#"{"fifo": "/a"}"#, r#", "path": "/x""#, "unknown field `path`"),
        ] {
            let message = input(target, more).unwrap_err();
            assert!(message.starts_with("parts[0]") && message.contains(word), "{message}");
        }
        for (part, word) in [
            (
                r#"{"file": "a", "identity": {"inode": 1, "size": 9, "mtime": 2}, "pieces": []}"#,
                "file: has to be an absolute path",
            ),
            (
                r#"{"file": "/a", "identity": {"inode": 1, "size": 9, "mtime": 2}, "pieces": [[9, 1]]}"#,
                "extent [9, 1] is outside the file, which has 9 bytes",
            ),
        ] {
            let input = format!(r#"{{"name": "r", "port": "p", "part": {part}, "target": {{"stdin": true}}}}"#);
            let message = load(&format!(r#"{{"name": "n", "parts": [{input}]}}"#)).unwrap_err();
            assert!(message.starts_with("parts[0].part") && message.contains(word), "{message}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (rule, word) in [
            (r#"{"committed": "on_close", "closes": 0}"#, "closes"),
            (r#"{"committed": "on_n_files"}"#, "n_files"),
            (r#"{"committed": "on_file"}"#, "file_deps"),
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
