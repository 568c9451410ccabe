//! Separates closes of files from closes caused by death. Facts about processes in, decisions out; no I/O, no clock.
//!
//! When a file is closed, the kernel does not say by which process or why. A close counts at once only if no process of
//! the job is dying or has died unseen, and all of them sleep: the writer closed its file and lives. Any other close is
//! held for `GRACE`. The close counts if the main process lives on, and the processes that could have closed the file
//! live on, too, or end well.
//!
//! An interpreter that ends by an exception closes its files first and exits some milliseconds later. A `set -e` shell
//! exits right after its child. Both are busy, or gone, within the grace. The grace is longer by any time in which a
//! process was stopped or frozen, waited for a processor, or this process could not look.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::processes::active_time::ActiveTimes;
use crate::processes::snapshot::{ProcessId, Snapshot};

/// How long the job has to continue after a close, or after the end of a process that could have caused it.
pub const GRACE: Duration = Duration::from_millis(50);

/// When a held close is reviewed, counted from its beginning.
const REVIEWS: [Duration; 6] = [
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(10),
    Duration::from_millis(25),
    GRACE,
];

/// Least time between two reviews that accept closes: `EACH` for each held close but the first, at most `RARELY`.
/// The files of a job that closes one after the other are therefore committed some at a time.
const EACH: Duration = Duration::from_micros(50);
const RARELY: Duration = Duration::from_millis(10);

/// Time without a look after each look, while the only process of a job closes `CROWD` files within `RUSH`.
/// The closes of such a process are taken some at a time.
const NAP: Duration = Duration::from_millis(1);
const CROWD: usize = 32;
const RUSH: Duration = Duration::from_millis(20);

/// The first of `REVIEWS` after a death. Earlier ones only look for a writer that falls asleep.
const AFTER_DEATH: usize = 3;

/// Time until the next review while a process has not lived for long enough. The kernel counts run time by its ticks.
const TICK: Duration = Duration::from_millis(4);

/// Delay of a review that is tolerated. Any more is time in which this process did not run; the job may not have run
/// either.
const PUNCTUAL: Duration = Duration::from_millis(20);

/// How a close has become known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// By a notice of the close.
    Notice,
    /// By a notice that the file, which no process writes, was moved into place.
    Move,
    /// The same, but a process that exits may have the file open. A notice of the close may follow.
    EarlyMove,
    /// By a scan. A notice of the close may follow, or have come.
    Scan,
}

impl Sign {
    /// Whether this sign and an earlier one may tell of the same close.
    fn replaces(self, earlier: Self) -> bool {
        match earlier {
            Self::Scan => self != Self::Scan,
            Self::EarlyMove => self == Self::Notice,
            Self::Notice | Self::Move => false,
        }
    }
}

#[derive(Debug)]
struct Held {
    path: PathBuf,
    sign: Sign,
    /// Living processes that could have closed the file, and how long each had lived at that time.
    suspects: Vec<(ProcessId, Duration)>,
    /// No process has died. The close counts as soon as all of them sleep.
    quiet: bool,
    /// One of the processes has failed. The close counts only if the job succeeds.
    condemned: bool,
    since: Duration,
    reviews: usize,
    /// When to review next, if some suspects have not lived for long enough.
    again: Option<Duration>,
}

/// Holds closes back until it is clear whether they count. Times are durations since any fixed moment.
#[derive(Debug, Default)]
pub struct Holder {
    last: Snapshot,
    held: Vec<Held>,
    /// Processes that could have closed one of the held files.
    suspects: BTreeSet<ProcessId>,
    lives: ActiveTimes,
    /// When the first held close is to be reviewed. None: only the end of the job decides.
    due: Option<Duration>,
    main_exiting: bool,
    accepted: Duration,
    rest: Rest,
    /// When a process was last seen dead, or dying.
    death: Option<Duration>,
    /// A process was stopped or frozen at the last look.
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

