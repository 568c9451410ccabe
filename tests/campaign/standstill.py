"""Processes and disks that do nothing for a while."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Collection, Iterator
from pathlib import Path

_VERSION_1 = Path("/sys/fs/cgroup/freezer")
_VERSION_2 = Path("/sys/fs/cgroup")
#: A freezer may wait for a process that is within a system call.
_FREEZE_SECONDS = 1.0


def can_freeze() -> bool:
    """Whether processes can be frozen here."""
    with contextlib.suppress(OSError), _cgroup("sfio-campaign-try"):
        return True
    return False


@contextlib.contextmanager
def frozen(name: str, processes: Collection[int]) -> Iterator[int]:
    """Freeze processes in a cgroup of their own; they go on, where they were, at the end.

    :return: how many are frozen; the others had ended
    """
    with _cgroup(name) as cgroup:
        is_first = (cgroup / "freezer.state").exists()
        homes = {process: _home(process, is_first) for process in processes}
        tasks, state = ("tasks", "freezer.state") if is_first else ("cgroup.procs", "cgroup.freeze")
        moved = [process for process in processes if _write(cgroup / tasks, str(process))]
        try:
            _write(cgroup / state, "FROZEN" if is_first else "1")
            end = time.monotonic() + _FREEZE_SECONDS
            while is_first and (cgroup / state).read_text() == "FREEZING\n" and time.monotonic() < end:
                time.sleep(0.005)
            yield len(moved)
        finally:
            _write(cgroup / state, "THAWED" if is_first else "0")
            for process in (cgroup / tasks).read_text().split():
                # What was forked since is here, too.
                _write(homes.get(int(process), _root()) / tasks, process)


@contextlib.contextmanager
def stuck(directory: Path) -> Iterator[None]:
    """No process can write to the file system of a directory."""
    subprocess.run(["fsfreeze", "--freeze", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", directory], check=True)


@contextlib.contextmanager
def _cgroup(name: str) -> Iterator[Path]:
    cgroup = _root() / name
    cgroup.mkdir()
    try:
        yield cgroup
    finally:
        _remove(cgroup)


def _remove(cgroup: Path) -> None:
    """Remove a cgroup as soon as those that end in it have ended."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            cgroup.rmdir()
            return
        time.sleep(0.05)
    cgroup.rmdir()


def _root() -> Path:
    return _VERSION_1 if (_VERSION_1 / "tasks").exists() else _VERSION_2


def _home(process: int, is_first: bool) -> Path:
    """The cgroup of a process that can freeze it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "freezer" in controllers.split(",") if is_first else not controllers:
                return _root() / path.lstrip("/")
    return _root()


def _write(file: Path, text: str) -> bool:
    try:
        file.write_text(text)
    except OSError:
        return False
    return True
