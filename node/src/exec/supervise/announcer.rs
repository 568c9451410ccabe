//! Turns decisions into events, and finds files that were changed after their early commit.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use crate::outputs::commit::{Decision, What};
use crate::outputs::rewrites::{Fate, Stamp};
use crate::outputs::window::Discarded;
use crate::protocol::event::{
    Change, ChangedEvent, ClosedEvent, CommittedEvent, CompleteEvent, EntryEvent, Event, OpenedEvent, WarningEvent,
};
use crate::protocol::job::{Kind, Output};
use crate::protocol::json::ByteString;

/// A file that was committed while the job ran.
#[derive(Debug)]
struct Early {
    /// Attributes at the commit. None: the file counts as removed, because it was gone already.
    stamp: Option<Stamp>,
    closed_again: bool,
    /// The change of the file was reported.
    told: bool,
}

/// Turns decisions into events, and reports once each file that is changed after its commit.
#[derive(Debug, Default)]
pub struct Announcer {
    /// Files by output and path.
    early: BTreeMap<usize, BTreeMap<OsString, Early>>,
    /// Outputs with a reported file.
    opened: BTreeSet<usize>,
    /// Closes may have been missed.
    pub lost: bool,
    ended: bool,
    /// The files that are not there as a whole.
    pub discarded: Vec<Discarded>,
}

impl Announcer {
    pub fn events<'e>(&mut self, outputs: &'e [Output], decision: &'e Decision) -> Vec<Event<'e>> {
        let (index, output) = (decision.port, &outputs[decision.port]);
        let port = output.port.as_str();
        match &decision.what {
            What::Opened(path) => {
                let first = self.opened.insert(index);
                let tells = first || output.tells_all || output.kind != Kind::Directory;
                tells.then_some(Event::Opened(OpenedEvent { port, path: ByteString(path) })).into_iter().collect()
            }
            What::Closed { path, closes } => {
                let tells = *closes > 1 || output.tells_all || !output.commits_at_close(path);
                let again = self.early.get(&index).is_some_and(|files| files.contains_key(path.as_os_str()));
                let closed = Event::Closed(ClosedEvent { port, path: ByteString(path), closes: *closes, again });
                let changed = self.closed_again(index, path).map(|how| changed(port, path, how));
                [tells.then_some(closed), changed].into_iter().flatten().collect()
            }
            What::Committed(path) => {
                let file = fs::metadata(path).ok();
                if !self.ended {
                    let early = Early { stamp: file.as_ref().map(Stamp::of), closed_again: false, told: false };
                    self.early.entry(index).or_default().insert(path.into(), early);
                }
                let size = file.map_or(0, |file| file.len());
                let window = self.discarded.iter().find(|file| file.path == *path);
                let (discarded, sha1) = window.map(|file| (file.bytes, file.sha1.clone().into())).unzip();
                let (path, at_end) = (ByteString(path.as_path()), self.ended);
                vec![match output.kind {
                    Kind::Directory => Event::Entry(EntryEvent { port, path, size }),
                    _ => Event::Committed(CommittedEvent { port, path, size, at_end, discarded, sha1 }),
                }]
            }
            What::Complete => vec![Event::Complete(CompleteEvent { port, at_end: self.ended })],
            What::Unmet(why) => {
                let message = format!("output {port}: {why}: committed only now [SFIO-S025]").into();
                vec![Event::Warning(WarningEvent { message, input: None, port: Some(port) })]
            }
        }
    }

    /// Returns the changes that were not reported yet, at the end of the job.
    pub fn end<'e>(&'e mut self, outputs: &'e [Output]) -> Vec<Event<'e>> {
        self.ended = true;
        let lost = self.lost;
        let files = self.early.iter_mut().flat_map(|(index, files)| files.iter_mut().map(move |file| (*index, file)));
        let fates = files.map(|(index, (path, early))| (index, Path::new(path), early));
        let told = fates.filter_map(|(index, path, early)| Some((index, path, early.tell(path, lost)?)));
        told.map(|(index, path, how)| changed(outputs[index].port.as_str(), path, how)).collect()
    }

    fn closed_again(&mut self, index: usize, path: &Path) -> Option<Change> {
        let early = self.early.get_mut(&index)?.get_mut(path.as_os_str())?;
        early.closed_again = true;
        early.tell(path, self.lost)
    }
}

impl Early {
    fn tell(&mut self, path: &Path, lost: bool) -> Option<Change> {
        if self.told {
            return None;
        }
        let fate = self.stamp.map_or(Fate::Removed, |stamp| stamp.fate(path, self.closed_again || lost));
        self.told = fate != Fate::Same;
        match fate {
            Fate::Same => None,
            Fate::Written => Some(Change::Written),
            Fate::Removed => Some(Change::Removed),
        }
    }
}

fn changed<'e>(port: &'e str, path: &'e Path, how: Change) -> Event<'e> {
    Event::Changed(ChangedEvent { port, path: ByteString(path), how })
}
