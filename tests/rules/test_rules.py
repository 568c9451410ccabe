"""`sfio-node exec` against the model of the commit rules, with a producer that does whatever hypothesis thinks of.

`SFIO_RULES_EXAMPLES=1000 pytest tests/rules` is a long run, with other examples each time; a failure prints how to
repeat it. `SFIO_RULES_SHRINK=1` has hypothesis look for a smaller one, which takes minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lab.node import Node, node, output

from .files import Fact, Files, How
from .judge import GRACE, MEETING, Judge
from .model import Output
from .strategies import DIRECTORIES, PATHS, entry, outputs

EXAMPLES = int(os.environ.get("SFIO_RULES_EXAMPLES", "0"))
SHRINK = "SFIO_RULES_SHRINK" in os.environ
PRODUCER = Path(__file__).with_name("producer.py")


class Machine(RuleBasedStateMachine):
    """A job, the actions of its processes, and the judge of the reports about it."""

    runtime: Node
    count = 0

    @initialize(outputs=outputs(), ending=st.sampled_from([0, 0, 0, 3, -9]))
    def start(self, outputs: tuple[Output, ...], ending: int) -> None:
        Machine.count += 1
        root, meeting = (self.runtime.base / f"{name}{Machine.count}" for name in ("out", "meeting"))
        root.mkdir()
        meeting.mkdir()
        self.ending = ending
        self.children: set[int] = set()
        self.steps = 0
        self.job = self.runtime.start(
            f"j{Machine.count}",
            [sys.executable, "-IS", PRODUCER, root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            outputs=[*(entry(root, each) for each in outputs), output(meeting, "*", kind="files", port=MEETING)],
        )
        self.judge = Judge(self.job, root, outputs, meeting)
        self.job.wait_for("started")

    @property
    def files(self) -> Files:
        return self.judge.files

    def tell(self, *step: object) -> None:
        """Has the producer do something; returns when it is done."""
        process = self.job.process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(step).encode() + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ok\n", f"the producer cannot do {step}"

    def tell_process(self, process: int, *step: object) -> None:
        self.tell(*(("child", process) if process else ()), *step)

    def number(self) -> int:
        self.steps += 1
        return self.steps

    @property
    def processes(self) -> list[int]:
        return [0, *sorted(self.children)]

    def process(self, choice: int) -> int:
        return self.processes[choice % len(self.processes)]

    def make_place(self, path: str) -> None:
        """Makes the directory of a file."""
        if (directory := path.rpartition("/")[0]) not in self.files.directories:
            self.tell("mkdir", directory)
            self.files.make_directory(directory)

    def existing(self, choice: int) -> str:
        return sorted(self.files.names)[choice % len(self.files.names)]

    @rule(choice=st.integers(0, 3), path=st.sampled_from(PATHS), how=st.sampled_from(["w", "a", "r+"]))
    def open(self, choice: int, path: str, how: How) -> None:
        self.make_place(path)
        process, slot = self.process(choice), self.number()
        self.tell_process(process, "open", slot, path, how)
        self.judge.take(self.files.open(process, slot, path, how))

    @precondition(lambda self: self.files.openings)
    @rule(choice=st.integers(0, 9), size=st.integers(1, 100))
    def write(self, choice: int, size: int) -> None:
        opening = self.files.openings[choice % len(self.files.openings)]
        process, slot = min(opening.descriptors)
        self.tell_process(process, "write", slot, "w" * size)
        opening.name.inode.version += 1

    @precondition(lambda self: self.files.openings)
    @rule(choice=st.integers(0, 9))
    def dup(self, choice: int) -> None:
        opening = self.files.openings[choice % len(self.files.openings)]
        process, slot = min(opening.descriptors)
        other = self.number()
        self.tell_process(process, "dup", slot, other)
        opening.descriptors.add((process, other))

    @precondition(lambda self: self.files.openings)
    @rule(choice=st.integers(0, 9), last=st.booleans())
    def close(self, choice: int, last: bool) -> None:
        opening = self.files.openings[choice % len(self.files.openings)]
        process, slot = max(opening.descriptors) if last else min(opening.descriptors)
        self.tell_process(process, "close", slot)
        self.judge.take(self.files.close(process, slot))

    @rule(path=st.sampled_from(PATHS), empty=st.booleans())
    def make(self, path: str, empty: bool) -> None:
        self.make_place(path)
        self.tell("make", path, "" if empty else "made")
        self.judge.take(self._make(path, empty))

    def _make(self, path: str, empty: bool = False) -> list[Fact]:
        facts = self.files.open(0, -1, path, "w")
        self.files.names[path].inode.version += not empty
        return facts + self.files.close(0, -1)

    @rule(directory=st.sampled_from(DIRECTORIES), names=st.lists(st.sampled_from(["a.x", "b.x", "c.y"]), unique=True))
    def make_directory_and_fill_it(self, directory: str, names: list[str]) -> None:
        paths = [f"{directory}/{name}" for name in names]
        paths = [path for path in paths if path not in self.files.names]
        self.tell(["mkdir", directory], *(["make", path, "made"] for path in paths))
        self.files.make_directory(directory)
        self.judge.take_in_any_order([self._make(path) for path in paths])

    @rule(
        path=st.sampled_from(PATHS),
        final=st.sampled_from(PATHS),
        then=st.sampled_from(["rename", "rename", "remove", "remake"]),
    )
    def make_and_at_once(self, path: str, final: str, then: str) -> None:
        """Makes a file, and renames it, removes it, or removes and makes it again, before any process can look."""
        if self.is_same(path, final):
            return
        self.make_place(path)
        self.make_place(final)
        steps = {"rename": ["rename", path, final], "remove": ["remove", path], "remake": ["remove", path]}
        again = [["make", path, "again"]] if then == "remake" else []
        self.tell(["make", path, "made"], steps[then], *again)
        made = self._make(path)
        facts = self.files.rename(path, final) if then == "rename" else self.files.remove(path)
        self.judge.take_perhaps(made, facts + (self._make(path) if again else []))

    @precondition(lambda self: self.files.names)
    @rule(choice=st.integers(0, 9), other=st.sampled_from(PATHS))
    def rename(self, choice: int, other: str) -> None:
        path = self.existing(choice)
        if not self.is_same(path, other):
            self.make_place(other)
            self.tell("rename", path, other)
            self.judge.take(self.files.rename(path, other))

    def is_same(self, path: str, other: str) -> bool:
        """Whether two names are of one file: then a rename does nothing."""
        names = [self.files.names.get(p) for p in (path, other)]
        return path == other or (None not in names and names[0].inode is names[1].inode)  # type: ignore[union-attr]

    @precondition(lambda self: self.files.names)
    @rule(choice=st.integers(0, 9), other=st.sampled_from(PATHS))
    def link(self, choice: int, other: str) -> None:
        if other not in self.files.names:
            path = self.existing(choice)
            self.make_place(other)
            self.tell("link", path, other)
            self.judge.take(self.files.link(path, other))

    @precondition(lambda self: self.files.names)
    @rule(choice=st.integers(0, 9))
    def remove(self, choice: int) -> None:
        path = self.existing(choice)
        self.tell("remove", path)
        self.judge.take(self.files.remove(path))

    @rule(path=st.sampled_from(DIRECTORIES), other=st.sampled_from(DIRECTORIES))
    def rename_directory(self, path: str, other: str) -> None:
        few = sum(name.startswith(path + "/") for name in self.files.names) <= 5
        if few and self.files.can_move(path, other):
            self.tell("rename", path, other)
            removed, found = self.files.rename_directory(path, other)
            self.judge.note(self.judge.models, removed)
            self.judge.take_in_any_order(found)

    @precondition(lambda self: self.files.names)
    @rule(choice=st.integers(0, 9))
    def touch(self, choice: int) -> None:
        path = self.existing(choice)
        self.tell("touch", path)
        self.files.names[path].inode.touched += 1

    @precondition(lambda self: len(self.children) < 3)
    @rule()
    def fork(self) -> None:
        child = self.number()
        self.tell("fork", child)
        self.files.fork(0, child)
        self.children.add(child)

    @precondition(lambda self: self.children)
    @rule(choice=st.integers(0, 3), how=st.sampled_from([0, 0, 1, -9]))
    def end_child(self, choice: int, how: int) -> None:
        self.end_process(sorted(self.children)[choice % len(self.children)], how)

    def end_process(self, child: int, how: int) -> None:
        """Ends a child; -9: by SIGKILL. What it had open is closed by its death."""
        # As long as a process is dying, closes by others are held: none of them may meet its end.
        time.sleep(GRACE)
        self.children.remove(child)
        self.tell("child", child, *(["kill"] if how < 0 else ["exit", how]))
        facts = self.files.end(child, badly=how != 0)
        # How it died is known only while it is there.
        time.sleep(5 * GRACE if how else GRACE)
        self.tell("reap", child)
        time.sleep(GRACE)
        self.judge.take_in_any_order(facts)

    @rule()
    def pause(self) -> None:
        """Nothing happens, and nothing may be said."""
        time.sleep(GRACE)
        self.judge.settle()

    def teardown(self) -> None:
        if not hasattr(self, "job"):
            return
        try:
            self.end()
        finally:
            self.job.process.kill()
            for pipe in (self.job.process.stdin, self.job.process.stdout):
                assert pipe is not None
                pipe.close()

    def end(self) -> None:
        for child in sorted(self.children):
            self.end_process(child, 0)
        self.judge.settle()
        process = self.job.process
        assert process.stdin is not None
        process.stdin.write(json.dumps(["kill"] if self.ending < 0 else ["exit", self.ending]).encode() + b"\n")
        process.stdin.flush()
        assert self.job.wait() == self.ending
        facts = [fact for group in self.files.end(0, badly=True) for fact in group]
        self.judge.end(facts, success=self.ending == 0)


@pytest.mark.timeout(100 + 4 * EXAMPLES)
def test_what_is_told_is_what_the_rules_say(tmp_path: Path) -> None:
    with node(tmp_path) as runtime:
        machine = type("Bound", (Machine,), {"runtime": runtime})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=EXAMPLES or 10,
                stateful_step_count=30 if EXAMPLES else 20,
                derandomize=not EXAMPLES,
                print_blob=True,
                phases=[Phase.explicit, Phase.generate, *([Phase.shrink] if SHRINK else [])],
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
