"""Much data, and many files: the memory of `sfio-node` does not grow with them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

from lab.node import Job, Node, output

#: What `exec` and `serve` may have in memory, each. Most of it is the program itself.
MEMORY_BYTES = 16 * 2**20
_SECONDS = 300.0

#: Lets the file argv[1] grow to argv[2] bytes, without a block on disk.
_GROW = """
import os, sys, time
with open(sys.argv[1], "wb") as f:
    for percent in range(1, 101):
        os.truncate(f.fileno(), int(sys.argv[2]) * percent // 100)
        time.sleep(0.01)
"""
#: Writes argv[2] files into the directory argv[1].
_WRITE = """
import sys
for i in range(int(sys.argv[2])):
    with open(f"{sys.argv[1]}/file{i:06}", "w") as f:
        f.write("data")
"""


@dataclass
class Memory:
    """The greatest resident set of processes, in bytes, while they lived."""

    greatest: dict[str, int] = field(default_factory=dict)

    def look(self, name: str, pid: int) -> None:
        """VmHWM never falls, so that the last look before the end of a process sees it all but its last moment."""
        with contextlib.suppress(OSError):
            found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
            if found is not None:
                self.greatest[name] = max(self.greatest.get(name, 0), int(found[1]) * 1024)

    @contextlib.contextmanager
    def watching(self, **processes: int) -> Iterator[None]:
        """Look at processes again and again."""
        done = Event()

        def watch() -> None:
            while not done.wait(0.02):
                for name, pid in processes.items():
                    self.look(name, pid)

        thread = Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def check(self) -> None:
        """:raises AssertionError: if one was greater than :data:`MEMORY_BYTES`, or none was seen"""
        assert self.greatest
        assert max(self.greatest.values()) < MEMORY_BYTES, self.greatest


def stream(running: Node, size: int) -> Memory:
    """Stream a file of `size` bytes to a reader that counts them.

    :raises AssertionError: if the reader did not get them all
    """
    path, fifo, memory = running.base / "out" / "large", running.base / "in" / "large", Memory()
    producer = running.python("p", _GROW, path, str(size), outputs=[output(path.parent, path.name)])
    consumer = running.shell(
        "c", f"dd if={fifo} bs=1M iflag=fullblock of=/dev/null 2> {running.base}/count",
        inputs=[running.stream(producer, path, fifo)],
    )  # fmt: skip
    with memory.watching(serve=running.server.pid, producer=producer.process.pid, consumer=consumer.process.pid):
        assert (producer.wait(_SECONDS), consumer.wait(_SECONDS)) == (0, 0)
    assert f"\n{size} bytes" in (running.base / "count").read_text()
    return memory


def files(running: Node, count: int, kind: str = "files", **rule: Any) -> Memory:
    """Commit `count` files of one job.

    :raises AssertionError: if not all were
    """
    root, memory = running.base / "out" / "tree", Memory()
    root.mkdir()
    watched = output(root.parent, "tree" if kind == "directory" else "tree/*", kind=kind, **rule)
    producer: Job = running.python("p", _WRITE, root, str(count), outputs=[watched])
    with memory.watching(serve=running.server.pid, producer=producer.process.pid):
        assert producer.wait(_SECONDS) == 0
        assert len(producer.commits()) == count
    return memory
