//! Closes caused by death. Facts about the job's processes in, decisions out; no I/O, no clock.
//!
//! When a file is closed, the kernel does not say by whom or why. A close counts at once only when nobody of the tree is
//! dying or has died unseen and everybody sleeps: the writer closed its file and lives. Otherwise it is held until
//! `GRACE` has passed in which those that could have closed it lived on or ended well, and the main process with them.
//! An interpreter that ends by an exception closes its files first and exits some milliseconds later; a `set -e` shell
//! exits right after its child: both are busy, or gone, within the grace. Time in which one of them is stopped or frozen, or
//! nobody could look, or one of them waited for a processor, is none of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::processes::active_time::ActiveTimes;
use crate::processes::snapshot::{ProcessId, Snapshot};

/// How long the job has to go on after a close, or after the end of a process that could have caused it.
pub const GRACE: Duration = Duration::from_millis(50);

/// When a held close is looked at again, counted from its beginning.
const REVIEWS: [Duration; 6] = [
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(25),
    GRACE,
];

/// A job that closes one file after the other is looked at less often, the more is held: so long for each other one, at most
/// `RARELY`. Its files are then committed some at a time.
const EACH: Duration = Duration::from_micros(50);
const RARELY: Duration = Duration::from_millis(10);

/// While a process that has no others makes files in such a rush, CROWD of them in RUSH, its closes are taken some at a
/// time: after each of them nobody looks for so long.
pub const NAP: Duration = Duration::from_millis(1);
const CROWD: usize = 32;
const RUSH: Duration = Duration::from_millis(20);

/// The first of `REVIEWS` after a death: those before it look for the writer falling asleep.
const AFTER_DEATH: usize = 3;

/// When to look again whether somebody has lived for long enough: what was run is told with the ticks of the kernel.
const TICK: Duration = Duration::from_millis(4);

/// A look may be so much later than it is due; whatever is more was time in which this process did not run either, and the job
/// may not have gone on.
const PUNCTUAL: Duration = Duration::from_millis(20);

#[derive(Debug)]
struct Held {
    path: PathBuf,
    /// Found by a scan, not by an event: a close that is seen meanwhile takes its place.
    found: bool,
    /// Those that could have closed it and still live, and how long they had lived when it was closed.
    suspects: Vec<(ProcessId, Duration)>,
    /// Nobody has died: it counts as soon as all sleep.
    quiet: bool,
    /// One of them died badly: only the job's success makes it count.
    condemned: bool,
    since: Duration,
    reviews: usize,
    /// When to look at it again, since not all suspects have lived for long enough.
    again: Option<Duration>,
}

/// Holds closes back until they can be believed. Times are durations since any fixed moment.
#[derive(Debug, Default)]
pub struct Holder {
    last: Snapshot,
    held: Vec<Held>,
    /// Those that could have closed something that is held.
    suspects: BTreeSet<ProcessId>,
    lives: ActiveTimes,
    /// When the first of them is to be looked at; None when only the end of the job can decide.
    due: Option<Duration>,
    main_exiting: bool,
    accepted: Duration,
    rest: Rest,
    /// When somebody was last seen to die, or to be dead.
    death: Option<Duration>,
    /// Somebody was stopped or frozen at the last look.
    stood: bool,
}

/// Whether closes are taken some at a time.
#[derive(Debug, Default)]
struct Rest {
    /// Closes have come since the last rest.
    fresh: bool,
    /// The next closes are not looked at as soon as they come.
    rested: bool,
}

impl Holder {
    pub fn new(first: Snapshot) -> Self {
        Self { last: first, ..Self::default() }
    }

