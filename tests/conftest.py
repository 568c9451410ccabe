from __future__ import annotations

import signal

import pytest

pytest.register_assert_rewrite("tests.cwl", "tests.node_support")

# Started by `nohup`, or in the background of a script, tests would hand on that these are ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
