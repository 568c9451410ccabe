"""Where files of jobs find space at the locations of a deployment, and which locations share it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Mapping, Sequence

from msgspec import Struct

from streamflow_io.runtime.access import Access
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Memory
from streamflow_io.runtime.self_test import LocationFinding
from streamflow_io.storage.intermediates.memory import memory_at
from streamflow_io.wording import size_text

_SECONDS = 60.0
# Smaller file systems, and those of the system itself, are no place for files of jobs.
_LEAST = 2**30
_OF_SYSTEM = re.compile(r"/$|/(boot|dev|etc|proc|run|snap|sys)(/|$)")
_MOST = 4
_TYPE_AND_FREE = 'df -PTk "$d" 2>/dev/null | awk -v d="$d" \'NR == 2 {{ print $2, $5, d }}\''
_LOOK = (
    "for d in {workdir} \"${{TMPDIR:-/tmp}}\" /tmp /dev/shm $(df -PTk 2>/dev/null | awk 'NR > 1 {{ print $7 }}'); "
    f'do test -w "$d"/. && {_TYPE_AND_FREE}; done; :'
)


class Space(Struct, frozen=True):
    """A directory to which jobs can write.

    :ivar kind: of its file system
    :ivar free: bytes
    """

    directory: str
    kind: str
    free: int


def read_spaces(printed: str) -> dict[str, Space]:
    """Read the lines of a location, each with the kind of a file system, KiB, and a directory; return by directory."""
    lines = (line.split(None, 2) for line in printed.splitlines())
    found = (
        Space(words[2], words[0], int(words[1]) * 1024) for words in lines if len(words) == 3 and words[1].isdigit()
    )
    return {space.directory: space for space in found}


def memory_finding(name: str, found: Mapping[str, Memory]) -> LocationFinding:
    """Return how much memory the files of jobs can take.

    :param found: by location. The name of this machine is empty
    """
    sizes = [size_text(memory.free) + (where and f" ({where})") for where, memory in found.items() if not memory.why]
    obstacles = [(where and f"{where}: ") + str(memory.why) for where, memory in found.items() if memory.why]
    room = f"files of jobs can take up to {', '.join(sizes)} in /dev/shm"
    detail = "; ".join([*([room] if sizes else []), *obstacles])
    return LocationFinding(
        name, None if obstacles else True, detail, "`memory` has no effect: all files are on the disk"
    )


async def memory_of(runtimes: Mapping[str, NodeRuntime]) -> LocationFinding:
    """Return how much memory the files of jobs can take at each location."""
    found = await asyncio.gather(*map(memory_at, runtimes.values()))
    return memory_finding("memory of each location", dict(zip(runtimes, found, strict=True)))


def space_findings(
    workdir: str, spaces: Mapping[str, Mapping[str, Space]], seen: Mapping[str, Mapping[str, bool]]
) -> list[LocationFinding]:
    """Return what is known of the work directory, and of the space that each location has for itself.

    :param spaces: by location and directory
    :param seen: of locations but the first, whether they see what the first has in a directory
    """
    there = [space[workdir] for space in spaces.values() if workdir in space]
    if len(there) < len(spaces):
        return []
    free = size_text(min(space.free for space in there))
    if len(spaces) == 1:
        return [LocationFinding("space", True, f"{workdir} ({there[0].kind}): {free} free")]
    sees = [one[workdir] for one in seen.values() if workdir in one]
    every = f"all {len(spaces)} locations"
    if all(sees) and len(sees) == len(seen):
        shared = f"shared by {every} ({there[0].kind}), {free} free"
    elif any(sees):
        shared = f"shared by some of {every}; the least has {free} free"
    else:
        shared = f"{every} have one each ({there[0].kind}), with at least {free} free"
    findings = [LocationFinding("work directory", True, f"{workdir}: {shared}")]
    own = [
        directory for directory in set.intersection(*map(set, spaces.values())) - {workdir} if _is_own(directory, seen)
    ]
    most = sorted(own, key=lambda directory: -_least(directory, spaces))[:_MOST]
    told = [f"{directory}, at least {size_text(_least(directory, spaces))} free" for directory in most]
    found = "; ".join(told) or "no writable directory of 1 GiB is there once for each location"
    return [*findings, LocationFinding("space of each location", True if told else None, found)]


def _is_own(directory: str, seen: Mapping[str, Mapping[str, bool]]) -> bool:
    return not any(one.get(directory, True) for one in seen.values())


def _least(directory: str, spaces: Mapping[str, Mapping[str, Space]]) -> int:
    return min(space[directory].free for space in spaces.values())


def is_place(space: Space, workdir: str) -> bool:
    """Whether a directory is one for files of jobs."""
    if space.directory == workdir:
        return True
    return space.free >= _LEAST and (space.directory == "/dev/shm" or not _OF_SYSTEM.match(space.directory))


async def try_space(workdir: str, accesses: Mapping[str, Access]) -> list[LocationFinding]:
    """Look for space, and try which directories locations share. What is made for that is removed.

    :param accesses: of each location, by its name
    """
    try:
        printed = await asyncio.gather(
            *(_ask(access, _LOOK.format(workdir=shlex.quote(workdir))) for access in accesses.values())
        )
        spaces = {
            name: {place: space for place, space in read_spaces(said).items() if is_place(space, workdir)}
            for name, said in zip(accesses, printed, strict=True)
        }
        first, *others = accesses
        return space_findings(
            workdir,
            spaces,
            await _seen(list(spaces[first]), accesses[first], {name: accesses[name] for name in others}),
        )
    except NodeRuntimeError as error:
        return [LocationFinding("space", None, str(error))]


async def _seen(directories: Sequence[str], first: Access, others: Mapping[str, Access]) -> dict[str, dict[str, bool]]:
    """Return by location and directory whether others see what the first location makes in a directory."""
    if not others:
        return {}
    probes = {directory: f"{directory}/.sfio-{os.urandom(8).hex()}" for directory in directories}
    words = shlex.join(probes.values())
    made = await _ask(first, f'for d in {words}; do mkdir "$d" 2>/dev/null && echo "$d"; done; :')
    try:
        look = f'for d in {words}; do test -d "$d" && echo "$d"; done; :'
        answers = await asyncio.gather(*(_ask(access, look) for access in others.values()))
    finally:
        await _ask(first, f"rmdir {words} 2>/dev/null; :")
    own = {directory: probe for directory, probe in probes.items() if probe in made.splitlines()}
    return {
        name: {directory: probe in said.splitlines() for directory, probe in own.items()}
        for name, said in zip(others, answers, strict=True)
    }


async def _ask(access: Access, script: str) -> str:
    return (await access.run(script, _SECONDS))[0]
