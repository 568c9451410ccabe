"""What the report says of files that were to be delivered before their jobs end: a row for each way. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from streamflow_io.graph.io_graph import Delivery

from .history import History
from .numbers import Result


class EdgeResult(Result):
    """A way from an output to an input.

    :ivar input: none: an output of the workflow
    :ivar delivery: as it was planned
    :ivar streamed: how many byte streams of it have ended well
    :ivar bytes: that went through these; none: streams of several outputs of one job into another are not told apart
    :ivar reasons: why files, or some of them, were not delivered as the rule asks
    """

    output: str
    input: str | None
    delivery: Delivery
    streamed: int
    bytes: int | None
    reasons: list[str]


def edge_results(history: History) -> list[EdgeResult]:
    """In the order of the plan."""
    return list(_edges(history))


def _edges(history: History) -> Iterator[EdgeResult]:
    for edge in history.edges:
        consumer = None if edge.input is None else edge.input.rpartition("/")[0]
        steps = {edge.output.rpartition("/")[0], consumer}
        streams = [each for each in history.streamed if each.step == consumer and edge.output in each.outputs]
        found = [
            each.reason
            for each in history.fallbacks
            if (each.output is None and each.step in steps) or (each.output == edge.output and each.step == consumer)
        ]
        yield EdgeResult(
            output=edge.output,
            input=edge.input,
            delivery=edge.delivery,
            streamed=round(sum(1 / len(each.outputs) for each in streams)),
            bytes=None if any(len(each.outputs) > 1 for each in streams) else sum(each.bytes for each in streams),
            reasons=list(dict.fromkeys([*([edge.fallback] if edge.fallback else []), *found])),
        )
