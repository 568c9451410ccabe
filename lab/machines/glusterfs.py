"""A volume of GlusterFS in a laboratory. Each mount is a client with caches of its own, as on a cluster."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from lab.processes import of_processes

# glusterd finds itself by a name that is not 127.0.0.1.
HOST = "laboratory"
_NAME = "work"
_OWN = ("/var/lib/glusterd", "/var/log/glusterfs", "/run/gluster")


def start_volume(directory: Path) -> None:
    """Start a volume of one brick, `directory`/brick, and mount it at `directory`/volume.

    The mounts and processes are those of the caller's namespaces, where :data:`HOST` is the name of this machine.
    """
    for own in _OWN:
        Path(own).mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "tmpfs", own)
    with (directory / "glusterd.log").open("w") as log:
        subprocess.Popen(["glusterd", "--no-daemon"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while subprocess.run(["gluster", "volume", "list"], capture_output=True).returncode != 0:
        time.sleep(0.1)
    (directory / "brick").mkdir()
    (directory / "volume").mkdir()
    _run("gluster", "--mode=script", "volume", "create", _NAME, f"{HOST}:{directory}/brick", "force")
    _run("gluster", "--mode=script", "volume", "start", _NAME)
    _run(*mount_words(directory))


def mount_words(directory: Path) -> tuple[str, ...]:
    """The command that mounts the volume as one more client."""
    return ("mount", "-t", "glusterfs", f"{HOST}:/{_NAME}", f"{directory}/volume")


def bytes_seen(directory: Path) -> int:
    """The bytes that the volume of a laboratory has written to its brick, or sent to its clients.

    :param directory: of the laboratory
    """
    for _, (words, io) in of_processes("cmdline", "io"):
        if b"glusterfsd" in words and b"%s/brick" % bytes(directory) in words:
            return int(re.findall(rb"wchar: (\d+)", io)[0])
    raise LookupError(f"no volume runs in {directory}")


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
