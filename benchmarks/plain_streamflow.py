"""StreamFlow as it is where no plugin is installed: `python plain_streamflow.py run FILE ...`.

StreamFlow imports every installed plugin, also one that a StreamFlow file does not use: that would count as its own.
"""

from __future__ import annotations

import sys

import streamflow.ext.utils
from streamflow.main import run


def main() -> None:
    """The command line of StreamFlow, with an empty list of plugins."""
    streamflow.ext.utils.entry_points = lambda **_: ()
    sys.exit(run())


if __name__ == "__main__":
    main()
