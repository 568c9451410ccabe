"""The programs that the workload `cluster` runs on hosts and nodes; needs the standard library only.

Each prints one number: what it has measured.
"""

from __future__ import annotations

import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

PORT = 7077
_BUFFER_BYTES = 2**20
_WAIT_SECONDS = 20.0


def timed(source: str, target: str, command: Sequence[str]) -> None:
    """Run a command from file to file; print its seconds."""
    start = time.monotonic()
    with open(source, "rb") as standard_input, open(target, "wb") as standard_output:
        subprocess.run(command, stdin=standard_input, stdout=standard_output, check=True)
    print(time.monotonic() - start)


def send_file(address: str, path: str) -> None:
    """Send a file to :func:`receive_file`; print the seconds."""
    receiver = _wait(lambda: _connect(address), f"nobody receives at {address}")
    start = time.monotonic()
    with receiver, open(path, "rb") as file:
        receiver.sendfile(file)
    print(time.monotonic() - start)


def receive_file(path: str) -> None:
    """Write to a file what one sender sends; print the seconds from its first byte to the last one written."""
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with socket.create_server(("", PORT)) as server, open(path, "wb", buffering=0) as file:
        server.settimeout(_WAIT_SECONDS)
        sender, _ = server.accept()
        start = time.monotonic()
        with sender:
            while size := sender.recv_into(buffer):
                file.write(buffer[:size])
    print(time.monotonic() - start)


def time_wrapper(count: int, run: str, specification: str, binary: str, mode: str) -> None:
    """Print the milliseconds that the wrapper adds to a job that does nothing: the median over jobs, in wall time.

    :param run: the run directory of a `sfio-node serve`, which is waited for, and ended
    :param specification: the `job.json` of all jobs
    :param mode: how `sfio-node` runs a job: `exec`, or `run`
    """
    jobs, true = Path(run, "jobs"), shutil.which("true") or "/bin/true"
    _wait(lambda: jobs.is_dir() or None, f"sfio-node serve has made no {jobs}")
    added = []
    try:
        for number in range(count):
            (job := jobs / str(number)).mkdir(mode=0o700)
            shutil.copyfile(specification, job / "job.json")
            bare = _milliseconds([true])
            added.append(_milliseconds([binary, mode, "--job", str(job), "--", true]) - bare)
    finally:
        Path(run, "end").touch()
    print(statistics.median(added))


def _milliseconds(command: Sequence[str]) -> float:
    start = time.perf_counter()
    _, status = os.waitpid(os.posix_spawn(command[0], list(command), os.environ), 0)
    seconds = time.perf_counter() - start
    if status != 0:
        raise SystemExit(f"wait status {status}: {' '.join(command)}")
    return 1000 * seconds


def _connect(address: str) -> socket.socket | None:
    try:
        return socket.create_connection((address, PORT), timeout=_WAIT_SECONDS)
    except ConnectionRefusedError:
        return None


def _wait(attempt: Callable[[], T | None], otherwise: str) -> T:
    """Wait until an attempt gives something."""
    end = time.monotonic() + _WAIT_SECONDS
    while (result := attempt()) is None:
        if time.monotonic() > end:
            raise SystemExit(otherwise)
        time.sleep(0.01)
    return result


def main(arguments: list[str]) -> None:
    match arguments:
        case ["timed", source, target, *command]:
            timed(source, target, command)
        case ["send-file", address, path]:
            send_file(address, path)
        case ["receive-file", path]:
            receive_file(path)
        case ["time-wrapper", count, run, specification, binary, mode]:
            time_wrapper(int(count), run, specification, binary, mode)
        case _:
            raise SystemExit(f"cluster_tools.py: unknown tool or wrong number of arguments: {' '.join(arguments)}")


if __name__ == "__main__":
    main(sys.argv[1:])
