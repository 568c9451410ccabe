"""Files: written whole or not at all, and not trusted where another user could have replaced them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlparse

#: How to open what another user may have put there: a link is not followed, and nothing is waited for.
NOT_BELIEVED = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def file_of(uri: str) -> str:
    """Return the path of a `file:` URI; another URI as it is."""
    parsed = urlparse(uri)
    return os.fsdecode(unquote_to_bytes(parsed.path)) if parsed.scheme == "file" else uri


def stranger(path: Path, *, trusts_groups: bool = False) -> str | None:
    """Why another user could replace entries of a directory, or change a file. None: only root can.

    The same rule is in `node/src/sys/ownership.rs` and in `runtime/binary.py`.

    :param path: of a directory that is there, or of a file
    :param trusts_groups: a group may write to a directory if that is the user's, or the user is in the group: its
        members can change the user's data there anyway
    :raises OSError: if it cannot be looked at
    """
    trusted = {0, os.geteuid(), os.lstat("/").st_uid}
    groups = {os.getegid(), *os.getgroups()}
    for part in dict.fromkeys((*_way(path.absolute()), *_way(path.resolve()))):
        found = part.lstat()
        if found.st_uid not in trusted:
            return f"{part} belongs to user {found.st_uid}"
        is_shared = trusts_groups and (found.st_uid == os.geteuid() or found.st_gid in groups)
        if _is_open(found, stat.S_IWOTH if is_shared else stat.S_IWOTH | stat.S_IWGRP):
            return f"others may write to {part}" + (", which is not sticky" if stat.S_ISDIR(found.st_mode) else "")
    return None


def _way(path: Path) -> Iterable[Path]:
    return (path, *path.parents)


def _is_open(found: os.stat_result, others: int) -> bool:
    # Many users have a group of their own, with the same number.
    if found.st_gid == os.getegid() == os.geteuid():
        others &= ~stat.S_IWGRP
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False
    return not stat.S_ISLNK(found.st_mode) and bool(found.st_mode & others)


def write_atomically(path: str | os.PathLike[str], text: str) -> None:
    """Write a file, or leave what is there as it is. A symbolic link stays, and the file that it leads to is written.

    What is no file, as `/dev/stdout`, is written to.

    :raises OSError: if it cannot be written
    """
    given = Path(path)
    if given.exists() and not given.is_file():  # a device or a pipe must not be replaced
        given.write_text(text, encoding="utf-8")
        return
    target = given.resolve()
    # The name of the target may be as long as names can be.
    temporary = target.with_name(f".streamflow-io-{os.urandom(8).hex()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def parents(path: str) -> Iterator[str]:
    """The paths above a relative path, in a directory whose own path is empty."""
    parts = path.split("/")
    yield from ("/".join(parts[:count]) for count in range(len(parts)) if path)
