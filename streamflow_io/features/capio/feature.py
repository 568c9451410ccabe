"""Registers this feature with the core."""

from __future__ import annotations

from collections.abc import Mapping

from streamflow_io.installed_features import Feature, Subcommand

_HERE = "streamflow_io.features.capio"


class Capio(Feature):
    """CAPIO as node runtime, and CAPIO-CL."""

    def commands(self) -> Mapping[str, Subcommand]:
        example = "streamflow.yml --from capio.json -o annotations.yml"
        return {"annotate": Subcommand("write an annotations file from a CAPIO-CL file", (example,), _HERE)}

    def runtimes(self) -> Mapping[str, str]:
        return {"capio": f"{_HERE}.choice"}


FEATURE = Capio()
