"""The coordination configuration of a workflow: the writers and readers of each file, and the rules of the file.

This is the content of CAPIO-CL in JSON (`language.py`), as plain data, with no default left implicit.
"""

from __future__ import annotations

import posixpath

from msgspec import Struct
from msgspec.structs import replace

from streamflow_io.hints.commit import ON_TERMINATION, CommitRule
from streamflow_io.hints.models import FiringRule


class CoordinatedFile(Struct, frozen=True):
    """A file or a directory, and the rules that hold for it.

    :ivar path: a path, or a glob; relative to the directory of the run (`CAPIO_DIR`), or absolute
    :ivar producers: names of the applications that write it
    :ivar consumers: names of the applications that read it
    :ivar committed: when it is complete
    :ivar mode: when its bytes may be read
    :ivar file_deps: with `on_file`: the paths whose commit commits it
    :ivar n_files: with `on_n_files`: how many files the directory holds when it is complete
    :ivar permanent: kept after the run
    :ivar excluded: not coordinated
    :ivar home_node: the application whose node holds the data. None: left open
    """

    path: str
    is_directory: bool = False
    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    committed: CommitRule = ON_TERMINATION
    mode: FiringRule = "update"
    file_deps: tuple[str, ...] = ()
    n_files: int | None = None
    permanent: bool = False
    excluded: bool = False
    home_node: str | None = None

    @property
    def rule(self) -> tuple[object, ...]:
        """Everything that decides when the file is complete, and when its bytes may be read."""
        return self.is_directory, self.committed, self.mode, self.file_deps, self.n_files

    @property
    def is_default(self) -> bool:
        """Whether the file is complete, and its bytes may be read, at the same time as without a rule."""
        return (self.committed, self.mode) == (ON_TERMINATION, "update")


class Configuration(Struct, frozen=True):
    """The coordination configuration of a workflow.

    :ivar name: of the workflow
    :ivar applications: names, in the order of the workflow
    :ivar files: one for each path, in the order of the paths
    :ivar left_out: what else a CAPIO-CL file says of files
    """

    name: str
    applications: tuple[str, ...]
    files: tuple[CoordinatedFile, ...]
    left_out: tuple[str, ...] = ()

    @property
    def mentioned(self) -> tuple[str, ...]:
        """The applications, and those that are only named by a file."""
        of_files = (name for file in self.files for name in (*file.producers, *file.consumers))
        return tuple(dict.fromkeys((*self.applications, *of_files)))

    def below(self, directory: str) -> Configuration:
        """The same configuration with absolute paths.

        :param directory: `CAPIO_DIR`, absolute
        """

        def absolute(path: str) -> str:
            return posixpath.join(directory, path)

        files = (
            replace(file, path=absolute(file.path), file_deps=tuple(map(absolute, file.file_deps)))
            for file in self.files
        )
        return replace(self, files=tuple(files))
