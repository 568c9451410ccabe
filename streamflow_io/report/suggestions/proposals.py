"""The proposals for the next run, and the hints that are not proposed, each with its reasons."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from msgspec import Struct
from msgspec.structs import replace

from streamflow_io.bandwidth.pacing import SMALL
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.report.analysis.critical_path import PathSpan, critical_path
from streamflow_io.report.analysis.network import step_of
from streamflow_io.report.analysis.requirements import requirements
from streamflow_io.wording import how_often

from .evidence import EARLY, evidence
from .proposal import (
    CommitHint,
    GateHint,
    IOTaskHint,
    Pair,
    Proposal,
    Refusal,
    RequiredHint,
    SplitHint,
    StreamHint,
)

_MB = 1e6
#: Share of the reached rate. A job that required more gains nothing visible, and is easily late.
HIDDEN = 0.5
#: The least share of a run's time that is worth a proposal. Runs differ by less.
WORTH = 0.03
#: Cores that compute for this share of the time have next to nothing to spare.
BUSY = 0.9
_NO_SHORTER = "the run would have been no shorter"


class CoreUse(Struct, frozen=True):
    """The use that a run's jobs made of the cores of its locations.

    :ivar cores: the cores of all locations with a known number of cores
    :ivar share: the CPU time of the jobs, as a share of the cores' time between the first start and the last end
    """

    cores: float
    share: float

    @property
    def is_busy(self) -> bool:
        return self.share >= BUSY

    @property
    def text(self) -> str:
        """The use of the cores and its consequence, as a sentence without its end."""
        one = self.cores == 1
        return (
            f"the {'core' if one else f'{self.cores:,.0f} cores'} of the run computed for {self.share:.0%} of its time:"
            " jobs that run beside others cannot make it shorter"
        )


class Suggestions(Struct, frozen=True):
    """All hints and changes for which a run gives reasons.

    :ivar seconds: from the start of the run to the end of its last job
    :ivar saved: the most seconds that all proposals save together
    :ivar core_use: the run's use of its cores. None: unknown
    """

    seconds: float
    saved: float
    proposals: tuple[Proposal, ...]
    refusals: tuple[Refusal, ...]
    core_use: CoreUse | None = None


def suggest(history: History) -> Suggestions:
    """Return the hints that would have made a run faster.

    A proposal is sure if all evidence speaks for it. Another run with other inputs may still contradict the proposal,
    and then fails with a message, or warns.

    :param history: the history of a run that was observed
    """
    jobs = completed_jobs(history)
    path = critical_path(history)
    gains = overlap_gains(history, path)
    found = [*evidence(history, jobs), *_slower(history)]
    refusals = [one for one in found if isinstance(one, Refusal)]
    weighed = [_weighed(history, path, gains, one) for one in found if isinstance(one, Proposal)]
    seconds = max((job.ended or 0.0 for job in jobs), default=0.0)
    used = core_use(history)
    why = "the cores were busy: " + _NO_SHORTER if used is not None and used.is_busy else None
    overlapping = [one for one in weighed if _overlaps(one)]
    if _together(history, jobs, overlapping) < max(EARLY, WORTH * seconds):
        why = why or _NO_SHORTER
    if why is not None:
        refusals += [Refusal(one.subject, one.text, f"{one.evidence}, but {why}") for one in overlapping]
        weighed = [one for one in weighed if not _overlaps(one)]
    weighed.sort(key=lambda one: (not one.is_sure, -one.saved, -one.lead, one.subject))
    return Suggestions(seconds, _together(history, jobs, weighed), tuple(weighed), tuple(refusals), used)


def completed_jobs(history: History) -> list[JobAttempt]:
    """Return the jobs that succeeded, each once, in the order of their starts."""
    last = {job.name: job for job in history.jobs if job.status == "completed"}
    complete = [job for job in last.values() if None not in (job.submitted, job.started, job.ended)]
    return sorted(complete, key=lambda job: (job.started or 0.0, job.ended or 0.0))


def overlap_gains(history: History, path: Sequence[PathSpan]) -> dict[Pair, list[float]]:
    """Return the most seconds that two steps would save by running at the same time, for each pair of their jobs.

    Counts pairs on the critical path where one job began after the other had ended.
    """
    before = set(_pairs(history))
    gains: defaultdict[Pair, list[float]] = defaultdict(list)
    for (source, _, ran_before), (target, begins, ran) in pairwise(_in_turn(path)):
        # A job that reads from another while it runs has begun before the other ended.
        if (source, target) in before and begins:
            gains[source, target].append(min(ran_before, ran))
    return gains


def _pairs(history: History) -> Iterator[Pair]:
    """Yield each step with the steps after it, also those after it by a value that is no file."""
    for step, sources in history.run.steps.items():
        yield from ((source, step) for source in sources)
    yield from ((step_of(route.output), step_of(route.input)) for route in history.routes)


def _in_turn(path: Sequence[PathSpan]) -> Iterator[tuple[str, bool, float]]:
    """Yield the jobs of a path in order: step, whether the whole job is on the path, and its seconds there."""
    for (_, step), spans in groupby((span for span in path if span.job and span.step), lambda one: (one.job, one.step)):
        some = list(spans)
        seconds = sum(span.seconds for span in some if span.what in ("ran", "tail"))
        yield step or "", all(span.what != "tail" for span in some), seconds


def _overlaps(proposal: Proposal) -> bool:
    """Whether a hint only lets jobs run beside others: a hint for I/O takes no core, a split writes nothing."""
    return isinstance(proposal.hint, CommitHint | GateHint | StreamHint)


def _weighed(
    history: History, path: Sequence[PathSpan], gains: Mapping[Pair, Sequence[float]], proposal: Proposal
) -> Proposal:
    """Return a proposal with its savings."""
    hint = proposal.hint
    if isinstance(hint, SplitHint):
        step = step_of(hint.output)
        ran = sum(span.seconds for span in path if span.step == step and span.what in ("ran", "tail"))
        return replace(proposal, gains={(step, step): ran})
    if not isinstance(hint, CommitHint | GateHint | StreamHint):
        return proposal
    inputs = [route.input for route in history.routes if route.output == hint.output]
    pairs = {(step_of(hint.output), step_of(one)) for one in inputs}
    if isinstance(hint, StreamHint):
        pairs = {(step_of(hint.output), step_of(hint.input))}
    most = {pair: sum(min(each, proposal.lead) for each in gains.get(pair, ())) for pair in pairs}
    return replace(proposal, gains=most)


def _together(history: History, jobs: Sequence[JobAttempt], proposals: Sequence[Proposal]) -> float:
    """Return the most seconds that proposals save together: no more than until the last job that stays where it is."""
    best: dict[Pair, float] = {}
    for one in proposals:
        for pair, seconds in one.gains.items():
            best[pair] = max(best.get(pair, 0.0), seconds)
    steps, moved, pairs = {step for pair in best for step in pair}, 0, set(_pairs(history))
    while len(steps) > moved:
        moved = len(steps)
        steps |= {target for source, target in pairs if source in steps}
    end = max((job.ended or 0.0 for job in jobs), default=0.0)
    stays = max((job.ended or 0.0 for job in jobs if job.step not in steps), default=0.0)
    return min(sum(best.values()), end - stays)


def core_use(history: History) -> CoreUse | None:
    """Return the use that a run's jobs made of its cores. None: the cores or their use are not known."""
    known = [job for job in history.jobs if job.usage is not None and job.location_cores]
    cores = sum({job.location: job.location_cores or 0.0 for job in known}.values())
    intervals = [interval for job in known if (interval := history.measured(job)) is not None]
    seconds = max((end for _, end in intervals), default=0.0) - min((begin for begin, _ in intervals), default=0.0)
    if not cores or seconds <= 0:
        return None
    used = sum(job.usage.cpu_seconds for job in known if job.usage is not None)
    return CoreUse(cores, min(1.0, used / (cores * seconds)))


