"""Runs one case of the matrix: natively, and under `sfio-node` without StreamFlow, and compares."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from lab.node import Job, Node, node, wait_for
from tests.matrix.building import Workshop
from tests.matrix.directories import FILES
from tests.matrix.parts import Part, environment, limit_field, plan, prepare
from tests.matrix.programs import Case, Outcome, Program

#: Seconds that a program may take; what takes longer hangs.
LIMIT = 30.0
#: Seconds until a consumer that still computes is taken to be as far as it gets with half of its input.
SETTLING = 2.0
#: What a stopped job exits with.
STOPPED = 75

Files = dict[str, bytes]


@dataclass(frozen=True)
class Observation:
    """An observation: the outcome, and its description."""

    outcome: Outcome
    detail: str = ""


def _files(directory: Path) -> Files:
    """The files that a consumer has left in its directory, without its input: file contents, links, directories."""
    found: Files = {}
    for top, directories, files in os.walk(directory):
        if Path(top) == directory:
            directories.remove("in")
        for name in (*directories, *files):
            path = Path(top, name)
            key = str(path.relative_to(directory))
            if path.is_symlink():
                found[key] = b"link to " + os.path.basename(os.readlink(path)).encode()
            elif path.is_dir():
                found[key] = b"directory"
            else:
                found[key] = path.read_bytes() if path.is_file() else b"neither a file nor a directory"
    return found


def _difference(expected: Files, found: Files) -> str:
    """Says what differs first; empty: nothing."""
    for name in sorted({*expected, *found}):
        if name not in expected or name not in found:
            return f"{name} is {'missing' if name in expected else 'new'}"
        for line, (right, wrong) in enumerate(zip_longest(*(files[name].splitlines() for files in (expected, found)))):
            if right != wrong:
                return f"{name}, line {line + 1}: {_short(wrong)} instead of {_short(right)}"
        if expected[name] != found[name]:
            return f"{name}: ends of lines"
    return ""


def _short(line: bytes | None) -> str:
    return "nothing" if line is None else repr(line[:80])[1:]


def natively(workshop: Workshop, program: Program, base: Path) -> Files:
    """Runs the producer, and then the consumer, without sfio-node; returns what the consumer left.

    :raises AssertionError: when one of them fails: the table is wrong.
    """
    parts = plan(program)
    produce, consume, control = _directories(base)
    (control / "go").touch()
    (control / "end").touch()
    _native(workshop, parts.producer, produce, control, None)
    source, target = produce / "out" / parts.producer.name, consume / "in" / parts.consumer.name
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, copy_function=os.link)
    else:
        target.symlink_to(source)
    _native(workshop, parts.consumer, consume, control, target if parts.consumer.stdin else None)
    found = _files(consume)
    assert any(found.values()), f"{program.name} has no output at all: nothing can be compared"
    return found


def _native(workshop: Workshop, part: Part, place: Path, control: Path, stdin: Path | None) -> None:
    with (place / "stdout").open("wb") as out, open(stdin or os.devnull, "rb") as source:
        env = environment(workshop, part.name, control)
        done = subprocess.run(
            part.command, cwd=place, env=env, stdin=source, stdout=out, stderr=subprocess.PIPE, timeout=LIMIT
        )
    assert done.returncode == 0, f"natively {part.command} exits with {done.returncode}: {done.stderr.decode()}"


def _directories(base: Path) -> tuple[Path, Path, Path]:
    produce, consume, control = base / "producer", base / "consumer", base / "control"
    for made in (produce / "out", consume / "in", control):
        made.mkdir(parents=True)
    return produce, consume, control


def observe(workshop: Workshop, chosen: Sequence[Case], base: Path) -> list[Observation]:
    """Runs one program natively, and then under the rules of the chosen cases, all at once: they mostly wait.

    :raises MissingError: when something is not on this machine.
    :raises AssertionError: when it fails natively (the table is wrong), or something is left behind.
    """
    base.mkdir(exist_ok=True)
    prepare(workshop, chosen[0].program)
    expected = natively(workshop, chosen[0].program, base / "native")

    def one(runtime: Node, number: int) -> Observation:
        try:
            return _Run(workshop, chosen[number], runtime, str(number)).observe(expected)
        except AssertionError as error:
            return Observation(Outcome.ERROR, str(error))

    with node(base) as runtime, ThreadPoolExecutor(len(chosen)) as pool:
        return list(pool.map(lambda number: one(runtime, number), range(len(chosen))))


class _Start:
    """A file that programs read to its end before they go on: the end comes when it is given."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._path = path
        self._kept: int | None = os.open(path, os.O_RDWR)

    def give(self) -> None:
        if self._kept is not None:
            # Consumers that come later find an empty file.
            empty = self._path.with_name(f"{self._path.name}.empty")
            empty.touch()
            empty.replace(self._path)
            os.close(self._kept)
            self._kept = None


