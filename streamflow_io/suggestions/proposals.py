"""What is proposed for the next run, and what is not, each with its reasons. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from streamflow_io.telemetry.history import History

from .evidence import EARLY, evidence
from .hiding import hidden
from .network import completed_jobs, network
from .proposal import Proposal, Refusal
from .simulation import (
    CommitHint,
    GateHint,
    IOTaskHint,
    RequiredHint,
    SimulatedHint,
    SimulatedJob,
    SplitHint,
    Times,
    end_of,
    saved_seconds,
    simulate,
)
from .writing import Change, changes


@dataclass(frozen=True)
class Suggestions:
    """What a run gives reasons for.

    :ivar seconds: from the start of the run to the end of its last job
    :ivar saved: with all sure proposals together
    :ivar saved_at_most: with those that are to be tried, too
    :ivar changes: of the workflow, which are no hints
    """

    seconds: float
    saved: float
    saved_at_most: float
    proposals: tuple[Proposal, ...]
    refusals: tuple[Refusal, ...]
    changes: tuple[Change, ...] = ()


def suggest(history: History) -> Suggestions:
    """What would have made a run faster.

    A proposal is sure if everything that was seen speaks for it; another run with other inputs may still contradict,
    and then fails with a message, or warns.

    :param history: of a run that was observed
    """
    jobs = completed_jobs(history)
    simulated = network(history, jobs)
    found = list(evidence(history, jobs))
    io_tasks = {one.hint.step for one in found if isinstance(one, Proposal) and isinstance(one.hint, IOTaskHint)}
    found += hidden(history, jobs, simulated, io_tasks)
    refusals = [one for one in found if isinstance(one, Refusal)]
    weighed, idle = _weigh(simulated, [one for one in found if isinstance(one, Proposal)])
    sure = [proposal.hint for proposal in weighed if proposal.is_sure]
    every = [proposal.hint for proposal in weighed]
    return Suggestions(
        end_of(simulated),
        saved_seconds(simulated, sure),
        saved_seconds(simulated, every),
        tuple(weighed),
        (*refusals, *idle),
        tuple(changes(history, jobs)),
    )


def _weigh(simulated: Sequence[SimulatedJob], proposals: Sequence[Proposal]) -> tuple[list[Proposal], list[Refusal]]:
    """Proposals with what they save, the most valuable first; those that let nobody start earlier are none."""
    weighed, idle = [], []
    for proposal in proposals:
        others = [other.hint for other in proposals if other != proposal and (other.is_sure or not proposal.is_sure)]
        # Two early files help only together, if one job needs both.
        alone, joint = _gains(simulated, [], proposal.hint), _gains(simulated, others, proposal.hint)
        gains = max(alone, joint, key=lambda gains: max((gain.ended for gain in gains), default=0.0))
        moved = [gain.started for gain in gains if gain.started > 0.0]
        # Who starts earlier, and then only waits, has gained nothing.
        is_for_io = isinstance(proposal.hint, IOTaskHint | RequiredHint)
        if max((gain.ended for gain in gains), default=0.0) < EARLY and not is_for_io:
            what = "ended" if max(moved, default=0.0) >= EARLY else "started"
            reason = f"{proposal.evidence}, but no job would have {what} earlier"
            idle.append(Refusal(proposal.subject, proposal.text, reason))
            continue
        saved = saved_seconds(simulated, [proposal.hint])
        weighed.append(replace(proposal, saved=saved, earlier=fmean(moved) if moved else 0.0))
    weighed.sort(key=lambda proposal: (not proposal.is_sure, -proposal.saved, -proposal.earlier, proposal.subject))
    return weighed, idle


def _gains(simulated: Sequence[SimulatedJob], others: Collection[SimulatedHint], hint: SimulatedHint) -> list[Times]:
    """By how much each job starts, and ends, earlier with one more hint."""
    pairs = zip(simulate(simulated, others), simulate(simulated, [*others, hint]), strict=True)
    return [Times(one.started - other.started, one.ended - other.ended) for one, other in pairs]


def by_step(proposals: Iterable[Proposal]) -> Mapping[str, list[Proposal]]:
    """Commit rules, splits, I/O tasks and their bandwidth by the path of their step, in the order of the paths."""
    found: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        match proposal.hint:
            case CommitHint(output) | GateHint(output) | SplitHint(output):
                found.setdefault(posixpath.dirname(output), []).append(proposal)
            case IOTaskHint(step) | RequiredHint(step):
                found.setdefault(step, []).append(proposal)
    return dict(sorted(found.items()))
