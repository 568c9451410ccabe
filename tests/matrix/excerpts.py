"""Each consumer with the first bytes of its file, as a rehearsal tries them, and with all of it.

What the first bytes prove has to hold for the file: `python -m tests.matrix.excerpts [--only PATTERN]`.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from lab.node import Node, node
from streamflow_io.proofs.rehearsal import next_with_excerpt
from streamflow_io.proofs.rehearsal_rules import Finding, Manner, Ran, next_manner
from streamflow_io.records.learned import extents
from streamflow_io.records.learned.proofs import Way
from tests.matrix.building import MissingError, Workshop
from tests.matrix.consumers import CONSUMERS
from tests.matrix.parts import environment, plan, prepare
from tests.matrix.programs import Consumer
from tests.matrix.running import LIMIT, Files, _difference, _directories, _files, _native

#: An excerpt has one part of this many of its file. That is enough for a proof here.
SHARE = 4


@dataclass(frozen=True)
class Judged:
    """
    :ivar first: how the first bytes prove that it reads a stream; None means that they prove nothing
    :ivar whole: what all of the file shows
    :ivar difference: what differs when it reads all of it as the first bytes have proven; empty: nothing
    """

    first: Way | None
    whole: Finding
    difference: str = ""

    @property
    def is_wrong(self) -> bool:
        return self.first is not None and bool(self.whole.way is None or self.difference)

    def __str__(self) -> str:
        proves = {"net": "prove it", "pipe": "prove it with a pipe", None: "do not prove it"}[self.first]
        whole = f"the first bytes {proves}, and the file {_shown(self.whole)}"
        return f"{whole}, but it differs: {self.difference}" if self.difference else whole


def judge(workshop: Workshop, consumer: Consumer, base: Path) -> Judged:
    """Judge what the first bytes of a file prove, whether that is right, and what all of it shows.

    :raises MissingError: when something is not on this machine
    """
    base.mkdir()
    prepare(workshop, consumer)
    with node(base) as runtime:
        trial = _Trial(workshop, consumer, runtime)
        first = trial.first()
        if first is None or first.way is None or first.excerpt is None:
            return Judged(None, trial.whole())
        return Judged(first.way, trial.whole(), trial.streamed(first.way, first.excerpt))


class _Trial:
    def __init__(self, workshop: Workshop, consumer: Consumer, runtime: Node) -> None:
        self.workshop = workshop
        self.runtime = runtime
        self.parts = plan(consumer)
        self.produce, self.consume, self.control = _directories(runtime.base / "trial")
        (self.control / "go").touch()
        (self.control / "end").touch()
        _native(workshop, self.parts.producer, self.produce, self.control, None)
        self.file = self.produce / "out" / self.parts.producer.name
        self.count = 0

    def first(self) -> Finding | None:
        excerpt = self.produce / "first"
        words = ["excerpt", "--of", self.file, "--to", excerpt, "--bytes", str(self.file.stat().st_size // SHARE)]
        subprocess.run([self.runtime.binary, *words], check=True, stdout=subprocess.DEVNULL)
        size, whole = excerpt.stat().st_size, self.file.stat().st_size
        plain, _ = self.run("file", self.file)
        so_far: list[tuple[Manner, Ran]] = []
        made: list[Files] = []
        while isinstance(following := next_with_excerpt(so_far, size, [whole]), str):
            files, ran = self.run(following, excerpt, self.file)
            different = _difference(made[0], files) if made else _unlike(plain, files)
            so_far.append((following, replace(ran, difference=different or None)))
            made.append(files)
        return following

    def streamed(self, way: Way, excerpt: int) -> str:
        """Return the differences when it reads all of the file as it would in a run; empty: none."""
        plain, _ = self.run("file", self.file)
        files, ran = self.run("net", self.file, pipe=excerpt if way == "pipe" else None)
        return _difference(plain, files) or ("" if ran.succeeded else ran.ended)

    def whole(self) -> Finding:
        so_far: list[tuple[Manner, Ran]] = []
        plain, natively = self.run("file", self.file)
        while isinstance(following := next_manner(so_far, self.file.stat().st_size, natively.cpu), str):
            files, ran = self.run(following, self.file)
            so_far.append((following, replace(ran, difference=_difference(plain, files) or None)))
        return following

    def run(self, manner: Manner, read: Path, of: Path | None = None, pipe: int | None = None) -> tuple[Files, Ran]:
        """Run it with a file: as it is, or as a stream; as the first bytes of another one, if there is one.

        :param pipe: the number of bytes that are a pipe under the net
        """
        consumer = self.parts.consumer
        shutil.rmtree(self.consume)
        target = self.consume / "in" / consumer.name
        target.parent.mkdir(parents=True)
        command = {"stdout": str(self.consume / "stdout"), "stderr": str(self.runtime.base / "stderr")}
        spec: dict[str, object] = {"command": command}
        if manner in ("net", "pipe"):
            where: dict[str, object] = {"stdin": True} if consumer.stdin else {"fifo": str(target)}
            stream = {"name": "in", "port": "out", "path": str(read), "target": where, "replay": True}
            net = {"net": True} if manner == "net" else {}
            spec["streams"] = [{**stream, **net, **({} if pipe is None else {"pipe": pipe})}]
        else:
            target.symlink_to(read)
            command |= {"stdin": str(target)} if consumer.stdin else {}
            excerpt = {"name": "in", "path": str(target), "of": str(of)}
            spec |= {} if of is None else {"rehearsal": {"excerpts": [excerpt]}}
        self.count += 1
        name = f"j{self.count}"
        job = self.runtime.start(
            name,
            consumer.command,
            environment=environment(self.workshop, consumer.name, self.control),
            wrapper=("env", "-C", str(self.consume)),
            job=json.dumps({"name": name, **spec}),
        )
        try:
            code = job.wait(LIMIT)
        except subprocess.TimeoutExpired:
            job.cancel()
            code = job.wait(LIMIT)
        exit_event, held = job.exit(), job.named("held")
        streams = {event["name"]: event["bytes"] for event in job.named("stream")}
        usage = exit_event["usage"]
        ran = Ran(
            code == 0,
            exit_event["reason"],
            read=(sum(streams.values()),),
            held_at=held[0]["bytes"] if held else None,
            call=held[0]["call"] if held else "",
            asked=bool(job.named("asked")) or any("input" in event for event in job.named("warning")),
            cpu=usage["user"] + usage["system"] + usage["wrapper_cpu"],
        )
        return _files(self.consume), ran


def _unlike(plain: Files, files: Files) -> str:
    unlike = (name for name in plain if name not in files or bool(plain[name]) != bool(files[name]))
    return next(unlike, "")


def _attempt(workshop: Workshop, consumer: Consumer, base: Path) -> Judged | str:
    try:
        return judge(workshop, consumer, base)
    except MissingError as missing:
        return f"{missing} is not installed"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _shown(finding: Finding) -> str:
    if not finding.is_known:
        return "shows nothing"
    return {"net": "proves", "pipe": "is read by a pipe", None: "refutes"}[finding.way]


def main() -> int:
    """Returns 0 if the first bytes prove nothing that the file refutes."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.excerpts", description=__doc__)
    parser.add_argument("--only", default="", help="a regular expression for the names of consumers")
    parser.add_argument("--scale", type=int, default=4, help="data are so much larger (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="consumers at the same time (default: %(default)s)")
    arguments = parser.parse_args()
    chosen = [consumer for consumer in CONSUMERS if re.search(arguments.only, consumer.name)]
    counted: Counter[str] = Counter()
    wrong = 0
    enough = patch.object(extents, "ENOUGH", 1)
    with enough, tempfile.TemporaryDirectory(prefix="excerpts-") as scratch, ThreadPoolExecutor(arguments.jobs) as pool:
        workshop = Workshop(Path(scratch), arguments.scale)
        bases = [Path(scratch, f"case{number}") for number in range(len(chosen))]
        found = pool.map(lambda consumer, base: _attempt(workshop, consumer, base), chosen, bases)
        for consumer, outcome in zip(chosen, found, strict=True):
            if isinstance(outcome, str):
                what = "not tried"
                print(f"{consumer.name}: {what}: {outcome[-300:]}", flush=True)
            else:
                what = str(outcome)
                wrong += outcome.is_wrong
                print(f"{consumer.name}: {what} {outcome.whole.reason or ''}", flush=True)
            counted[what] += 1
    for what, count in counted.most_common():
        print(f"{count:4} {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
