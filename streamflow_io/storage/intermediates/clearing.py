"""Measures and removes directories of jobs whose run is over, each with the file of standard error beside it.

Only directories of the user are touched.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io._streamflow import STANDARD_ERROR
from streamflow_io.files import stranger

from .directories import CHECKS, REMOVE_ONE, ask, chunks, is_mounted_in, remove_here

#: `there`: it was only looked at. `stays`: it cannot be removed. `link`: a symbolic link, which is left alone.
#: `others`: it is another user's, or another user could replace it. `mounted`: a file system
#: is mounted in it. `missing`: there is no such directory.
ClearedState = Literal["there", "removed", "stays", "link", "others", "mounted", "missing"]

# So begins the directory in memory of a run. With its last job it goes, too.
_IN_MEMORY = "/dev/shm/streamflow-io-"

# With `%s` for the state of a directory that is to be removed, or only looked at.
_CLEAR = f"""{CHECKS.replace("%", "%%")}for d; do s=%s; k=0
if test -L "$d"; then s=link
elif test ! -d "$d"; then s=missing
elif test ! -O "$d" || ! safe "${{d%%/*}}"; then s=others
elif mounted "$d"; then s=mounted
else e="$d{STANDARD_ERROR}"; test -f "$e" && test ! -L "$e" || e=
set -- $(du -skc "$d" ${{e:+"$e"}} 2>/dev/null | tail -n 1); k="${{1:-0}}"
if test $s = removed; then
{REMOVE_ONE}
test -z "$e" || rm -f "$e"
test -e "$d" && s=stays
case $d in {_IN_MEMORY}*) rmdir "${{d%%/*}}" 2>/dev/null; esac
fi; fi
printf '%%s\\0%%s\\0%%s\\0' "$d" "$s" "$k"; done; printf 'end\\0'"""


class Cleared(Struct, frozen=True):
    """A directory that was to be removed.

    :ivar bytes: that its files took on disk
    """

    path: str
    state: ClearedState
    bytes: int = 0


def clear_here(paths: Sequence[str], *, removes: bool) -> list[Cleared]:
    """Measure directories on this machine, and remove them. Raises nothing.

    :param removes: False: the directories are only measured
    """
    return [_clear(path, removes) for path in paths]


async def clear_at(
    context: StreamFlowContext, location: ExecutionLocation, paths: Sequence[str], *, removes: bool
) -> list[Cleared]:
    """Measure directories at a location, and remove them, as :func:`clear_here` does.

    :raises WorkflowExecutionException: if the location cannot be asked
    """
    if location.local:
        return clear_here(paths, removes=removes)
    script = _CLEAR % ("removed" if removes else "there")
    return [each for some in chunks(paths) for each in read_cleared(await ask(context, location, script, some))]


def read_cleared(said: bytes) -> Iterator[Cleared]:
    """Read the answer of a location.

    :raises WorkflowExecutionException: if a part of the answer is missing
    """
    fields = [os.fsdecode(each) for each in said.split(b"\0")]
    if fields[-2:] != ["end", ""] or len(fields) % 3 != 2:
        raise WorkflowExecutionException(f"A part of this answer is missing: {said[-200:]!r}")
    for path, state, size in zip(fields[:-2:3], fields[1:-2:3], fields[2:-2:3], strict=True):
        yield Cleared(path, state, int(size) * 1024)  # type: ignore[arg-type]


def _clear(path: str, removes: bool) -> Cleared:
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return Cleared(path, "link")
        if not stat.S_ISDIR(status.st_mode):
            return Cleared(path, "missing")
        if status.st_uid != os.geteuid() or stranger(Path(path).parent, trusts_groups=True) is not None:
            return Cleared(path, "others")
        if is_mounted_in(path):
            return Cleared(path, "mounted")
    except OSError:
        return Cleared(path, "missing")
    size = _size(path)
    # A driver that was killed could not remove it.
    errors = Path(path + STANDARD_ERROR)
    has_errors = errors.is_file() and not errors.is_symlink()
    if has_errors:
        size += errors.lstat().st_blocks * 512
    if not removes:
        return Cleared(path, "there", size)
    remove_here([path], {})
    if has_errors:
        with contextlib.suppress(OSError):
            errors.unlink()
    if path.startswith(_IN_MEMORY):
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(path))
    return Cleared(path, "stays" if os.path.lexists(path) else "removed", size)


def _size(directory: str) -> int:
    """The bytes on disk of all in a directory. A file with several hard links in it counts once."""
    seen: dict[tuple[int, int], int] = {}
    for place, directories, files in os.walk(directory):
        for path in (place, *(os.path.join(place, name) for name in (*directories, *files))):
            try:
                status = os.lstat(path)
            except OSError:
                continue
            seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())
