"""Run a command on a terminal of 80 columns, as somebody who sits before it; by itself, without the rest.

    python terminal.py FACTS TEXT COMMAND...

FACTS is a file for what was seen, as JSON: the CPU seconds of the command, and when TEXT came onto the screen, in
seconds since the epoch.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import resource
import struct
import sys
import termios
import time
from pathlib import Path

_ROWS, _COLUMNS = 24, 80


def main(facts: str, text: str, *command: str) -> int:
    """Run it; return its exit code."""
    seen: list[float] = []
    wanted = text.encode()
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        os.execvp(command[0], command)
    began = time.monotonic()
    rest = b""
    while True:
        try:
            got = os.read(terminal, 1 << 16)
        except OSError:  # all that had it open have ended
            break
        rest = rest[-len(wanted) :] + got
        if wanted and wanted in rest:
            seen.append(time.time())
            rest = b""
    _, status = os.waitpid(child, 0)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    about = {"cpu": usage.ru_utime + usage.ru_stime, "seconds": time.monotonic() - began, "at": seen}
    Path(facts).write_text(json.dumps(about), encoding="utf-8")
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
