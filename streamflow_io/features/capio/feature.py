"""What the core is told of this feature."""

from __future__ import annotations

from collections.abc import Mapping

from streamflow_io.features import Feature, Subcommand

_HERE = "streamflow_io.features.capio"


class Capio(Feature):
    """CAPIO as node runtime, and CAPIO-CL."""

    def commands(self) -> Mapping[str, Subcommand]:
        example = "streamflow.yml --from capio.json -o annotations.yml"
        return {"annotate": Subcommand("write an annotations file from a CAPIO-CL file", (example,), _HERE)}

    def options(self) -> Mapping[str, str]:
        return {"coordination": f"{_HERE}.coordination"}

    def runtimes(self) -> Mapping[str, str]:
        return {"capio": f"{_HERE}.choice"}


FEATURE = Capio()
