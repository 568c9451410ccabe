"""Keeps a laboratory for as long as the process that wants it, and then removes it, whatever happened to that process.

    python -S -E -m lab.machines.keeper DIRECTORY COMMAND...

The command is process 1 of namespaces of its own (network, mounts, processes, host name, IPC). When our standard input
ends, because the other process has closed it or is dead, we kill the command; a pidfd as standard input ends with its
process, too. The kernel then kills all that has started in there, and with the last of them go mounts, links and
addresses. The directory, and cgroups of its name, are removed last. If we are killed ourselves, the kernel does all but
the last.

Prints the id of a process that is in the namespaces (but for that of processes), then what the command prints. The id
is in DIRECTORY/pid, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

NAMESPACES = ("unshare", "--net", "--mount-proc", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
CGROUPS = Path("/sys/fs/cgroup")


def main(directory: str, *command: str) -> int:
    # Handlers, because what is ignored would be ignored by the command, too.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    inside = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *NAMESPACES, *command], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
    )
    try:
        Path(directory, "pid").write_text(f"{inside.pid}\n")
        print(inside.pid, flush=True)
        ended = os.pidfd_open(inside.pid)
        while sys.stdin.fileno() not in (ready := select.select([sys.stdin.fileno(), ended], [], [])[0]):
            if ended in ready:
                return inside.wait() or 1
        return 0
    finally:
        kill(inside)
        remove(Path(directory))


def remove(directory: Path) -> None:
    """Remove what the kernel leaves of a laboratory."""
    for root in (CGROUPS, *CGROUPS.glob("*")):  # one hierarchy, or several
        for group, _, _ in os.walk(root / directory.name, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(group)
    shutil.rmtree(directory, ignore_errors=True)


def kill(inside: subprocess.Popen[bytes]) -> None:
    """Kill all in the namespaces, and wait for it: `unshare` ends after process 1, and that after all others."""
    for _ in range(200):
        if inside.poll() is not None:
            return
        kill_children(inside.pid)
        with contextlib.suppress(subprocess.TimeoutExpired):
            inside.wait(0.1)
    inside.kill()
    inside.wait()


def kill_children(pid: int) -> None:
    for process in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            parent = int(Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid:
                os.kill(int(process), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
