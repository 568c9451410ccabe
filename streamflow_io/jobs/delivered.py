"""One output over all attempts of its job: what other jobs have got of it, and whether that is true in the end."""

from __future__ import annotations

import itertools
import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from streamflow_io.adapters.outputs import EarlyOutput
from streamflow_io.adapters.paths import CHECKSUM
from streamflow_io.graph.io_graph import Delivery, OutputKind
from streamflow_io.hints.globs import matches
from streamflow_io.parts.said_parts import SaidParts
from streamflow_io.wording import counted

# Paths differ between attempts. Contents are compared by checksum.
_NOT_COMPARED = frozenset({"path", "location", "dirname", "size", "checksum", "contents", "listing", "secondaryFiles"})


class Item(Struct, frozen=True):
    """A File or Directory.

    :ivar path: relative to the output directory of its job; absolute if the file is elsewhere
    :ivar value: its CWL object in the token
    """

    path: str
    value: Mapping[str, Any]

    def with_secondary_files(self) -> Iterator[Item]:
        yield self
        for secondary in self.value.get("secondaryFiles") or ():
            beside = posixpath.relpath(secondary["path"], posixpath.dirname(self.value["path"]))
            yield Item(posixpath.normpath(posixpath.join(posixpath.dirname(self.path), beside)), secondary)


class Value(Struct, frozen=True, dict=True):
    """The value of a token.

    :ivar items: its Files and Directories, in order; empty for a value of another type
    :ivar checksums: of the files in a Directory, by path; None: the files are not compared
    :ivar why: the reason if the checksums could not be made
    """

    items: tuple[Item, ...] = ()
    is_list: bool = False
    checksums: Mapping[str, str] | None = None
    why: str = ""

    @cached_property
    def all(self) -> dict[str, Mapping[str, Any]]:
        """The CWL objects of all items and their secondary files, by path."""
        return {part.path: part.value for item in self.items for part in item.with_secondary_files()}


class Warn(Struct, frozen=True):
    """Log a warning about the job."""

    message: str


class Fail(Struct, frozen=True):
    """End the run: an output that was delivered early is another one in the end."""

    message: str


# Each empty set would take 200 bytes, for each output of each job.
_NO_PATHS: frozenset[str] = frozenset()


class _SecondaryFiles:
    """The committed files, in one attempt, of an output with secondary files."""

    def __init__(self, output: EarlyOutput) -> None:
        self._output = output
        self._committed: set[str] = set()
        self._needed_by: dict[str, set[str]] = defaultdict(set)

    def whole_with(self, path: str, globs: Iterable[str]) -> list[str]:
        """See :meth:`DeliveredOutput.whole_with`."""
        self._committed.add(path)
        if any(matches(glob, path) for glob in globs):
            for needed in (path, *self._output.secondary_files(path)):
                self._needed_by[needed].add(path)
        whole = self._committed.issuperset
        return sorted(file for file in self._needed_by[path] if whole((file, *self._output.secondary_files(file))))


