"""Producers that have another `serve` on the same kernel, as in another container: it may be gone with all it knew.

What the producer's events name may have another path here.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.node import Event, Job, Node, built, ended, node, output, wait_for

#: Follows the lines of its standard input: `open NAME`, `write`, `close`, `end`.
PRODUCER = """
import sys
for line in sys.stdin:
    word, name = (line.split() + [""])[:2]
    if word == "open": file = open(name, "wb", 0)
    elif word == "write": file.write(bytes(range(250)) * 4)
    elif word == "close": file.close()
    elif word == "end": sys.exit()
"""
PIECE = bytes(range(250)) * 4
WAYS = ["fifo", "stdin", "gate", "update", "no_update"]
#: The same files at another place, and nothing at the first one: the arguments are both, and then a command.
MOVED = ["unshare", "--mount", "sh", "-c"]
MOVED += ['one=$1 other=$2; shift 2; mount --bind $one $other && mount -t tmpfs tmpfs $one && exec "$@"', "sh"]


@dataclass
class Elsewhere:
    """A node with a producer, which will be killed, and one with its readers."""

    one: Node
    two: Node
    way: str = "fifo"

    def __post_init__(self) -> None:
        self.out = self.one.base / "out"

    @property
    def is_directory(self) -> bool:
        return self.way in ("update", "no_update")

    def produce(self, committed: str = "on_close", **rule: object) -> Job:
        """Starts a producer of `out/p`, a file or a directory."""
        if self.is_directory:
            (self.out / "p").mkdir()
        kind = "directory" if self.is_directory else "file"
        outputs = [output(self.out, "p", committed, kind, **rule)]
        words = ["env", f"--chdir={self.out}", sys.executable, "-ISuc", PRODUCER]
        return self.one.start("p", words, outputs=outputs, stdin=subprocess.PIPE)

    @property
    def copy(self) -> Path:
        return self.two.base / "copy"

    def read(self, name: str = "c", wrapper: Sequence[str] = (), **fields: object) -> Job:
        """Starts a reader of it, which writes `copy`, and then `end`."""
        target = self.two.base / "in" / f"{name}-f"
        place = {"name": "in", "port": "out", "path": str(self.out / "p"), "lock": True, **fields}
        place["events"] = str(self.one.run / "jobs" / "p" / "events.jsonl")
        end = f"{self.copy} && touch {self.two.base}/end"
        inputs: dict[str, object]
        if self.is_directory:
            script = f"for i in $(ls {target}); do cat {target}/$i; done > {end}"
            inputs = {"gates": [{**place, "target": str(target), "kind": "directory", "mode": self.way}]}
        elif self.way == "gate":
            script, inputs = f"cat {target} > {end}", {"gates": [{**place, "target": str(target), "kind": "file"}]}
        elif self.way == "fifo":
            script, inputs = f"cat {target} > {end}", {"inputs": [{**place, "target": {"fifo": str(target)}}]}
        else:
            script, inputs = f"cat > {end}", {"inputs": [{**place, "target": {"stdin": True}}]}
        return self.two.shell(name, script, wrapper=wrapper, **inputs)

    def kill(self) -> float:
        """Kills all of the producer's node at once, as the end of a container does; returns when."""
        for job in self.one.jobs:
            os.kill(job.process.pid, signal.SIGSTOP)
        self.one.server.kill()
        self.one.server.wait()
        when = time.monotonic()
        for job in self.one.jobs:
            job.process.kill()
            job.process.wait()
        return when

    def has_ended_well(self) -> bool:
        return (self.two.base / "end").exists()


def tell(job: Job, *words: str) -> None:
    assert job.process.stdin is not None
    job.process.stdin.write(f"{' '.join(words)}\n".encode())
    job.process.stdin.flush()


def make(base: Path, way: str) -> Iterator[Elsewhere]:
    for name in ("one", "two"):
        for directory in ("out", "in"):
            (base / name / directory).mkdir(parents=True)
    with node(base / "two") as two, ended(Node(built(), base / "one")) as one:
        yield Elsewhere(one, two, way)
        if one.server.poll() is not None:
            shutil.rmtree(one.run)


@pytest.fixture(params=WAYS)
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Elsewhere]:
    yield from make(tmp_path, request.param)


@pytest.fixture
def bytes_elsewhere(tmp_path: Path) -> Iterator[Elsewhere]:
    yield from make(tmp_path, "fifo")


def file_of(elsewhere: Elsewhere, number: int) -> str:
    return f"p/{number}" if elsewhere.is_directory else "p"


