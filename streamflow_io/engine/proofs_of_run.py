"""The streams of a run that no hint asks for: proven ones, trials, and streams that wait for a proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamflow_io.adapters.attempts import StreamingJobs
from streamflow_io.adapters.jobs import Listener
from streamflow_io.graph.sites import SiteKind
from streamflow_io.jobs.awaited_streams import AwaitedStreams
from streamflow_io.jobs.learned_streams import LearnedStreams
from streamflow_io.jobs.programs import Programs
from streamflow_io.jobs.short_jobs import ShortJobs
from streamflow_io.records.learned.proofs import RememberedProofs

from .services import Services

if TYPE_CHECKING:
    from streamflow_io.proofs.rehearsals import Rehearsals


class ProofsOfRun:
    """Makes the parts of a run that let files stream without a hint.

    :ivar proofs: the proofs of this run and earlier ones
    :ivar streams: which inputs of jobs stream because of proofs
    :ivar short_jobs: which jobs are too short for streams
    :ivar awaited: which outputs stream as soon as a proof allows it
    :ivar rehearsals: tries streams on idle cores; None: no trials are wanted
    :ivar listeners: in the order in which they are told of jobs
    """

    def __init__(self, services: Services, streaming_jobs: StreamingJobs) -> None:
        plan, config = services.plan, services.config
        self.proofs = RememberedProofs(services.learned, plan.proofs.known)
        self._programs = Programs()
        self.streams = LearnedStreams(
            plan.proofs.candidates,
            plan.proofs.contents,
            plan.proofs.proven,
            self.proofs,
            self._programs,
            plan.graph.wiring.awaited,
            config.declarations == "recover" and config.runtime == "embedded",
        )
        unasked = {step for step, hints in plan.annotations.items() if not hints}
        is_auto = config.streaming == "auto" and not config.observe and config.rehearse != "wait"
        self.short_jobs = ShortJobs(unasked if is_auto else ())
        here = {path for path, step in plan.graph.steps.items() if step.site.kind is SiteKind.LOCAL}
        self.awaited = AwaitedStreams(self.streams, streaming_jobs, here)
        self.rehearsals: Rehearsals | None = None
        if config.rehearse != "never" and plan.proofs.candidates and config.runtime == "embedded":
            # Imported late: most runs try no streams, and `proofs/` takes 12 ms.
            from streamflow_io.proofs import findings, rehearsable_jobs, rehearsals

            self.rehearsals = rehearsals.Rehearsals(
                rehearsable_jobs.RehearsableJobs(
                    plan.proofs.candidates, plan.proofs.is_auto, config.verify, self._programs, streaming_jobs
                ),
                findings.Findings(self.proofs, config.declarations, services.record),
                services.scheduler.hardware_locations,
            )
        self._waits = config.rehearse == "wait"
        self._compares = plan.proofs.is_auto
        self._has_ended = False
        self.listeners: tuple[Listener, ...] = () if self.rehearsals is None else (self.rehearsals,)

    def held(self) -> frozenset[str]:
        """The names of the jobs that a trial may run once more."""
        return frozenset() if self.rehearsals is None else self.rehearsals.held()

    async def end(self, is_well: bool) -> None:
        """End all trials. No job of the workflow runs any more. Only the first call has an effect.

        :param is_well: whether the run has succeeded
        """
        if self._has_ended:
            return
        self._has_ended = True
        if self.rehearsals is not None:
            await self.rehearsals.close(waits=is_well and self._waits, compares=is_well and self._compares)
        await self._programs.close()
