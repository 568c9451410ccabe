"""How fast jobs were allowed to move their data, over time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from streamflow_io.bandwidth.phases import Phase, Request
from streamflow_io.bandwidth.regions import Span
from streamflow_io.grouping import grouped

from .history import History, Job
from .numbers import MB
from .records import RateRecord


def limit_spans(history: History, phases: Iterable[Phase]) -> list[Span]:
    """The limit of each request of some phases while it moved; times as recorded, bytes/s.

    It changes with the rates of its job, or is the storageBW that its job was held to.
    """
    jobs = {job.name: job for job in history.jobs if job.status == "completed"}
    rates = grouped(history.rates, lambda rate: rate.job)
    spans = list[Span]()
    for request in (one for phase in phases for one in phase.requests):
        if (job := jobs.get(request.job)) is None:
            continue
        if request.job in rates:
            # Those before belong to an attempt that has failed.
            since = history.run.time + (job.submitted or 0.0)
            of_request = (rate for rate in rates[request.job] if rate.time >= since and _is_of(rate, request))
            spans += _of_rates(request, list(of_request))
        elif (constraint := _held_to(history, job)) is not None:
            spans.append((request.started, request.ended, constraint * MB))
    return spans


def _of_rates(request: Request, rates: Sequence[RateRecord]) -> Iterator[Span]:
    ends = [*(rate.time for rate in rates[1:]), inf]
    for rate, end in zip(rates, ends, strict=False):
        span = max(rate.time, request.started), min(end, request.ended)
        if rate.rate is not None and span[0] < span[1]:
            yield (*span, rate.rate * MB)


def _is_of(rate: RateRecord, request: Request) -> bool:
    if rate.input is None:
        return request.kind == "task"
    return request.kind == "stream" and request.channel.startswith(f"{rate.job}/{rate.input} of ")


def _held_to(history: History, job: Job) -> float | None:
    """The storageBW that a job was held to; None: it could move as fast as the storage."""
    step = history.steps.get(job.step)
    # What a job with another storageBW was admitted with is no limit.
    is_number = step is not None and step.storage_bw is not None and not step.storage_bw[0].isalpha()
    is_limited = job.usage is not None and job.usage.paused_seconds is not None
    return job.constraint if is_number and is_limited else None
