"""Finds the splits that an observed job has made, with the rules that declare them."""

from __future__ import annotations

import json
import posixpath
import re
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct, convert
from streamflow.log_handler import logger

from streamflow_io.adapters.jobs import JobState
from streamflow_io.records.files import SplitRecord
from streamflow_io.records.job_files import JobFiles
from streamflow_io.runtime.node_commands import NodeRuntimeError, seconds_to_compare
from streamflow_io.runtime.node_runtime import NodeRuntime

_FOUND = 0
_DIGITS = re.compile(r"[0-9]+")
# The most that a rule of a read session can have.
_WIDEST = 18


class PartNames(Struct, frozen=True):
    """The names of numbered files.

    :ivar names: with one `%d`, or `%0Nd`, for the number
    """

    names: str
    first: int


class PossibleSplit(Struct, frozen=True):
    """Numbered files in an output of type File[] that may be parts of an input. Paths are those at the job's location.

    :ivar size: bytes of all parts
    """

    port: str
    of: str
    file: str
    directory: str
    names: PartNames
    parts: int
    size: int


async def look_for_splits(job: JobState, runtime: NodeRuntime, record: Callable[[SplitRecord], None]) -> None:
    """Record the splits of a job that has succeeded. Never fails."""
    for split in () if (files := job.kept(JobFiles)) is None else possible_splits(files):
        words = [str(runtime.binary), "propose", "--of", split.file, "--directory", split.directory]
        words += ["--names", split.names.names, "--first", str(split.names.first), "--count", str(split.parts)]
        try:
            said, code = await runtime.run(words, seconds_to_compare(split.size))
            if code == _FOUND:
                what = {"port": split.port, "of": split.of, "count": split.parts}
                names = {"names": split.names.names, "first": split.names.first}
                of = {"time": time.time(), "job": job.name, "step": job.step}
                record(convert({**of, **what, **names, **json.loads(said)}, SplitRecord))
        except (NodeRuntimeError, ValueError) as error:
            logger.debug(f"{split.port} was not looked at: {error}")


def possible_splits(files: JobFiles) -> Iterator[PossibleSplit]:
    """The outputs that may be parts of an input that the job has opened."""
    for output, sizes in files.sizes():
        if output.kind != "files" or len(sizes) < 2:
            continue
        paths = sorted(sizes)
        names = names_of_parts([posixpath.basename(path) for path in paths])
        if names is None or {posixpath.dirname(path) for path in paths} != {str(output.root)}:
            continue
        for read in files.opened_alone():
            size = sum(sizes.values())
            yield PossibleSplit(output.port, read.name, read.path, str(output.root), names, len(paths), size)


def names_of_parts(found: Sequence[str]) -> PartNames | None:
    """The pattern that some names share. None: the names are not numbered one after the other.

    :param found: names without a slash, in order
    """
    if not found or "%" in found[0] or not all(name.isprintable() for name in found):
        return None
    ends = ((start, run.end()) for run in _DIGITS.finditer(found[0]) for start in range(run.start(), run.end()))
    for start, end in ends:
        before, digits, after = found[0][:start], found[0][start:end], found[0][end:]
        first, width = int(digits), len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        if width <= _WIDEST and all(
            name == f"{before}{number:0{width}d}{after}" for number, name in enumerate(found, first)
        ):
            return PartNames(f"{before}%{f'0{width}' if width else ''}d{after}", first)
    return None
