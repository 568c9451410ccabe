"""Makes the excerpts of files that a rehearsal tries first; see :mod:`.rehearsal`."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Sequence

from msgspec import Struct

from streamflow_io.runtime.node_runtime import NodeRuntime
from streamflow_io.runtime.protocol import Excerpt

# The most seconds that it may take to make an excerpt.
_SECONDS = 600.0


class Excerpts(Struct, frozen=True):
    """The first bytes of some files, as files in one directory.

    :ivar of: the paths of those files
    :ivar bytes: the size of all excerpts together
    :ivar look_whole: whether a program that reads an excerpt as a file has to find it like the whole file
    """

    directory: str
    paths: tuple[str, ...]
    of: tuple[str, ...]
    bytes: int
    look_whole: bool

    @property
    def first_outputs(self) -> str:
        """The directory with the outputs of the first run with the excerpts."""
        return posixpath.join(self.directory, "made")

    def as_wholes(self, paths: Sequence[str]) -> tuple[Excerpt, ...]:
        """The excerpts that have to look like their whole files to the program, which finds them at these paths."""
        if not self.look_whole:
            return ()
        pairs = enumerate(zip(paths, self.of, strict=True))
        return tuple(Excerpt(name=str(number), path=path, of=file) for number, (path, file) in pairs)


async def make_excerpts(
    runtime: NodeRuntime, directory: str, files: Sequence[str], most: Sequence[int], *, look_whole: bool
) -> Excerpts:
    """Make the excerpts of some files.

    :param directory: an existing one, for the excerpts
    :param most: the most bytes of each excerpt
    :param look_whole: see :class:`Excerpts`
    :raises OSError: if an excerpt cannot be made
    """
    paths = tuple(posixpath.join(directory, str(number)) for number in range(len(files)))
    bytes_ = 0
    for file, path, most_bytes in zip(files, paths, most, strict=True):
        words = [runtime.binary, "excerpt", "--of", file, "--to", path, "--bytes", str(most_bytes)]
        said, code = await runtime.run(words, _SECONDS)
        if code != 0:
            raise OSError(said)
        bytes_ += int(json.loads(said)["bytes"])
    return Excerpts(directory, paths, tuple(files), bytes_, look_whole)
