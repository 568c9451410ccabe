"""The requests of a run as a trace of TMIO, which FTIO and TMIO's own programs read.

A trace is lines of JSON, each an object with one key. The lines say what was read and written, synchronously and
asynchronously. For asynchronous I/O there are the throughput (`_t`) and the required bandwidth (`_b`). `io_time` is a
summary of times. A channel is a rank. Units are bytes and seconds, as in TMIO since version 0.0.2 (MB before).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import fmean, harmonic_mean, median

from streamflow_io.grouping import grouped
from streamflow_io.hints.models import WAYS
from streamflow_io.series import covered

from .phases import IORequest, Phase, Span, direction_of, lifetimes, phases, required_spans, throughput_spans

# FTIO counts a start before an end at the same time. Without this gap, phases that follow each other would count
# together.
_BEFORE_THE_END = 1e-6

Value = int | float | list[float] | dict[str, "Value"]


def trace(requests: Iterable[IORequest], start: float) -> tuple[str, int]:
    """Return the trace of some requests, and how many ranks it has. Requests in both directions count as written.

    :param start: the start of the run. Times in the trace are seconds since then
    """
    requests = list(requests)
    ranks = len({one.channel for one in requests})
    exposed = [one for one in requests if one.rule == "exposed"]
    lines: dict[str, dict[str, Value]] = {}
    for way in WAYS:
        sync = [Phase([one]) for one in exposed if direction_of(one) == way]
        hidden = [one for one in phases(requests) if direction_of(one.first) == way]
        lines[f"{way}_sync"] = _sample(sync, throughput_spans(sync), start, ranks)
        lines[f"{way}_async_t"] = _sample(hidden, throughput_spans(hidden), start, ranks)
        needed = [(since, until - _BEFORE_THE_END, rate) for since, until, rate in required_spans(hidden)]
        lines[f"{way}_async_b"] = _sample(hidden, needed, start, ranks)
    lines["io_time"] = _times(requests)
    return "".join(json.dumps({key: line}, allow_nan=False) + "\n" for key, line in lines.items()), ranks


def _sample(of: Sequence[Phase], spans: Sequence[Span], start: float, ranks: int) -> dict[str, Value]:
    by_rank = grouped(of, lambda one: one.first.channel).values()
    operations = [len(one.requests) for one in of]
    return {
        "total_bytes": sum(one.bytes for one in of),
        "max_bytes_per_rank": max((sum(one.bytes for one in rank) for rank in by_rank), default=0),
        "max_bytes_per_phase": max((one.bytes for one in of), default=0),
        "max_io_phases_per_rank": max(map(len, by_rank), default=0),
        "total_io_phases": len(of),
        "max_io_ops_in_phase": max(operations, default=0),
        "max_io_ops_per_rank": max((sum(len(one.requests) for one in rank) for rank in by_rank), default=0),
        "total_io_ops": sum(operations),
        "number_of_ranks": ranks,
        "bandwidth": _bandwidth(sorted(spans), start),
    }


def _bandwidth(spans: Sequence[Span], start: float) -> dict[str, Value]:
    rates = [rate for _, _, rate in spans]
    lengths = [until - since for since, until, _ in spans]
    return {
        "weighted_harmonic_mean": harmonic_mean(rates, lengths) if rates else 0.0,
        "harmonic_mean": harmonic_mean(rates) if rates else 0.0,
        "arithmetic_mean": fmean(rates) if rates else 0.0,
        "median": median(rates) if rates else 0.0,
        "max": max(rates, default=0.0),
        "min": min(rates, default=0.0),
        "b_rank_avr": rates,
        "b_rank_sum": rates,
        "t_rank_s": [since - start for since, _, _ in spans],
        "t_rank_e": [until - start for _, until, _ in spans],
    }


def _times(requests: Sequence[IORequest]) -> dict[str, Value]:
    """Return the sums over all ranks. `lost` is the time of moving in which a job waited."""
    times: dict[str, Value] = {"delta_t_agg": lifetimes(requests)}
    in_io = 0.0
    for way, letter in zip(WAYS, "rw", strict=True):
        hidden = [one for one in phases(requests) if direction_of(one.first) == way]
        exposed = [one for one in requests if one.rule == "exposed" and direction_of(one) == way]
        sync = _moving(exposed)
        lost = sum(one.moving - one.hidden for one in hidden)
        times |= {
            f"delta_t_s{letter}": sync,
            f"delta_t_a{letter}a": sum(one.moving for one in hidden),
            f"delta_t_a{letter}r": sum(one.window for one in hidden),
            f"delta_t_a{letter}_lost": lost,
        }
        in_io += sync + lost
    unknown = ("overhead", "overhead_post_runtime", "overhead_peri_runtime", "rank0", "rank0_app")
    of_rank0 = ("rank0_overhead_post_runtime", "rank0_overhead_peri_runtime")
    return {**times, "delta_t_agg_io": in_io, **{f"delta_t_{name}": 0.0 for name in chain(unknown, of_rank0)}}


def _moving(requests: Sequence[IORequest]) -> float:
    """Return the time in which each channel moved something, summed up over the channels."""
    return sum(
        covered((one.started, one.ended) for one in channel)
        for channel in grouped(requests, lambda one: one.channel).values()
    )
