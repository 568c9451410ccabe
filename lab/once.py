"""Objects that several processes of a test run need, and one of them makes."""

from __future__ import annotations

import fcntl
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def once(path: Path, make: Callable[[], T]) -> T:
    """Return what is kept in a file; whoever comes first makes it, the others wait.

    :param path: of the file; beside it is one for the lock
    """
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            kept: T = pickle.loads(path.read_bytes())
            return kept
        made = make()
        part = path.with_name(f"{path.name}.part")
        part.write_bytes(pickle.dumps(made))
        part.rename(path)
        return made
