"""The commit rules of `docs/node-protocol.md` as a model: facts about files in, commits and complete outputs out.

Written from the page, as plainly as can be, to be compared with `sfio-node`: after each fact it asks of every file and
every output whether its rule holds, until nothing changes. Paths are relative to the output directory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

Kind = Literal["file", "files", "directory"]
Committed = Literal["on_termination", "on_close", "on_file", "on_n_files"]


def matches(glob: str, path: str) -> bool:
    """Whether a glob matches a path as POSIX `glob` has it: no wildcard for a slash or a leading dot."""
    patterns, names = glob.split("/"), path.split("/")
    hidden = any(n.startswith(".") and not p.startswith(".") for p, n in zip(patterns, names, strict=False))
    return len(patterns) == len(names) and not hidden and all(map(fnmatchcase, names, patterns))


def matches_anywhere(glob: str, path: str) -> bool:
    """The same; a glob without a slash is compared with the last part of the path."""
    return matches(glob, path if "/" in glob else path.rpartition("/")[2])


@dataclass(frozen=True)
class Rule:
    committed: Committed
    globs: tuple[str, ...] = ()
    closes: int = 1
    deps: tuple[str, ...] = ()
    n_files: int | None = None


@dataclass(frozen=True)
class Output:
    port: str
    kind: Kind
    globs: tuple[str, ...]
    rules: tuple[Rule, ...]

    def entry(self, path: str) -> str | None:
        """The path by which rules name a file of this output; None means that the file belongs to another output."""
        if self.kind != "directory":
            return path if any(matches(glob, path) for glob in self.globs) else None
        parts = path.split("/")
        for glob in self.globs:
            if glob == ".":
                return path
            depth = glob.count("/") + 1
            if len(parts) > depth and matches(glob, "/".join(parts[:depth])):
                return "/".join(parts[depth:])
        return None

    def rule(self, path: str) -> Rule | None:
        """The first rule that names a file of this output, if one does."""
        entry = self.entry(path)
        assert entry is not None
        named = (r for r in self.rules if not r.globs or any(matches_anywhere(g, entry) for g in r.globs))
        return next(named, None)

    def has_in_reach(self, path: str) -> bool:
        """Whether a file lies in a directory in which files of this output, or its dependencies, can be."""
        parts = path.split("/")[:-1]
        globs = [*self.globs, *(dep for rule in self.rules for dep in rule.deps)]
        leads = (len(parts) < len(glob.split("/")) and all(map(matches, glob.split("/"), parts)) for glob in globs)
        return not parts or any(leads) or (self.kind == "directory" and self.entry(path) is not None)

    @property
    def is_early(self) -> bool:
        return any(rule.committed != "on_termination" for rule in self.rules)


@dataclass(frozen=True)
class Unmet:
    """A rule for which a file waited to the end of a successful job, or that was promised more files.

    :ivar found: how often it was closed: each file that waits, or all of a Directory (`""`); how many files are there
    :ivar deps: those that were not met
    """

    output: Output
    rule: Rule
    found: dict[str, int] = field(default_factory=dict)
    deps: tuple[str, ...] = ()


@dataclass
class Model:
    """The state of a job's outputs.

    :ivar files: how often each file that exists was closed, as far as its closes count
    :ivar doubtful: closes by processes that died badly: only success makes them count
    :ivar committed, complete: (port, path) of files, ports
    :ivar closed: how often a close was to be told, by (port, path)
    :ivar unmet: what has to be warned of, in this order
    """

    outputs: tuple[Output, ...]
    files: dict[str, int] = field(default_factory=dict)
    doubtful: list[str] = field(default_factory=list)
    committed: set[tuple[str, str]] = field(default_factory=set)
    complete: set[str] = field(default_factory=set)
    closed: Counter[tuple[str, str]] = field(default_factory=Counter)
    unmet: list[Unmet] = field(default_factory=list)
    _there: set[tuple[str, str]] = field(default_factory=set)  # committed, and not removed since
    _closes: Counter[tuple[str, int]] = field(default_factory=Counter)  # of all files under a rule of an output
    _met: set[str] = field(default_factory=set)  # dependencies
    _released: set[tuple[str, int]] = field(default_factory=set)  # on_file rules whose dependencies are met

    def copy(self) -> Model:
        return Model(
            self.outputs,
            dict(self.files),
            list(self.doubtful),
            set(self.committed),
            set(self.complete),
            Counter(self.closed),
            list(self.unmet),
            set(self._there),
            Counter(self._closes),
            set(self._met),
            set(self._released),
        )

    def exists(self, path: str) -> None:
        self.files.setdefault(path, 0)

    def close(self, path: str) -> None:
        """A process that lives on or ended well has closed the file after writing, or moved it into place."""
        self.exists(path)
        self.files[path] += 1
        own = self._outputs_of(path)
        for output in own:
            self.closed[output.port, path] += output.is_early
            if (output.port, path) in self.committed:
                self._there.add((output.port, path))
            rule = output.rule(path)
            if rule is None:
                continue
            number = output.rules.index(rule)
            self._closes[output.port, number] += 1
            once = rule.committed == "on_n_files" or (output.port, number) in self._released
            if once or (rule.committed == "on_close" and self.files[path] >= rule.closes):
                self._commit(output, path)
        if not own and any(output.has_in_reach(path) for output in self.outputs):
            self._meet(path)
        self._settle()

    def die(self, path: str) -> None:
        """The death of a process that failed has closed the file."""
        self.exists(path)
        self.doubtful.append(path)

    def remove(self, path: str) -> None:
        """The file was removed or moved away: a successor starts anew."""
        self.files.pop(path, None)
        self.doubtful = [other for other in self.doubtful if other != path]
        self._there = {(port, other) for port, other in self._there if other != path}

    def succeed(self) -> None:
        """The job has ended with a success code."""
        for path in self.doubtful:
            self.close(path)
        incomplete = [output for output in self.outputs if output.port not in self.complete]
        rules = ((output, number) for output in incomplete for number in range(len(output.rules)))
        self.unmet = [unmet for output, number in rules if (unmet := self._unmet(output, number)) is not None]
        for output in self.outputs:
            self.committed |= {(output.port, path) for path in self.files if output.entry(path) is not None}
            self.complete.add(output.port)

    def _unmet(self, output: Output, number: int) -> Unmet | None:
        """The events for which a rule of an incomplete output still waits when the job has ended."""
        rule = output.rules[number]
        own = [path for path in self.files if output.entry(path) is not None and output.rule(path) is rule]
        waiting = [path for path in own if (output.port, path) not in self.committed]
        if rule.committed == "on_n_files":
            return Unmet(output, rule, {"": len(own)}) if len(own) < (rule.n_files or 0) else None
        if rule.committed == "on_close" and rule.closes > 1 and waiting:
            is_whole = output.kind == "directory"
            found = {"": self._closes[output.port, number]} if is_whole else {p: self.files[p] for p in waiting}
            return Unmet(output, rule, found)
        deps = tuple(dep for dep in rule.deps if dep not in self._met)
        return Unmet(output, rule, deps=deps) if rule.committed == "on_file" and waiting and deps else None

    def _outputs_of(self, path: str) -> list[Output]:
        return [output for output in self.outputs if output.entry(path) is not None]

    def _commit(self, output: Output, path: str) -> None:
        if (output.port, path) not in self.committed:
            self.committed.add((output.port, path))
            self._there.add((output.port, path))
            self._meet(path)

    def _meet(self, path: str) -> None:
        deps = {dep for output in self.outputs for rule in output.rules for dep in rule.deps}
        ports = {output.port for output in self.outputs}
        self._met |= {dep for dep in deps - ports if matches_anywhere(dep, path)}

    def _settle(self) -> None:
        """Follow dependencies until nothing changes."""
        before = None
        while before != (before := (len(self.committed), len(self.complete), len(self._met))):
            for output in self.outputs:
                self._release(output)
                if output.port not in self.complete and self._is_complete(output):
                    if output.kind == "directory":
                        for path, closes in self.files.items():
                            if closes and output.entry(path) is not None:
                                self._commit(output, path)
                    self.complete.add(output.port)
                    self._met.add(output.port)

    def _release(self, output: Output) -> None:
        """Commit the files that exist when the last dependency of their rule is committed."""
        for number, rule in enumerate(output.rules):
            if rule.committed == "on_file" and self._met.issuperset(rule.deps):
                if (output.port, number) not in self._released:
                    for path in self.files:
                        if output.entry(path) is not None and output.rule(path) is rule:
                            self._commit(output, path)
                self._released.add((output.port, number))

    def _is_complete(self, output: Output) -> bool:
        if output.kind == "file":
            return any(port == output.port for port, _ in self.committed)
        return bool(output.rules) and all(self._holds(output, rule) for rule in output.rules)

    def _holds(self, output: Output, rule: Rule) -> bool:
        """Whether a rule says that a Directory or File[] is complete."""
        if rule.committed == "on_n_files":
            own = {path for port, path in self._there if port == output.port and output.rule(path) is rule}
            return rule.n_files is not None and len(own) >= rule.n_files
        if rule.committed == "on_close":
            number = output.rules.index(rule)
            counts = output.kind == "directory" and rule.closes > 1
            return counts and self._closes[output.port, number] >= rule.closes
        return rule.committed == "on_file" and self._met.issuperset(rule.deps)