def _slower(history: History) -> Iterator[Proposal]:
    """Yield proposals for I/O tasks that moved their data at least twice as fast as required.

    A small request is not limited, and needs no such hint.
    """
    without = {step for step, hints in history.steps.items() if hints.io_task and hints.storage_bw is None}
    for found in requirements(history).steps if history.requests else ():
        size, window, reached = found.bytes or 0.0, found.window, found.throughput
        if found.step not in without or size < SMALL or reached is None or not window:
            continue
        if (required := size / _MB / window) <= HIDDEN * reached:
            evidence = (
                f"{how_often(found.phases)} {size / _MB:.0f} MB, for which a job waited after {window:.1f} s in the "
                f"median: {_rate(required)} would do, {_rate(reached)} were reached"
            )
            yield Proposal(RequiredHint(found.step), evidence)


def _rate(value: float) -> str:
    """Return a rate in MB/s as text."""
    return f"{value:,.0f} MB/s" if value >= 100 else f"{value:.3g} MB/s"


def by_step(proposals: Iterable[Proposal]) -> Mapping[str, list[Proposal]]:
    """Return commit rules, splits, I/O tasks and their bandwidth by the path of their step, ordered by path."""
    found: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        match proposal.hint:
            case CommitHint(output) | GateHint(output) | SplitHint(output):
                found.setdefault(posixpath.dirname(output), []).append(proposal)
            case IOTaskHint(step) | RequiredHint(step):
                found.setdefault(step, []).append(proposal)
    return dict(sorted(found.items()))
