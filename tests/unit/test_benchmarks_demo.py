"""`make demo` installs no extras: the benchmarks start without them."""

from __future__ import annotations

import subprocess
import sys

_EXTRAS = ("hypothesis", "numpy", "py_capio_cl", "pytest")


def test_benchmarks_start_without_extras() -> None:
    hidden = "; ".join(f"sys.modules[{name!r}] = None" for name in _EXTRAS)
    words = [sys.executable, "-c", f"import sys; {hidden}; import benchmarks.__main__"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
