"""Tables of commands on terminals of any width."""

from __future__ import annotations

import pytest
from rich.console import Console

from streamflow_io.commands.console import table


@pytest.mark.parametrize(("width", "shown"), [(40, "nightly-build-2"), (16, "nightly-bu…")])
def test_a_name_that_is_cut_says_so(width: int, shown: str) -> None:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(table(None, ("run", "n"), [("nightly-build-2", "1")], unfolded=("run",)))
    assert shown in captured.get().split()