    /// Takes closes seen since the last call. `found` ones come from a scan. Returns those that count at once.
    pub fn close(&mut self, closes: &[(PathBuf, bool)], now: Duration, snapshot: Snapshot) -> Vec<PathBuf> {
        let quiet = !snapshot.deaths_since(&self.last);
        // How they have ended could not be seen.
        let condemned = !quiet && self.rest.rested;
        if !quiet || snapshot.processes.values().any(|vitals| vitals.exiting) {
            self.death = Some(now);
        }
        self.rest.fresh = true;
        let suspects = self.see(now, &snapshot);
        let any_found = self.held.iter().any(|held| held.found);
        for (path, found) in closes {
            if *found && self.held.iter().any(|held| held.path == *path) {
                continue;
            }
            if any_found && !found {
                self.held.retain(|held| !held.found || held.path != *path);
            }
            self.held.push(Held {
                path: path.clone(),
                found: *found,
                suspects: suspects.clone(),
                quiet: quiet && !found,
                condemned,
                since: now,
                reviews: 0,
                again: None,
            });
        }
        let accepted = if closes.is_empty() || !self.can_wait(now, &snapshot) {
            self.review(now, &snapshot)
        } else {
            self.suspects.extend(snapshot.processes.keys());
            self.due = Some(self.due.unwrap_or(Duration::MAX).min(now + REVIEWS[0]));
            Vec::new()
        };
        self.last = snapshot;
        accepted
    }

    /// All processes, and how long each of them has lived by now.
    fn see(&mut self, now: Duration, snapshot: &Snapshot) -> Vec<(ProcessId, Duration)> {
        snapshot.processes.iter().map(|(id, vitals)| (*id, self.lives.see(*id, vitals, now))).collect()
    }

    /// How long not to look for more closes, if any. Those that are taken after it count only at the end when a process has
    /// come and gone meanwhile: nobody knows how.
    pub fn rest(&mut self, now: Duration) -> Option<Duration> {
        let first = self.held.len().checked_sub(CROWD).map(|first| self.held[first].since);
        let rush = first.is_some_and(|first| now < first + RUSH);
        let calm = self.last.processes.len() == 1 && self.death.is_none_or(|death| now > death + GRACE);
        self.rest.rested = std::mem::take(&mut self.rest.fresh) && rush && calm && !self.main_exiting;
        self.rest.rested.then_some(NAP)
    }

    /// Whether a review would change nothing: when a job closes one file after the other, much is held.
    fn can_wait(&self, now: Duration, snapshot: &Snapshot) -> bool {
        let lives = |id: &ProcessId| snapshot.processes.get(id).is_some_and(|vitals| !vitals.exiting);
        let living = snapshot.processes.values().all(|vitals| !vitals.exiting) && self.suspects.iter().all(lives);
        let early = self.due.is_none_or(|due| now < due) && !snapshot.are_asleep();
        living && !snapshot.main_exiting && !self.main_exiting && (early || now < self.accepts_at())
    }

    /// Looks at what is held. `snapshot` needs to have the suspects only. Returns the closes that count now.
    pub fn review(&mut self, now: Duration, snapshot: &Snapshot) -> Vec<PathBuf> {
        let late = self.next_review().map_or(Duration::ZERO, |due| now.saturating_sub(due + PUNCTUAL));
        self.main_exiting = snapshot.main_exiting;
        let mut accepted = Vec::new();
        let stands = snapshot.stands();
        self.see(now, snapshot);
        for held in &mut self.held {
            held.since = now.min(held.since + late);
            held.update(now, snapshot, &self.lives);
            if stands || self.stood {
                held.wait_anew(now, &self.lives);
            }
            while REVIEWS.get(held.reviews).is_some_and(|review| now >= held.since + *review) {
                held.reviews += 1;
            }
        }
        self.stood = stands;
        if !snapshot.main_exiting && !stands && now >= self.accepts_at() {
            self.accepted = now;
            self.held.retain_mut(|held| {
                let counts = held.counts(now, snapshot, &self.lives);
                if counts {
                    accepted.push(held.path.clone());
                }
                held.again = (now >= held.since + GRACE).then_some(now + TICK);
                !counts
            });
        }
        self.count();
        accepted
    }

    /// After a change of what is held.
    fn count(&mut self) {
        self.suspects = self.held.iter().flat_map(|held| held.suspects.iter().map(|(id, _)| *id)).collect();
        self.lives.retain(|id| self.suspects.contains(id));
        let open = self.held.iter().filter(|held| !held.condemned);
        self.due = open.map(Held::due).min();
    }

