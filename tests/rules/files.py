"""The files that the producer has made, and what the commit rules have to know of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

How = Literal["w", "a", "r+"]
#: What happened to a path, in the words of :class:`tests.rules.model.Model`.
Fact = tuple[Literal["exists", "close", "die", "remove"], str]


@dataclass(eq=False)
class Inode:
    """A file, whatever its names.

    :ivar version: how often it was written
    :ivar touched: how often its time of modification was set
    """

    version: int = 0
    touched: int = 0
    links: int = 1


@dataclass(eq=False)
class Name:
    path: str
    inode: Inode
    alive: bool = True


@dataclass(eq=False)
class Opening:
    """One opening for writing; descriptors that were duplicated or inherited share it."""

    name: Name
    descriptors: set[tuple[int, int]] = field(default_factory=set)  # (process, slot)


@dataclass
class Files:
    """Names, directories, openings. Every operation returns the facts that follow from it."""

    names: dict[str, Name] = field(default_factory=dict)
    directories: set[str] = field(default_factory=lambda: {""})
    openings: list[Opening] = field(default_factory=list)

    def is_written(self, inode: Inode) -> bool:
        return any(opening.name.inode is inode for opening in self.openings)

    def slots(self, process: int) -> dict[int, Opening]:
        return {slot: o for o in self.openings for owner, slot in o.descriptors if owner == process}

    def open(self, process: int, slot: int, path: str, how: How) -> list[Fact]:
        facts: list[Fact] = []
        if path not in self.names:
            self.names[path] = Name(path, Inode())
            facts = [("exists", path)]
        name = self.names[path]
        name.inode.version += how == "w"
        self.openings.append(Opening(name, {(process, slot)}))
        return facts

    def close(self, process: int, slot: int, *, badly: bool = False) -> list[Fact]:
        opening = self.slots(process)[slot]
        opening.descriptors.remove((process, slot))
        if opening.descriptors:
            return []
        self.openings.remove(opening)
        # A file that was removed has no name by which its close could count.
        return [("die" if badly else "close", opening.name.path)] if opening.name.alive else []

    def end(self, process: int, *, badly: bool) -> list[list[Fact]]:
        """A process closes all that it had open, in any order."""
        return [self.close(process, slot, badly=badly) for slot in self.slots(process)]

    def fork(self, process: int, child: int) -> None:
        for opening in self.openings:
            opening.descriptors |= {(child, slot) for owner, slot in opening.descriptors if owner == process}

    def remove(self, path: str) -> list[Fact]:
        name = self.names.pop(path)
        name.alive = False
        name.inode.links -= 1
        return [("remove", path)]

    def _appear(self, path: str, inode: Inode) -> list[Fact]:
        """A finished file got a name: that counts as a close, unless a process still writes it."""
        facts: list[Fact] = [("exists", path)]
        return facts if self.is_written(inode) else [*facts, ("close", path)]

    def link(self, path: str, other: str) -> list[Fact]:
        inode = self.names[path].inode
        inode.links += 1
        self.names[other] = Name(other, inode)
        return self._appear(other, inode)

    def rename(self, path: str, other: str) -> list[Fact]:
        if (old := self.names.get(other)) is not None:
            old.alive = False
            old.inode.links -= 1
        name = self.names[other] = self.names.pop(path)
        name.path = other
        return [("remove", path), *self._appear(other, name.inode)]

    def make_directory(self, path: str) -> None:
        parts = path.split("/")
        self.directories |= {"/".join(parts[: i + 1]) for i in range(len(parts))}

    def can_move(self, path: str, other: str) -> bool:
        """Whether a directory can be renamed."""
        above = other.rpartition("/")[0]
        new = other not in self.directories and above in self.directories
        return path in self.directories and new and not other.startswith(path + "/")

    def rename_directory(self, path: str, other: str) -> tuple[list[Fact], list[list[Fact]]]:
        """The files are removed, and then found in any order."""
        moved = {d for d in self.directories if d == path or d.startswith(path + "/")}
        self.directories = (self.directories - moved) | {other + d[len(path) :] for d in moved}
        below = [name for name in self.names if name.startswith(path + "/")]
        facts = [self.rename(name, other + name[len(path) :]) for name in below]
        return [removed for removed, *_ in facts], [appeared for _, *appeared in facts]