class DeliveredOutput:
    """One output, and what other jobs have got of it.

    :ivar globs: where the output is found in this attempt, relative to the output directory of the job
    :ivar checksums: of the committed files, at their first commit; None: StreamFlow has made no checksum
    :ivar directory: the value of a Directory at its first commit
    :ivar changed: how files were changed after their commit
    :ivar closed_again: the files that were closed after their commit
    :ivar parts: the parts that the program has reported
    :ivar replaced: at the end of the job: the files that other jobs have begun to read, if the output is another file
    """

    def __init__(self, output: EarlyOutput) -> None:
        self.output = output
        self.globs: tuple[str, ...] = ()
        self.checksums: dict[str, str | None] = {}
        self.directory: Value | None = None
        self.changed: dict[str, Literal["written", "removed"]] = {}
        self.closed_again: set[str] = set()
        self.parts = SaidParts()
        self.replaced = _NO_PATHS
        self._listed: frozenset[str] | None = None
        # The ways in which the output was delivered, with the paths of elements.
        self._delivered: set[tuple[Delivery, str | None]] = set()
        self._numbers: dict[str, int] = {}
        self._next_number = itertools.count()
        # The delivered CWL objects by path; the order of a delivered list; whether every delivery came before the
        # commit.
        self._facts: dict[str, Mapping[str, Any]] = {}
        self._order: list[str] = []
        self._only_early = True
        self._secondary = _SecondaryFiles(output) if output.secondary else None

    @property
    def is_streamed(self) -> bool:
        return Delivery.STREAM in (*self.output.deliveries, *self.output.elements)

    def begin(self, globs: tuple[str, ...]) -> None:
        """Begin an attempt, which has none of the files of the attempt before."""
        self.globs = globs
        self.parts.begin()
        if self._secondary is not None:
            self._secondary = _SecondaryFiles(self.output)

    def whole_with(self, path: str) -> list[str]:
        """Note the commit of a file of the output, of a secondary file, or of a file that is both.

        :return: the files of the output that are whole with this one: they and all their secondary files are committed
        """
        return [path] if self._secondary is None else self._secondary.whole_with(path, self.globs)

    def waiting(self, path: str | None, *deliveries: Delivery) -> tuple[Delivery, ...]:
        """The ways, of those given, in which the output or an element is to be delivered, and has not been delivered.

        :param path: of a file; None: the output as a whole
        """
        element = self._element(path)
        ways = self.output.deliveries if element is None else self.output.elements
        return tuple(way for way in ways if way in deliveries and (way, element) not in self._delivered)

    def deliver(self, way: Delivery, value: Value, path: str | None, early: bool) -> int | None:
        """Note that the output, or an element, is delivered before the end of the job.

        :param early: whether the file is not committed
        :return: the number of the element, counted as the files come; None: the output as a whole
        """
        element = self._element(path)
        self._delivered.add((way, element))
        self._facts.update(value.all)
        self._only_early = self._only_early and early
        if value.is_list:
            self._order = list(dict.fromkeys(item.path for item in value.items))
        return None if element is None else self._number(element)

    def _element(self, path: str | None) -> str | None:
        return path if self.output.kind is OutputKind.FILES else None

    def _number(self, path: str) -> int:
        if path not in self._numbers:
            self._numbers[path] = next(self._next_number)
        return self._numbers[path]

    def order(self, value: Value) -> tuple[int, ...]:
        """The numbers of the elements that were delivered one by one, in the order of the list."""
        numbers: dict[int, None] = {}
        for item in value.items:
            number = self._number(item.path)
            # A file that is in the list twice is delivered only once before the list.
            numbers[next(self._next_number) if number in numbers else number] = None
        return tuple(numbers)

    def commit(self, value: Value) -> None:
        """Note the commit of files. The checksum at the first commit counts."""
        for path, facts in value.all.items():
            self.checksums.setdefault(path, facts.get("checksum"))

    def commit_list(self, value: Value) -> frozenset[str]:
        """Note the commit of a list as a whole.

        :return: the paths of its files
        """
        self.commit(value)
        self._listed = frozenset(item.path for item in value.items)
        return self._listed

    def commit_directory(self, value: Value) -> Iterator[Warn]:
        """Note the commit of a Directory as a whole, and warn if it cannot be compared. The first commit counts."""
        if self.directory is None:
            self.directory = value
            if value.checksums is None:
                yield self._cannot_compare(value.why)

    def wrong_part(self, how: str) -> Fail:
        """The failure for a part that differs from the one that other jobs have."""
        rule = f"{{port: {self.output.port}, of: {self.output.of}}}"
        return Fail(f"{how}; other jobs have the part already, by the rule {rule} of `sfio:ReadSession`")

    def to_keep(self, committed: Collection[str]) -> list[str]:
        """The committed files of a failed attempt whose checksums are still wanted; none if nothing streams."""
        known = self.checksums.keys() | self.changed.keys()
        return sorted(path for path in committed if path not in known) if self.is_streamed else []

    def compare(self, final: Value | None, committed: Collection[str]) -> Iterator[Warn | Fail]:
        """Compare the output of the successful job with what other jobs have got.

        :param final: the value of the output; None: the job has made no such output
        :param committed: the files that the successful attempt has committed
        """
        if (wrong := self.parts.unsaid()) is not None:
            yield self.wrong_part(wrong)
        self.replaced = self._replaced_by(final, committed)
        if not self.replaced and (how := self._difference(final or Value())) is not None:
            yield Fail(
                f"of the output `{self.output.port}`, {how} (the tool's `cwl.output.json` says so, or a file had a "
                "temporary name: a rule with `files` leaves such files out)"
            )
        if final is not None and self.output.kind is OutputKind.DIRECTORY:
            yield from self._compare_directory(final)
        elif final is not None:
            yield from self._compare_files(final)

    def _replaced_by(self, final: Value | None, committed: Collection[str]) -> frozenset[str]:
        """The files that other jobs have begun to read, if these jobs can read another file, or no file, instead.

        As a rule, such a file had a temporary name, or `cwl.output.json` gives another one. Its readers wait for its
        commit, so no other job has got their results yet. Nothing else may depend on its name, however.
        """
        if self.output.kind is not OutputKind.FILE or final is None or not self._only_early:
            return _NO_PATHS
        item = next(iter(final.items), None)
        replaced = {path: facts["basename"] for path, facts in self._facts.items() if self._change(path, final.all)}
        if replaced.keys() & {*committed, *self.checksums}:
            return _NO_PATHS
        if item is None:
            is_fixed = self.output.fixed_name or self.output.fixed
        else:
            is_fixed = self.output.fixed_name and {*replaced.values()} != {item.value["basename"]}
        return _NO_PATHS if is_fixed or not replaced else frozenset(replaced)

    def _difference(self, final: Value) -> str | None:
        """The first difference between the output and its deliveries, in words; None: both are equal."""
        for path in sorted(self._facts):
            if (how := self._change(path, final.all)) is not None:
                return how
        ordered = set(self._order)
        if list(dict.fromkeys(item.path for item in final.items if item.path in ordered)) != self._order:
            return f"{', '.join(self._order[:5])} were delivered early in this order, but are in another at the end"
        return None

    def _change(self, path: str, now: Mapping[str, Mapping[str, Any]]) -> str | None:
        """The first difference between a delivered file and the files at the end, in words; None: both are equal.

        :param now: the CWL objects of the output at the end, by path
        """
        if path not in now:
            at_end = f"the output is {_some(list(now))}" if now else "the output is empty"
            return f"{path} was delivered early, but {at_end} at the end"
        facts = self._facts[path]
        for name in sorted(facts.keys() - _NOT_COMPARED):
            if now[path].get(name) != facts[name]:
                told = f"{path} was delivered early with the {name} {facts[name]}"
                return f"{told}, but has the {name} {now[path].get(name)} at the end"
        beside = Item(path, now[path]).with_secondary_files()
        # Not by a difference of sets, which would look at all files for each file.
        more = sorted(part.path for part in beside if part.path not in self._facts)
        return f"{path} was delivered early without {_some(more)}" if more else None

    def _compare_directory(self, final: Value) -> Iterator[Warn | Fail]:
        if self.directory is None or self.directory.checksums is None or not final.items:
            return
        before, now = self.directory.checksums, final.checksums
        if now is None:
            yield self._cannot_compare(final.why)
        elif changed := sorted(file for file in before.keys() | now.keys() if before.get(file) != now.get(file)):
            yield Fail(
                f"the Directory of the output `{self.output.port}` was committed by `{self.output.rule.committed}`, "
                f"but was changed afterwards: {', '.join(changed[:5])}"
            )

    def _compare_files(self, final: Value) -> Iterator[Warn | Fail]:
        if any(checksum is not None and CHECKSUM.fullmatch(checksum) is None for checksum in self.checksums.values()):
            yield self._cannot_compare("its location has no sha1sum")
        for file, checksum in self.checksums.items():
            if file not in final.all:
                yield self._broken(file, "removed")
            elif final.all[file].get("checksum") != checksum:
                yield self._broken(file, "written")
        # Later files were committed, too, but no reader of the list has got them.
        listed = self._listed
        if listed is not None and (more := sorted({item.path for item in final.items} - listed)):
            yield Fail(
                f"the output `{self.output.port}` was committed by `{self.output.rule.committed}` with "
                f"{counted(len(listed), 'file')}, which other jobs have, but it has {len(more)} more at the end: "
                f"{_some(more)}"
            )

    def told_changes(self) -> Iterator[Warn | Fail]:
        """Yield a failure for each changed file that was read before the end, and a warning for each equal one.

        A file that was read as a stream, or in a Directory at the gate, cannot be compared.
        """
        gated = self.output.kind is OutputKind.DIRECTORY and Delivery.GATE in self.output.deliveries
        for path, how in sorted(self.changed.items()):
            if gated or self.is_streamed:
                yield self._broken(path, how)
            elif path in self.checksums or self.directory is not None:
                yield Warn(f"{self._by_rule(path)}, and written again with the same content")

    def told_closes(self) -> Iterator[Warn]:
        """Yield a warning for each file that was closed again after its `on_close` commit, and has not changed."""
        for path in sorted(self.closed_again - self.changed.keys()):
            rule = self.output.rule_for(path)
            if rule is not None and rule.committed.kind == "on_close":
                again = (
                    "and closed again afterwards, unchanged: if the tool closes the file N times, write `on_close:N`"
                )
                yield Warn(f"{self._by_rule(path)}, {again}")

    def _broken(self, path: str, how: Literal["written", "removed"]) -> Fail:
        what = {
            "written": "was written again afterwards",
            "removed": "is not there at the end (a rule with `files` leaves out files that have a temporary name)",
        }[how]
        return Fail(f"{self._by_rule(path)}, but {what}")

    def _by_rule(self, path: str) -> str:
        rule = self.output.rule_for(path) or self.output.rule
        return f"{path} of the output `{self.output.port}` was committed by `{rule.committed}`"

    def _cannot_compare(self, reason: str) -> Warn:
        said = f"the output `{self.output.port}` was committed, and no later change can be seen"
        return Warn(f"{said} from its content: {reason}")


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:5]) + (", ..." if len(paths) > 5 else "")
