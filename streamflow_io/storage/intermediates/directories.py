"""Looks into the directories of jobs, and removes them, at the locations where they are.

One command serves many directories of a location. Symbolic links are not followed: only what is in a directory itself
is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from streamflow.core.context import StreamFlowContext
from streamflow.core.deployment import ExecutionLocation
from streamflow.core.exception import WorkflowExecutionException

from streamflow_io.files import stranger
from streamflow_io.runtime.locations import node_name

from .linked_files import FileNumber

# A command line has at most some 128 kB.
_MOST_CHARACTERS = 60_000
# Tells whether a file system is mounted in the directory of a job: no other path has the random name of the directory.
_MOUNTED = """mounted() { grep -qF "/${1##*/}" /proc/self/mounts 2>/dev/null; }
"""
#: `safe` tells whether no other user could replace entries of a directory; the rule is that of
#: :func:`~streamflow_io.files.stranger`, with trust in groups. Also `mounted`.
CHECKS = (
    """safe() { test "$1" = "$seen" && return $was; seen=$1 was=0; (
set -f; at=$(cd "$1/" 2>/dev/null && pwd -P && echo .) || exit 1; at=${at%??}; me=$(id -u); in=" $(id -G) "
set -- $(ls -ldn /); root=$3
while :; do set -- $(ls -ldn "$at/."); case $3 in 0|"$me"|"$root") ;; *) exit 1; esac
case $1 in ?????????[tT]*) ;; ????????w*) exit 1;;
?????w*) case "$me $in" in "$3 "*|*" $4 "*) ;; *) exit 1; esac; esac
test -n "$at" || exit 0; at=${at%/*}; done ) || was=1; return $was; }
"""
    + _MOUNTED
)
# `du` counts blocks of 1024 bytes. A link that has been read ends with "/.", which no path does. The files with several
# names stand behind the path "/". Without a program `stat` there are none. The end of the answer is marked: a link that
# is missed would cost the file behind the link.
_LOOK = f"""{CHECKS}for d; do
if test -d "$d" && test ! -L "$d"; then
if safe "${{d%/*}}" && ! mounted "$d"; then
set -- $(du -sk "$d" 2>/dev/null); printf '%s\\0%s\\0' "$d" "${{1:-0}}"
find "$d" -type l -exec sh -c 'for l; do printf "%s\\0" "$l"; readlink "$l"; printf "/.\\0"; done' sh {{}} + \
-o -type f -links +1 -exec sh -c 'printf "/\\0"; stat -c "%d %i %b" "$@"; printf "/.\\0"' sh {{}} + 2>/dev/null
printf '\\0%s\\0' $?; fi
elif ls "${{d%/*}}/." >/dev/null 2>&1; then printf '%s\\0%s\\0\\0%s\\0' "$d" 0 0; fi; done; printf 'end\\0'"""
#: Removes the directory `$d`, also one in which the user may not write.
REMOVE_ONE = 'rm -rf "$d" 2>/dev/null || { chmod -R u+rwX "$d"; rm -rf "$d"; } 2>/dev/null'
# Prints the directories that stay.
_REMOVE = f"""{_MOUNTED}for d; do if test -L "$d"; then rm -f "$d"; elif ! mounted "$d"; then
{REMOVE_ONE}; fi; test -e "$d" && printf '%s\\0' "$d"; done"""

_PRESENT = 'for d; do test ! -d "$d" || printf "%s\\0" "$d"; done'
_DROP = f"""{_MOUNTED}mounted "$1" || test -L "$1" || {{ shift; rm -rf "$@"; }}"""


class DirectoryContents(Struct, frozen=True):
    """The contents of a directory.

    :ivar links: the symbolic links with their texts, by path relative to the directory
    :ivar bytes: of its files
    :ivar linked: the bytes of those files that have several names
    """

    links: Mapping[str, str]
    bytes: int
    linked: Mapping[FileNumber, int] = field(default_factory=dict)


async def look(
    context: StreamFlowContext, location: ExecutionLocation, paths: Sequence[str]
) -> dict[str, DirectoryContents]:
    """Return the contents of directories at a location. A directory that is not there has none.

    A directory is left out if something in it cannot be read, or if the target of a link is not clear. A directory that
    another user could replace is left out, and so is one with a mounted file system.

    :raises WorkflowExecutionException: if the location cannot be asked
    """
    if location.local:
        return await asyncio.to_thread(_look_here, paths)
    found = dict[str, DirectoryContents]()
    for some in chunks(paths):
        found.update(_read(await ask(context, location, _LOOK, some), node_name(location)))
    return found


async def present(context: StreamFlowContext, location: ExecutionLocation, paths: Sequence[str]) -> list[str]:
    """Return the directories that a location sees.

    :raises WorkflowExecutionException: if the location cannot be asked
    """
    found = list[str]()
    for some in chunks(paths):
        told = await ask(context, location, _PRESENT, some)
        found += map(os.fsdecode, told.split(b"\0")[:-1])
    return found


async def remove(
    context: StreamFlowContext,
    location: ExecutionLocation,
    whole: Sequence[str],
    parts: Mapping[str, frozenset[str]],
    dropped: Mapping[str, frozenset[str]],
) -> set[str]:
    """Remove directories at a location, and of others all but some paths. What cannot be removed stays.

    :param parts: the relative paths that are left, by directory
    :param dropped: the relative paths that were left before, by directory. Where a command line is too short for all
        that is left, only these paths are removed
    :return: the directories of `whole` that stay
    :raises WorkflowExecutionException: if the location cannot be asked
    """
    if location.local:
        await asyncio.to_thread(remove_here, whole, parts)
        return {*filter(os.path.lexists, whole)}
    stay = set[str]()
    for some in chunks(whole):
        stay.update(map(os.fsdecode, (await ask(context, location, _REMOVE, some)).split(b"\0")[:-1]))
    for directory, left in parts.items():
        if len(script := _partly(directory, left)) <= _MOST_CHARACTERS:
            await ask(context, location, script, [])
            continue
        for some in chunks([f"{directory}/{path}" for path in sorted(dropped[directory])]):
            await ask(context, location, _DROP, [directory, *some])
    return stay


def _look_here(paths: Sequence[str]) -> dict[str, DirectoryContents]:
    found, is_safe = dict[str, DirectoryContents](), dict[Path, bool]()
    for path in paths:
        if (parent := Path(path).parent) not in is_safe:
            with contextlib.suppress(OSError):
                is_safe[parent] = stranger(parent, trusts_groups=True) is None
        if is_safe.get(parent, False) and not is_mounted_in(path) and (seen := _look(path)) is not None:
            found[path] = seen
    return found


def is_mounted_in(directory: str) -> bool:
    """Whether a file system is mounted in a directory of a job. No other path has the random name of the directory."""
    try:
        return f"/{os.path.basename(directory)}".encode() in Path("/proc/self/mounts").read_bytes()
    except OSError:
        return False


def _look(directory: str) -> DirectoryContents | None:
    links, errors, is_clear = dict[str, str](), list[OSError](), True
    # A file may have several names.
    sizes, linked = dict[FileNumber, int](), dict[FileNumber, int]()
    for place, directories, files in os.walk(directory, onerror=errors.append):
        for name in (*directories, *files):
            path = os.path.join(place, name)
            try:
                status = os.lstat(path)
                if stat.S_ISLNK(status.st_mode):
                    text = links[os.path.relpath(path, directory)] = os.readlink(path)
                    is_clear = is_clear and _is_clear(text)
                elif stat.S_ISREG(status.st_mode):
                    number = "", status.st_dev, status.st_ino
                    sizes[number] = status.st_blocks * 512
                    if status.st_nlink > 1:
                        linked[number] = sizes[number]
            except OSError as error:
                errors.append(error)
    if not is_clear or any(not isinstance(error, FileNotFoundError) for error in errors):
        return None
    return DirectoryContents(links, sum(sizes.values()), linked)


def _is_clear(text: str) -> bool:
    """Whether the text of a link alone says where the link leads. `d/..` is elsewhere if `d` is a link."""
    return re.search(r"(^|/)(?!\.{0,2}/)[^/]+/+(\./+)*\.\.(/|$)", text) is None


def remove_here(whole: Sequence[str], parts: Mapping[str, frozenset[str]]) -> None:
    for directory in whole:
        if not is_mounted_in(directory):
            _remove_whole(directory)
    for directory, left in parts.items():
        if not is_mounted_in(directory):
            _remove_but(directory, left)


def _remove_whole(directory: str) -> None:
    if os.path.islink(directory):
        Path(directory).unlink(missing_ok=True)
        return
    shutil.rmtree(directory, ignore_errors=True)
    if os.path.isdir(directory):
        _allow(directory)
        shutil.rmtree(directory, ignore_errors=True)


def _allow(directory: str) -> None:
    """Let the user remove what is in a directory."""
    for place, directories, _ in os.walk(directory):
        for each in (place, *(os.path.join(place, name) for name in directories)):
            try:
                if not os.path.islink(each):
                    os.chmod(each, 0o700)
            except OSError:
                continue


def _remove_but(directory: str, left: frozenset[str]) -> None:
    """Remove all of a directory but some relative paths, with what is below them and above them."""
    try:
        entries = [*os.scandir(directory)]
    except OSError:
        return
    for entry in entries:
        if entry.name in left:
            continue
        below = frozenset(path.removeprefix(entry.name + "/") for path in left if path.startswith(entry.name + "/"))
        if below and not entry.is_symlink():
            _remove_but(entry.path, below)
        elif not below and entry.is_dir(follow_symlinks=False):
            _remove_whole(entry.path)
        elif not below:
            try:
                os.unlink(entry.path)
            except OSError:
                continue


def _partly(directory: str, left: frozenset[str]) -> str:
    """A script that removes all of a directory but some relative paths, with what is below them and above them."""
    paths = [_pattern(f"{directory}/{path}") for path in sorted(left)]
    above = {"/".join(path.split("/")[:count]) for path in left for count in range(1, path.count("/") + 1)}
    kept = [f"-path {path}" for path in paths]
    passed = [f"-path {_pattern(f'{directory}/{path}')}" for path in sorted(above)]
    # What is kept is not entered, what is above is entered, and the rest is removed as a whole.
    choice = f"\\( {' -o '.join(kept)} \\) -prune"
    if passed:
        choice += f" -o \\( {' -o '.join(passed)} \\)"
    place = shlex.quote(directory)
    unless = f"{_MOUNTED}mounted {place} || test -L {place}"
    return f"{unless} || find {place} -mindepth 1 {choice} -o -prune -exec rm -rf {{}} + 2>/dev/null"


def _pattern(path: str) -> str:
    """A pattern of `find` that means one path."""
    return shlex.quote("".join("\\" + letter if letter in "*?[\\" else letter for letter in path))


def _read(said: bytes, node: str) -> Iterator[tuple[str, DirectoryContents]]:
    """Read the answer of a location. Directories in which something could not be read are left out.

    :raises WorkflowExecutionException: if a part of the answer is missing
    """
    if not said.endswith(b"end\0"):
        raise WorkflowExecutionException(f"A part of this answer is missing: {said[-200:]!r}")
    fields = iter(said.removesuffix(b"end\0").split(b"\0")[:-1])
    for name in fields:
        directory, size, links, is_whole = os.fsdecode(name), next(fields), dict[str, str](), True
        linked = dict[FileNumber, int]()
        while link := next(fields):
            text = next(fields).removesuffix(b"/.").removesuffix(b"\n")
            if link == b"/":
                numbers = (map(int, line.split()) for line in text.splitlines())
                linked |= {(node, device, inode): blocks * 512 for device, inode, blocks in numbers}
                continue
            links[os.path.relpath(os.fsdecode(link), directory)] = os.fsdecode(text)
            is_whole = is_whole and bool(text) and _is_clear(os.fsdecode(text))
        if next(fields) == b"0" and is_whole:
            yield directory, DirectoryContents(links, int(size) * 1024, linked)


def chunks(paths: Sequence[str]) -> Iterator[list[str]]:
    """Yield the paths in parts that fit on a command line."""
    some, length = list[str](), 0
    for path in paths:
        if some and length + len(path) > _MOST_CHARACTERS:
            yield some
            some, length = [], 0
        some.append(path)
        length += len(path) + 3
    if some:
        yield some


async def ask(context: StreamFlowContext, location: ExecutionLocation, script: str, paths: Sequence[str]) -> bytes:
    """Run a script at a location, and return its output.

    :raises WorkflowExecutionException: if the location cannot be asked
    """
    connector = context.deployment_manager.get_connector(location.deployment)
    if connector is None:
        raise WorkflowExecutionException(f"{location} is not deployed any more")
    inner = shlex.join(["sh", "-c", script, "sh", *paths])
    # In hexadecimal digits: connectors decode printed text as UTF-8, and strip it.
    command = ["sh", "-c", shlex.quote(f"{inner} | od -An -v -tx1")]
    result = await connector.run(location=location, command=command, capture_output=True)
    try:
        return bytes.fromhex(str(result[0] if result else ""))
    except ValueError:
        raise WorkflowExecutionException(f"{location} has answered: {str(result)[:200]}") from None
