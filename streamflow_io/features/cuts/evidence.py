"""Proposes declared cuts for the splits that were seen in a run."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from streamflow_io.graph.io_graph import Delivery
from streamflow_io.grouping import grouped
from streamflow_io.records.files import SplitRecord
from streamflow_io.records.history import History, JobAttempt
from streamflow_io.report.suggestions.evidence import SplitEvidence
from streamflow_io.report.suggestions.proposal import CUTS, Proposal, Refusal, SplitHint
from streamflow_io.wording import counted


class SeenSplits(SplitEvidence):
    """Finds the splits whose files were parts of an input."""

    def proposals(self, history: History, jobs: Sequence[JobAttempt]) -> Iterator[Proposal | Refusal]:
        """The outputs that were parts of an input in all jobs of a step, by one rule."""
        routes = grouped(history.routes, lambda route: route.output)
        for step, of_step in grouped(jobs, lambda job: job.step).items():
            for port in dict.fromkeys(record.port for job in of_step for record in job.splits):
                output = posixpath.join(step, port)
                found = [record for job in of_step for record in job.splits if record.port == port]
                rules = [dict(rule) for rule in dict.fromkeys(tuple(_rule(record).items()) for record in found)]
                first, of_output = found[0], routes.get(output, [])
                what = f"{counted(sum(record.count for record in found), 'file')} are parts of {first.of}"
                if len({record.job for record in found}) < len(of_step):
                    yield Refusal(output, "ReadSession", "not all jobs have written parts of an input")
                elif len(rules) > 1:
                    yield Refusal(output, "ReadSession", f"{what}, but not by one rule")
                elif not of_output:
                    yield Refusal(output, "ReadSession", f"{what}, but no job reads them")
                elif (why := next((route.not_parts for route in of_output if route.not_parts), None)) is not None:
                    yield Refusal(output, "ReadSession", f"{what}, but {why}")
                elif any(route.delivery is not Delivery.TERMINATION for route in of_output):
                    yield Refusal(output, "ReadSession", f"{what}, but a rule says something else of them already")
                else:
                    yield Proposal(SplitHint(output), _as_cut(first, what), split=rules[0])


def _rule(record: SplitRecord) -> dict[str, str | int]:
    rule: dict[str, str | int | None] = {
        "port": record.port,
        "of": record.of,
        "records": record.records,
        **{name: getattr(record, name) for name in CUTS},
        "names": record.names,
        "first": None if record.first == 1 else record.first,
    }
    return {name: value for name, value in rule.items() if value is not None}


def _as_cut(record: SplitRecord, what: str) -> str:
    evidence = f"{what}, by their sizes, and by their first and last 4 KiB"
    if record.equal and record.parts is None:
        evidence += f"; `parts: {record.count}` gives the same: take that, if their number is fixed"
    return evidence
