"""Decides which files of jobs are not needed any more.

Each job has directories with random names. What a running job reads is needed, and what a later job may read. Of these
files everything else follows: what they link to, and copies of them at other locations. The rest can be removed.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from msgspec import Struct, field
from msgspec.structs import replace

from streamflow_io.files import parents
from streamflow_io.graph.last_readers import LastReaders
from streamflow_io.records.leftovers import JOB_DIRECTORY

# What a File says about itself beside its path, secondary files and listing.
_FIELDS = ("path", "location", "dirname", "basename", "nameroot", "nameext", "checksum", "contents", "size", "class")


class Ref(Struct, frozen=True):
    """A file or directory.

    :ivar directory: the name of the directory of a job; empty: the file is in no such directory
    :ivar path: relative to the directory, whose own path is empty; or an absolute path
    """

    directory: str
    path: str


class JobOutput(Struct, frozen=True):
    """A value that a job has put on one of its output ports.

    :ivar files: the files and directories in the value
    :ivar depth: the length of its tag
    :ivar repeated: the files that are there several times
    :ivar readers: all that can read the value
    :ivar is_kept: whether the files stay in any case
    """

    files: frozenset[Ref]
    depth: int = 1
    repeated: frozenset[Ref] = frozenset()
    readers: LastReaders = LastReaders()
    is_kept: bool = False


class Decision(Struct, frozen=True):
    """The files that can be removed.

    :ivar whole: the names of directories that no job needs
    :ivar parts: by the name of a directory: its only paths that are needed
    """

    whole: tuple[str, ...] = ()
    parts: Mapping[str, frozenset[str]] = field(default_factory=dict)


class _Job(Struct, eq=False):
    """A job.

    :ivar inputs: what it was given
    :ivar sources: the names of the jobs whose outputs it reads while they are written
    :ivar directories: the names of those that are left
    :ivar without_streams: of these, where no job reads a stream
    :ivar outputs: None: the job has not succeeded
    :ivar is_read_early: whether other jobs may have got outputs, though the job has not succeeded
    """

    inputs: frozenset[Ref]
    sources: Sequence[str] = ()
    directories: set[str] = field(default_factory=set)
    without_streams: set[str] = field(default_factory=set)
    outputs: Sequence[JobOutput] | None = None
    is_read_early: bool = False


class FileLedger:
    """The files of the jobs of a run, and the jobs that need them."""

    def __init__(self) -> None:
        # By name. A job that runs again gets a new entry, and the old one is among the past.
        self._jobs: dict[str, _Job] = {}
        self._past: list[tuple[str, _Job]] = []
        self._again: set[str] = set()
        # All directories that are left, with their paths and jobs.
        self._paths: dict[str, str] = {}
        self._owners: dict[str, _Job] = {}
        # The links in the directories whose contents are known.
        self._links: dict[str, dict[str, Ref]] = {}
        # StreamFlow copies the inputs of a job before the directories of the job are noted. Other jobs may have links
        # to these copies. By the name of such a directory: links into it, and what copies are of.
        self._links_ahead: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self._copies_ahead: dict[str, list[tuple[str, Ref]]] = defaultdict(list)
        # By directory: the inputs that got its files, with the lengths of the tags of the jobs.
        self._given: dict[str, set[tuple[str, str, str, int]]] = defaultdict(set)
        # The same files in the directories of jobs at other locations, by directory.
        self._copies: dict[str, set[tuple[str, Ref]]] = defaultdict(set)
        # By directory: what was left of it.
        self._left: dict[str, frozenset[str]] = {}
        self._failed: set[str] = set()

    def ref(self, path: str) -> Ref:
        """The file with a path. A directory of a job has a random name: what stands before the name does not matter."""
        path = posixpath.normpath(path) if path else ""
        for found in JOB_DIRECTORY.finditer(path):
            if found[0] in self._paths and path[found.end() :][:1] in ("", "/"):
                return Ref(found[0], path[found.end() :].strip("/"))
        return Ref("", path)

    def is_known(self, directory: str) -> bool:
        """Whether a directory of a job has this name, and is left."""
        return directory in self._paths

    def files(self, value: Any) -> list[Ref]:
        """All files in a value of CWL, one after the other. A text with the name of a directory means its contents."""
        return [*self._files(value)]

    def _files(self, value: Any) -> Iterator[Ref]:
        if isinstance(value, str):
            names = (name for found in JOB_DIRECTORY.finditer(value) for name in (found[0], found[1]))
            yield from (Ref(name, "") for name in dict.fromkeys(names) if name in self._paths)
        elif isinstance(value, Mapping):
            is_file = value.get("class") in ("File", "Directory")
            if is_file and (path := value.get("path") or _local_path(value.get("location"))):
                yield self.ref(path)
            for name, each in value.items():
                if not (is_file and name in _FIELDS):
                    yield from self._files(name)
                    yield from self._files(each)
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self._files(each)

    def submitted(
        self, job: str, schedule: str, depth: int, inputs: Mapping[str, Iterable[Ref]], sources: Sequence[str] = ()
    ) -> None:
        """Note that a job has its input. Files of a job of the same name that has failed are needed no more.

        The files are needed if other jobs may have got some.

        :param schedule: the step that schedules the job
        :param depth: the length of its tag
        :param sources: the names of the jobs whose outputs it reads while they are written
        """
        if (before := self._jobs.get(job)) is not None:
            self._past.append((job, before))
            if before.outputs is not None:
                self._again.add(job)
            elif job in self._failed and not before.is_read_early:
                before.outputs = ()  # No job has got what the failed one has written.
        self._failed.discard(job)
        given = {port: frozenset(files) for port, files in inputs.items()}
        for port, files in given.items():
            for file in files:
                if file.directory:
                    self._given[file.directory].add((schedule, port, file.path, depth))
        self._jobs[job] = _Job(frozenset().union(*given.values()), sources)

    def placed(self, job: str, paths: Iterable[str], *, has_streams: bool = True) -> None:
        """Note directories of a job. Directories without a random name stay.

        :param has_streams: whether other jobs may read files there while these are written
        """
        for path in paths:
            name = posixpath.basename(path.rstrip("/"))
            if JOB_DIRECTORY.fullmatch(name) and name not in self._owners:
                self._paths[name], self._owners[name] = path, self._jobs[job]
                self._jobs[job].directories.add(name)
                if not has_streams:
                    self._jobs[job].without_streams.add(name)
                for directory, link in self._links_ahead.pop(name, ()):
                    if directory in self._links:
                        self._links[directory][link] = self.ref(self._links[directory][link].path)
                for file, copy in self._copies_ahead.pop(name, ()):
                    self._copies[""].discard((file, copy))
                    self.copied(self.ref(file), copy)

    def copied(self, file: Ref, copy: Ref) -> None:
        """Note that a job has a copy of a file. A job that is given one of the two may get a link to the other."""
        if copy.directory and copy != file:
            self._copies[file.directory].add((file.path, copy))
            if file.directory:
                self._copies[copy.directory].add((copy.path, file))
            else:
                for found in JOB_DIRECTORY.finditer(file.path):
                    self._copies_ahead[found[0]].append((file.path, copy))

    def directories_of(self, job: str) -> frozenset[str]:
        """The names of the directories of a job that are left."""
        return frozenset(self._jobs[job].directories)

    def has_run_before(self, job: str) -> bool:
        """Whether a job has succeeded before it was submitted again."""
        return job in self._again

    def has_failed(self, job: str) -> bool:
        """Whether a job has failed, and was not submitted again."""
        return job in self._failed

    def ended(self, job: str, outputs: Sequence[JobOutput] | None, is_read_early: bool = False) -> None:
        """Note the end of a job.

        :param outputs: None: the job has not succeeded
        :param is_read_early: whether other jobs may have got outputs in any case
        """
        if (state := self._jobs.get(job)) is None:
            return
        state.is_read_early = is_read_early
        if outputs is None:
            self._failed.add(job)
        else:
            for name, past in self._past:
                if name == job and past.outputs is None:
                    all_files = frozenset(Ref(directory, "") for directory in past.directories)
                    past.outputs = [replace(each, files=all_files) for each in outputs if past.is_read_early]
            # Other jobs may have passed on the same file. One reader may get all outputs of this job in one list.
            counts = Counter(file for each in outputs for file in each.files)
            shared = {f for f, n in counts.items() if n > 1 or f.directory not in state.directories}
            outputs = [replace(each, repeated=each.repeated | (each.files & shared)) for each in outputs]
        state.outputs = outputs

    def unseen(self) -> list[str]:
        """The names of the directories of jobs that have succeeded, whose contents are not known."""
        return [name for name, job in self._owners.items() if job.outputs is not None and name not in self._links]

    def seen(self, directory: str, links: Mapping[str, str]) -> None:
        """Note the contents of a directory.

        :param links: the symbolic links with their texts, by path relative to the directory
        """
        place = self._paths[directory]
        self._links[directory] = {
            link: self.ref(posixpath.join(place, posixpath.dirname(link), text)) for link, text in sorted(links.items())
        }
        for link, target in self._links[directory].items():
            if not target.directory:
                for found in JOB_DIRECTORY.finditer(target.path):
                    self._links_ahead[found[0]].append((directory, link))

    def removed(self, directory: str, left: frozenset[str] | None = None) -> None:
        """Note that a directory was removed.

        :param left: the paths that were left; None: nothing was left
        """
        if left is not None:
            self._left[directory] = left
            return
        for found in (self._paths, self._links, self._given, self._copies, self._left):
            found.pop(directory, None)
        if (job := self._owners.pop(directory, None)) is not None:
            job.directories.discard(directory)

    def dropped(self, directory: str, left: frozenset[str]) -> frozenset[str]:
        """The paths that were left of a directory before, and are not any more.

        A path behind a link is not among them, nor one that holds what is left.
        """
        above = {parent for path in left for parent in parents(path)}
        links = self._links.get(directory, {})
        gone = self._left.get(directory, frozenset()) - left - above
        return frozenset(path for path in gone if not any(each in links or each in left for each in parents(path)))

    def left(self) -> Collection[str]:
        """The names of all directories that are left."""
        return self._paths.keys()

    def path(self, directory: str) -> str:
        """The path of a directory that is left."""
        return self._paths[directory]

    def shown(self, directory: str) -> str:
        """Name a directory for people: by the paths of the outputs in it, or by its own path."""
        job, place = self._owners[directory], self._paths[directory]
        files = {file.path for output in job.outputs or () for file in output.files if file.directory == directory}
        return " and ".join(posixpath.join(place, path) if path else place for path in sorted(files)) or place

    def needs(self, job: str) -> frozenset[str]:
        """The names of the directories that a job needs to run once more, and to compare its outputs."""
        if (state := self._jobs.get(job)) is None:
            return frozenset()
        needed = _Needed(self._links, self._copies)
        needed.mark(self._roots_of(state))
        return frozenset(needed.paths)

    def decide(
        self, has_ended: Callable[[str], bool], held: Collection[str] = (), *, is_over: bool = False
    ) -> Decision:
        """Decide what can be removed now. As long as a job has failed, that is nothing.

        :param has_ended: whether a step of StreamFlow has ended
        :param held: the names of jobs that may run once more
        :param is_over: whether no job will run any more
        """
        if self._failed:
            return Decision()
        self._forget_jobs()
        held_jobs = {id(self._jobs[name]) for name in held if name in self._jobs}
        free = {
            name
            for name, job in self._owners.items()
            if job.outputs is not None and id(job) not in held_jobs and all(n in self._links for n in job.directories)
        }
        needed = _Needed(self._links, self._copies)
        jobs = [*(past for _, past in self._past), *self._jobs.values()]
        needed.mark(self._roots(jobs, has_ended, held_jobs))
        if not is_over:
            needed.mark(copy for _, copy in self._copies.get("", ()))
        self._mark_unseen(jobs, needed)
        parts = {}
        for name in free & needed.paths.keys():
            paths = frozenset(_tops(needed.paths[name]))
            if "" not in paths and self._left.get(name) != paths:
                parts[name] = paths
        return Decision(tuple(name for name in self._owners if name in free and name not in needed.paths), parts)

    def _forget_jobs(self) -> None:
        """Forget the jobs that have left nothing to be read."""
        for name, job in [*self._jobs.items()]:
            if job.outputs is not None and not job.directories:
                files = (file for output in job.outputs for file in output.files)
                if not any(file.directory in self._owners for file in files):
                    # Whether the job has succeeded before is still to be known.
                    self._jobs[name] = _Job(frozenset(), outputs=())

    def _roots(
        self, jobs: Iterable[_Job], has_ended: Callable[[str], bool], held_jobs: Collection[int]
    ) -> Iterator[Ref]:
        for job in jobs:
            if job.outputs is None or id(job) in held_jobs:
                yield from self._roots_of(job)
            for output in job.outputs or ():
                if output.is_kept:
                    yield from output.files
                elif not all(map(has_ended, output.readers.names)):
                    # A reader may look for secondary files beside a file.
                    yield from (Ref(file.directory, "") for file in self._open(output, has_ended))

    def _mark_unseen(self, jobs: Iterable[_Job], needed: _Needed) -> None:
        """Mark what directories that are needed may link to, if their contents are not known: the inputs of their jobs.

        No job reads other such directories any more, as those of a job that has moved from a lost location.
        """
        unseen = [job for job in jobs if job.outputs is not None and not all(n in self._links for n in job.directories)]
        while found := [job for job in unseen if not needed.paths.keys().isdisjoint(job.directories)]:
            unseen = [job for job in unseen if job not in found]
            needed.mark(ref for job in found for ref in self._roots_of(job))

    def _roots_of(self, job: _Job) -> Iterator[Ref]:
        """The files of a job that runs, or may run once more."""
        yield from job.inputs
        yield from (Ref(name, "") for name in job.directories)
        for source in job.sources:
            if (state := self._jobs.get(source)) is not None:
                yield from (Ref(name, "") for name in state.directories - state.without_streams)

    def _open(self, output: JobOutput, has_ended: Callable[[str], bool]) -> Iterator[Ref]:
        """The files of an output that later jobs may read."""
        if not all(map(has_ended, output.readers.steps)):
            yield from output.files
            return
        readers = [reader for reader in output.readers.jobs if not has_ended(reader.step)]
        for file in output.files:
            given = self._given.get(file.directory, ())
            if file in output.repeated or not all(
                (reader.step, reader.port, file.path, output.depth + reader.depth) in given for reader in readers
            ):
                yield file


class _Needed:
    """The paths that are needed, by directory."""

    def __init__(
        self, links: Mapping[str, Mapping[str, Ref]], copies: Mapping[str, Collection[tuple[str, Ref]]]
    ) -> None:
        self._links = links
        self._sorted = dict[str, list[str]]()
        self._copies = copies
        # By directory: the copies by path, and the paths in order.
        self._copied = dict[str, tuple[dict[str, list[Ref]], list[str]]]()
        self.paths: dict[str, set[str]] = defaultdict(set)

    def mark(self, roots: Iterable[Ref]) -> None:
        """Mark files as needed, with all that they link to."""
        ahead = [*roots]
        while ahead:
            file = ahead.pop()
            if file.directory and file.path not in self.paths[file.directory]:
                self.paths[file.directory].add(file.path)
                ahead += self._copies_of(file)
                if links := self._links.get(file.directory):
                    ahead += self._linked(file, links)

    def _copies_of(self, file: Ref) -> Iterator[Ref]:
        """The copies of a file, and of all files below its path and above the path."""
        if (found := self._copied.get(file.directory)) is None:
            copies: dict[str, list[Ref]] = defaultdict(list)
            for path, copy in self._copies.get(file.directory, ()):
                copies[path].append(copy)
            found = self._copied[file.directory] = copies, sorted(copies)
        by_path, ordered = found
        for path in (*parents(file.path), file.path, *_below(file.path, ordered)):
            yield from by_path.get(path, ())

    def _linked(self, file: Ref, links: Mapping[str, Ref]) -> Iterator[Ref]:
        """The targets of the links at a path, below it, and above it."""
        parts = file.path.split("/")
        for count in range(1, len(parts) + 1):
            if (target := links.get("/".join(parts[:count]))) is not None:
                yield Ref(target.directory, "/".join(filter(None, (target.path, *parts[count:]))))
        ordered = self._sorted.setdefault(file.directory, sorted(links))
        yield from (links[link] for link in _below(file.path, ordered))


def _below(path: str, ordered: Sequence[str]) -> Iterator[str]:
    """The paths below one."""
    begin = path and path + "/"
    for index in range(bisect_left(ordered, begin), len(ordered)):
        if not ordered[index].startswith(begin):
            break
        yield ordered[index]


def _local_path(location: Any) -> str | None:
    return unquote(location.removeprefix("file://")) if isinstance(location, str) else None


def _tops(paths: Collection[str]) -> Iterator[str]:
    """The paths that are not below another one."""
    return (path for path in paths if not any(each in paths for each in parents(path)))
