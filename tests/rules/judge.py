"""Compares what `sfio-node exec` tells of a job with what the model says."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path

from lab.node import Event, Job, wait_for
from streamflow_io.wording import counted, how_often

from .files import Fact, Files, Inode
from .model import Model, Output, Rule, Unmet

#: Longer than the node runtime waits whether a close was no death.
GRACE = 0.1
TIMEOUT = 5.0
#: The port of an output of type File[], whose files are committed at termination.
MEETING = "meeting"
#: Before, a time of modification is that of the last tick of the clock.
FINE_TIMES = tuple(map(int, platform.release().split("-")[0].split(".")[:2])) >= (6, 13)


class Snapshot:
    """A file when it was committed; without an inode, it was gone before that was told."""

    def __init__(self, inode: Inode | None) -> None:
        self.inode = inode
        if inode is not None:
            self.version, self.touched, self.links = inode.version, inode.touched, inode.links


class Judge:
    """The reports that are allowed for a job: by more than one model, while it is open what the node runtime has seen.

    :ivar files: what the producer has made
    :ivar place: the root of an output :data:`MEETING`, in which no other process makes anything
    """

    def __init__(self, job: Job, root: Path, outputs: tuple[Output, ...], place: Path) -> None:
        self.job, self.root, self.outputs, self.place = job, root, outputs, place
        self.meetings = 0
        self.files = Files()
        self.models = [Model(outputs)]
        self.told: list[Event] = []
        self.snapshots: dict[tuple[str, str], Snapshot] = {}
        self.changed: set[tuple[str, str]] = set()
        self.perhaps_changed: set[tuple[str, str]] = set()

    def take(self, facts: list[Fact]) -> None:
        """Facts that the node runtime has to know of soon."""
        self.note(self.models, facts)
        self.settle(facts)

    def take_in_any_order(self, groups: list[list[Fact]]) -> None:
        """Facts that the node runtime learns at once, group by group."""
        orders = [[fact for group in order for fact in group] for order in permutations(groups)]
        before, self.models = self.models, []
        for facts in orders:
            models = [model.copy() for model in before]
            self.note(models, facts)
            self.models += models
        self.settle(orders[0])

    def take_perhaps(self, made: list[Fact], facts: list[Fact]) -> None:
        """The same; the node runtime may come too late to see that a file was made, or that it was closed."""
        unseen = [model.copy() for model in self.models]
        unclosed = [model.copy() for model in self.models]
        self.note(unclosed, [fact for fact in made if fact[0] == "exists"])
        self.note(self.models, made)
        self.models += unseen + unclosed
        self.take(facts)

    def note(self, models: Iterable[Model], facts: list[Fact]) -> None:
        acts = {"exists": Model.exists, "close": Model.close, "die": Model.die, "remove": Model.remove}
        for model in models:
            for what, path in facts:
                acts[what](model, path)

    def settle(self, facts: Iterable[Fact] = ()) -> None:
        """Waits until what is told is what one of the models says, after these facts."""
        deadline = time.monotonic() + TIMEOUT
        lenient = time.monotonic() + 2 * GRACE
        self.meet()
        self.listen()
        while not (fitting := self.fitting(exactly=time.monotonic() < lenient)):
            assert self.job.process.poll() is None, self.explain()
            assert time.monotonic() < deadline, self.explain()
            time.sleep(0.003)
            self.listen()
        self.models = []
        for model in fitting:
            # What the kernel has merged stays so.
            model.closed = self.said("closed") + self.implied(model)
            if model not in self.models:
                self.models.append(model)
        self.look()
        closed = {path for what, path in facts if what == "close"}
        for port, path in self.snapshots:
            if path in closed:
                self.compare(port, path, closed_again=True)

    def said(self, event: str) -> Counter[tuple[str, str]]:
        return Counter(self.key(found) for found in self.told if found["event"] == event)

    def meet(self) -> None:
        """Waits until the node runtime has seen all that has happened: it sees things in their order."""
        self.meetings += 1
        mark = self.place / str(self.meetings)
        mark.symlink_to("nowhere")
        wait_for(lambda: any(event.get("path") == str(mark) for event in self.job.events()), self.explain(), TIMEOUT)

    def listen(self) -> None:
        self.told = [event for event in self.job.events() if event.get("port") != MEETING]

    def is_implied(self, port: str, path: str) -> bool:
        """Whether the first close of a file is not told, because it commits it."""
        (output,) = (output for output in self.outputs if output.port == port)
        rule = output.rule(path) if output.kind == "directory" else None
        return rule is not None and (rule.committed == "on_n_files" or (rule.committed, rule.closes) == ("on_close", 1))

    def implied(self, model: Model) -> Counter[tuple[str, str]]:
        """The closes that are not told."""
        return Counter(key for key, closes in model.closed.items() if closes and self.is_implied(*key))

    def fitting(self, exactly: bool) -> list[Model]:
        """The models that match all reports, and no more."""
        return [] if self.unopened() else [model for model in self.models if self.fits(model, exactly)]

    def key(self, event: Event) -> tuple[str, str]:
        return str(event["port"]), os.path.relpath(str(event["path"]), self.root)

    def fits(self, model: Model, exactly: bool) -> bool:
        closed, due = self.said("closed"), model.closed - self.implied(model)
        told = closed == due if exactly else closed.keys() == due.keys() and closed <= due
        complete = Counter(str(event["port"]) for event in self.told if event["event"] == "complete")
        committed = self.said("committed") + self.said("entry")
        return told and committed == Counter(model.committed) and complete == Counter(model.complete)

    def explain(self) -> str:
        models = "\n".join(f"{model.committed} {model.complete} {+model.closed}" for model in self.models)
        return f"outputs {self.outputs}\nnot opened: {self.unopened()}\nallowed:\n{models}\ntold:\n" + "\n".join(
            map(str, self.told)
        )

    def look(self) -> None:
        """Checks the order of events, and remembers what was committed."""
        opened: set[tuple[str, str]] = set()
        kinds = {output.port: output.kind for output in self.outputs}
        for event in self.told:
            if "path" not in event:
                continue
            key, said = self.key(event), event["event"]
            # Of a directory only the first file is told to be there.
            is_directory = kinds[key[0]] == "directory"
            place = (key[0], "") if is_directory else key
            assert not (is_directory and said == "opened" and place in opened), self.explain()
            if said == "opened":
                opened.add(place)
            assert said not in ("closed", "committed", "entry") or place in opened, self.explain()
            assert said != ("committed" if is_directory else "entry"), self.explain()
            if said in ("committed", "entry") and key not in self.snapshots:
                name = self.files.names.get(key[1])
                inode = None if name is None else name.inode
                self.snapshots[key] = Snapshot(inode)
                assert inode is None or event["size"] == (self.root / key[1]).stat().st_size, self.explain()

    def unopened(self) -> list[str]:
        """Files that are there, and are not reported."""
        opened = self.said("opened")
        told = [output for output in self.outputs if output.kind != "directory"]
        return [p for p in self.files.names for o in told if o.entry(p) is not None and not opened[o.port, p]]

    def compare(self, port: str, path: str, closed_again: bool) -> None:
        """Whether a committed file has to be, or may be, told as changed."""
        then, name = self.snapshots[port, path], self.files.names.get(path)
        if name is None or then.inode is None or name.inode is not then.inode:
            self.changed.add((port, path))
        elif name.inode.version != then.version:
            # A file that was never closed was written under another name.
            noticed = closed_again or max(then.links, name.inode.links) > 1
            (self.changed if noticed and FINE_TIMES else self.perhaps_changed).add((port, path))
        elif name.inode.touched != then.touched:
            self.perhaps_changed.add((port, path))

    def end(self, facts: list[Fact], success: bool) -> None:
        """The job has ended, and so were closed what the last process had open."""
        self.listen()
        assert self.job.exit()["success"] is success
        if success:
            self.note(self.models, facts)
            for model in self.models:
                model.succeed()
        self.models = [model for model in self.models if self.fits(model, exactly=False)]
        assert self.models, self.explain()
        self.look_at_the_end({path for _, path in facts}, success)

    def look_at_the_end(self, closed: set[str], success: bool) -> None:
        changed = self.said("changed")
        assert max(changed.values(), default=1) == 1, self.explain()
        if success:
            for port, path in self.snapshots:
                self.compare(port, path, closed_again=path in closed)
            assert not self.changed - changed.keys(), f"{self.changed - changed.keys()} not told\n{self.explain()}"
        more = changed.keys() - self.changed - self.perhaps_changed
        assert not more, f"{more} told\n{self.explain()}"
        warnings = [str(event["message"]) for event in self.job.named("warning")]
        allowed = [[self.warnings(unmet) for unmet in model.unmet] for model in self.models]
        fitting = (len(each) == len(warnings) and all(map(set.__contains__, each, warnings)) for each in allowed)
        assert any(fitting), f"warnings {warnings}, allowed {allowed}\n{self.explain()}"

    def warnings(self, unmet: Unmet) -> set[str]:
        """The warnings that are allowed for a rule that waits to the end.

        Where several files wait for closes, any of them may be named.
        """
        output, rule = unmet.output, unmet.rule
        if rule.committed == "on_n_files":
            said = {f"on_n_files promised {counted(rule.n_files, 'file')}, found {unmet.found['']} at the end"}
        elif rule.committed == "on_file":
            said = {f"on_file waited for {', '.join(unmet.deps)} to the end"}
        else:
            said = {
                f"on_close:{rule.closes} never came, {self.subject(path)} closed {how_often(closes)}"
                for path, most in unmet.found.items()
                for closes in range(min(most, self.closes(output, rule, path)), most + 1)
            }
        return {f"output {output.port}: {each}: committed only now [SFIO-S025]" for each in said}

    @staticmethod
    def subject(path: str) -> str:
        name = os.fsencode(os.path.basename(path)).decode(errors="replace")
        return f"{name} was" if path else "its files were"

    def closes(self, output: Output, rule: Rule, path: str) -> int:
        """The closes that were told, which can be fewer than there were: of a file the last number, or of all files."""
        told = [event for event in self.told if event["event"] == "closed" and event["port"] == output.port]
        own = [event for event in told if output.rule(self.key(event)[1]) is rule]
        numbers = [int(str(event["closes"])) for event in own if self.key(event)[1] == path]
        return numbers[-1] if path and numbers else 0 if path else len(own)
