"""The parts of one output that the program of a job has said, over all attempts of the job."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath

from streamflow_io.hints.globs import matches
from streamflow_io.runtime.protocol import PartEvent
from streamflow_io.wording import counted


class SaidParts:
    """Keeps the parts that were said: each attempt has to say the same parts, with the same pieces and bytes."""

    def __init__(self) -> None:
        self._known: dict[str, PartEvent] = {}
        self._said: dict[str, PartEvent] = {}

    @property
    def said(self) -> Mapping[str, PartEvent]:
        """The parts that the attempt has said, by name, in the order of the attempt."""
        return self._said

    def begin(self) -> None:
        """Begin an attempt, which has said nothing."""
        self._said = {}

    def say(self, event: PartEvent) -> str | None:
        """Add a part.

        :return: why the part is wrong. None: the part is right
        """
        self._said[event.name] = event
        before = self._known.setdefault(event.name, event)
        if (before.pieces, before.digest) == (event.pieces, event.digest):
            return None
        if before.pieces == event.pieces:
            return f"the part {event.name} has other bytes than before: the file that is split was written differently"
        return f"the part {event.name} is another one than before: {_shown(event)}, and was {_shown(before)}"

    def unsaid(self) -> str | None:
        """Why an attempt that has succeeded is wrong: a part is missing. None: the attempt is right."""
        missing = [name for name in self._known if name not in self._said]
        return f"the part {missing[0]} was reported by an earlier attempt, and is missing now" if missing else None


def _shown(event: PartEvent) -> str:
    pieces = [
        f"{counted(len(piece), 'character')} of text" if isinstance(piece, str) else str(list(piece))
        for piece in event.pieces
    ]
    return f"{counted(event.size, 'byte')}, {', '.join(pieces[:4]) or 'no extents'}{', ...' if len(pieces) > 4 else ''}"


def is_found(globs: Collection[str], path: str) -> bool:
    """Whether a file in the output directory of a job is of an output; without globs `cwl.output.json` says it."""
    return not globs or any(matches(glob, path) for glob in globs)


def in_order(globs: Iterable[str], paths: Collection[str]) -> list[str]:
    """The order of files in a list: as StreamFlow finds them, by one glob after the other.

    :param paths: relative to the output directory of the job; those that no glob finds are not in the list
    """
    ordered = sorted(paths, key=lambda path: PurePosixPath(path).parts)
    return list(dict.fromkeys(path for glob in globs for path in ordered if matches(glob, path)))
