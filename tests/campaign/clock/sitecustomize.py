"""Python imports this at its start, where this directory is on its path: a clock that jumps when a file says so."""

import os
import time

_JUMP = os.environ["CAMPAIGN_JUMP"]
_time, _time_ns = time.time, time.time_ns


def _jump() -> float:
    try:
        with open(_JUMP) as file:
            return float(file.read() or 0)
    except OSError:
        return 0.0


time.time = lambda: _time() + _jump()
time.time_ns = lambda: _time_ns() + int(_jump() * 1e9)