    /// The processes that the next review is about.
    pub fn suspects(&self) -> &BTreeSet<ProcessId> {
        &self.suspects
    }

    /// When to review next; None when only the end of the job can decide.
    pub fn next_review(&self) -> Option<Duration> {
        if self.main_exiting {
            return None;
        }
        self.due.map(|due| due.max(self.accepts_at()))
    }

    fn accepts_at(&self) -> Duration {
        let few = u32::try_from(self.held.len()).unwrap_or(u32::MAX).saturating_sub(1);
        self.accepted + EACH.saturating_mul(few).min(RARELY)
    }

    /// Forgets what was removed, and what was below it.
    pub fn forget(&mut self, path: &Path) {
        self.held.retain(|held| !held.path.starts_with(path));
        self.count();
    }

    /// The job has ended with a success code: everything that was held counts.
    pub fn release(&mut self) -> Vec<PathBuf> {
        let released = std::mem::take(&mut self.held).into_iter().map(|held| held.path).collect();
        self.count();
        released
    }
}

impl Held {
    fn due(&self) -> Duration {
        self.again.unwrap_or_else(|| self.since + REVIEWS.get(self.reviews).copied().unwrap_or(GRACE))
    }

    fn update(&mut self, now: Duration, snapshot: &Snapshot, lives: &ActiveTimes) {
        let before = self.suspects.len();
        let mut dying = false;
        self.suspects.retain(|(id, _)| match snapshot.processes.get(id) {
            None => false,
            Some(vitals) => {
                dying |= vitals.exiting;
                self.condemned |= vitals.exiting && vitals.status != 0;
                true
            }
        });
        if dying || self.suspects.len() < before {
            self.quiet = false;
            self.wait_anew(now, lives);
        }
    }

    fn wait_anew(&mut self, now: Duration, lives: &ActiveTimes) {
        self.since = now;
        self.reviews = AFTER_DEATH;
        self.again = None;
        for (id, lived) in &mut self.suspects {
            *lived = lives.lived(id);
        }
    }

