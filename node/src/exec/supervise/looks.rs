//! Measures a running job, and holds it to its limits, by a look at its processes now and then.

use std::collections::BTreeMap;
use std::time::Duration;

use super::allowance::Allowance;
use super::bursts::Writes;
use super::cores::Demand;
use super::io_time::IoTime;
use super::processes::Processes;
use crate::limits::hold::Hold;
use crate::limits::throttle::Throttle;
use crate::processes::usage::own_cpu;
use crate::processes::watchdog::Watchdog;
use crate::protocol::event::{CoresEvent, Event, MovedEvent, Paused, PhaseEvent, Reason};
use crate::protocol::job::{Job, Rate};

/// Each part is there only for a job that asks for it. Times are durations since the start of the job.
#[derive(Default)]
pub struct Looks {
    io_time: Option<IoTime>,
    /// Holds the job to its limit.
    throttle: Option<Throttle>,
    /// Pauses the job while a reader of its window is too far behind.
    hold: Option<Hold>,
    /// Finds the bursts in which the job writes.
    writes: Option<Writes>,
    /// Finds how many cores the job needs.
    demand: Option<Demand>,
    /// Ends a job that has used up its time or its space.
    allowance: Option<Allowance>,
}

impl Looks {
    /// # Arguments
    /// * `seen` - whether the processes of the job can be seen: not without `/proc`, or where it hides them
    pub fn new(job: &Job, seen: bool, guard: Option<Watchdog>, now: Duration) -> Self {
        let given = job.rehearsal.seconds.map_or(Duration::MAX, |seconds| Duration::from_secs(seconds.get().into()));
        let (held, limited) = if job.has_window() { (guard, None) } else { (None, guard) };
        let is_bounded = job.rehearsal.seconds.is_some() || job.rehearsal.spare.is_some();
        Self {
            io_time: (job.observation.io && seen).then(|| IoTime::new(now)),
            throttle: job.limit.as_ref().map(|limit| Throttle::new(limit, limited, now)),
            hold: held.map(|guard| Hold::new(guard, now)),
            writes: job.observation.writes.as_ref().map(|to| Writes::new(to, now)),
            demand: job.observation.cores.map(|cores| Demand::new(cores.get(), now)),
            allowance: is_bounded.then(|| Allowance::new(given, now)),
        }
    }

    /// When to look next. None: never.
    ///
    /// # Arguments
    /// * `ending` - the job is being ended: then only I/O time and limit count
    pub fn due(&self, ending: bool) -> Option<Duration> {
        let always = [
            self.io_time.as_ref().map(IoTime::due),
            self.throttle.as_ref().and_then(Throttle::due),
            self.hold.as_ref().and_then(Hold::due),
        ];
        let running = [
            self.writes.as_ref().map(Writes::due),
            self.demand.as_ref().map(Demand::due),
            self.allowance.as_ref().map(Allowance::due),
        ];
        always.into_iter().chain(running.into_iter().filter(|_| !ending)).flatten().min()
    }

    pub fn is_paused(&self) -> bool {
        self.throttle.as_ref().is_some_and(Throttle::pauses) || self.hold.as_ref().is_some_and(Hold::pauses)
    }

    /// How long the job has been paused by now.
    pub fn paused(&self, now: Duration) -> Duration {
        let limited = self.throttle.as_ref().map_or(Duration::ZERO, |throttle| throttle.paused(now));
        self.hold.as_ref().map_or(limited, |hold| hold.paused(now))
    }

    /// Keeps the job to another rate from now on.
    pub fn keep_to(&mut self, rate: Rate, now: Duration) {
        self.throttle.iter_mut().for_each(|throttle| throttle.keep_to(rate, now));
    }

    /// Pauses the job no more.
    pub fn slacken(&mut self, now: Duration) {
        self.throttle.iter_mut().for_each(|throttle| throttle.slacken(now));
        self.hold.iter_mut().for_each(|hold| hold.slacken(now));
    }

    /// Pauses the job, or lets it go on, as a window wants it.
    pub fn look_at_window(&mut self, now: Duration, wanted: bool, processes: &mut Processes) {
        self.hold.iter_mut().for_each(|hold| hold.look(now, wanted, &mut || processes.look()));
    }

    /// Whether it is time to look which processes wait for a device.
    pub fn waits_are_due(&self, now: Duration) -> bool {
        self.io_time.as_ref().is_some_and(|time| time.due() <= now)
    }

    /// Takes whether a process waits for a device, and the CPU time by then of this process before the look.
    pub fn look_at_waits(&mut self, now: Duration, waits: bool, before: Duration) {
        self.io_time.iter_mut().for_each(|time| time.look(now, waits, own_cpu().saturating_sub(before)));
    }

    /// Holds the job to its limit, and returns what is told of that.
    pub fn look_at_limit(&mut self, now: Duration, processes: &mut Processes) -> Vec<Event<'static>> {
        let due = |throttle: &&mut Throttle| throttle.due().is_some_and(|due| due <= now);
        let Some(throttle) = self.throttle.as_mut().filter(due) else { return Vec::new() };
        let looked = throttle.look(now, &mut || processes.look());
        let failed = looked.err().map(|error| {
            let why = format!("it is not held to its storageBW: what its processes move cannot be seen: {error}");
            Event::warning(why, None)
        });
        failed.into_iter().chain(throttle.news(now).map(|bytes| Event::Moved(MovedEvent { bytes }))).collect()
    }

    /// A burst in which the job has written, if one has ended.
    pub fn look_at_writes(&mut self, now: Duration, processes: &mut Processes) -> Option<Event<'static>> {
        let writes = self.writes.as_mut().filter(|writes| writes.due() <= now)?;
        let burst = writes.look(now, || processes.look())?;
        Some(Event::Phase(PhaseEvent::of(&burst, now)))
    }

    /// The last burst, when the job has ended.
    pub fn end_writes(&mut self, now: Duration) -> Option<Event<'static>> {
        let burst = self.writes.as_mut()?.end(now)?;
        Some(Event::Phase(PhaseEvent::of(&burst, now)))
    }

    /// How many cores the job needs, if that is news.
    pub fn look_at_demand(&mut self, now: Duration, processes: &mut Processes) -> Option<Event<'static>> {
        let demand = self.demand.as_mut().filter(|demand| demand.due() <= now)?;
        demand.look(now, || processes.look()).map(|needed| Event::Cores(CoresEvent { needed }))
    }

    /// Why the job has to end, if it has used up its time or its space.
    pub fn look_at_allowance(&mut self, job: &Job, now: Duration, processes: &mut Processes) -> Option<Reason> {
        let allowance = self.allowance.as_mut().filter(|allowance| allowance.due() <= now)?;
        let threads = if job.rehearsal.seconds.is_some() { processes.threads() } else { BTreeMap::new() };
        if allowance.look(now, threads) {
            return Some(Reason::Overtime);
        }
        job.rehearsal.spare.is_some_and(|spare| job.scratch_has_less_than(spare)).then_some(Reason::Space)
    }

    /// The time in I/O, and how the job was kept to its limit.
    pub fn end(self, now: Duration) -> (Option<Duration>, Option<Paused>) {
        let paused = self.throttle.map(|throttle| throttle.told()).or(self.hold.map(|hold| hold.told()));
        (self.io_time.map(|time| time.total(now)), paused)
    }
}
