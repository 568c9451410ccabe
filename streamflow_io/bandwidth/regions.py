"""The bandwidth of all phases together over time: the paper's equation 3.

Between two neighbours of all starts and ends, the sum of all rates is constant. Spans are half open: a span that ends
and a span that starts at the same time do not count together.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamflow_io.series import sums

from .phases import Phase

# Start, end, rate.
Span = tuple[float, float, float]


def required_spans(phases: Iterable[Phase]) -> list[Span]:
    """Return the required bandwidth of each phase, from when the phase is ready to its required end."""
    return [(phase.ready, phase.required, phase.needed) for phase in phases]


def throughput_spans(phases: Iterable[Phase]) -> list[Span]:
    """Return the throughput of each phase, over the time in which it moved."""
    return [(phase.started, phase.ended, phase.throughput) for phase in phases if phase.throughput is not None]


def regions(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """Return the sum of the rates from each time until the next."""
    return sums(change for start, end, rate in spans if start < end for change in ((start, rate), (end, -rate)))


def most(spans: Iterable[Span]) -> float:
    """Return the largest sum of the rates at any time.

    For required bandwidths: the least bandwidth with which no job would have waited, all else being the same.
    """
    return max((rate for _, rate in regions(spans)), default=0.0)
