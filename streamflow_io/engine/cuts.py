"""Declared cuts of a workflow: the feature `cuts` extends the class of this module."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from streamflow.core.workflow import Workflow
from typing_extensions import Self

from streamflow_io.graph.io_graph import InputRoute, IOGraph
from streamflow_io.graph.partitions import CutRules
from streamflow_io.hints.inheritance import StepAnnotations
from streamflow_io.jobs.programs import Programs
from streamflow_io.parts.part_ways import PartWays
from streamflow_io.parts.splitting import Cuts
from streamflow_io.records.records import Record

from .known_tokens import KnownTokens
from .proving import KnownTools


class PlannedCuts(CutRules):
    """The declared cuts of a workflow before its run. None is declared without the feature `cuts`."""

    @classmethod
    def of(
        cls,
        annotations: Mapping[str, StepAnnotations],
        workflow: Workflow,
        tokens: KnownTokens,
        tools: KnownTools,
        learned: Path,
    ) -> Self:
        """The cuts that the hints of a workflow declare.

        :param learned: the file with the knowledge of earlier runs
        """
        return cls()

    def with_checksum(self, routes: Iterable[InputRoute]) -> frozenset[tuple[str, str]]:
        """The inputs whose checksum is needed before their jobs, as step and port."""
        return frozenset()

    def never_parts(self, graph: IOGraph, shared: Collection[str | None]) -> Mapping[str, str]:
        """The outputs, as /step/port, whose files could not be parts if cuts of them were declared, and why."""
        return {}

    def of_run(self, ways: PartWays, learned: Path, programs: Programs, record: Callable[[Record], None]) -> Cuts:
        """The splits of a run.

        :param programs: of tools, by location
        :param record: keeps a record for telemetry
        """
        return Cuts(ways, record)


def steps_with_cuts(annotations: Mapping[str, StepAnnotations]) -> set[str]:
    """The paths of the steps whose cuts are declared."""
    return {
        path for path, hints in annotations.items() if any(rule.value.form == "declared" for rule in hints.sessions)
    }
