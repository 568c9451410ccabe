"""Compares the programs of tools on the driver's node with those at the locations of jobs.

A program is known by its file, and by the libraries that the dynamic loader would load with it. A script is known by
its own file and its interpreter. `sfio-node` looks at them in the same way on each machine. The loader lists the
libraries of a program in PATH. A path may be that of data. For such a program the loader is asked only if other users
could replace neither of the two.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Collection, Sequence

from streamflow_io.graph.candidates import Stamp, ToolPrograms
from streamflow_io.runtime.embedded import find_sfio_node
from streamflow_io.runtime.node_commands import NodeRuntimeError
from streamflow_io.runtime.node_runtime import NodeRuntime

from .proof_key import OtherPrograms

_ASK = ("programs", "--")
_ASK_SECONDS = 60.0
# Limits of one command line.
_MOST_WORDS, _LONGEST_WORD = 200, 1000


class Programs:
    """The programs of tools, by location. Each location is asked once for the same programs."""

    def __init__(self) -> None:
        self._asked: dict[tuple[NodeRuntime, ToolPrograms], asyncio.Task[OtherPrograms | None]] = {}

    async def close(self) -> None:
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    def known(self, programs: ToolPrograms) -> set[OtherPrograms]:
        """The programs of a tool that differ from the driver's, for each location that has answered."""
        asked = [task for (_, of), task in self._asked.items() if of == programs and _has_answer(task)]
        return {found for task in asked if (found := task.result()) is not None}

    async def of(self, runtime: NodeRuntime, programs: ToolPrograms) -> OtherPrograms | None:
        """Return the programs of a tool that differ from the driver's.

        :return: None: the location gives no answer, or no program of the tool is known there
        """
        if runtime.is_here:
            return ()
        if not programs:
            return None
        if (key := (runtime, programs)) not in self._asked:
            self._asked[key] = asyncio.create_task(_ask(runtime, programs))
        return await asyncio.shield(self._asked[key])


def _has_answer(task: asyncio.Task[OtherPrograms | None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _ask(runtime: NodeRuntime, programs: ToolPrograms) -> OtherPrograms | None:
    words = [word for word, _ in programs]
    try:
        said, code = await runtime.run([runtime.binary, *_ASK, *words], _ASK_SECONDS)
    except NodeRuntimeError:
        return None
    return None if code != 0 else differing(programs, said)


def differing(programs: ToolPrograms, said: str) -> OtherPrograms | None:
    """The programs of a tool that differ from those on the driver's node.

    :param said: a line of `sfio-node programs` for each word of the tool
    :return: None: the lines have another form, or there is none of the programs
    """
    try:
        there = [(word, _stamp(line)) for (word, _), line in zip(programs, said.splitlines(), strict=True)]
    except (ValueError, KeyError, TypeError):
        return None
    if not any(stamp for _, stamp in there):
        return None
    return tuple(one for one, here in zip(there, programs, strict=True) if one != here)


def _stamp(line: str) -> Stamp:
    if line == "-":
        return None
    said = json.loads(line)
    return int(said["size"]), int(said["mtime"]), str(said["loads"])


def stamps_here(words: Collection[str]) -> dict[str, Stamp]:
    """The stamps of words that may name a program, or be the path of one, on the driver's node.

    Without `sfio-node` libraries do not count; nothing streams then.
    """
    asked = [word for word in dict.fromkeys(words) if len(word) <= _LONGEST_WORD and word.isprintable()]
    # The other words are scripts on a command line, as a rule.
    found = {word: _without_libraries(word) for word in {*words}.difference(asked)}
    for begin in range(0, len(asked), _MOST_WORDS):
        some = asked[begin : begin + _MOST_WORDS]
        found.update(zip(some, _said_here(some) or map(_without_libraries, some), strict=True))
    return found


def _said_here(words: Sequence[str]) -> list[Stamp] | None:
    try:
        command = [str(find_sfio_node()), *_ASK, *words]
        ran = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_ASK_SECONDS
        )
        said = [_stamp(line) for line in ran.stdout.decode().splitlines()]
    except (NodeRuntimeError, OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError):
        return None
    return said if len(said) == len(words) else None


def _without_libraries(word: str) -> Stamp:
    path = word if "/" in word else shutil.which(word)
    try:
        found = None if path is None else os.stat(path)
    except (OSError, ValueError):
        return None
    is_file = found is not None and stat.S_ISREG(found.st_mode)
    return (found.st_size, found.st_mtime_ns, "") if found is not None and is_file else None
