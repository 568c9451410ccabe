"""The visible facts of a host, as JSON: `python3 look.py`, with nothing but the standard library."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

SOCKETS = ("/proc/net/tcp", "/proc/net/tcp6")
LISTENING = "0A"
# The rest of a host is the system's, or the kernel's.
OWN = ("/scratch", "/tmp", "/var", "/run", "/root", "/etc", "/dev/shm")


def main() -> None:
    commands = list(command_lines())
    runs = run_directories(commands)
    files = [Path(run) / "certificate.key" for run in runs]
    # The second line of the key: the first one begins like those of other keys.
    keys = [file.read_text().splitlines()[2] for file in files if file.exists()]
    print(
        json.dumps(
            {
                "commands": [" ".join(words) for words in commands],
                "listening": [where for name in SOCKETS for where in listening(Path(name).read_text())],
                "runs": runs,
                "keys": keys,
                "runtime": modes(*runs),
                "binaries": modes("/scratch/.streamflow-io"),
                "files": modes(*OWN),
                "tell_a_key": [path for place in OWN for path in below(place) if tells(path, keys)],
            }
        )
    )


def run_directories(commands: Iterable[list[str]]) -> list[str]:
    """The run directories of `sfio-node serve`."""
    return [words[words.index("--directory") + 1] for words in commands if words[1:2] == ["serve"]]


def command_lines() -> Iterator[list[str]]:
    """The command lines of all other processes."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if int(entry) != os.getpid() and words[0]:
            yield words


def listening(table: str) -> Iterator[tuple[str, int]]:
    """Addresses and ports of :data:`SOCKETS`."""
    for line in table.splitlines():
        _, local, _, state, *_ = line.split()
        if state == LISTENING:
            address, _, port = local.partition(":")
            words = [bytes.fromhex(address[i : i + 8])[::-1] for i in range(0, len(address), 8)]
            family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
            yield socket.inet_ntop(family, b"".join(words)), int(port, 16)


def below(place: str) -> Iterator[str]:
    """A directory, and all below it."""
    if os.path.isdir(place):
        yield place
    for directory, directories, files in os.walk(place):
        yield from (os.path.join(directory, name) for name in (*directories, *files))


def modes(*places: str) -> dict[str, str]:
    """The modes of all files below some directories, as `ls` shows them."""
    found = {}
    for place in places:
        for path in below(place):
            with contextlib.suppress(FileNotFoundError):
                found[path] = stat.filemode(os.lstat(path).st_mode)
    return found


def tells(path: str, keys: list[str]) -> bool:
    """Whether a file has a key in it."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return False
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return False
    return any(key.encode() in content for key in keys)


if __name__ == "__main__":
    main()