def begin(elsewhere: Elsewhere, producer: Job) -> None:
    """Writes something that is not all."""
    if elsewhere.is_directory:
        tell(producer, "open", "p/1")
        tell(producer, "write")
        tell(producer, "close")
        producer.wait_for("entry")
    tell(producer, "open", file_of(elsewhere, 2))
    tell(producer, "write")
    producer.wait_for("opened")


def before_the_first_byte(elsewhere: Elsewhere, producer: Job) -> None:
    producer.wait_for("started")


def in_the_middle(elsewhere: Elsewhere, producer: Job) -> None:
    begin(elsewhere, producer)
    if elsewhere.way in ("fifo", "stdin"):
        wait_for(lambda: elsewhere.copy.exists() and elsewhere.copy.stat().st_size == len(PIECE), "what was fed")


def before_the_commit(elsewhere: Elsewhere, producer: Job) -> None:
    begin(elsewhere, producer)
    tell(producer, "close")
    tell(producer, "open", "other")
    wait_for((elsewhere.out / "other").exists, "the close")


MOMENTS = [before_the_first_byte, in_the_middle, before_the_commit]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_node_that_is_gone_is_no_end(elsewhere: Elsewhere, moment: Callable[[Elsewhere, Job], None]) -> None:
    if moment is before_the_commit:
        producer = (
            elsewhere.produce("on_n_files", n_files=9)
            if elsewhere.is_directory
            else elsewhere.produce("on_termination")
        )
    else:
        producer = elsewhere.produce()
    consumer = elsewhere.read()
    consumer.wait_for("started")
    moment(elsewhere, producer)
    killed = elsewhere.kill()
    assert consumer.wait() == 75
    assert time.monotonic() - killed < 5
    end = consumer.exit()
    assert (end["reason"], end["input"]) == ("producer", "in")
    assert end["message"] == f"the producer of {elsewhere.out}/p is gone"
    assert not elsewhere.has_ended_well()
    assert not [event for event in producer.events() if event["event"] == "exit"]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_commit_is_final(elsewhere: Elsewhere, late: bool) -> None:
    """Whether the reader has begun before the producer's node is gone, or begins after that."""
    producer = elsewhere.produce("on_n_files", n_files=2) if elsewhere.is_directory else elsewhere.produce()
    consumer = None if late else elsewhere.read()
    begin(elsewhere, producer)
    tell(producer, "close")
    producer.wait_for("complete")
    elsewhere.kill()
    if consumer is None:
        consumer = elsewhere.read()
    assert consumer.wait() == 0
    assert elsewhere.has_ended_well()
    assert elsewhere.copy.read_bytes() == PIECE * (2 if elsewhere.is_directory else 1)


def test_a_slow_reader_of_what_is_committed(bytes_elsewhere: Elsewhere) -> None:
    """More than a pipe holds is still in the file when the producer's node is gone."""
    elsewhere = bytes_elsewhere
    producer = elsewhere.produce()
    tell(producer, "open", "p")
    for _ in range(3000):
        tell(producer, "write")
    tell(producer, "close")
    producer.wait_for("committed")
    fifo = elsewhere.two.base / "in" / "c-f"
    script = f"(head -c 100000; sleep 0.5; cat) < {fifo} > {elsewhere.copy}"
    stream = {**elsewhere.one.stream("p", elsewhere.out / "p", fifo), "lock": True}
    consumer = elsewhere.two.shell("c", script, inputs=[stream])
    wait_for(lambda: elsewhere.copy.exists() and elsewhere.copy.stat().st_size == 100_000, "the beginning")
    elsewhere.kill()
    assert consumer.wait() == 0
    assert elsewhere.copy.read_bytes() == PIECE * 3000


def test_who_has_not_begun_is_not_gone(elsewhere: Elsewhere) -> None:
    """Events that are not there, or empty, are those of a job that will start."""
    consumer = elsewhere.read()
    consumer.wait_for("started")
    directory = elsewhere.one.run / "jobs" / "p"
    time.sleep(0.3)
    directory.mkdir()
    (directory / "job.json").write_text('{"name":"p"}')
    time.sleep(0.3)
    assert consumer.process.poll() is None
    producer = elsewhere.produce("on_n_files", n_files=2) if elsewhere.is_directory else elsewhere.produce()
    begin(elsewhere, producer)
    tell(producer, "close")
    assert consumer.wait() == 0
    tell(producer, "end")
    assert producer.wait() == 0


def test_one_that_ends_well_is_not_gone(elsewhere: Elsewhere) -> None:
    producer = elsewhere.produce("on_termination")
    consumer = elsewhere.read()
    consumer.wait_for("started")
    for words in (("open", file_of(elsewhere, 1)), ("write",), ("end",)):
        tell(producer, *words)
    assert producer.wait() == 0
    assert consumer.wait() == 0
    assert elsewhere.has_ended_well()


