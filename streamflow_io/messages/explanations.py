"""The explanations of all codes."""

from __future__ import annotations

from collections.abc import Mapping

from .codes import Code
from .explanation import Case, Explanation
from .of_capio import CAPIO
from .of_resources import RESOURCES
from .of_runs import RUNS
from .of_streams import STREAMS

EXPLANATIONS: Mapping[Code, Explanation] = {**STREAMS, **RUNS, **RESOURCES, **CAPIO}

__all__ = ["EXPLANATIONS", "Case", "Explanation"]