    fn counts(&self, now: Duration, snapshot: &Snapshot, lives: &ActiveTimes) -> bool {
        let patient = || self.suspects.iter().all(|(id, before)| lives.lived(id) >= *before + GRACE);
        !self.condemned && ((now >= self.since + GRACE && patient()) || (self.quiet && snapshot.are_asleep()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::snapshot::ProcessState;
    use std::ops::Range;

    const LIVE: ProcessState = ProcessState {
        exiting: false,
        resting: true,
        standing: false,
        runnable: false,
        turns: None,
        status: 0,
        reaped_faults: 0,
    };
    const BUSY: ProcessState = ProcessState { resting: false, runnable: true, ..LIVE };
    const DYING: ProcessState = ProcessState { exiting: true, resting: false, ..LIVE };
    const FAILED: ProcessState = ProcessState { status: 256, ..DYING };
    const STOPPED: ProcessState = ProcessState { resting: false, standing: true, ..LIVE };
    const FROZEN: ProcessState = ProcessState { standing: true, ..LIVE };
    const REAPER: ProcessState = ProcessState { reaped_faults: 80, ..LIVE };

    fn ms(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn tree(processes: &[(i32, ProcessState)]) -> Snapshot {
        let entry = |(pid, vitals): &(i32, ProcessState)| (ProcessId { pid: *pid, start: 1 }, *vitals);
        let main_exiting = processes.iter().all(|(pid, vitals)| *pid != 1 || vitals.exiting);
        Snapshot { processes: processes.iter().map(entry).collect(), orphans: 0, main_exiting }
    }

    /// The time in ms at which a close at 0 counts, given the tree before it and what becomes of it; None: never.
    fn counted_at(before: &[(i32, ProcessState)], course: &[(u64, &[(i32, ProcessState)])]) -> Option<u64> {
        let mut holder = Holder::new(tree(before));
        for now in 0..200 {
            let at = course.iter().rev().find(|(from, _)| *from <= now).unwrap();
            let accepted = match now {
                0 => holder.close(&[("/o/a".into(), false)], ms(now), tree(at.1)),
                _ => holder.review(ms(now), &tree(at.1)),
            };
            if !accepted.is_empty() {
                return Some(now);
            }
        }
        None
    }

    #[test]
    fn shapes_of_death() {
        let shell = [(1, LIVE), (2, BUSY)];
        type Course<'a> = &'a [(u64, &'a [(i32, ProcessState)])];
        type Case<'a> = (&'a str, &'a [(i32, ProcessState)], Course<'a>, Option<u64>);
        let table: [Case; 16] = [
            ("goes on and sleeps", &[(1, BUSY)], &[(0, &[(1, LIVE)])], Some(0)),
            ("sleeps a little later", &[(1, BUSY)], &[(0, &[(1, BUSY)]), (2, &[(1, LIVE)])], Some(2)),
            ("computes on", &[(1, BUSY)], &[(0, &[(1, BUSY)])], Some(50)),
            ("main is killed", &[(1, BUSY)], &[(0, &[(1, FAILED)])], None),
            ("main ends", &[(1, BUSY)], &[(0, &[(1, DYING)])], None),
            ("exception: closes, then exits", &[(1, BUSY)], &[(0, &[(1, BUSY)]), (9, &[(1, FAILED)])], None),
            ("child ends well", &shell, &[(0, &[(1, LIVE), (2, DYING)]), (3, &[(1, REAPER)])], Some(53)),
            ("child is killed", &shell, &[(0, &[(1, LIVE), (2, FAILED)]), (3, &[(1, REAPER)])], None),
            ("child is gone already", &shell, &[(0, &[(1, REAPER)])], Some(50)),
            ("unknown child is gone already", &[(1, LIVE)], &[(0, &[(1, REAPER)])], Some(50)),
            ("set -e", &shell, &[(0, &[(1, REAPER)]), (1, &[(1, FAILED)])], None),
            ("stopped, then goes on", &[(1, BUSY)], &[(0, &[(1, STOPPED)]), (90, &[(1, BUSY)])], Some(140)),
            ("stopped, then sleeps", &[(1, BUSY)], &[(0, &[(1, FROZEN)]), (90, &[(1, LIVE)])], Some(90)),
            (
                "frozen before it exits",
                &[(1, BUSY)],
                &[(0, &[(1, BUSY)]), (20, &[(1, FROZEN)]), (120, &[(1, BUSY)]), (160, &[(1, FAILED)])],
                None,
            ),
            ("another one is stopped", &shell, &[(0, &[(1, STOPPED), (2, BUSY)]), (70, &shell)], Some(120)),
            (
                "exception in a child",
                &shell,
                &[(0, &shell), (9, &[(1, LIVE), (2, FAILED)]), (12, &[(1, REAPER)])],
                None,
            ),
        ];
        for (name, before, course, expected) in table {
            assert_eq!(counted_at(before, course), expected, "{name}");
        }
    }

    /// When something counts, in ms, of what is only looked at when that is due.
    fn counted_when_due(holder: &mut Holder, times: Range<u64>, tree_at: impl Fn(u64) -> Snapshot) -> Vec<u64> {
        let mut due = |at: u64| {
            holder.next_review().is_some_and(|due| due <= ms(at)).then(|| holder.review(ms(at), &tree_at(at)))
        };
        times.filter(|at| due(*at).is_some_and(|accepted| !accepted.is_empty())).collect()
    }

    #[test]
    fn time_in_which_nobody_looks_does_not_count() {
        let mut holder = Holder::new(tree(&[(1, BUSY)]));
        assert!(holder.close(&[("/o/a".into(), false)], ms(0), tree(&[(1, BUSY)])).is_empty());
        // Frozen with all of the job, for a second.
        let counted = counted_when_due(&mut holder, 1000..1100, |_| tree(&[(1, BUSY)]));
        assert!(matches!(counted[..], [1025..1060]), "{counted:?}");
    }

    #[test]
    fn time_without_a_processor_does_not_count() {
        let waits = |ran, waited| tree(&[(1, ProcessState { turns: Some((ms(ran), ms(waited))), ..BUSY })]);
        let mut holder = Holder::new(waits(3, 0));
        assert!(holder.close(&[("/o/a".into(), false)], ms(0), waits(3, 0)).is_empty());
        // It gets one of ten milliseconds.
        let counted = counted_when_due(&mut holder, 1..700, |at| waits(3 + at / 10, at * 9 / 10));
        assert!(matches!(counted[..], [500..510]), "{counted:?}");
        assert_eq!(holder.next_review(), None);
    }

    #[test]
    fn many_are_accepted_some_at_a_time() {
        let mut holder = Holder::new(tree(&[(1, BUSY)]));
        let mut accepted = Vec::new();
        for number in 0..2000 {
            let now = Duration::from_micros(200 * number);
            let closed = [(PathBuf::from(format!("/o/{number}")), false)];
            let some = holder.close(&closed, now, tree(&[(1, BUSY)])).len();
            accepted.extend((some > 0).then_some(some));
        }
        assert!(accepted.iter().sum::<usize>() > 1600, "{accepted:?}");
        assert!(accepted.len() < 50, "{accepted:?}");
    }

    #[test]
    fn naps_hide_no_death() {
        let times: Vec<Duration> = (0..100).map(|number| Duration::from_micros(200 * number)).collect();
        let close = |holder: &mut Holder, now: Duration, tree: Snapshot| {
            let naps = holder.rest(now);
            let path = PathBuf::from(format!("/o/{}", now.as_micros()));
            (naps, holder.close(&[(path, false)], now, tree))
        };
        let rush = |processes: &[(i32, ProcessState)]| {
            let mut holder = Holder::new(tree(processes));
            let naps = times.iter().filter(|now| close(&mut holder, **now, tree(processes)).0.is_some()).count();
            (holder, naps)
        };
        assert_eq!(rush(&[(1, BUSY), (2, BUSY)]).1, 0);
        let (mut holder, naps) = rush(&[(1, BUSY)]);
        assert_eq!(naps, 100 - CROWD);
        // A child has come and gone.
        let reaped = ProcessState { reaped_faults: 80, ..BUSY };
        assert!(close(&mut holder, ms(21), tree(&[(1, reaped)])).0.is_some());
        let mut accepted = Vec::new();
        for later in 22..200 {
            assert_eq!(holder.rest(ms(later)), None, "{later}");
            accepted.extend(holder.review(ms(later), &tree(&[(1, reaped)])));
        }
        assert_eq!(accepted.len(), 100);
        assert_eq!(holder.release(), [PathBuf::from("/o/21000")]);
        // When nothing is closed, somebody looks.
        let (mut holder, _) = rush(&[(1, BUSY)]);
        assert!(holder.rest(ms(21)).is_some());
        assert_eq!(holder.rest(ms(21)), None);
    }

    #[test]
    fn success_releases() {
        let mut holder = Holder::new(tree(&[(1, BUSY)]));
        assert!(holder.close(&[("/o/a".into(), false)], Duration::ZERO, tree(&[(1, DYING)])).is_empty());
        assert_eq!(holder.next_review(), None);
        assert_eq!(holder.release(), [PathBuf::from("/o/a")]);
    }

    #[test]
    fn a_close_replaces_a_find() {
        let mut holder = Holder::new(tree(&[(1, LIVE)]));
        assert!(holder.close(&[("/o/a".into(), true)], ms(0), tree(&[(1, LIVE)])).is_empty());
        assert_eq!(holder.close(&[("/o/a".into(), false)], ms(1), tree(&[(1, LIVE)])).len(), 1);
        assert_eq!(holder.next_review(), None);
        assert!(holder.close(&[("/o/b".into(), true)], ms(2), tree(&[(1, LIVE)])).is_empty());
        for at in [3, 5, 12, 27] {
            assert!(holder.review(ms(at), &tree(&[(1, LIVE)])).is_empty());
        }
        assert_eq!(holder.review(ms(52), &tree(&[(1, LIVE)])), [PathBuf::from("/o/b")]);
    }
}