    /// Takes the closes since the last call. Returns the closes that count at once.
    pub fn close(&mut self, closes: &[(PathBuf, Sign)], now: Duration, snapshot: Snapshot) -> Vec<PathBuf> {
        let quiet = !snapshot.deaths_since(&self.last);
        // How they have ended could not be seen.
        let condemned = !quiet && self.rest.rested;
        if !quiet || snapshot.processes.values().any(|vitals| vitals.exiting) {
            self.death = Some(now);
        }
        self.rest.fresh = true;
        let suspects = self.see(now, &snapshot);
        let may_be_replaced = |held: &Held| matches!(held.sign, Sign::EarlyMove | Sign::Scan);
        let mut any_may_be_replaced = self.held.iter().any(may_be_replaced);
        for (path, sign) in closes {
            if *sign == Sign::Scan && self.held.iter().any(|held| held.path == *path) {
                continue;
            }
            if any_may_be_replaced && *sign != Sign::Scan {
                self.held.retain(|held| held.path != *path || !sign.replaces(held.sign));
            }
            any_may_be_replaced |= matches!(sign, Sign::EarlyMove | Sign::Scan);
            self.held.push(Held {
                path: path.clone(),
                sign: *sign,
                suspects: suspects.clone(),
                quiet: quiet && matches!(sign, Sign::Notice | Sign::Move),
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

    /// Returns all processes, and how long each of them has lived by now.
    fn see(&mut self, now: Duration, snapshot: &Snapshot) -> Vec<(ProcessId, Duration)> {
        snapshot.processes.iter().map(|(id, vitals)| (*id, self.lives.see(*id, vitals, now))).collect()
    }

    /// Returns for how long not to look for more closes, if at all.
    /// If a process comes and goes meanwhile, the closes of this time count only when the job succeeds: its end was not
    /// seen.
    pub fn rest(&mut self, now: Duration) -> Option<Duration> {
        let first = self.held.len().checked_sub(CROWD).map(|first| self.held[first].since);
        let rush = first.is_some_and(|first| now < first + RUSH);
        let calm = self.last.processes.len() == 1 && self.death.is_none_or(|death| now > death + GRACE);
        self.rest.rested = std::mem::take(&mut self.rest.fresh) && rush && calm && !self.main_exiting;
        self.rest.rested.then_some(NAP)
    }

    /// Whether a review would change nothing. Saves reviews when a job closes many files one after the other.
    fn can_wait(&self, now: Duration, snapshot: &Snapshot) -> bool {
        let lives = |id: &ProcessId| snapshot.processes.get(id).is_some_and(|vitals| !vitals.exiting);
        let living = snapshot.processes.values().all(|vitals| !vitals.exiting) && self.suspects.iter().all(lives);
        let early = self.due.is_none_or(|due| now < due) && !snapshot.are_asleep();
        living && !snapshot.main_exiting && !self.main_exiting && (early || now < self.accepts_at())
    }

    /// Reviews the held closes, and returns those that count now. `snapshot` needs to contain the suspects only.
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

    /// Updates the suspects and the next review after a change of the held closes.
    fn count(&mut self) {
        self.suspects = self.held.iter().flat_map(|held| held.suspects.iter().map(|(id, _)| *id)).collect();
        self.lives.retain(|id| self.suspects.contains(id));
        let open = self.held.iter().filter(|held| !held.condemned);
        self.due = open.map(Held::due).min();
    }

    /// Returns the processes that the next review is about.
    pub fn suspects(&self) -> &BTreeSet<ProcessId> {
        &self.suspects
    }

    /// Returns when to review next, or None if only the end of the job decides.
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

    /// Forgets a removed file or directory, and what was below it.
    pub fn forget(&mut self, path: &Path) {
        self.held.retain(|held| !held.path.starts_with(path));
        self.count();
    }

    /// Returns all held closes: they count, because the job has ended with a success code.
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

    /// Returns the time in ms at which a close at 0 counts, or None for never, given the processes before and after it.
    fn counted_at(before: &[(i32, ProcessState)], course: &[(u64, &[(i32, ProcessState)])]) -> Option<u64> {
        let mut holder = Holder::new(tree(before));
        for now in 0..200 {
            let at = course.iter().rev().find(|(from, _)| *from <= now).unwrap();
            let accepted = match now {
                0 => holder.close(&[("/o/a".into(), Sign::Notice)], ms(now), tree(at.1)),
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

    /// Returns the times in ms at which closes count if each review happens only when it is due.
    fn counted_when_due(holder: &mut Holder, times: Range<u64>, tree_at: impl Fn(u64) -> Snapshot) -> Vec<u64> {
        let mut due = |at: u64| {
            holder.next_review().is_some_and(|due| due <= ms(at)).then(|| holder.review(ms(at), &tree_at(at)))
        };
        times.filter(|at| due(*at).is_some_and(|accepted| !accepted.is_empty())).collect()
    }

    #[test]
    fn time_in_which_nobody_looks_does_not_count() {
        let mut holder = Holder::new(tree(&[(1, BUSY)]));
        assert!(holder.close(&[("/o/a".into(), Sign::Notice)], ms(0), tree(&[(1, BUSY)])).is_empty());
        // The whole job is frozen for a second.
        let counted = counted_when_due(&mut holder, 1000..1100, |_| tree(&[(1, BUSY)]));
        assert!(matches!(counted[..], [1025..1060]), "{counted:?}");
    }

    #[test]
    fn time_without_a_processor_does_not_count() {
        let waits = |ran, waited| tree(&[(1, ProcessState { turns: Some((ms(ran), ms(waited))), ..BUSY })]);
        let mut holder = Holder::new(waits(3, 0));
        assert!(holder.close(&[("/o/a".into(), Sign::Notice)], ms(0), waits(3, 0)).is_empty());
        // The process runs in one of ten milliseconds.
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
            let closed = [(PathBuf::from(format!("/o/{number}")), Sign::Notice)];
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
            (naps, holder.close(&[(path, Sign::Notice)], now, tree))
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
        // Without new closes there is no nap.
        let (mut holder, _) = rush(&[(1, BUSY)]);
        assert!(holder.rest(ms(21)).is_some());
        assert_eq!(holder.rest(ms(21)), None);
    }

    #[test]
    fn success_releases() {
        let mut holder = Holder::new(tree(&[(1, BUSY)]));
        assert!(holder.close(&[("/o/a".into(), Sign::Notice)], Duration::ZERO, tree(&[(1, DYING)])).is_empty());
        assert_eq!(holder.next_review(), None);
        assert_eq!(holder.release(), [PathBuf::from("/o/a")]);
    }

    #[test]
    fn a_close_replaces_a_find() {
        let mut holder = Holder::new(tree(&[(1, LIVE)]));
        assert!(holder.close(&[("/o/a".into(), Sign::Scan)], ms(0), tree(&[(1, LIVE)])).is_empty());
        assert_eq!(holder.close(&[("/o/a".into(), Sign::Notice)], ms(1), tree(&[(1, LIVE)])).len(), 1);
        assert_eq!(holder.next_review(), None);
        assert!(holder.close(&[("/o/b".into(), Sign::Scan)], ms(2), tree(&[(1, LIVE)])).is_empty());
        for at in [3, 5, 12, 27] {
            assert!(holder.review(ms(at), &tree(&[(1, LIVE)])).is_empty());
        }
        assert_eq!(holder.review(ms(52), &tree(&[(1, LIVE)])), [PathBuf::from("/o/b")]);
    }

    #[test]
    fn a_move_counts_once_beside_other_closes() {
        use Sign::{EarlyMove, Move, Notice};
        let counts = |signs: &[Sign]| {
            let mut holder = Holder::new(tree(&[(1, BUSY)]));
            let close =
                |(at, sign): (u64, &Sign)| holder.close(&[("/o/a".into(), *sign)], ms(at), tree(&[(1, BUSY)])).len();
            let early: usize = (0..).zip(signs).map(close).sum();
            early + (20..90).map(|at| holder.review(ms(at), &tree(&[(1, BUSY)])).len()).sum::<usize>()
        };
        assert_eq!(counts(&[EarlyMove]), 1);
        assert_eq!(counts(&[Notice, EarlyMove]), 2);
        assert_eq!(counts(&[EarlyMove, Notice]), 1);
        assert_eq!(counts(&[EarlyMove, EarlyMove]), 2);
        assert_eq!(counts(&[EarlyMove, Move, Notice]), 2);
    }
}
