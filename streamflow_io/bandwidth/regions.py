"""The bandwidth of all phases together, over time: the paper's equation 3.

Between two neighbours of all starts and ends the sum of all rates is the same. Spans are half open: where one ends and
another starts at the same time, they do not count together.
"""

from __future__ import annotations

from collections.abc import Iterable

from streamflow_io.series import sums

from .phases import Phase

# Start, end, rate.
Span = tuple[float, float, float]


def required_spans(phases: Iterable[Phase]) -> list[Span]:
    """When each phase needs which bandwidth: from when it is ready to its required end."""
    return [(phase.ready, phase.required, phase.needed) for phase in phases]


def throughput_spans(phases: Iterable[Phase]) -> list[Span]:
    """When each phase was moved, and how fast."""
    return [(phase.started, phase.ended, phase.throughput) for phase in phases if phase.throughput is not None]


def regions(spans: Iterable[Span]) -> list[tuple[float, float]]:
    """The sum of the rates from each time on, until the next."""
    return sums(change for start, end, rate in spans if start < end for change in ((start, rate), (end, -rate)))


def most(spans: Iterable[Span]) -> float:
    """The largest sum of the rates at any time. Of what was required: the least bandwidth with which nobody would have
    waited, had all else gone as it did."""
    return max((rate for _, rate in regions(spans)), default=0.0)
