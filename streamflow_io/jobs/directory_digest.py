"""The digest of a Directory that may have scripts and configurations below it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator

# The largest size, in bytes, of a file that may be a script or a configuration.
SMALL_FILE = 2**18
# A Directory with more is too large to be looked at for each job.
_MOST_NAMES, _MOST_BYTES = 1000, 2**22
# Python writes into these directories when a job runs, and compares what it finds there with the modules.
_CACHE = "__pycache__"


def directory_digest(path: str) -> str | None:
    """Return a digest of all names below a directory, and of the contents of its small files.

    :return: None: the directory cannot be read, or has too much below it
    """
    digest, names, left = hashlib.sha256(), 0, _MOST_BYTES
    try:
        for name, found in _below(path):
            names += 1
            content = None if found is None else _content(os.path.join(path, name), found)
            left -= len(content or b"")
            if names > _MOST_NAMES or left < 0:
                return None
            of = None if content is None else hashlib.sha256(content).hexdigest()
            digest.update(json.dumps([name, found is None, of]).encode() + b"\n")
    except OSError:
        return None
    return digest.hexdigest()


def _below(path: str, inside: str = "") -> Iterator[tuple[str, os.stat_result | None]]:
    """The names below a directory in order; each file has its status.

    :param inside: a directory below `path`
    :raises OSError: if something cannot be read, or a link leads nowhere or back to its own directory
    """
    for name in sorted(os.listdir(os.path.join(path, inside))):
        relative = os.path.join(inside, name)
        found = os.stat(os.path.join(path, relative))
        if not stat.S_ISDIR(found.st_mode):
            yield relative, found
        elif name != _CACHE:
            yield relative, None
            yield from _below(path, relative)


def _content(path: str, found: os.stat_result) -> bytes | None:
    """The content of a small file; None: the file is larger.

    :raises OSError: if the content cannot be read
    """
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is no file")
    if found.st_size > SMALL_FILE:
        return None
    with open(path, "rb") as file:
        return file.read(SMALL_FILE)
