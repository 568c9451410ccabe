"""Registers this feature with the core."""

from __future__ import annotations

from collections.abc import Mapping

from streamflow_io.features import Feature, Subcommand


class DeclaredCutsFeature(Feature):
    """The command `partition`, and splits whose program need not run."""

    def commands(self) -> Mapping[str, Subcommand]:
        text = "show the cuts of declared splits"
        return {"partition": Subcommand(text, ("streamflow.yml",), __package__, "before a run")}

    def subclasses(self) -> Mapping[str, str]:
        return {
            "streamflow_io.engine.cuts:PlannedCuts": f"{__package__}.planning:DeclaredCuts",
            "streamflow_io.commands.learned_entries:MoreKinds": f"{__package__}.learned:Verdicts",
            "streamflow_io.report.suggestions.evidence:SplitEvidence": f"{__package__}.evidence:SeenSplits",
        }


FEATURE = DeclaredCutsFeature()
