//! How a job reads its inputs: what was seen in, a verdict for each file out. No I/O, no clock.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

/// What a file is, by whatever name: its device and number.
pub type Identity = (u64, u64);

/// Of one input, the files that were opened first are told.
const TOLD: usize = 1_000;
/// So many files of a job are kept in mind.
const MIND: usize = 100_000;

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Open {
        reads: bool,
        writes: bool,
    },
    Execute,
    Map,
    Seek,
    /// Its data are read from where the call says, and not from where the reader is.
    ReadAt,
}

/// A file of an input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputFile {
    /// Of the input.
    pub name: String,
    pub path: PathBuf,
    pub identity: Identity,
}

/// How a file was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Of the input that the file is, or is in.
    pub name: String,
    pub path: PathBuf,
    /// Openings for reading.
    pub opens: u32,
    /// Why it was not read from front to back only, in order; none: it was.
    pub reasons: Vec<&'static str>,
    /// Seconds since the epoch, of the first and the last opening.
    pub first: f64,
    pub last: f64,
}

#[derive(Debug, Default)]
struct Record {
    opens: u32,
    /// Of the first and the last opening.
    opened: Option<(f64, f64)>,
    reasons: BTreeSet<&'static str>,
}

/// What a job was seen to do to files, also to those of no input: some inputs are not there before the job runs.
#[derive(Debug, Default)]
pub struct Observation {
    records: HashMap<Identity, Record>,
    unseen: bool,
}

impl Observation {
    pub fn note(&mut self, file: Identity, act: Act, time: f64) {
        if self.records.len() >= MIND && !self.records.contains_key(&file) {
            return self.lose_sight();
        }
        let record = self.records.entry(file).or_default();
        if let Act::Open { .. } | Act::Execute = act {
            record.opened = Some((record.opened.map_or(time, |(first, _)| first), time));
        }
        let reason = match act {
            Act::Open { reads, writes } => {
                record.opens += u32::from(reads);
                writes.then_some("opened for writing")
            }
            Act::Execute => {
                record.opens += 1;
                Some("executed")
            }
            Act::Map => Some("mapped"),
            Act::Seek => Some("sought"),
            Act::ReadAt => Some("read at a position"),
        };
        record.reasons.extend(reason);
    }

    /// Something was done that cannot be seen, to whatever file.
    pub fn lose_sight(&mut self) {
        self.unseen = true;
    }

    /// What is to be told of the files that were opened, in the order of their first openings.
    pub fn verdicts(&self, files: &[InputFile]) -> Vec<Verdict> {
        let mut verdicts: Vec<Verdict> = files.iter().filter_map(|file| self.verdict(file)).collect();
        verdicts.sort_by(|one, other| one.first.total_cmp(&other.first).then_with(|| one.path.cmp(&other.path)));
        let mut told: HashMap<String, usize> = HashMap::new();
        verdicts.retain(|verdict| {
            let told = told.entry(verdict.name.clone()).or_default();
            *told += 1;
            *told <= TOLD
        });
        verdicts
    }

    fn verdict(&self, file: &InputFile) -> Option<Verdict> {
        let record = self.records.get(&file.identity)?;
        let (first, last) = record.opened?;
        let mut reasons = record.reasons.clone();
        reasons.extend((record.opens > 1).then_some("opened again"));
        reasons.extend(self.unseen.then_some("unknown"));
        let (name, path) = (file.name.clone(), file.path.clone());
        Some(Verdict { name, path, opens: record.opens, reasons: reasons.into_iter().collect(), first, last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Act = Act::Open { reads: true, writes: false };
    const FILE: Identity = (1, 2);

    fn file(name: &str, path: &str, identity: Identity) -> InputFile {
        InputFile { name: name.into(), path: path.into(), identity }
    }

    fn observe(acts: &[Act], unseen: bool) -> Option<(u32, String)> {
        let mut observation = Observation::default();
        acts.iter().for_each(|act| observation.note(FILE, *act, 1.0));
        if unseen {
            observation.lose_sight();
        }
        let mut verdicts = observation.verdicts(&[file("reads", "/i/r", FILE), file("reads", "/i/never", (1, 3))]);
        assert!(verdicts.len() < 2, "{verdicts:?}");
        verdicts.pop().map(|verdict| (verdict.opens, verdict.reasons.join(", ")))
    }

    #[test]
    fn why_not() {
        let write = |reads: bool| Act::Open { reads, writes: true };
        for (acts, opens, reasons) in [
            (&[READ][..], 1, ""),
            (&[READ, READ], 2, "opened again"),
            (&[READ, Act::Seek, Act::Map, Act::Seek], 1, "mapped, sought"),
            (&[READ, Act::ReadAt], 1, "read at a position"),
            (&[write(true)], 1, "opened for writing"),
            (&[write(false)], 0, "opened for writing"),
            (&[READ, Act::Execute], 2, "executed, opened again"),
        ] {
            assert_eq!(observe(acts, false), Some((opens, reasons.to_owned())), "{acts:?}");
        }
        assert_eq!(observe(&[READ], true), Some((1, "unknown".to_owned())));
    }

    #[test]
    fn what_was_not_opened_is_not_told() {
        assert_eq!(observe(&[], true), None);
        assert_eq!(observe(&[Act::Seek], false), None);
    }

    #[test]
    fn a_file_of_two_inputs() {
        let mut observation = Observation::default();
        for time in [1.0, 2.0, 3.0] {
            observation.note(FILE, READ, time);
        }
        let verdicts = observation.verdicts(&[file("b", "/i/b/a", FILE), file("a", "/i/a", FILE)]);
        let told: Vec<_> =
            verdicts.iter().map(|told| (told.name.as_str(), told.opens, told.first, told.last)).collect();
        assert_eq!(told, [("a", 3, 1.0, 3.0), ("b", 3, 1.0, 3.0)]);
    }

    #[test]
    fn the_first_thousand_of_an_input() {
        let mut observation = Observation::default();
        let mut files = vec![file("e", "/e", (2, 0))];
        for number in 0..=TOLD as u64 {
            files.push(file("d", &format!("/d/{number}"), (1, number)));
            observation.note((1, number), READ, (TOLD as u64 - number) as f64);
        }
        observation.note((2, 0), READ, 1e6);
        let verdicts = observation.verdicts(&files);
        assert_eq!(verdicts.len(), TOLD + 1);
        assert!(verdicts.iter().all(|told| told.path.as_os_str() != "/d/0"));
        assert_eq!(verdicts[TOLD].name, "e");
    }

    #[test]
    fn too_many_files() {
        let mut observation = Observation::default();
        (0..=MIND as u64).for_each(|number| observation.note((1, number), READ, 1.0));
        let verdicts = observation.verdicts(&[file("a", "/a", (1, 0)), file("b", "/b", (1, MIND as u64))]);
        assert_eq!(verdicts.len(), 1);
        assert_eq!(verdicts[0].reasons, ["unknown"]);
    }
}
