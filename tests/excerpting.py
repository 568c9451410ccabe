"""`streamflow run` in which the first bytes of small files are tried before all of them, as those of large ones are."""

from __future__ import annotations

from unittest.mock import patch

from streamflow.main import main as streamflow

from streamflow_io.run import excerpt_rules
from streamflow_io.run.excerpt_rules import Sizes


def main(arguments: list[str]) -> int:
    with patch.object(excerpt_rules, "SIZES", Sizes(smallest=256, share=4, least=64)):
        code: int = streamflow(arguments)
        return code
