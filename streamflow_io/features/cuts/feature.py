"""Registers this feature with the core."""

from __future__ import annotations

from collections.abc import Mapping

from streamflow_io.installed_features import Feature


class DeclaredCutsFeature(Feature):
    """Splits whose program need not run."""

    def subclasses(self) -> Mapping[str, str]:
        return {
            "streamflow_io.engine.cuts:PlannedCuts": f"{__package__}.planning:DeclaredCuts",
            "streamflow_io.commands.learned_entries:MoreKinds": f"{__package__}.learned:Verdicts",
            "streamflow_io.report.suggestions.evidence:SplitEvidence": f"{__package__}.evidence:SeenSplits",
        }


FEATURE = DeclaredCutsFeature()
