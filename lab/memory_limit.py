"""A cgroup whose memory the kernel limits (version 1 or 2), page cache included; for root."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_SECONDS = 5.0


class MemoryLimitError(Exception):
    """The cgroup cannot be made here; the message says why."""


class LimitedMemory:
    """A cgroup with a limit of memory.

    :ivar processes: the file to which the id of a process is written that is to be there
    :ivar prefix: put before a command, has it run there
    """

    def __init__(self, processes: Path, outside: Path) -> None:
        self.processes = processes
        self._outside = outside
        self.prefix = ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(processes))

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Have this process there, and all that it starts meanwhile. What it had before is counted elsewhere.

        Where there is not enough for what is no page cache, the kernel ends the largest process: this one as a rule.
        """
        self.processes.write_text(str(os.getpid()))
        try:
            yield
        finally:
            self._outside.write_text(str(os.getpid()))


@contextmanager
def limited_memory(size: int) -> Iterator[LimitedMemory]:
    """Make a cgroup with a limit of memory, in bytes.

    Guarantee: afterwards it is gone, unless something that was started there still runs.

    :raises MemoryLimitError: if this machine, or this user, cannot do it
    """
    root, limit = _controller()
    outside = root / _place("memory" if root != _ROOT else "").lstrip("/") / "cgroup.procs"
    group = root / f"sfio-{os.getpid()}-{time.monotonic_ns()}"
    with _explained():
        group.mkdir()
    try:
        with _explained():
            (group / limit).write_text(str(size))
        yield LimitedMemory(group / "cgroup.procs", outside)
    finally:
        _remove(group)


def obstacle() -> str | None:
    """Why no memory can be limited here, if so."""
    try:
        with limited_memory(1 << 30) as memory, _explained(), memory.joined():
            return None
    except MemoryLimitError as error:
        return str(error)


def _controller() -> tuple[Path, str]:
    """The root of the cgroups that limit memory, and the file with the limit."""
    if (_ROOT / "memory" / "memory.limit_in_bytes").exists():
        return _ROOT / "memory", "memory.limit_in_bytes"
    with contextlib.suppress(OSError):
        if "memory" in (_ROOT / "cgroup.subtree_control").read_text().split():
            return _ROOT, "memory.max"
    raise MemoryLimitError(f"no cgroup below {_ROOT} limits memory")


def _place(controller: str) -> str:
    """The cgroup of this process."""
    found = re.search(
        rf"^\d+:(?:[^:]*,)?{controller}(?:,[^:]*)?:(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE
    )
    if found is None:
        raise MemoryLimitError("this process is in no cgroup")
    return found[1]


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MemoryLimitError(f"no memory can be limited: {error}") from None


def _remove(group: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.05)
