//! How a job reads its inputs: acts on files in, a verdict for each file out.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use crate::processes::open_files::Positions;
use crate::protocol::event::UsedEvent;
use crate::sys::file_id::FileId;

/// Reasons: the reader seeks, or seeks only in files that allow it.
const SOUGHT: &str = "sought";
const PROBED: &str = "probed";

/// The most files of an input that are reported, in the order of their first openings.
const TOLD: usize = 1_000;
/// The largest buffer of a reader. A reader that returns from the end reads the content of its buffer again.
const BUFFER: i64 = 256 << 10;
/// The most files of a job that are recorded.
const MIND: usize = 100_000;

/// The reference of a position in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    Start,
    Here,
    /// The end of the file, or a hole: only the file system knows the place.
    Beyond,
}

/// A thread that opens a file which its process does not have open.
///
/// The process had read `read` bytes of any files before, and its children had `faults` page faults. Each child that is
/// waited for adds faults. An earlier opening by the same thread is over, and shows among the open files. One by
/// another thread may still be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opener {
    pub thread: u32,
    pub read: u64,
    pub faults: u64,
}

/// An act on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The file is opened.
    Open {
        reads: bool,
        writes: bool,
        /// The opener. None if its process has the file open already, or may not be examined.
        by: Option<Opener>,
    },
    /// The file is executed.
    Execute,
    /// The file is mapped into memory.
    Map,
    /// The reader moves to another place.
    Seek { from: i64, to: i64, by: Whence },
    /// Data are read at a position given in the call.
    ReadAt,
    /// The call asks by path for more than the data.
    Ask,
    /// A directory is opened, as for a listing.
    List,
}

/// A file of an input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputFile {
    /// Name of the input.
    pub name: String,
    pub path: PathBuf,
    pub id: FileId,
}

#[derive(Debug, Default)]
struct Record {
    opens: u32,
    /// Times of the first and the last opening.
    opened: Option<(f64, f64)>,
    /// The opener of the last opening for reading.
    opener: Option<Opener>,
    /// Position of the reader before it went to the end.
    left: Option<i64>,
    touched: Option<f64>,
    /// Positions of the readers at the last look.
    positions: HashSet<u64>,
    /// Time of the last look at which a position had changed.
    read: Option<f64>,
    directory: bool,
    reasons: BTreeSet<&'static str>,
}

impl Record {
    /// Returns why a seek speaks against a stream.
    ///
    /// Some readers go to the end and return, or give back what they have read too much. Without seeking they do
    /// neither.
    fn seek(&mut self, from: i64, to: i64, by: Whence) -> Option<&'static str> {
        let nearby = |position: i64| (position - BUFFER..=position).contains(&to);
        match by {
            Whence::Beyond => {
                self.left.get_or_insert(from);
                None
            }
            Whence::Here if nearby(from) => Some(PROBED),
            Whence::Start if self.left.is_some_and(nearby) => {
                self.left = None;
                Some(PROBED)
            }
            Whence::Here | Whence::Start => Some(SOUGHT),
        }
    }
}

/// A record of the acts of a job on files. Includes files of no input, because some inputs do not exist before the job
/// runs.
#[derive(Debug, Default)]
pub struct Observation {
    records: HashMap<FileId, Record>,
    unseen: bool,
    /// Files opened since the last look.
    fresh: HashSet<FileId>,
    /// Time of the last look at which nothing had been written.
    quiet: Option<f64>,
}

