"""StreamFlow with the plugin, whose runs take turns on a storage that they share: the first to ask goes first.

No due dates, as a baseline: `python streamflow_in_turns.py run FILE ...`.
"""

from __future__ import annotations

import sys

from streamflow.main import run

from streamflow_io.storage.sharing import participant


def main() -> None:
    """The command line of StreamFlow; all bursts are due at the same time, so that their tickets decide."""
    vars(participant)["due"] = lambda asked, seconds: 0.0
    sys.exit(run())


if __name__ == "__main__":
    main()