class _Run:
    def __init__(self, workshop: Workshop, case: Case, runtime: Node, name: str) -> None:
        self.case = case
        self.base = runtime.base / name
        self.names = f"p{name}", f"c{name}"
        self.runtime = runtime
        self.workshop = workshop
        self.parts = plan(case.program)
        self.produce, self.consume, self.control = _directories(self.base)
        self.go, self.end = (_Start(self.control / name) for name in ("go", "end"))

    def observe(self, expected: Files) -> Observation:
        try:
            return self._observe(expected)
        finally:
            self.go.give()
            self.end.give()

    def _observe(self, expected: Files) -> Observation:
        held = self.case.rule.delivery in ("gate", "directory")
        if self.case.rule.committed == "on_termination" or not self.parts.stays:
            self.end.give()
        if held:
            consumer = self.start_consumer()
            early = self.ended_early(consumer)
            producer = self.start_producer()
        else:
            producer, consumer = self.start_producer(), self.start_consumer()
            early = False
        half = self.control / "go.half"
        wait_for(lambda: half.exists() or producer.process.poll() is not None, "the producer's first half", LIMIT)
        early = self.ended_early(consumer) or early
        self.go.give()
        observation = self.wait(consumer, expected)
        self.end.give()
        try:
            code = producer.wait(LIMIT)
        except subprocess.TimeoutExpired:
            _kill(producer)
            return Observation(Outcome.HANGS, "the producer")
        assert code == 0, f"the producer exits with {code}: {_text(self.base / 'stderr-p')}"
        if held and early and observation.outcome in (Outcome.EQUAL, Outcome.DIFFERS):
            return Observation(
                Outcome.NOT_HELD, f"ended before the commit: {observation.outcome.value}: {observation.detail}"
            )
        return self.paused_enough(producer, observation)

    def paused_enough(self, producer: Job, observation: Observation) -> Observation:
        """Says so where a program that writes its file has never been paused, although it moves enough."""
        limit = self.case.rule.limit
        # The kernel's writes for a process are not seen any more if the process has ended, and was not waited for.
        if limit is None or limit.storage or self.parts.tried is not self.parts.producer:
            return observation
        return observation if producer.exit()["usage"]["pauses"] else Observation(Outcome.NOT_PAUSED)

    def start_producer(self) -> Job:
        rule, parts = self.case.rule, self.parts
        closes = parts.closes if rule.committed == "on_close" else None
        commit = {
            "globs": [],
            "committed": rule.committed,
            **({"closes": closes} if closes else {}),
            **({"n_files": FILES} if rule.committed == "on_n_files" else {}),
        }
        output = {
            "port": "out",
            "root": str(self.produce / "out"),
            "kind": parts.kind,
            "globs": list(parts.globs),
            "rules": [commit],
        }
        # The producer goes on until its consumer has ended, so that only a commit before its end will do.
        stay = ["sh", "-ec", '"$@"; read -r line < "$END" || :', "sh", *parts.producer.command]
        return self.start(self.names[0], stay, parts.producer, self.produce, {"outputs": [output]})

    def start_consumer(self) -> Job:
        parts, rule = self.parts, self.case.rule
        source, target = self.produce / "out" / parts.producer.name, self.consume / "in" / parts.consumer.name
        events = self.runtime.run / "jobs" / self.names[0] / "events.jsonl"
        edge: dict[str, object] = {"name": "in", "port": "out", "path": str(source), "events": str(events)}
        edge |= {"net": True} if rule.net else {}
        if rule.delivery == "stdin":
            fields: dict[str, object] = {"streams": [{**edge, "target": {"stdin": True}}]}
        elif rule.delivery == "fifo":
            fields = {"streams": [{**edge, "target": {"fifo": str(target)}}]}
        else:
            kind = "directory" if rule.delivery == "directory" else "file"
            mode = {"mode": rule.mode} if kind == "directory" else {}
            fields = {"gates": [{**edge, "target": str(target), "kind": kind, **mode}]}
        result = {"port": "result", "root": str(self.consume), "kind": "file", "globs": ["stdout"], "rules": []}
        return self.start(
            self.names[1], parts.consumer.command, parts.consumer, self.consume, {**fields, "outputs": [result]}
        )

    def start(self, name: str, command: Sequence[str], part: Part, place: Path, fields: dict[str, object]) -> Job:
        limit = self.case.rule.limit if part is self.parts.tried else None
        limited = {} if limit is None else {"limit": limit_field(limit, place)}
        return self.runtime.start(
            name,
            command,
            environment=environment(self.workshop, part.name, self.control),
            wrapper=("env", "-C", str(place)),
            job=json.dumps(
                {
                    "name": name,
                    "command": {"stdout": str(place / "stdout"), "stderr": str(self.base / f"stderr-{name[0]}")},
                    **fields,
                    **limited,
                }
            ),
        )

    def ended_early(self, consumer: Job) -> bool:
        """Lets the consumer go on until it can go no further, and returns whether it has ended."""
        deadline = time.monotonic() + SETTLING
        before: dict[int, str] = {}
        while time.monotonic() < deadline and consumer.process.poll() is None:
            now = _activity(consumer)
            if now and now == before and not any(line.startswith("R") for line in now.values()):
                return False
            before = now
            time.sleep(0.01)
        return consumer.process.poll() is not None

    def wait(self, consumer: Job, expected: Files) -> Observation:
        try:
            code = consumer.wait(LIMIT)
        except subprocess.TimeoutExpired:
            stacks = "; ".join(_activity(consumer).values())
            _kill(consumer)
            return Observation(Outcome.HANGS, stacks)
        said = _text(self.base / "stderr-c")
        fifos = [path for path in self.consume.rglob("*") if path.is_fifo()]
        if code == 0:
            difference = _difference(expected, _files(self.consume))
            for path in fifos:  # what the program itself has made or moved
                if path.parent != self.consume / "in":
                    path.unlink()
            if difference:
                return Observation(Outcome.DIFFERS, f"{difference}; {said}")
            warnings = (str(event["message"]) for event in consumer.named("warning"))
            asked = consumer.named("held") or any("waits for the whole file" in warning for warning in warnings)
            return Observation(Outcome.WAITS if asked else Outcome.EQUAL)
        committed = consumer.committed()
        if fifos or committed:
            return Observation(
                Outcome.WRONG_COMMIT, f"exit {code}, FIFOs {list(map(str, fifos))}, committed {committed}"
            )
        if code == STOPPED:
            event = consumer.exit()
            outcome = Outcome.AGAIN if event["reason"] == "unstreamable" else Outcome.STOPPED
            return Observation(outcome, f"{event['reason']}: {event.get('message', '')}")
        return Observation(Outcome.FAILS, f"exit {code}: {said}")


def _activity(job: Job) -> dict[int, str]:
    """State and CPU time of each process of a job's command, by its number; empty before it runs."""
    started = job.named("started")
    pids = [int(str(event["command_pid"])) for event in started]
    found: dict[int, str] = {}
    while pids:
        pid = pids.pop()
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
        except OSError:
            continue
        found[pid] = f"{fields[0]} {fields[11]} {fields[12]}"
    return found


def _text(path: Path) -> str:
    """The first lines of the output of a program."""
    return " ".join(path.read_text(errors="replace").split("\n")[:3]).strip() if path.exists() else ""


def _kill(job: Job) -> None:
    job.process.terminate()
    try:
        job.process.wait(4)
    except subprocess.TimeoutExpired:
        job.process.kill()  # serve then kills what is left of its tree
        job.process.wait()