impl Observation {
    pub fn note(&mut self, file: FileId, act: Act, time: f64) {
        if self.records.len() >= MIND && !self.records.contains_key(&file) {
            return self.lose_sight();
        }
        let record = self.records.entry(file).or_default();
        if let Act::Open { .. } | Act::Execute | Act::List = act {
            self.fresh.insert(file);
            record.opened = Some((record.opened.map_or(time, |(first, _)| first), time));
        }
        if record.opened.is_some() || act == Act::Ask {
            record.touched.get_or_insert(time);
        }
        let opener = record.opener.take();
        let reason = match act {
            Act::Open { reads, writes, by } => {
                // An opener that has read nothing since its last opening has only tested whether the file can be
                // opened.
                let again = by.is_some() && by == opener;
                record.opens += u32::from(reads && !again);
                record.opener = by;
                writes.then_some("opened for writing")
            }
            Act::Execute => {
                record.opens += 1;
                Some("executed")
            }
            Act::Map => Some("mapped"),
            Act::Seek { from, to, by } => record.seek(from, to, by),
            Act::ReadAt => Some("read at a position"),
            Act::Ask => Some("asked by path"),
            Act::List => {
                record.directory = true;
                None
            }
        };
        record.reasons.extend(reason);
    }

    /// Whether `opener` has opened a file before, and has read nothing since.
    pub fn has_only_looked(&self, file: FileId, opener: Opener) -> bool {
        self.records.get(&file).is_some_and(|record| record.opener == Some(opener))
    }

    /// Says that something was done unseen, to any file.
    pub fn lose_sight(&mut self) {
        self.unseen = true;
    }

    /// Records a look at the positions of readers, and whether the job has written anything.
    pub fn look(&mut self, positions: Positions, written: bool, time: f64) {
        for (file, positions) in positions {
            let Some(record) = self.records.get_mut(&file) else { continue };
            if !positions.is_subset(&record.positions) {
                record.read = Some(time);
            }
            record.positions = positions;
        }
        // A process may have opened, read and closed the file since the last look.
        for file in self.fresh.drain() {
            self.records.entry(file).and_modify(|record| record.read = Some(time));
        }
        if !written {
            self.quiet = Some(time);
        }
    }

    /// Returns a verdict for each file that was opened, in the order of their first openings.
    pub fn verdicts(&self, files: &[InputFile]) -> Vec<UsedEvent> {
        let mut verdicts: Vec<UsedEvent> = files.iter().filter_map(|file| self.verdict(file)).collect();
        verdicts.sort_by(|one, other| one.first.total_cmp(&other.first).then_with(|| one.path.cmp(&other.path)));
        let mut told: HashMap<(String, bool), usize> = HashMap::new();
        verdicts.retain(|verdict| {
            let told = told.entry((verdict.name.clone(), verdict.directory)).or_default();
            *told += 1;
            *told <= TOLD
        });
        verdicts
    }