def test_a_kill_at_any_time(bytes_elsewhere: Elsewhere, tmp_path: Path) -> None:
    """Whatever was committed then is read, and nothing else looks like an end."""
    one, two = bytes_elsewhere.one, bytes_elsewhere.two
    ends = set()
    for number in range(12):
        base = tmp_path / str(number)
        (base / "out").mkdir(parents=True)
        with ended(Node(built(), base)) as node:
            path, copy, fifo = base / "out" / "p", base / "copy", two.base / "in" / f"f{number}"
            script = f"head -c 300000 /dev/zero > {path}; : > {base}/out/q; sleep 5"
            producer = node.shell("p", script, outputs=[output(base / "out", "p", "on_close")])
            stream = {**node.stream("p", path, fifo), "lock": True}
            consumer = two.shell(f"c{number}", f"cat {fifo} > {copy} && touch {base}/end", inputs=[stream])
            producer.wait_for("started")
            time.sleep(random.Random(number).uniform(0, 0.012))
            Elsewhere(node, two).kill()
            committed = "committed" in [event["event"] for event in producer.events()]
            assert consumer.wait() == (0 if committed else 75), number
            assert (base / "end").exists() == committed
            assert not committed or copy.stat().st_size == 300_000
            ends.add(committed)
            shutil.rmtree(node.run)
            for pid in producer.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert one.server.poll() is None


# Names


def moved(elsewhere: Elsewhere) -> tuple[list[str], Path]:
    """A wrapper of readers, and where they see `out`."""
    other = elsewhere.one.base / "other"
    other.mkdir()
    wrapper = [*MOVED, str(elsewhere.out), str(other)]
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs root, for mounts of its own")
    return wrapper, other


def test_a_file_that_has_another_path_here(elsewhere: Elsewhere) -> None:
    wrapper, other = moved(elsewhere)
    producer = elsewhere.produce("on_n_files", n_files=2) if elsewhere.is_directory else elsewhere.produce()
    consumer = elsewhere.read(wrapper=wrapper, path=str(other / "p"), named=str(elsewhere.out / "p"))
    consumer.wait_for("started")
    begin(elsewhere, producer)
    tell(producer, "close")
    assert consumer.wait() == 0
    assert elsewhere.copy.read_bytes() == PIECE * (2 if elsewhere.is_directory else 1)
    tell(producer, "end")
    assert producer.wait() == 0


def test_a_part_has_the_path_that_it_has_there(bytes_elsewhere: Elsewhere) -> None:
    elsewhere = bytes_elsewhere
    wrapper, other = moved(elsewhere)
    producer = elsewhere.produce("on_termination")
    begin(elsewhere, producer)
    fifo = elsewhere.two.base / "in" / "f"
    stream: Event = {**elsewhere.one.stream("p", other / "p", fifo), "named": str(elsewhere.out / "p")}
    consumer = elsewhere.two.shell("c", f"head -c 10 {fifo} > {elsewhere.copy}", inputs=[stream], wrapper=wrapper)
    assert consumer.wait() == 0
    part = consumer.named("stream")[0]["part"]
    assert isinstance(part, dict)
    assert part["path"] == str(elsewhere.out / "p")
    tell(producer, "end")
    assert producer.wait() == 0


def test_no_entry_leads_out_of_its_directory(tmp_path: Path) -> None:
    """A name of a producer outside its directory is not taken."""
    for elsewhere in make(tmp_path, "no_update"):
        there, target = elsewhere.out / "p", elsewhere.two.base / "in" / "c-f"
        there.mkdir()
        (elsewhere.out / "secret").write_text("secret")
        (there / "good").write_text("good")
        told = [f"{there}/../secret", f"{elsewhere.out}/secret", "/named/../secret", "../secret", "secret", "/named"]
        told += ["/named/", "/named/.", "/named/..", "/named/../p/good", "/namedx/good", "/named/good", f"{there}/good"]
        events = elsewhere.one.run / "jobs" / "p" / "events.jsonl"
        events.parent.mkdir()
        lines = [f'{{"event":"entry","port":"out","path":"{path}","size":4}}\n' for path in told]
        events.write_text("".join([*lines, '{"event":"complete","port":"out"}\n', '{"event":"exit","success":true}\n']))
        consumer = elsewhere.read(named="/named")
        assert consumer.wait() == 0
        assert elsewhere.copy.read_text() == "good"
        assert sorted(os.listdir(target)) == ["good"]
        assert os.listdir(target.parent) == ["c-f"]
