"""The rates that I/O tasks of a run required, were allowed, and reached.

Times are seconds since the start of the run, rates MB/s (10^6 bytes per second).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from statistics import median

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import Way
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.records.records import RateRecord, RequestRecord
from streamflow_io.series import covered, highest

from .model import MB, POINTS, AnalysisModel
from .phases import (
    Phase,
    Span,
    direction_of,
    most,
    overlap,
    phases,
    regions,
    required_spans,
    throughput_spans,
)


class RequestAmounts(AnalysisModel):
    """Sums over some requests.

    :ivar phases: without exposed requests
    :ivar most_required: the highest rate that phases required together; with this rate no job would have waited
    :ivar most_throughput: the highest rate at which phases moved together
    :ivar waits: the phases that were moved after their required ends
    :ivar wait_seconds: the sum of the delays
    :ivar exposed: requests for which a job waited at once, or that are too small to count
    :ivar exposed_seconds: the time in which at least one exposed request moved
    """

    requests: int
    channels: int
    phases: int
    most_required: float
    most_throughput: float
    waits: int
    wait_seconds: float
    exposed: int
    exposed_seconds: float


class StepRequirement(RequestAmounts):
    """The requests of a step. Medians are over its phases. None: the step has no phases.

    :ivar window: seconds from when a phase is ready to its required end
    :ivar required: required bandwidth
    :ivar limited: phases that had a limit when they started
    :ivar limit: the median of these limits
    """

    step: str
    window: float | None
    bytes: float | None
    required: float | None
    throughput: float | None
    limited: int
    limit: float | None


class StorageRequirement(RequestAmounts):
    """The requests on a storage in one direction.

    :ivar storage: None: no storage is known for these requests
    :ivar bandwidth: bandwidth of the storage
    :ivar required_over_time: the rate that phases require together, from each time on
    :ivar throughput_over_time: the rate at which phases move together
    :ivar limit_over_time: the sum of the limits of the phases that have one
    """

    storage: str | None
    direction: Way
    bandwidth: float | None
    required_over_time: list[tuple[float, float]]
    throughput_over_time: list[tuple[float, float]]
    limit_over_time: list[tuple[float, float]]


class Requirements(RequestAmounts):
    """The requests of a whole run.

    :ivar overlap: the share of the time with a computing job in which a request moved, too
    """

    run: str
    seconds: float
    ended: bool
    overlap: float | None
    steps: list[StepRequirement]
    storages: list[StorageRequirement]


def requests_of(history: History) -> list[RequestRecord]:
    """Return the requests of a run, by the time when they were ready; times as recorded."""
    return sorted(history.requests, key=lambda one: one.ready)


def requirements(history: History) -> Requirements:
    """Return the required and reached rates of a run's requests."""
    requests = requests_of(history)
    # The writes of compute jobs are no I/O beside compute.
    moved = [one for one in requests if one.kind != "write"]
    running = (history.running(job) for job in history.jobs if not history.is_io_task(job.step))
    start = history.run.time
    computing = [(since + start, until + start) for since, until in filter(None, running)]
    by_storage = grouped(requests, lambda one: (one.storage, direction_of(one)))
    return Requirements(
        **_amounts(requests, phases(requests)),
        run=history.label,
        seconds=history.seconds,
        ended=history.ended,
        overlap=overlap(computing, [(one.started, one.ended) for one in moved]),
        steps=[_step(step, of) for step, of in grouped(requests, lambda one: one.step).items()],
        storages=[_storage(history, storage, way, of) for (storage, way), of in by_storage.items()],
    )


def _amounts(requests: Sequence[RequestRecord], of: Sequence[Phase]) -> dict[str, float | int | None]:
    exposed = [one for one in requests if one.rule == "exposed"]
    return {
        "requests": len(requests),
        "channels": len({one.channel for one in requests}),
        "phases": len(of),
        "most_required": most(required_spans(of)) / MB,
        "most_throughput": most(throughput_spans(of)) / MB,
        "waits": sum(phase.wait > 0 for phase in of),
        "wait_seconds": sum(phase.wait for phase in of),
        "exposed": len(exposed),
        "exposed_seconds": covered((one.started, one.ended) for one in exposed),
    }


def _step(step: str, requests: Sequence[RequestRecord]) -> StepRequirement:
    of = phases(requests)
    rates = [phase.throughput / MB for phase in of if phase.throughput is not None]
    limits = [sum(one.limit or 0.0 for one in phase.requests) for phase in of if phase.is_limited]
    return StepRequirement(
        **_amounts(requests, of),
        step=step,
        window=_median(phase.window for phase in of),
        bytes=_median(phase.bytes for phase in of),
        required=_median(phase.needed / MB for phase in of),
        throughput=_median(rates),
        limited=len(limits),
        limit=_median(limits),
    )


def _storage(history: History, name: str | None, way: Way, requests: Sequence[RequestRecord]) -> StorageRequirement:
    of = phases(requests)
    bandwidths = {storage.name: storage.read if way == "read" else storage.write for storage in history.run.storages}

    def over_time(spans: Iterable[Span]) -> list[tuple[float, float]]:
        return [(history.since_start(time), rate / MB) for time, rate in highest(regions(spans), POINTS)]

    return StorageRequirement(
        **_amounts(requests, of),
        storage=name,
        direction=way,
        bandwidth=bandwidths.get(name or ""),
        required_over_time=over_time(required_spans(of)),
        throughput_over_time=over_time(throughput_spans(of)),
        limit_over_time=over_time(limit_spans(history, of)),
    )


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return median(found) if found else None


def limit_spans(history: History, phases: Iterable[Phase]) -> list[Span]:
    """Return the limit of each request of some phases while the request moved.

    Times are as recorded, rates in bytes per second. A limit is the rate of the request's job, or the storageBW to
    which the job was limited.
    """
    jobs = {job.name: job for job in history.jobs if job.status == "completed"}
    rates = grouped(history.rates, lambda rate: rate.job)
    spans = list[Span]()
    for request in (one for phase in phases for one in phase.requests):
        if (job := jobs.get(request.job)) is None:
            continue
        if request.job in rates:
            # Earlier rates belong to an attempt that has failed.
            since = history.run.time + (job.submitted or 0.0)
            of_request = (rate for rate in rates[request.job] if rate.time >= since)
            spans += _of_rates(request, list(of_request))
        elif (constraint := _held_to(history, job)) is not None:
            spans.append((request.started, request.ended, constraint * MB))
    return spans


def _of_rates(request: RequestRecord, rates: Sequence[RateRecord]) -> Iterator[Span]:
    ends = [*(rate.time for rate in rates[1:]), inf]
    for rate, end in zip(rates, ends, strict=False):
        span = max(rate.time, request.started), min(end, request.ended)
        if rate.rate is not None and span[0] < span[1]:
            yield (*span, rate.rate * MB)


def _held_to(history: History, job: JobAttempt) -> float | None:
    """Return the storageBW to which a job was limited. None: the job could move as fast as the storage."""
    step = history.steps.get(job.step)
    # Jobs with another storageBW were admitted with a constraint that is no limit.
    is_number = step is not None and step.storage_bw is not None and not step.storage_bw[0].isalpha()
    is_limited = job.usage is not None and job.usage.paused_seconds is not None
    return job.constraint if is_number and is_limited else None