    fn verdict(&self, file: &InputFile) -> Option<UsedEvent> {
        let record = self.records.get(&file.id)?;
        let (first, last) = record.opened?;
        let mut reasons = record.reasons.clone();
        reasons.extend((record.opens > 1).then_some("opened again"));
        reasons.extend(record.left.map(|_| SOUGHT));
        reasons.extend(self.unseen.then_some("unknown"));
        let reasons: Vec<_> = if record.directory { Vec::new() } else { reasons.into_iter().collect() };
        let read = record.read.filter(|_| !self.fresh.contains(&file.id));
        Some(UsedEvent {
            name: file.name.clone(),
            path: file.path.clone(),
            opens: record.opens,
            sequential: reasons.is_empty(),
            reasons,
            first,
            last,
            touched: Some(record.touched.unwrap_or(first)),
            read,
            whole: read.is_some_and(|read| self.quiet.is_some_and(|quiet| quiet >= read)),
            directory: record.directory,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Act = Act::Open { reads: true, writes: false, by: None };
    const AWAY: Act = Act::Seek { from: 100, to: 9_999_000, by: Whence::Beyond };
    const FILE: FileId = (1, 2);

    fn file(name: &str, path: &str, id: FileId) -> InputFile {
        InputFile { name: name.into(), path: path.into(), id }
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
        let write = |reads: bool| Act::Open { reads, writes: true, by: None };
        let look = |thread: u32, read: u64| Act::Open {
            reads: true,
            writes: false,
            by: Some(Opener { thread, read, faults: 3 }),
        };
        let reaped = Act::Open { reads: true, writes: false, by: Some(Opener { thread: 1, read: 9, faults: 4 }) };
        let set = |to: i64| Act::Seek { from: 5, to, by: Whence::Start };
        let skip = |to: i64| Act::Seek { from: 100_000, to, by: Whence::Here };
        for (acts, opens, reasons) in [
            (&[READ][..], 1, ""),
            (&[READ, READ], 2, "opened again"),
            (&[READ, set(7), Act::Map, set(9)], 1, "mapped, sought"),
            (&[READ, AWAY], 1, "sought"),
            (&[READ, AWAY, set(100)], 1, "probed"),
            (&[READ, AWAY, AWAY, set(0)], 1, "probed"),
            (&[READ, AWAY, set(101)], 1, "sought"),
            (&[READ, AWAY, set(100), set(100)], 1, "probed, sought"),
            (&[READ, skip(99_990)], 1, "probed"),
            (&[READ, skip(100_001)], 1, "sought"),
            (&[look(1, 9), look(1, 9), look(1, 9)], 1, ""),
            (&[look(1, 9), look(1, 10)], 2, "opened again"),
            (&[look(1, 9), look(2, 9)], 2, "opened again"),
            (&[look(1, 9), reaped], 2, "opened again"),
            (&[look(1, 9), Act::Map, look(1, 9)], 2, "mapped, opened again"),
            (&[look(1, 9), READ], 2, "opened again"),
            (&[READ, Act::ReadAt], 1, "read at a position"),
            (&[Act::Ask, READ], 1, "asked by path"),
            (&[write(true)], 1, "opened for writing"),
            (&[write(false)], 0, "opened for writing"),
            (&[READ, Act::Execute], 2, "executed, opened again"),
        ] {
            assert_eq!(observe(acts, false), Some((opens, reasons.to_owned())), "{acts:?}");
        }
        assert_eq!(observe(&[READ], true), Some((1, "unknown".to_owned())));
    }

    #[test]
    fn when_it_was_read_last() {
        let look = |position: u64, written: bool| (Some(position), written);
        for (looks, read, whole) in [
            (&[][..], None, false),
            // As `sort` does. The first look after the opening may have missed bytes that were read.
            (&[look(9, false), look(9, false), look(9, false), look(9, true)], Some(1.0), true),
            (&[look(5, false), look(9, false), (None, false)], Some(2.0), true),
            // As `cat` does.
            (&[look(5, false), look(9, true), look(9, true)], Some(2.0), false),
            (&[look(9, true), look(9, true)], Some(1.0), false),
            (&[look(5, false), look(7, true), look(9, true)], Some(3.0), false),
            // The file was closed before the first look.
            (&[(None, false), (None, false), (None, true)], Some(1.0), true),
        ] {
            let mut observation = Observation::default();
            observation.note(FILE, READ, 0.5);
            for ((position, written), time) in looks.iter().zip(1_u32..) {
                let positions = position.map(|position| (FILE, HashSet::from([position])));
                observation.look(positions.into_iter().collect(), *written, time.into());
            }
            let files = [file("in", "/i/f", FILE)];
            let told = observation.verdicts(&files).remove(0);
            assert_eq!((told.read, told.whole), (read, whole), "{looks:?}");
            observation.note(FILE, READ, 9.0);
            assert_eq!(observation.verdicts(&files).remove(0).read, None);
        }
    }

    #[test]
    fn when_it_was_touched_first() {
        let mut observation = Observation::default();
        observation.note(FILE, Act::Ask, 1.0);
        observation.note(FILE, READ, 3.0);
        observation.note((1, 9), Act::List, 4.0);
        let told = observation.verdicts(&[file("f", "/f", FILE), file("d", "/d", (1, 9))]);
        let times: Vec<_> = told.iter().map(|told| (told.first, told.touched, told.opens, told.directory)).collect();
        assert_eq!(times, [(3.0, Some(1.0), 1, false), (4.0, Some(4.0), 0, true)]);
        assert!(told[1].reasons.is_empty());
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
