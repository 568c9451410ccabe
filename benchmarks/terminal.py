"""Run a command on a terminal of 80 columns, as a user would; by itself, without the rest.

    python terminal.py FACTS TEXT COMMAND...

FACTS is a file for what was seen, as JSON: the cores that the command has used in the mean, the time of its start, and
the time when TEXT came onto the screen. Times are seconds since the epoch.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import sys
import termios
import time
from pathlib import Path

_ROWS, _COLUMNS = 24, 80
# The seconds after which a program has started.
_STARTED = 1.5


def main(facts: str, text: str, *command: str) -> int:
    """Run it; return its exit code."""
    seen: list[float] = []
    wanted = text.encode()
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        os.execvp(command[0], command)
    began = time.monotonic()
    started: tuple[float, float] | None = None
    seconds = cores = 0.0
    rest = b""
    while True:
        try:
            got = os.read(terminal, 1 << 16)
        except OSError:  # all that had it open have ended
            break
        seconds, used = time.monotonic() - began, _cpu_seconds(child)
        if started is None and seconds >= _STARTED:
            started = seconds, used
        elif started is not None:
            cores = (used - started[1]) / (seconds - started[0])
        rest = rest[-len(wanted) :] + got
        if wanted and wanted in rest:
            seen.append(time.time())
            rest = b""
    _, status = os.waitpid(child, 0)
    Path(facts).write_text(json.dumps({"cores": cores, "at": seen}), encoding="utf-8")
    return os.waitstatus_to_exitcode(status)


def _cpu_seconds(pid: int) -> float:
    """The CPU time of a process, without the processes that it has started."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
