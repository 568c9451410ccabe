"""What the report says of files that were to be delivered before their jobs end: a row for each way. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.grouping import grouped
from streamflow_io.wording import counted

from .history import History
from .numbers import Result
from .records import SERVED, EdgeRecord, StreamedRecord


class EdgeResult(Result):
    """A way from an output to an input.

    :ivar input: none: an output of the workflow
    :ivar delivery: as it was planned
    :ivar streamed: how many byte streams of it have ended well
    :ivar bytes: that went through these; none: streams of several outputs of one job into another are not told apart
    :ivar before_end: seconds from when its first byte was given to a reader, or from its first commit, until the end of
        the job that writes it, in the mean; none: not known
    :ivar waited: seconds in which a reader had taken all that there was, and waited, in the mean; none: not known
    :ivar capio: with `runtime: capio`, whether CAPIO carried them, or why not; for people
    :ivar reasons: why files, or some of them, were not delivered as the rule asks
    :ivar unused: that there was nothing to deliver, or nobody to deliver it to, as where a `when` is false; for people;
        none: there was, or the run has not ended well
    """

    output: str
    input: str | None
    delivery: Delivery
    streamed: int
    bytes: int | None
    before_end: float | None
    waited: float | None
    capio: str | None = None
    reasons: list[str]
    unused: str | None = None

    @property
    def remarks(self) -> list[str]:
        """All that there is to say of it in words."""
        return [*self.reasons, *(remark for remark in (self.unused, self.capio) if remark)]


def edge_results(history: History) -> list[EdgeResult]:
    """In the order of the plan."""
    return list(_edges(history))


def _edges(history: History) -> Iterator[EdgeResult]:
    ends = {job.name: job.ended for job in history.jobs if job.ended is not None}
    streams_into = grouped(history.streamed, lambda stream: stream.step)
    committed = grouped(history.committed, lambda commit: commit.output)
    ran = {job.step for job in history.jobs}
    for edge in history.edges:
        producer = edge.output.rpartition("/")[0]
        consumer = None if edge.input is None else edge.input.rpartition("/")[0]
        steps = {producer, consumer}
        idle = [step for step in (producer, consumer) if step is not None and step not in ran]
        streams = [each for each in streams_into[consumer or ""] if _is_of(each, edge)]
        if edge.delivery in (Delivery.COMMIT, Delivery.GATE):
            early = [each.ended - each.first for each in committed[edge.output]]
        else:
            early = [
                ends[each.source] - history.since_start(each.first)
                for each in streams
                if each.source in ends and each.first is not None
            ]
        waited = [each.waited for each in streams if each.waited is not None]
        lost = [each.reason for each in history.fallbacks if each.without is not None and each.step in steps]
        found = [
            each.reason
            for each in history.fallbacks
            if each.without is None
            if (each.output is None and each.step in steps) or (each.output == edge.output and each.step == consumer)
        ]
        yield EdgeResult(
            output=edge.output,
            input=edge.input,
            delivery=edge.delivery,
            streamed=round(sum(1 / len(each.outputs) for each in streams)),
            bytes=None if any(len(each.outputs) > 1 for each in streams) else sum(each.bytes for each in streams),
            before_end=max(0.0, fmean(early)) if early else None,
            waited=fmean(waited) if waited else None,
            capio=_capio(edge, streams, lost),
            reasons=list(dict.fromkeys([*([edge.fallback] if edge.fallback else []), *found])),
            unused=f"no job of {idle[0]} ran" if idle and history.status == "completed" else None,
        )


def _capio(edge: EdgeRecord, streams: Sequence[StreamedRecord], lost: Sequence[str]) -> str | None:
    """
    :param lost: why jobs of either end were started again without it
    """
    if edge.capio in (None, SERVED) and not lost:
        return None if edge.capio is None else "by CAPIO"
    if edge.capio != SERVED:
        return None if edge.capio is None else f"not by CAPIO: {edge.capio}"
    carried = sum(bool(each.capio) for each in streams)
    return f"{carried:,} of {counted(len(streams), 'byte stream')} by CAPIO: {'; '.join(dict.fromkeys(lost))}"


def _is_of(stream: StreamedRecord, edge: EdgeRecord) -> bool:
    return edge.output in stream.outputs and stream.input in (None, edge.input)
