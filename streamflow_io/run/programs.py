"""Adapter: which programs of tools are other ones where their jobs run than on the driver's node."""

from __future__ import annotations

import asyncio
import json

from streamflow_io.graph.candidates import Candidate, Stamp
from streamflow_io.runtime import NodeRuntime, NodeRuntimeError

from .proof_key import OtherPrograms

_ASK_SECONDS = 60.0
# A line for each word: which file it names, or a dash. The first argument is `sfio-node`.
_LOOK = """set -f
node=$1; shift
named() {
  case $1 in /*) printf %s "$1"; return ;; esac
  IFS=:
  for directory in $PATH; do
    [ -f "$directory/$1" ] && [ -x "$directory/$1" ] && { printf %s "$directory/$1"; return; }
  done
}
for word; do
  file=$(named "$word")
  { [ -n "$file" ] && "$node" identity --of "$file" 2> /dev/null; } || echo -
done"""


class Programs:
    """What is known of the programs of tools, by where they run. Each is looked for once."""

    def __init__(self) -> None:
        self._asked: dict[tuple[NodeRuntime, Candidate], asyncio.Task[OtherPrograms | None]] = {}

    async def close(self) -> None:
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    def known(self, candidate: Candidate) -> set[OtherPrograms]:
        """Those of a tool at all places where they were looked for already."""
        asked = [task for (_, of), task in self._asked.items() if of == candidate and _has_answer(task)]
        return {found for task in asked if (found := task.result()) is not None}

    async def of(self, runtime: NodeRuntime, candidate: Candidate) -> OtherPrograms | None:
        """Those of a tool that are other ones than on the driver's node; None: that cannot be told."""
        if runtime.is_here or not candidate.programs:
            return ()
        if (key := (runtime, candidate)) not in self._asked:
            self._asked[key] = asyncio.create_task(_ask(runtime, candidate))
        return await asyncio.shield(self._asked[key])


def _has_answer(task: asyncio.Task[OtherPrograms | None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _ask(runtime: NodeRuntime, candidate: Candidate) -> OtherPrograms | None:
    words = [word for word, _ in candidate.programs]
    try:
        said, code = await runtime.run(["sh", "-c", _LOOK, "sh", runtime.binary, *words], _ASK_SECONDS)
    except NodeRuntimeError:
        return None
    return None if code != 0 else differing(candidate, said)


def differing(candidate: Candidate, said: str) -> OtherPrograms | None:
    """Which programs of a tool are other ones than on the driver's node.

    :param said: a line for each of its words
    :return: None: it is not understood
    """
    try:
        there = [(word, _stamp(line)) for (word, _), line in zip(candidate.programs, said.splitlines(), strict=True)]
    except (ValueError, KeyError, TypeError):
        return None
    return tuple(one for one, here in zip(there, candidate.programs, strict=True) if one != here)


def _stamp(line: str) -> Stamp:
    if line == "-":
        return None
    identity = json.loads(line)["identity"]
    return int(identity["size"]), int(identity["mtime"])
